"""Opens and decompresses a capture file, and provides a window of its bytes that the formats parse.

Content never raises: a damaged compressed stream or a failing read ends the bytes, and
`Window.fault` says why.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final

from netdissect.model.errors import CaptureFileError
from netdissect.model.files import open_pinned
from netdissect.system.interrupt import check, wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READ_OCTETS: Final = 64 * 1024
"""Bytes requested in one read. A pipe may return fewer, and does not block until it has them all.
"""

MAX_XZ_MEMORY_OCTETS = 256 * 1024 * 1024
"""Memory that an xz stream may require: `xz -9` needs 65 MiB, but a header can demand 4 GiB."""

ZSTD_FEED_OCTETS: Final = 1024
"""Compressed bytes passed to Zstandard at once. Four bytes can expand to 128 KiB (an RLE block), so
that one output has at most 32 MiB.
"""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
_ZSTD_SKIPPABLE_FIRST: Final = 0x50  # to 0x5F. Source: RFC 8878 section 3.1.2
_MAGIC_OCTETS: Final = 10


class CaptureError(CaptureFileError):
    """The capture is missing, unreadable or not a capture file. Commands exit with status 3."""


_UNPACK: Final = "unpack it first"
_UNREADABLE: Final = {
    _UNPACK: (
        ("a ZIP archive", 0, b"PK\x03\x04"),
        ("a 7z archive", 0, b"7z\xbc\xaf\x27\x1c"),
        ("a RAR archive", 0, b"Rar!\x1a\x07"),
        ("a tar archive", 257, b"ustar"),
        ("a file compressed by lzip", 0, b"LZIP"),
        ("a file compressed by lzop", 0, b"\x89LZO"),
        ("a file compressed by compress", 0, b"\x1f\x9d"),
        ("a file compressed by snappy", 0, b"\xff\x06\x00\x00sNaPpY"),
        ("a file compressed by lzma, the format before xz,", 0, b"\x5d\x00\x00"),
        ("a file compressed twice", 0, _GZIP),
        ("a file compressed twice", 0, _ZSTD),
    ),
    "`editcap FILE NEW.pcapng` converts it": (
        ("the format of snoop", 0, b"snoop\0\0\0"),
        ("the format of Network Monitor", 0, b"RTSS"),
        ("the format of Network Monitor", 0, b"GMBU"),
        ("the format of Sniffer", 0, b"TRSNIFF data"),
        ("the format of NetXRay", 0, b"XCP\0"),
        ("the format of iptrace", 0, b"iptrace "),
    ),
}
"""Formats that cannot be read: advice -> (description, offset, bytes at that offset). A compressed
file is checked after decompression. Source of the latter ones: wiretap/*.c of Wireshark.
"""
_LOOKED_AT: Final = 262
"""Number of leading bytes that suffice to check all of them."""


class _DamagedError(Exception):
    """A compressed stream cannot be read further."""


class Window:
    """The bytes that were read but not consumed yet, and their offset in the decompressed file."""

    __slots__ = ("_chunks", "base", "compression", "data", "fault", "pos", "raw")

    def __init__(self, raw: RawInput, chunks: Iterator[bytes], compression: str) -> None:
        self.raw = raw
        self.compression = compression
        """`""`, `gz`, `zst`, `xz`, `bz2` or `lz4`."""
        self._chunks = chunks
        self.data = b""
        """Bytes that were read."""
        self.pos = 0
        """Index of the first byte of `data` that was not consumed."""
        self.base = 0
        """Offset of `data[0]` in the decompressed file."""
        self.fault: str | None = None
        """Why the bytes ended early; None if they did not."""

    @property
    def offset(self) -> int:
        """Return the offset of the first byte that was not consumed."""
        return self.base + self.pos

    @property
    def left(self) -> int:
        """Return the number of bytes that were read but not consumed."""
        return len(self.data) - self.pos

    def fill(self, need: int) -> bool:
        """Read until `need` bytes can be consumed; return False if the file ends before."""
        have = self.left
        pieces = [self.data[self.pos :]] if have else []
        self.base += self.pos
        while have < need:
            chunk = self._next()
            if not chunk:
                break
            pieces.append(chunk)
            have += len(chunk)
        self.data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.pos = 0
        return have >= need

    def _next(self) -> bytes:
        try:
            return next(self._chunks, b"")
        except (_DamagedError, OSError) as error:
            self.fault = getattr(error, "strerror", None) or str(error)
        return b""


class RawInput:
    """The underlying file, with a count of the bytes read. Each `read` is one system call, and
    returns what is available.
    """

    __slots__ = ("_fd", "_file", "_owned", "_read", "position", "total")

    def __init__(self, file: IO[bytes], *, owned: bool) -> None:
        self._file = file
        self._owned = owned
        self._read: Callable[[int], bytes | None] = getattr(file, "read1", file.read)
        self.position = 0
        """Bytes read of the underlying file."""
        self._fd, self.total = _size(file)
        """`_fd`: descriptor, or -1; `total`: size of the file in bytes, or None for a pipe."""

    def read(self) -> bytes:
        """Return the next bytes, at most READ_OCTETS; b"" at the end."""
        if self.total is None and self._fd >= 0:
            wait(self._fd)
        check()
        data = self._read(READ_OCTETS) or b""
        self.position += len(data)
        return data

    def close(self) -> None:
        """Close the file if it was opened here."""
        if self._owned:
            self._file.close()


def open_window(source: str | os.PathLike[str] | IO[bytes]) -> Window:
    """Open a path, `-` for standard input, or a binary file, and decompress it if necessary.

    Raises:
        CaptureError: the file is missing or unreadable.

    """
    raw: RawInput | None = None
    try:
        raw = _open(source)
        return _window(raw)
    except BaseException as error:
        if raw is not None:
            raw.close()
        if isinstance(error, (OSError, ValueError)):
            raise CaptureError(getattr(error, "strerror", None) or str(error)) from error
        raise


def _window(raw: RawInput) -> Window:
    """Return the window of a file, decompressed as its first bytes demand."""
    head = raw.read()
    # A pipe may deliver the first bytes one by one.
    while len(head) < _MAGIC_OCTETS:
        more = raw.read()
        if not more:
            break
        head += more
    if head[:2] == _GZIP:
        return Window(raw, _gunzip(head, raw), "gz")
    if head[:4] == _ZSTD or (
        head[1:4] == _ZSTD_SKIPPABLE and head[0] & 0xF0 == _ZSTD_SKIPPABLE_FIRST
    ):
        return Window(raw, _unzstd(head, raw), "zst")
    for name, magic, make in _STREAMED:
        if head.startswith(magic):
            # The decompressor is created at once, so that a missing library is reported on opening.
            return Window(raw, _members(head, raw, name, make, make()), name)
    return Window(raw, _chunks(head, raw), "")


def why_not(window: Window, path: str) -> str:
    """Return why a file is not a capture."""
    window.fill(_LOOKED_AT)
    if window.fault is not None:
        return window.fault
    if not window.left:
        return "file is empty"
    data = window.data
    for advice, rows in _UNREADABLE.items():
        for name, at, magic in rows:
            if data.startswith(magic, at):
                return f"{name} is not read; {advice}"
    if path.endswith(".br"):  # Brotli has no magic number
        return f"a file compressed by Brotli is not read; {_UNPACK}"
    return f"not a capture file (starts with {data[:8].hex(' ')})"


def _open(source: str | os.PathLike[str] | IO[bytes]) -> RawInput:
    if isinstance(source, (str, os.PathLike)):
        if os.fspath(source) == "-":
            return RawInput(sys.stdin.buffer, owned=False)
        return RawInput(open_pinned(source), owned=True)
    return RawInput(source, owned=False)


def _size(file: IO[bytes]) -> tuple[int, int | None]:
    try:
        fd = file.fileno()
        status = os.fstat(fd)
    except (OSError, AttributeError, ValueError):
        return -1, None
    return fd, status.st_size if stat.S_ISREG(status.st_mode) else None


def _chunks(head: bytes, raw: RawInput) -> Iterator[bytes]:
    while head:
        yield head
        head = raw.read()


def _gunzip(head: bytes, raw: RawInput) -> Iterator[bytes]:
    """Yield the bytes of all members. As in gzip, zero bytes after the last member are padding."""
    # 15 for the window plus 16 for a gzip header. Source: zlib.h, inflateInit2.
    member = zlib.decompressobj(wbits=31)
    for chunk in _chunks(head, raw):
        rest = chunk
        while rest:
            if member.eof:
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                member = zlib.decompressobj(wbits=31)
            try:
                # Limited, because a few bytes may expand to a large output.
                out = member.decompress(rest, READ_OCTETS)
            except zlib.error as error:
                raise _DamagedError(f"gzip data damaged: {error}") from error
            rest = member.unused_data if member.eof else member.unconsumed_tail
            if out:
                yield out
    if not member.eof:
        raise _DamagedError("gzip data cut short")


def _unzstd(head: bytes, raw: RawInput) -> Iterator[bytes]:
    """Yield the bytes of all frames."""
    import zstandard  # noqa: PLC0415 - heavy, and only some files need it

    context = zstandard.ZstdDecompressor()
    frame = context.decompressobj()
    for chunk in _chunks(head, raw):
        for start in range(0, len(chunk), ZSTD_FEED_OCTETS):
            rest = chunk[start : start + ZSTD_FEED_OCTETS]
            while rest:
                if frame.eof:
                    frame = context.decompressobj()
                try:
                    out = frame.decompress(rest)
                except zstandard.ZstdError as error:
                    raise _DamagedError(f"zstd data damaged: {error}") from error
                rest = frame.unused_data if frame.eof else b""
                if out:
                    yield out
    if not frame.eof:
        raise _DamagedError("zstd data cut short")


def _xz() -> Any:
    import lzma  # noqa: PLC0415 - only some files need it

    return lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY_OCTETS)


def _bz2() -> Any:
    import bz2  # noqa: PLC0415 - only some files need it

    return bz2.BZ2Decompressor()


def _lz4() -> Any:
    try:
        frame = import_module("lz4.frame")  # an extra
    except ModuleNotFoundError:
        raise CaptureError("compressed by lz4; pip install 'netdissect[lz4]' reads it") from None
    return frame.LZ4FrameDecompressor()


_STREAMED: Final[tuple[tuple[str, bytes, Callable[[], Any]], ...]] = (
    ("xz", b"\xfd7zXZ\x00", _xz),
    ("bz2", b"BZh", _bz2),
    ("lz4", b"\x04\x22\x4d\x18", _lz4),
)
"""(name, magic number, creator of a decompressor with the interface of Python's own ones)."""


def _members(
    head: bytes, raw: RawInput, name: str, make: Callable[[], Any], first: Any
) -> Iterator[bytes]:
    member = first
    for chunk in _chunks(head, raw):
        rest = chunk
        # The decompressor may have more output for the bytes it already has.
        while rest or not (member.eof or member.needs_input):
            if member.eof:
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                member = make()
            try:
                out = member.decompress(rest, READ_OCTETS)
            except Exception as error:
                # Each library has its own exception for damage.
                raise _DamagedError(f"{name} data damaged: {error}") from error
            rest = member.unused_data or b"" if member.eof else b""
            if out:
                yield out
    if not member.eof:
        raise _DamagedError(f"{name} data cut short")
