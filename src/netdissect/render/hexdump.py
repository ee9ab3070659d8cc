"""Bytes as rows of offset, hexadecimal digits and characters."""

from __future__ import annotations

from collections.abc import Iterator

from netdissect.render.console import Line

_WIDE_ROW = 16
_NARROW_ROW = 8
_ROW_COLUMNS = 6 + 3 * _WIDE_ROW + 1 + 2 + _WIDE_ROW


def hex_rows(data: bytes, *, width: int, mark: tuple[int, int] | None = None) -> Iterator[Line]:
    """Yield the rows of a hex dump: 16 bytes each, or 8 on a narrow screen.

    Args:
        data: bytes to show.
        width: columns of the screen.
        mark: half-open range of bytes to highlight, in brackets and reverse video.

    """
    size = _WIDE_ROW if width >= _ROW_COLUMNS else _NARROW_ROW
    first, last = mark or (0, 0)
    for start in range(0, len(data), size):
        row = data[start : start + size]
        line: Line = [(f"{start:04x} ", "offset")]
        for index, octet in enumerate(row, start=start):
            inside = first <= index < last
            opened = inside and index in {first, start}
            closed = first <= index - 1 < last and index - 1 >= start and not inside
            gap = "[" if opened else "]" if closed else " "
            line += [
                (gap, "mark" if inside or closed else ""),
                (f"{octet:02x}", "mark" if inside else ""),
            ]
        ends = first <= start + len(row) - 1 < last
        line.append(("]" if ends else " ", ""))
        line.append(("   " * (size - len(row)) + " ", ""))
        line.append(("".join(chr(octet) if 32 <= octet < 127 else "." for octet in row), "dim"))  # noqa: PLR2004 - printable ASCII
        yield line
