"""`netdissect slice`: writes a part of a capture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.output import (
    Look,
    refuse_input_as_output,
    removed_if_refused,
    summarise,
    write_option,
)
from netdissect.cli.request import Match
from netdissect.cli.session import Choices, Session
from netdissect.cli.spans import check_in_capture, check_order, no_such_connection
from netdissect.model.errors import UsageError
from netdissect.system import sandbox

if TYPE_CHECKING:
    from netdissect.capture.blocks import Block


@click.command("slice")
@options.capture()
@write_option
@click.option("--frames", metavar="LIST", help="Frame numbers, such as 1-100,250,300-.")
@options.time_span
@options.around
@options.only_connection
@options.display_filter
@options.analysis
@options.screen
def command(
    file: str,
    target: str,
    frames: str | None,
    since: int | None,
    until: int | None,
    around: str | None,
    of_connection: tuple[int, ...],
    display_filter: str | None,
    choices: Choices,
    look: Look,
) -> int:
    """Write a part of a capture; bytes, times, interfaces and options stay unchanged.

    Frames must match all options that are given. The file keeps its format. With --connection
    and -Y, all fragments of a datagram are kept, and --connection keeps every TCP segment.

    \b
    netdissect slice game.pcap --connection 2 --from 3s --to 9s -w part.pcap
    netdissect slice game.pcapng -Y 'anomaly == "retransmission"' -w resends.pcapng
    """
    from netdissect.capture.blocks import BlockReader  # noqa: PLC0415
    from netdissect.edit import parse_frames, slice_capture  # noqa: PLC0415

    if file == "-" and (of_connection or display_filter):
        raise UsageError("--connection and -Y read the capture twice: name a file instead of `-`")
    check_order(since, until)
    refuse_input_as_output(target, [file])
    choices.options()  # refuse what is wrong in them, even if nothing is decoded
    sandbox.confine()
    ranges = [] if frames is None else parse_frames(frames)
    # (0, None): all frames.
    low, high, by_frame = (0, None, True) if around is None else options.span_around(around)
    faults: list[str] = []
    chosen = _chosen(file, choices, of_connection, display_filter, faults)
    extent = _Extent()

    def wanted(block: Block) -> bool:
        moment = extent.add(block)
        return (
            low <= (block.frame if by_frame else moment) <= (high or block.frame)
            and (since is None or moment >= since)
            and (until is None or moment <= until)
            and (
                not ranges
                or any(low <= block.frame <= (high or block.frame) for low, high in ranges)
            )
            and (chosen is None or chosen(block.frame))
        )

    def check(length: _Extent) -> None:
        last = max((first for first, _ in ranges), default=0)
        check_in_capture("--frames", last, length.frames, in_frames=True)
        if around is not None and by_frame:
            check_in_capture("--around", int(around[1:]), length.frames, in_frames=True)
        elif length.frames:
            option, first = ("--from", since) if around is None else ("--around", low)
            check_in_capture(option, first, length.lasted_ns, in_frames=False)

    if os.path.lexists(target):
        _check_before(file, check, faults)
    with BlockReader(file) as reader, removed_if_refused(target):
        read, written = slice_capture(reader, target, wanted)
        # The length of a capture is known only once it is read.
        if not reader.damage:
            check(extent)
    text = f"{written:,} of {read:,} frames written to {target}"
    return summarise(text, [reader], faults, quiet=look.quiet)


def _check_before(file: str, check: Callable[[_Extent], None], faults: list[str]) -> None:
    """Read a capture only to check what is requested, so that a refusal keeps the file that would
    be replaced. What comes through a pipe can be read once only, and is checked too late for that.
    Append to `faults` why the reading ended early.
    """
    from netdissect.capture.blocks import PACKET, BlockReader  # noqa: PLC0415

    if file == "-" or not os.path.isfile(file):  # noqa: PTH113 - as given
        return
    extent = _Extent()
    with BlockReader(file) as reader:
        for block in reader:
            if block.kind == PACKET:
                extent.add(block)
        if reader.damage is None:
            check(extent)
        else:
            faults.append(f"{file} could not be read to its end the first time: {reader.damage}")


class _Extent:
    """How far a capture that is being read reaches."""

    __slots__ = ("_first_ns", "frames", "lasted_ns")

    def __init__(self) -> None:
        self._first_ns = 0
        self.frames = 0
        self.lasted_ns = 0
        """From the first frame to the latest one, which in an unsorted file may not be the last."""

    def add(self, block: Block) -> int:
        """Add a frame; return its time since the first one, in nanoseconds."""
        if not self.frames:
            self._first_ns = block.time_ns
        self.frames += 1
        moment = block.time_ns - self._first_ns
        self.lasted_ns = max(self.lasted_ns, moment)
        return moment


def _chosen(
    file: str,
    choices: Choices,
    connections: tuple[int, ...],
    display_filter: str | None,
    faults: list[str],
) -> Callable[[int], bool] | None:
    """Return a test for the frames of the connections that match the filter; None = all do. Append
    to `faults` why a reading ended early.
    """
    from netdissect.edit import FrameSet  # noqa: PLC0415

    sets = []
    if connections:
        sets.append(FrameSet(_of_connections(file, choices, connections, faults)))
    if display_filter is not None:
        sets.append(FrameSet(_matching(file, choices, display_filter, faults)))
    return (lambda frame: all(frame in each for each in sets)) if sets else None


def _of_connections(
    file: str, choices: Choices, numbers: tuple[int, ...], faults: list[str]
) -> Iterator[int]:
    """Yield the frames between the endpoints of connections, from the first to the last."""
    from netdissect.edit import of_connections, pieces  # noqa: PLC0415

    with Session(file, choices, quiet=True) as session:
        reports = session.analysis().connections
        found = []
        for number in numbers:
            report = reports.by_number(number)
            if report is None:
                raise no_such_connection(number, reports)
            found.append(report)
        faults += session.faults()
    wanted = of_connections(found)
    with Session(file, choices, quiet=True) as session:
        yield from pieces(session.reader.batches(), wanted)
        faults += session.faults()


def _matching(file: str, choices: Choices, text: str, faults: list[str]) -> Iterator[int]:
    """Yield the frames of the datagrams and messages that match a filter."""
    from netdissect.edit import FrameSet, pieces  # noqa: PLC0415

    with Session(file, choices, quiet=True) as session:
        match = Match.compile(text, session)
        found = FrameSet(
            frame
            for record in session.records()
            if match.datagram(record, session.first_ns)
            for frame in (record.frame, *record.frames)
        )
        faults += session.faults()
    with Session(file, choices, quiet=True) as session:
        yield from pieces(session.reader.batches(), lambda packet: packet[1] in found)
        faults += session.faults()
