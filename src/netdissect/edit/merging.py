"""Several captures as one, in order of time."""

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

__all__ = ["Merged", "merge"]


@dataclass(slots=True)
class Merged:
    """What was written."""

    frames: int = 0
    interfaces: int = 0
    disordered: int = 0
    """Frames that are older than the one before them, because their own file has them so."""
    left_out: int = 0
    """Blocks that belong to no frame and no interface, such as names and secrets."""


def merge(
    readers: Sequence[tuple[str, BlockReader]], target: str | os.PathLike[str] | IO[bytes]
) -> Merged:
    """Write the frames of several captures as one pcapng file, oldest first.

    Each keeps its interface, its time to the tick and its options. A file that is not in order of
    time itself stays in its own order.

    Args:
        readers: (path, open capture) of each; `damage` says afterwards which were whole.
        target: a path, `-` for standard output, or an open binary file.

    Raises:
        OSError: the target cannot be written; what is there ends with a whole block.

    """
    done = Merged()
    writers = [Plain(Path(path).name) for path, _ in readers]
    streams = [_timed(reader, place) for place, (_, reader) in enumerate(readers)]
    newest = 0
    with BlockWriter(target) as writer:
        writer.write(section_header())
        # Blocks do not compare: of one time, the first file's goes first.
        for time_ns, place, block in heapq.merge(*streams, key=lambda item: item[:2]):
            plain = writers[place]
            if block.kind == SECTION:
                plain.section()
                continue
            # A pcap file describes no interface; its first frame needs one.
            if readers[place][1].is_pcap and block.frame == 1:
                nanosecond = readers[place][1].nanosecond
                writer.write(plain.of_pcap(block.link, done.interfaces, nanosecond=nanosecond))
                done.interfaces += 1
            raw = plain.rewrite(block, done.interfaces)
            done.interfaces += block.kind == INTERFACE
            if block.kind == PACKET:
                done.frames += 1
                done.disordered += time_ns < newest
                newest = max(newest, time_ns)
            if raw:
                writer.write(raw)
    done.left_out = sum(plain.dropped for plain in writers)
    return done


def _timed(reader: BlockReader, place: int) -> Iterator[tuple[int, int, Block]]:
    """Yield blocks with the time to order them by: what is no frame goes with the frame before."""
    now_ns = 0
    for block in reader:
        now_ns = max(now_ns, block.time_ns)
        yield (block.time_ns if block.time_ns >= 0 else now_ns), place, block
