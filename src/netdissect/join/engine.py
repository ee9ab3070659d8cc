"""Joins two captures: reads both, fits their clocks by a sample, matches what they hold."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Final

from netdissect.join.clock import Clock
from netdissect.join.matching import Matcher
from netdissect.join.pairing import (
    MAX_DELAY_NS,
    MAX_SLACK_NS,
    SAME_PLACE_NS,
    NotJoinedError,
    Pairing,
    delay_of,
    pair,
    pair_streams,
)
from netdissect.join.sample import Sample, take_sample
from netdissect.join.streams import MAX_APART_NS, Streams, stream_anchors, stream_pairs
from netdissect.join.table import APPEARED, LOST, FateTable, bit_of
from netdissect.join.tokens import NO_LIMIT, Tokens
from netdissect.join.weigh import Chances, Delays
from netdissect.model.joined import Fate

__all__ = ["Matched", "match"]


_TYPICAL: Final = 10
"""Datagrams that are like no other tell what their direction does where they are at least one in so
many.
"""


@dataclass(slots=True)
class Matched:
    """Two captures, datagram by datagram."""

    samples: tuple[Sample, Sample]
    pairing: Pairing
    tables: tuple[FateTable, FateTable]
    chances: dict[int, Chances]
    matcher: Matcher
    streams: list[tuple[Streams, int]]
    """TCP connections that carry one stream, with the way of the first side's."""

    def close(self) -> None:
        """Free the tables."""
        for table in self.tables:
            table.close()


def match(path_a: str, path_b: str) -> Matched:
    """Return what became of each datagram between two captures.

    Raises:
        CaptureError: a file is missing, unreadable or no capture.
        NotJoinedError: the captures are not of one conversation.

    """
    with ExitStack() as made:
        with ExitStack() as files:
            samples, pairing = _paired((path_a, path_b), files)
            chances = {toward: _chances(samples, pairing, toward) for toward in (1, -1)}
            tables = (FateTable(samples[0].info.frames), FateTable(samples[1].info.frames))
            for table in tables:
                made.callback(table.close)
            matcher = Matcher(pairing, chances, tables, samples)
            matcher.run((samples[0].rows, samples[1].rows), pairing.clock)
        _outside(samples, pairing.clock, chances, tables)
        found = Matched(samples, pairing, tables, chances, matcher, _streams(samples, pairing))
        made.pop_all()  # the caller's to close from here on
    return found


def _sampled(paths: tuple[str, str], tokens: Tokens, files: ExitStack) -> tuple[Sample, Sample]:
    """Return samples of both; what they keep in files is closed with `files`."""
    found: list[Sample] = []
    for path in paths:
        found.append(take_sample(path, tokens))
        files.callback(found[-1].rows.close)
    # Leave the same names out of both: those that only one keeps would seem to be lost.
    mask = max(sample.mask for sample in found)
    for sample in found:
        if sample.mask < mask:
            sample.thin(mask)
    return found[0], found[1]


def _paired(paths: tuple[str, str], files: ExitStack) -> tuple[tuple[Sample, Sample], Pairing]:
    """Return how the captures fit, by whole packets; TCP also by what no firewall or translator
    rewrites, or by its streams.
    """
    tokens = Tokens()
    samples = _sampled(paths, tokens, files)
    # How far packets were cut is known only now; names must be of what all captures hold.
    if tokens.shortest < NO_LIMIT:
        tokens = Tokens(tokens.shortest)
        samples = _sampled(paths, tokens, files)
    resolution = _resolution(samples)
    try:
        return samples, pair(*samples, resolution_ns=resolution)
    except NotJoinedError as error:
        # Of UDP, nothing that a firewall or a proxy rewrites is in a name.
        if not all(any(flow.tcp for flow in sample.flows.values()) for sample in samples):
            raise
        why = error
    resampled = _sampled(paths, Tokens(tokens.limit, loose=True), files)
    try:
        return resampled, pair(*resampled, resolution_ns=resolution)
    except NotJoinedError:
        anchors = stream_anchors(stream_pairs(*samples, set()))
        if not anchors:
            raise why from None
    return samples, pair_streams(*samples, anchors, resolution_ns=resolution)


