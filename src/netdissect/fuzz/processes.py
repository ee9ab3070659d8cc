"""What Linux tells about a running process."""

from __future__ import annotations

import os
from pathlib import Path

_STATE, _CPU = 2, (13, 14)
"""Indices of the state, and of utime and stime, in /proc/PID/stat, from 0. Source: proc(5)."""

WORK_SECONDS = 1.0
"""How long a process counts as busy after it was seen at work."""


def resident_octets(pid: int | None) -> int | None:
    """Return the resident memory of a process in bytes; None if there is none any more."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    octets = int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    # A zombie has no pages left.
    return octets or None


def is_at_work(pid: int | None) -> bool:
    """Return whether a thread of a process runs, or waits for a processor or a disk."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = _fields(path.read_bytes())[_STATE]
        except OSError:
            continue
        if state in (b"R", b"D"):
            return True
    return False


def cpu_seconds(pid: int | None) -> float | None:
    """Return the processor time of a process in seconds; None if there is none any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return sum(int(_fields(stat)[at]) for at in _CPU) / os.sysconf("SC_CLK_TCK")


def _fields(stat: bytes) -> list[bytes]:
    # The name may contain anything, and ends at the last parenthesis.
    return [b"", b"", *stat[stat.rfind(b")") + 1 :].split()]
