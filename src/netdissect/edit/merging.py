"""Merges captures in order of time."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from netdissect.capture.blocks import INTERFACE, PACKET, SECTION, Block, BlockReader
from netdissect.capture.writer import BlockWriter
from netdissect.edit.plain import Plain, section_header


@dataclass(slots=True)
class Merged:
    """Counts of what was written."""

    frames: int = 0
    interfaces: int = 0
    disordered: int = 0
    """Frames older than the frame before them, because their own file has them in this order."""
    untimed: int = 0
    """Frames without a timestamp, which are written with the time of the frame before them."""
    left_out: int = 0
    """Blocks that belong to no frame and no interface, such as names and secrets."""


def merge(
    readers: Sequence[tuple[str, BlockReader]], target: str | os.PathLike[str] | IO[bytes]
) -> Merged:
    """Write the frames of several captures as one pcapng file, oldest first.

    Each frame keeps its interface, its exact time and its options. The frames of one file stay in
    their order even if their times do not increase. A frame without a timestamp is written with
    the time of the frame before it in its file, and a comment that says so.

    Args:
        readers: (path, open capture) of each; afterwards `damage` says which were damaged.
        target: a path, `-` for standard output, or an open binary file.

    Raises:
        OSError: the target cannot be written; what was written ends with a whole block.

    """
    done = Merged()
    writers = [Plain(Path(path).name) for path, _ in readers]
    streams = [_timed(reader, place) for place, (_, reader) in enumerate(readers)]
    newest = 0
    with BlockWriter(target) as writer:
        writer.write(section_header())
        # The key leaves out blocks, which do not compare; at equal times the first file wins.
        for time_ns, place, block in heapq.merge(*streams, key=lambda item: item[:2]):
            plain = writers[place]
            if block.kind == SECTION:
                plain.section()
                # The header of a pcap file also describes its only interface.
                if readers[place][1].is_pcap:
                    writer.write(plain.of_pcap(block, done.interfaces))
                    done.interfaces += 1
                continue
            raw = plain.rewrite(block, done.interfaces)
            done.interfaces += block.kind == INTERFACE
            if block.kind == PACKET:
                done.frames += 1
                done.untimed += not block.timed
                done.disordered += time_ns < newest
                newest = max(newest, time_ns)
            if raw:
                writer.write(raw)
    done.left_out = sum(plain.dropped for plain in writers)
    return done


def _timed(reader: BlockReader, place: int) -> Iterator[tuple[int, int, Block]]:
    """Yield blocks with their sort key; a block that is no frame has the time of the frame before
    it.
    """
    now_ns = 0
    for block in reader:
        if block.kind == PACKET:
            now_ns = block.time_ns
        yield now_ns, place, block
