"""A part of a capture, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import pack_into
from typing import IO

from netdissect.capture.blocks import PACKET, SECTION, Block, BlockReader
from netdissect.capture.writer import BlockWriter

_SECTION_LENGTH = 16
_UNKNOWN_LENGTH = -1


def slice_capture(
    reader: BlockReader, target: str | os.PathLike[str] | IO[bytes], wanted: Callable[[Block], bool]
) -> tuple[int, int]:
    """Write the frames that are wanted, in the same format, and all blocks that are no frames.

    Bytes, times, lengths, interfaces and options stay as they are. Only the length that a section
    of pcapng may declare is removed, because it is no longer correct.

    Args:
        reader: the open capture; afterwards `damage` says whether it was damaged.
        target: a path, `-` for standard output, or an open binary file.
        wanted: returns whether to write the block of a frame.

    Returns:
        (frames read, frames written).

    Raises:
        OSError: the target cannot be written; what was written ends with a whole record.

    """
    read = written = 0
    with BlockWriter(target) as writer:
        for block in reader:
            if block.kind == PACKET:
                read += 1
                if not wanted(block):
                    continue
                written += 1
            writer.write(unmeasured(block) if block.kind == SECTION else block.raw)
    return read, written


def unmeasured(block: Block) -> bytes:
    """Return a section header without the length of its section."""
    if len(block.raw) < _SECTION_LENGTH + 8 or block.raw[:4] != b"\x0a\x0d\x0d\x0a":
        return block.raw
    raw = bytearray(block.raw)
    pack_into(f"{block.order}q", raw, _SECTION_LENGTH, _UNKNOWN_LENGTH)
    return bytes(raw)
