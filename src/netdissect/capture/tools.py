"""Checks of the capture programs on this machine and of the rights of this user, for `doctor`."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from netdissect.capture.live.choice import CAPABILITIES, choose, has_capability, survey
from netdissect.system import sandbox
from netdissect.system.programs import answer, find

_PACKAGES = ("scapy", "click", "rich", "pyshark", "zstandard")
_PROGRAMS = {
    "tshark": "verify, and reading files with --backend tshark",
    "dumpcap": "live capture without handing this program any rights",
    "tcpdump": "live capture where dumpcap is missing",
}
_ANSWER_SECONDS = 10
"""Time for a program to print its version."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    """What was checked."""
    good: bool | None
    """True: fine; False: something is missing; None: information only."""
    text: str
    """The result."""
    remedy: str = ""
    """Lines to paste into a shell; "" if there is nothing to do."""


def package_versions() -> list[Check]:
    """Return the versions of Python and of the packages used."""
    found = [Check("python", None, f"{platform.python_version()} ({sys.executable})")]
    for name in _PACKAGES:
        try:
            found.append(Check(name, True, version(name)))
        except PackageNotFoundError:
            found.append(Check(name, False, "not installed", f"pip install {name}"))
    return found


def checks() -> list[Check]:
    """Return the results of all checks, in a fixed order."""
    programs = [_program(name, use) for name, use in _PROGRAMS.items()]
    path = find("dumpcap")
    rights = [_own_rights(), *([] if path is None else [_dumpcap_rights(path)])]
    return [*package_versions(), *programs, *rights, _sandbox(), *_backends()]


def _program(name: str, use: str) -> Check:
    path = find(name)
    if path is None:
        package = "wireshark-common" if name == "dumpcap" else name
        remedy = f"sudo apt-get install {package}"
        return Check(name, False, f"not found; needed for {use}", remedy)
    return Check(name, True, f"{_first_line(path)} ({path})")


def _first_line(path: str) -> str:
    try:
        told = answer([path, "--version"], _ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"gives no version ({error})"
    text = (told.stdout or told.stderr).decode("utf-8", "replace").strip()
    # Wireshark's programs add the commit that they were built from.
    return re.sub(r" \(Git [^)]*\)\.?", "", text.splitlines()[0]) if text else "gives no version"


def _own_rights() -> Check:
    able = has_capability()
    if os.geteuid() == 0 and not able:
        return Check("rights", False, "root without CAP_NET_RAW: may not capture")
    if os.geteuid() == 0:
        return Check("rights", True, "root: may capture; parses as who called sudo, else as nobody")
    if able:
        return Check("rights", True, "this process has CAP_NET_RAW")
    return Check("rights", None, "no right to open an interface itself; dumpcap's rights count")


def _sandbox() -> Check:
    if os.environ.get(sandbox.OFF, "0") != "0":
        return Check("sandbox", None, f"switched off by {sandbox.OFF}")
    if not sandbox.available():
        return Check("sandbox", None, "this system has no seccomp filters: reading is not confined")
    text = "seccomp: reading opens no socket and starts no program, but where tshark is asked for"
    return Check("sandbox", True, text)


def _dumpcap_rights(path: str) -> Check:
    remedy = (
        f"sudo groupadd -f wireshark\nsudo chgrp wireshark {path}\nsudo chmod 750 {path}\n"
        f"sudo setcap {CAPABILITIES} {path}\n"
        "sudo usermod -aG wireshark $USER   # then log in again"
    )
    if not os.access(path, os.X_OK):
        return Check("dumpcap rights", False, "this user may not run it", remedy)
    if os.geteuid() == 0 and has_capability():
        return Check("dumpcap rights", True, "run by root")
    try:
        os.getxattr(path, "security.capability")
    except OSError:
        text = "it has no capabilities, so it cannot capture"
        return Check("dumpcap rights", False, text, remedy)
    return Check("dumpcap rights", True, "it has capabilities of its own")


def _backends() -> list[Check]:
    """Return which capture backends are usable and why, and which of them `sniff` uses."""
    best = choose(None)[0]
    return [
        *(Check(f"by {found.name}", found.usable or None, found.reason) for found in survey()),
        Check("capture backend", best.usable, best.name if best.usable else "none can be used"),
    ]
