"""Writes joined captures into one file: an interface per capture, timestamps by the first one's
clock, and a comment with the fate of each frame.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import IO

from netdissect.capture import open_capture
from netdissect.capture.writer import PcapngWriter
from netdissect.join.many import Link
from netdissect.model.joined import Fate, FateRow
from netdissect.model.packets import LINK_TYPE, Frame

_Timed = tuple[int, int, int, Frame]
"""(common time, capture, frame number, frame)."""


def write_joined(
    paths: Sequence[str], links: Sequence[Link], target: str | os.PathLike[str] | IO[bytes]
) -> int:
    """Write all frames of joined captures in order of common time; return their number.

    Args:
        paths: the captures.
        links: as `join_all` returned them.
        target: a path, `-` for standard output, or an open binary file (which stays open).

    """
    names = ", ".join(Path(path).name for path in paths)
    with ExitStack() as stack:
        writer = stack.enter_context(PcapngWriter(target, comment=f"joined from {names}"))
        interfaces: dict[tuple[int, int], int] = {}
        sides: list[Iterator[_Timed]] = []
        for capture, path in enumerate(paths):
            reader = stack.enter_context(open_capture(path))
            frames = chain.from_iterable(reader.batches())
            sides.append(_timed(capture, frames, links))
        count = 0
        for common, capture, number, frame in merge(*sides):
            interface = interfaces.get((capture, frame[2]))
            if interface is None:
                name = Path(paths[capture]).name
                interface = writer.add_interface(frame[2] & LINK_TYPE, name)
                interfaces[capture, frame[2]] = interface
            comment = _comment(capture, number, links)
            writer.write(max(common, 0), frame[3], frame[4], interface=interface, comment=comment)
            count += 1
    return count


def _timed(capture: int, frames: Iterator[Frame], links: Sequence[Link]) -> Iterator[_Timed]:
    for frame in frames:
        yield common_time(capture, frame[0], frame[1], links), capture, frame[0], frame


def common_time(capture: int, frame: int, time_ns: int, links: Sequence[Link]) -> int:
    """Convert a time of a capture to the clock of the very first one."""
    if capture == 0:
        return links[0].joined.common_ns(0, frame, time_ns)
    link = links[capture - 1]
    time_ns = link.joined.common_ns(1, frame, time_ns)
    while link.first:
        link = links[link.first - 1]
        time_ns = link.joined.clock.common_of_b(time_ns)
    return time_ns


def _comment(capture: int, frame: int, links: Sequence[Link]) -> str | None:
    """Return the fate of a frame in every join of its capture; None if it was never compared."""
    texts = []
    for link in links:
        if capture in (link.first, link.second):
            side = 0 if capture == link.first else 1
            other = link.second if side == 0 else link.first
            text = _fate_text(link.joined.fate(side, frame), chr(ord("A") + other))
            if text:
                texts.append(text)
    return "; ".join(texts) or None


def _fate_text(row: FateRow, other: str) -> str | None:
    """Return a fate in words; `other` is the letter of the other capture."""
    if row.fate is Fate.APART:
        return None
    text = row.fate.label
    if row.partner is not None:
        text += f", {other} frame {row.partner}"
    if row.delay_ms is not None:
        text += f", {row.delay_ms:.3f} ms"
    extra = [name for name in ("ambiguous", "copied", "reordered") if getattr(row, name)]
    return ", ".join([text, *extra])
