"""Gives up the rights that only opening an interface needs."""

from __future__ import annotations

import ctypes
import os
import pwd
from collections.abc import Mapping
from struct import pack

from netdissect.capture.live.choice import has_capability
from netdissect.model.errors import NetdissectError

__all__ = ["drop_rights"]

_NO_NEW_PRIVILEGES = 38
"""PR_SET_NO_NEW_PRIVS. Source: prctl(2)."""
_CAPABILITY_VERSION = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3. Source: capset(2)."""


def drop_rights(environ: Mapping[str, str] | None = None) -> str:
    """Become the user who called `sudo`, without capabilities, and return what was done in a few
    words; "" where there was nothing to give up.

    Root whom nobody called stays root.

    Raises:
        NetdissectError: the rights could not be given up.

    """
    environ = os.environ if environ is None else environ
    if os.geteuid() != 0:
        if has_capability("CapPrm"):
            _clear_capabilities()
        return ""
    user, group = _caller(environ)
    if user is None or group is None:
        return "running as root: SUDO_UID and SUDO_GID name nobody to become"
    try:
        try:
            os.initgroups(pwd.getpwuid(user).pw_name, group)
        except KeyError:
            os.setgroups([group])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    except OSError as error:
        raise NetdissectError(f"cannot become user {user}: {error.strerror}") from error
    _clear_capabilities()
    return f"running as user {user}: root was needed only to open the interface"


def _caller(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return (user, group) of who called `sudo`; None where it was not called, or by root."""
    user, group = environ.get("SUDO_UID", ""), environ.get("SUDO_GID", "")
    if not (user.isdecimal() and group.isdecimal()) or int(user) == 0:
        return None, None
    return int(user), int(group)


def _clear_capabilities() -> None:
    """Empty the capability sets of this process, and let no program that it starts gain any."""
    library = ctypes.CDLL(None, use_errno=True)
    header, sets = pack("Ii", _CAPABILITY_VERSION, 0), pack("6I", *[0] * 6)
    if library.capset(header, sets):
        raise NetdissectError(f"cannot give up rights: {os.strerror(ctypes.get_errno())}")
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