def _streams(samples: tuple[Sample, Sample], pairing: Pairing) -> list[tuple[Streams, int]]:
    """Return the TCP connections that are one stream, with +1 where the first side's bytes go from
    A to B.
    """
    taken = {
        (capture, name)
        for group in pairing.groups
        for capture in (0, 1)
        for name in group.ways[capture]
    }
    found: list[tuple[Streams, int]] = []
    clock = pairing.clock
    for streams in stream_pairs(*samples, taken):
        delays: dict[int, list[int]] = {0: [], 1: []}
        for anchor in stream_anchors([streams]):
            way = int(anchor.flow_a != streams[0][0].number)
            there = clock.common(1, anchor.frame_b, anchor.b_ns)
            delays[way].append(there - clock.common(0, anchor.frame_a, anchor.a_ns))
        told = [delay if way == 0 else -delay for way in (0, 1) for delay in delays[way]]
        if told and max(map(abs, told)) <= MAX_APART_NS:
            # Bytes reach the receiver's capture later than the sender's: the sign says which is
            # which.
            found.append((streams, 1 if median(told) >= 0 else -1))
    return found


def _resolution(samples: tuple[Sample, Sample]) -> int:
    """Return by how much a difference of times may be off because a file keeps microseconds."""
    return sum(1 if sample.info.nanosecond else 1000 for sample in samples)


def _chances(samples: tuple[Sample, Sample], pairing: Pairing, toward: int) -> Chances:
    """Return what the sample tells of one direction."""
    sender = 0 if toward > 0 else 1
    sending, receiving = samples[sender], samples[1 - sender]
    flows = [
        {
            samples[capture].flows[name].number
            for group in pairing.groups
            for name, way in group.ways[capture].items()
            if way == toward and name in samples[capture].flows
        }
        for capture in (sender, 1 - sender)
    ]
    delays = [toward * delay_of(a, pairing.clock) for a in pairing.anchors if a.toward == toward]
    lags: list[int] = []
    sent = lost = copied = 0
    sizes = {
        name: count
        for name, count in sending.counts.items()
        if sending.sights[name][0][2] in flows[0]
    }
    single = sum(count == 1 for count in sizes.values())
    # Where all is sent twice, what a capture has once is mostly what it missed the twin of.
    most = 1 if single * _TYPICAL >= sum(sizes.values()) else 2
    for name, count in sizes.items():
        if count > most:
            continue
        sent += count
        theirs = [sight for sight in receiving.sights.get(name, ()) if sight[2] in flows[1]]
        lost += max(0, count - len(theirs))
        # Datagrams, not copies: a loop in the network makes more of these than it was sent.
        copied += len(theirs) > count
        # Where all is sent twice, the second arrival is no copy by the network.
        if most == 1 and len(theirs) > 1:
            lags.append(theirs[1][1] - theirs[0][1])
    slack = SAME_PLACE_NS if pairing.same_place else _resolution(samples)
    usual = max(delays, default=0)
    return Chances(
        delays=Delays(delays, MAX_DELAY_NS, usual),
        lags=Delays(lags, MAX_DELAY_NS),
        # No share may be 0 or 1, which would rule something out for good; of few datagrams little
        # is known. Without any, 1 in 20 is lost and 1 in 100 copied.
        lost=(lost + 1) / (sent + 20),
        copied=(copied + 1) / (sent + 100),
        slack_ns=max(slack, MAX_SLACK_NS),
    )


def _outside(
    samples: tuple[Sample, Sample],
    clock: Clock,
    chances: dict[int, Chances],
    tables: tuple[FateTable, FateTable],
) -> None:
    """Say of what is missing where the other capture did not run that it does not know."""
    for capture in (0, 1):
        other = 1 - capture
        start, end = samples[other].span(clock, other)
        going = chances[1 if capture == 0 else -1].delays.quantile(0.5)
        coming = chances[-1 if capture == 0 else 1].delays.quantile(0.5)
        table = tables[capture]
        # The other capture should have it a delay after it was sent here, or before it arrived
        # here.
        wanted = bit_of(LOST) | bit_of(APPEARED)
        frame = table.following(0, wanted)
        while frame:
            away = going if table.kind(frame) == LOST else -coming
            if not start <= table.common_ns(frame) + away <= end:
                table.fate(frame, int(Fate.OUTSIDE))
            frame = table.following(frame, wanted)
