"""Finds the capture backends that this user can use on this machine."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from netdissect.model.errors import AccessError, UsageError
from netdissect.system.programs import find

BACKENDS = ("dumpcap", "tcpdump", "af_packet", "tshark")
"""In order of preference. dumpcap and tcpdump come first, because with them this process needs no
rights. tshark is used only on request.
"""
CAPABILITIES = "cap_net_raw,cap_net_admin=ep"
"""Capabilities for capturing, in the syntax of `setcap`. Source: capabilities(7), pcap(3PCAP)."""

_NET_RAW = 13
"""CAP_NET_RAW. Source: capabilities(7)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one backend can be used."""

    name: str
    path: str | None
    """The program; None if it is missing or not needed."""
    usable: bool
    reason: str
    """Why, in a few words."""


def survey() -> list[Verdict]:
    """Return the verdicts on all backends, in order of preference."""
    return [_look(name) for name in BACKENDS]


def choose(forced: str | None) -> list[Verdict]:
    """Return the backends to try, best first: the requested one, or those that seem usable.

    If none seems usable, return the first that is installed: its own error message explains best
    why it cannot capture.

    Raises:
        UsageError: the requested backend is not installed.

    """
    if forced is not None:
        found = _look(forced)
        if found.path is None and forced != "af_packet":
            raise UsageError(f"{forced} is not installed; `netdissect doctor` says how to get it")
        return [found]
    candidates = [found for found in survey() if found.name != "tshark"]
    usable = [found for found in candidates if found.usable]
    installed = [found for found in candidates if found.path or found.name == "af_packet"]
    return usable or installed[:1]


def refusal(interface: str, backend: Verdict, reason: str) -> AccessError:
    """Return the error for a missing right to capture, with the command that grants it."""
    program = backend.path or os.path.realpath(sys.executable)
    if backend.name == "tshark":  # tshark captures through dumpcap
        program = find("dumpcap") or program
    return AccessError(
        f"no right to capture on {interface}: {reason}. "
        f"To grant it: sudo setcap {CAPABILITIES} {program}"
    )


def has_capability(kind: str = "CapEff") -> bool:
    """Return whether CAP_NET_RAW is in a capability set of this process."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    sets = [line.split()[1] for line in lines if line.startswith(f"{kind}:")]
    return bool(sets) and bool(int(sets[0], 16) >> _NET_RAW & 1)


def _look(name: str) -> Verdict:
    if name == "af_packet":
        able = has_capability() and sys.platform == "linux"
        return Verdict(name, None, able, f"this process has {'' if able else 'no '}CAP_NET_RAW")
    # Also find a program that this user may not run, such as dumpcap on Debian.
    path = find(name) or find(name, runnable=False)
    if path is None:
        return Verdict(name, None, usable=False, reason="not installed")
    if not os.access(path, os.X_OK):
        return Verdict(name, path, usable=False, reason="this user may not run it")
    # tshark captures through dumpcap.
    rights = _rights_of((find("dumpcap") or path) if name == "tshark" else path)
    return Verdict(name, path, bool(rights), rights or "has no rights of its own")


def _rights_of(path: str) -> str:
    """Return why a program can capture when this user runs it; "" if it cannot."""
    if os.geteuid() == 0 and has_capability():
        return "run by root"
    if has_capability("CapAmb"):
        return "inherits CAP_NET_RAW"
    return "has rights of its own" if _privileged(path) else ""


def _privileged(path: str) -> bool:
    """Return whether a program has file capabilities, or is set-user-ID root."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows links, as exec does
        if status.st_mode & stat.S_ISUID and status.st_uid == 0:
            return True
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False
