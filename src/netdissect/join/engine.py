"""Joins two captures: samples both, fits their clocks, and matches their datagrams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Final

from netdissect.join.clock import ClockPiece
from netdissect.join.doubt import (
    mark_doubtful,
    mark_outside,
    mark_shared,
    shared_with_others,
)
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
from netdissect.join.sample import MAX_OCCURRENCES, Sample, Sampled, take_sample
from netdissect.join.streams import MAX_APART_NS, Streams, stream_anchors, stream_pairs
from netdissect.join.table import FateTable
from netdissect.join.tokens import NO_LIMIT, Tokens
from netdissect.join.weigh import Delays, Priors

_MIN_UNIQUE: Final = 10
"""If at least one datagram in ten is unique, only the unique ones are counted."""
_ASSUMED: Final = 20, 100
"""Before anything is known, one datagram in 20 is lost, and one in 100 copied."""
_ASSUMED_UNSEEN: Final = 0.008
"""Before anything is known, a capture misses this many of ten datagrams, ..."""
_SUSPECTED_UNSEEN: Final = 0.02
"""... or this many if either of the two demonstrably misses some."""
_ASSUMED_SEEN: Final = 10
_FEW_LOST: Final = 0.5
"""Where none seems lost, this many may be."""
_FEW_LAGS: Final = 20
"""Lags of which one may be none."""
_MAX_VAGUE_NS: Final = 5_000_000
"""Clocks that are known less well than this do not order datagrams any better, ns."""


@dataclass(slots=True)
class Matched:
    """Two captures whose datagrams have been matched."""

    samples: tuple[Sample, Sample]
    pairing: Pairing
    tables: tuple[FateTable, FateTable]
    matcher: Matcher
    streams: list[tuple[Streams, int]]
    """TCP connections that carry one stream, each with +1 if the first side's bytes go from A to B,
    else -1."""
    not_shared: int
    """Datagrams that were not compared with equal ones of other conversations (`MAX_SHARED`)."""

    def close(self) -> None:
        """Close the tables."""
        for table in self.tables:
            table.close()


def match(path_a: str, path_b: str) -> Matched:
    """Match the datagrams of two captures.

    Raises:
        CaptureError: a file is missing, unreadable or no capture.
        NotJoinedError: the captures are not of one conversation.

    """
    with ExitStack() as cleanup:
        with ExitStack() as files:
            samples, pairing = _paired((path_a, path_b), files)
            held = {toward: _unseen(samples, pairing, toward) for toward in (1, -1)}
            going, there = _priors(samples, pairing, 1, held)
            coming, here = _priors(samples, pairing, -1, held)
            # A capture misses no more of what is sent there than seems lost of what comes there.
            priors = {
                1: replace(going, unseen=min(going.unseen, here)),
                -1: replace(coming, unseen=min(coming.unseen, there)),
            }
            shared, not_shared = shared_with_others(samples, pairing)
            for sample in samples:
                sample.tokens.clear()  # they take most of its memory, and have told what they tell
            tables = (FateTable(samples[0].info.frames), FateTable(samples[1].info.frames))
            for table in tables:
                cleanup.callback(table.close)
            matcher = Matcher(pairing, priors, tables, samples)
            matcher.run((samples[0].rows, samples[1].rows), pairing.clock)
        mark_doubtful(samples, pairing, tables)
        mark_outside(samples, pairing, priors, tables)
        mark_shared(shared, tables)
        streams = _streams(samples, pairing)
        matched = Matched(samples, pairing, tables, matcher, streams, not_shared)
        cleanup.pop_all()  # from here on the caller closes the tables
    return matched


def _sampled(paths: tuple[str, str], tokens: Tokens, files: ExitStack) -> tuple[Sample, Sample]:
    """Return samples of both captures, whose rows are closed with `files`."""
    samples: list[Sample] = []
    for path in paths:
        samples.append(take_sample(path, tokens))
        files.callback(samples[-1].rows.close)
    # Discard the same tokens from both: one that only one sample keeps would seem to be lost.
    mask = max(sample.mask for sample in samples)
    for sample in samples:
        if sample.mask < mask:
            sample.thin(mask)
    return samples[0], samples[1]


def _paired(paths: tuple[str, str], files: ExitStack) -> tuple[tuple[Sample, Sample], Pairing]:
    """Return the samples and how they fit together.

    Whole packets are compared first. If they do not fit, TCP is compared without what firewalls and
    translators rewrite, and then by its streams.
    """
    tokens = Tokens()
    samples = _sampled(paths, tokens, files)
    # How far packets were cut is known only now; tokens must cover only what both captures hold.
    if tokens.shortest < NO_LIMIT:
        tokens = Tokens(tokens.shortest)
        samples = _sampled(paths, tokens, files)
    resolution = _resolution(samples)
    try:
        return samples, pair(*samples, resolution_ns=resolution)
    except NotJoinedError as error:
        # A token of UDP covers nothing that a firewall or a proxy rewrites.
        if not all(any(flow.tcp for flow in sample.flows.values()) for sample in samples):
            raise
        reason = error
    resampled = _sampled(paths, Tokens(tokens.limit, loose=True), files)
    try:
        return resampled, pair(*resampled, resolution_ns=resolution)
    except NotJoinedError:
        anchors = stream_anchors(stream_pairs(*samples, set()))
        if not anchors:
            raise reason from None
    return samples, pair_streams(*samples, anchors, resolution_ns=resolution)


def _streams(samples: tuple[Sample, Sample], pairing: Pairing) -> list[tuple[Streams, int]]:
    """Return `Matched.streams`."""
    matched = {
        (capture, flow_id)
        for group in pairing.groups
        for capture in (0, 1)
        for flow_id in group.ways[capture]
    }
    found: list[tuple[Streams, int]] = []
    clock = pairing.clock
    for streams in stream_pairs(*samples, matched):
        delays: dict[int, list[int]] = {0: [], 1: []}
        for anchor in stream_anchors([streams]):
            way = int(anchor.flow_a != streams[0][0].number)
            there = clock.common(1, anchor.frame_b, anchor.b_ns)
            delays[way].append(there - clock.common(0, anchor.frame_a, anchor.a_ns))
        signed = [delay if way == 0 else -delay for way in (0, 1) for delay in delays[way]]
        if signed and max(map(abs, signed)) <= MAX_APART_NS:
            # Bytes reach the receiver's capture after the sender's: the sign gives the direction.
            found.append((streams, 1 if median(signed) >= 0 else -1))
    return found


def _resolution(samples: tuple[Sample, Sample]) -> int:
    """Return how far a difference of timestamps may be off because files store microseconds, ns."""
    return sum(1 if sample.info.nanosecond else 1000 for sample in samples)


def _priors(
    samples: tuple[Sample, Sample],
    pairing: Pairing,
    toward: int,
    held: Mapping[int, tuple[int, int]],
) -> tuple[Priors, float]:
    """Return what the samples show of one direction, and the share of it that did not arrive.

    Args:
        samples: those of both captures.
        pairing: how they fit together.
        toward: the direction.
        held: what `_unseen` returns of both.

    """
    sender, *flows = _flows(samples, pairing, toward)
    sending, receiving = samples[sender], samples[1 - sender]
    delays = [toward * delay_of(a, pairing.clock) for a in pairing.anchors if a.toward == toward]
    lags: list[int] = []
    sent = lost = once = lost_once = copied = 0
    own = {
        token: one for token, one in sending.tokens.items() if one.occurrences[0][2] in flows[0]
    }
    counts = {token: int(one.count) for token, one in own.items()}
    unique = sum(count == 1 for count in counts.values())
    # Where everything is sent twice, a datagram that a capture holds once is mostly one whose pair
    # the capture missed.
    most = 1 if unique * _MIN_UNIQUE >= sum(counts.values()) else 2
    for token, count in counts.items():
        if count > MAX_OCCURRENCES:
            continue
        received = receiving.tokens.get(token)
        occurrences = [] if received is None else received.occurrences
        arrivals = [each for each in occurrences if each[2] in flows[1]]
        gone = max(0, count - len(arrivals))
        sent += count
        lost += gone
        if count <= most:
            once += count
            lost_once += gone
            # Count datagrams, not copies: a routing loop makes more of these.
            copied += len(arrivals) > count
            # Where everything is sent twice, the second arrival is no copy by the network.
            if most == 1 and len(arrivals) > 1:
                lags.append(arrivals[1][1] - arrivals[0][1])
    missed, seen = held[toward]
    suspected = any(missing for missing, _ in held.values())
    assumed = _SUSPECTED_UNSEEN if suspected else _ASSUMED_UNSEEN
    unseen = (missed + assumed) / (missed + seen + _ASSUMED_SEEN)
    repeated = sum(count for count in counts.values() if count > 1)
    slack = SAME_PLACE_NS if pairing.same_place else _resolution(samples)
    # The network may hold a datagram back after copying it: then its copy comes first.
    held_ns = max(delays, default=0) - min(delays, default=0)
    priors = Priors(
        delays=Delays(delays, MAX_DELAY_NS),
        lags=Delays(_sure_lags(lags, own.values(), unseen), MAX_DELAY_NS, max(held_ns, 1)),
        # No share may be 0 or 1, which would rule something out, and few datagrams prove little.
        lost=(lost_once + 1) / (once + _ASSUMED[0]),
        lost_of_all=(lost + 1) / (sent + _ASSUMED[0]),
        copied=(copied + 1) / (once + _ASSUMED[1]),
        unseen=unseen,
        repeated=(repeated + 1) / (sum(counts.values()) + 10),
        slack_ns=max(slack, MAX_SLACK_NS, _vagueness(pairing.clock.pieces, Delays(delays, 1))),
    )
    return priors, (lost + _FEW_LOST) / (sent + _FEW_LOST)


def _sure_lags(lags: list[int], sent: Iterable[Sampled], unseen: float) -> list[int]:
    """Return the lags that are those of copies: if the capture may have missed as many datagrams as
    make one in `_FEW_LAGS` of them, those that are shorter than the times between equal datagrams
    that were sent usually are.
    """
    if not lags:
        return lags
    gaps = sorted([
        later - earlier
        for one in sent
        for (_, earlier, _), (_, later, _) in pairwise(one.occurrences)
    ])
    if unseen * len(gaps) * _FEW_LAGS < len(lags) or not gaps:
        return lags
    return [lag for lag in lags if lag < gaps[len(gaps) // 10]]


def _vagueness(pieces: tuple[ClockPiece, ...], delays: Delays) -> int:
    """Return how much sooner than the least known delay a datagram may seem to arrive, because few
    datagrams show how the clocks drift, or those of one direction what the least delay is, ns.
    """
    spread = delays.quantile(1.0) - delays.quantile(0.0)
    vague = [
        spread if piece.bound_ns is None
        else piece.bound_ns - min(least or 0.0 for least in piece.least_ns)
        for piece in pieces
    ]  # fmt: skip
    return min(_MAX_VAGUE_NS, int(max(vague)))


def _flows(
    samples: tuple[Sample, Sample], pairing: Pairing, toward: int
) -> tuple[int, set[int], set[int]]:
    """Return which capture is next to the sender of a direction, and the numbers of its flows there
    and next to the receiver.
    """
    sender = 0 if toward > 0 else 1
    ours, theirs = (
        {flow for flow, (_, way) in pairing.places(samples[each], each).items() if way == toward}
        for each in (sender, 1 - sender)
    )
    return sender, ours, theirs


def _unseen(
    samples: tuple[Sample, Sample], pairing: Pairing, toward: int
) -> tuple[int, int]:
    """Return how many payloads of the receiver's sample the sender's capture does not hold, though
    it ran, and how many it holds once: of several, it would hold another.
    """
    sender, _, flows = _flows(samples, pairing, toward)
    sending, receiving = samples[sender], samples[1 - sender]
    start, end = sending.span(pairing.clock, sender)
    # What arrives sooner may have been sent before the sender's capture began.
    start += pairing.usual_ns
    missed = seen = 0
    for token, one in receiving.tokens.items():
        frame, time_ns, flow = one.occurrences[0]
        if flow in flows and start <= pairing.clock.common(1 - sender, frame, time_ns) <= end:
            known = sending.tokens.get(token)
            if known is None:
                missed += 1
            elif known.count == 1:
                seen += 1
    return missed, seen
