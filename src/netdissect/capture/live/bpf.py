"""Capture filters for an AF_PACKET socket: compiled by tcpdump or libpcap."""

from __future__ import annotations

import ctypes
import socket
from struct import pack

from netdissect.model.errors import FilterError
from netdissect.system.programs import answer, find

_ATTACH_FILTER = 26
"""SO_ATTACH_FILTER. Source: Linux include/uapi/asm-generic/socket.h."""
_RETURN = 6
"""BPF_RET | BPF_K: accept that many bytes of the packet."""
_ANSWER_SECONDS = 10  # time for tcpdump to compile a filter
_MAX_INSTRUCTIONS = 4096
"""Source: Linux BPF_MAXINSNS."""
_INSTRUCTION_OCTETS = 8  # struct sock_filter
_NO_NETMASK = 0xFFFFFFFF
"""PCAP_NETMASK_UNKNOWN. Source: pcap_compile(3PCAP)."""
_LIBRARIES = ("libpcap.so.1", "libpcap.so.0.8", "libpcap.so")
_LINK_NUMBERS = {"EN10MB": 1, "RAW": 12}
"""DLT_EN10MB and, on Linux, DLT_RAW. Source: libpcap pcap/dlt.h."""


def compile_filter(text: str, link: str, snap_octets: int) -> bytes:
    """Return the compiled program of a filter, with 8 bytes per instruction.

    Args:
        text: the filter in libpcap's syntax; "" accepts everything.
        link: libpcap's name of the link type, such as `EN10MB`.
        snap_octets: bytes captured of each packet.

    Raises:
        FilterError: the filter is wrong, or neither tcpdump nor libpcap is installed.

    """
    if not text:
        # struct sock_filter: code, two jumps, a value.
        return pack("HBBI", _RETURN, 0, 0, snap_octets)
    path = find("tcpdump")
    if path is None:
        program = _by_library(text, link, snap_octets)
    else:
        program = _by_tcpdump(path, text, link, snap_octets)
    if len(program) > _MAX_INSTRUCTIONS * _INSTRUCTION_OCTETS:
        raise _fault(f"capture filter is too long: {len(program) // 8} instructions", text)
    return program


def _by_tcpdump(path: str, text: str, link: str, snap_octets: int) -> bytes:
    # `--` ends the options.
    words = [path, "-y", link, "-s", str(snap_octets), "-ddd", "--", text]
    told = answer(words, _ANSWER_SECONDS)
    if told.returncode:
        said = told.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise _fault(f"bad capture filter: {said[-1].removeprefix('tcpdump: ')}", text)
    # The first line is the number of instructions.
    rows = [tuple(map(int, line.split())) for line in told.stdout.splitlines()[1:]]
    return b"".join(pack("HBBI", *row) for row in rows)


class _Program(ctypes.Structure):
    """struct bpf_program: number of instructions, and pointer to them."""

    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


def _by_library(text: str, link: str, snap_octets: int) -> bytes:
    library = _library()
    if library is None:
        raise _fault("backend af_packet needs tcpdump or libpcap to compile a capture filter", text)
    # By default ctypes would cut pointers off at 32 bits.
    library.pcap_open_dead.restype = ctypes.c_void_p
    library.pcap_geterr.restype = ctypes.c_char_p
    handle = ctypes.c_void_p(library.pcap_open_dead(_LINK_NUMBERS[link], snap_octets))
    program = _Program()
    try:
        # 1: optimise the program, as tcpdump does.
        if library.pcap_compile(
            handle, ctypes.byref(program), text.encode(), 1, ctypes.c_uint(_NO_NETMASK)
        ):
            said = bytes(library.pcap_geterr(handle)).decode("utf-8", "replace")
            raise _fault(f"bad capture filter: {said}", text)
        size = program.length * _INSTRUCTION_OCTETS
        found = ctypes.string_at(program.instructions, size) if program.instructions else b""
        library.pcap_freecode(ctypes.byref(program))
    finally:
        library.pcap_close(handle)
    return found


def _library() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def attach(endpoint: socket.socket, program: bytes) -> None:
    """Make the kernel deliver only the packets that a program accepts.

    Raises:
        OSError: the kernel rejects the program.

    """
    octets = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: number of instructions, then a pointer, aligned as C does.
    endpoint.setsockopt(
        socket.SOL_SOCKET, _ATTACH_FILTER, pack("HP", len(program) // 8, ctypes.addressof(octets))
    )


def _fault(reason: str, text: str) -> FilterError:
    return FilterError(reason, text=text, start=0, end=len(text))
