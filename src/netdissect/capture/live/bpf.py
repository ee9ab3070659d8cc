"""Capture filters for a socket of our own: compiled by tcpdump, attached to the socket."""

from __future__ import annotations

import ctypes
import shutil
import socket
import subprocess
from struct import pack

from netdissect.model.errors import FilterError

__all__ = ["attach", "compile_filter"]

_ATTACH_FILTER = 26
"""SO_ATTACH_FILTER. Source: Linux include/uapi/asm-generic/socket.h."""
_RETURN = 6
"""BPF_RET | BPF_K: take so many octets of the packet."""
_ANSWER_SECONDS = 10
_MAX_INSTRUCTIONS = 4096
"""Source: Linux BPF_MAXINSNS."""


def compile_filter(text: str, link: str, snap_octets: int) -> bytes:
    """Return the program of a filter: 8 octets an instruction, as the kernel takes them.

    Args:
        text: the filter in libpcap's language; "" takes everything.
        link: libpcap's name of the link type, such as `EN10MB`.
        snap_octets: octets kept of each packet.

    Raises:
        FilterError: the filter is wrong, or tcpdump is missing and cannot compile it.

    """
    if not text:
        return pack("HBBI", _RETURN, 0, 0, snap_octets)
    path = shutil.which("tcpdump")
    if path is None:
        raise _fault("backend af_packet needs tcpdump installed to compile a capture filter", text)
    answer = subprocess.run(  # noqa: S603 - no shell, and `--` ends the options
        [path, "-y", link, "-s", str(snap_octets), "-ddd", "--", text],
        capture_output=True,
        timeout=_ANSWER_SECONDS,
        check=False,
    )
    if answer.returncode:
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise _fault(f"bad capture filter: {said[-1].removeprefix('tcpdump: ')}", text)
    rows = [tuple(map(int, line.split())) for line in answer.stdout.splitlines()[1:]]
    if len(rows) > _MAX_INSTRUCTIONS:
        raise _fault(f"capture filter is too long: {len(rows)} instructions", text)
    return b"".join(pack("HBBI", *row) for row in rows)


def attach(endpoint: socket.socket, program: bytes) -> None:
    """Have the kernel hand over only what a program takes.

    Raises:
        OSError: the kernel does not take the program.

    """
    octets = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: number of instructions, then a pointer, aligned as C does.
    endpoint.setsockopt(
        socket.SOL_SOCKET, _ATTACH_FILTER, pack("HP", len(program) // 8, ctypes.addressof(octets))
    )


def _fault(reason: str, text: str) -> FilterError:
    return FilterError(reason, text=text, start=0, end=len(text))
