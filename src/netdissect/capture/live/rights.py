"""Gives up the rights that are needed only for opening an interface."""

from __future__ import annotations

import ctypes
import os
import pwd
from struct import pack

from netdissect.capture.live.choice import has_capability
from netdissect.model.errors import NetdissectError, UsageError
from netdissect.model.text import quoted
from netdissect.system.accounts import NOBODY, Account, account_named, caller
from netdissect.system.sandbox import permitted

_NO_NEW_PRIVILEGES = 38
"""PR_SET_NO_NEW_PRIVS. Source: prctl(2)."""
_CAPABILITY_VERSION = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3. Source: capset(2)."""
_WRITE_ANYWHERE = 1 << 1
"""CAP_DAC_OVERRIDE. Source: linux/capability.h."""


def successor(name: str | None = None) -> Account | None:
    """Return the account that root changes to before it parses: that of `name`, or else of the
    caller of `sudo`, or else `nobody`. None if this process is not root.

    Args:
        name: name or number of a user; None = not specified.

    Raises:
        UsageError: there is no such user, it is root, or this process is not root.

    """
    if os.geteuid() != 0:
        if name is not None:
            raise UsageError("--user is for root: nobody else can become another user")
        return None
    if name is None:
        nobody = account_named("nobody") or Account(NOBODY, NOBODY)
        return caller() or nobody._replace(owns_files=False)
    found = account_named(name)
    if found is None:
        raise UsageError(f"there is no user {quoted(name)} on this machine")
    if found.user == 0:
        raise UsageError("--user names root: who parses must not be root")
    return found


def drop_rights(account: Account | None) -> str:
    """Change to another user and drop all capabilities. A process that only uses netdissect as a
    library keeps its rights.

    Args:
        account: the account that root changes to; None if this process is not root.

    Returns:
        What was done, in a few words; "" if there was nothing to give up.

    Raises:
        NetdissectError: the rights could not be given up.

    """
    if not permitted():
        return ""
    if account is None:
        if has_capability("CapPrm"):
            _set_capabilities(0)
        return ""
    # Groups first: afterwards it has no right to change them.
    try:
        os.setgroups(account.groups)
        os.setresgid(account.group, account.group, account.group)
        os.setresuid(account.user, account.user, account.user)
    except OSError as error:
        raise NetdissectError(f"cannot become user {account.user}: {error.strerror}") from error
    _set_capabilities(0)
    return f"running as user {_name(account)}: root was needed only to open the interface"


def keep_files() -> None:
    """Drop all capabilities but that of creating files anywhere, for a process that only writes."""
    _set_capabilities(_WRITE_ANYWHERE)


def _name(account: Account) -> str:
    try:
        return f"{account.user} ({pwd.getpwuid(account.user).pw_name})"
    except KeyError:
        return str(account.user)


def _set_capabilities(kept: int) -> None:
    """Reduce the capability sets of this process; programs that it starts cannot gain any."""
    library = ctypes.CDLL(None, use_errno=True)
    # Effective, permitted, inheritable: the lower words of the three, then the upper ones.
    header, sets = pack("Ii", _CAPABILITY_VERSION, 0), pack("6I", kept, kept, 0, 0, 0, 0)
    if library.capset(header, sets):
        raise NetdissectError(f"cannot give up rights: {os.strerror(ctypes.get_errno())}")
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
