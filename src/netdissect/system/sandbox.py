"""Confines a process that reads a capture: no sockets, no other programs, no other processes.

This uses a filter of system calls (seccomp), which only Linux has. On other systems, or if the
kernel refuses it, the process is not confined. The filter applies to this process and its forks
until they end.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from struct import pack

OFF = "NETDISSECT_UNCONFINED"
"""Environment variable that switches this off if it is set to anything but 0."""
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
"""PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER. Source: prctl(2)."""
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
"""SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO. Source: linux/seccomp.h."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""BPF_LD+W+ABS, BPF_JMP+JEQ+K, BPF_JMP+JGE+K, BPF_RET+K. Source: linux/bpf_common.h."""
_OTHER_ABI = 0x4000_0000
"""First system call of x32. Source: asm/unistd.h, __X32_SYSCALL_BIT."""
_CALLS = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "execve": (59, 221),
    "execveat": (322, 281), "ptrace": (101, 117), "mount": (165, 40), "kexec_load": (246, 104),
    "init_module": (175, 105), "finit_module": (313, 273), "keyctl": (250, 219),
    "unshare": (272, 97), "perf_event_open": (298, 241), "setns": (308, 268),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "bpf": (321, 280),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "pidfd_getfd": (438, 438),
}  # fmt: skip
"""Refused system call -> its number on x86-64 and on arm64. Source: asm/unistd.h. io_uring could
also create sockets, and pidfd_getfd copy those of another process.
"""
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> (column above, AUDIT_ARCH). Source: linux/audit.h."""
_permitted = False
_confined = False


def permit() -> None:
    """Note that this process is one of our commands, and not a program that uses our library."""
    global _permitted  # noqa: PLW0603 - one process, one answer
    _permitted = True


def permitted() -> bool:
    """Return whether this process is one of our commands, and may give up rights for good."""
    return _permitted


def available() -> bool:
    """Return whether the system can confine a process."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    known = machine in _MACHINES and sys.maxsize > 1 << 32
    return known and Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def active() -> bool:
    """Return whether `confine` has confined this process or the one that it was forked from."""
    # The kernel cannot be asked: in containers every process has a filter, but a lenient one.
    return _confined


def confine() -> bool:
    """Confine this process, and return whether it is confined.

    It is not if the system cannot do it, the user has switched it off, or the process is not one of
    our commands.
    """
    global _confined  # noqa: PLW0603 - one process, one answer
    if _confined:
        return True
    if not _permitted or os.environ.get(OFF, "0") != "0" or not available():
        return False
    import ctypes  # noqa: PLC0415 - keeps `--help` fast

    octets = _filter(*_MACHINES[os.uname().machine])
    held = ctypes.create_string_buffer(octets, len(octets))
    # struct sock_fprog: number of instructions, and pointer to them.
    program = pack("HxxxxxxQ", len(octets) // 8, ctypes.addressof(held))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    _confined = not library.prctl(_SET_SECCOMP, _FILTER, program, 0, 0)
    return _confined


def _filter(column: int, machine: int) -> bytes:
    """Return the filter, with 8 bytes per instruction (code, jump if true, if false, operand)."""
    refused = [numbers[column] for numbers in _CALLS.values()]
    end = len(refused) + 5
    rows = [(_LOAD, 0, 0, 4), (_EQUAL, 0, end - 2, machine), (_LOAD, 0, 0, 0)]
    rows.append((_AT_LEAST, end - 4, 0, _OTHER_ABI))
    rows += [(_EQUAL, end - len(rows) - 1 - index, 0, number)
             for index, number in enumerate(refused)]  # fmt: skip
    rows += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    return b"".join(pack("=HBBI", *row) for row in rows)
