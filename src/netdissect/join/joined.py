"""Two captures of one conversation, joined: the report, and what became of each frame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from typing import Final

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.join.clock import Clock, ClockPiece
from netdissect.join.engine import Matched, match
from netdissect.join.evidence import COPIED as NETWORK_COPY
from netdissect.join.evidence import Evidence, resend_report
from netdissect.join.matching import Lane
from netdissect.join.pairing import MAX_DELAY_NS, NotJoinedError
from netdissect.join.streams import compare
from netdissect.join.summary import ALL_TIME, add_up
from netdissect.join.table import (
    AMBIGUOUS,
    ANSWERED,
    COPIED,
    LOST,
    REORDERED,
    RESENT,
    TableRow,
    bit_of,
    flags_of,
)
from netdissect.model.closing import Closing
from netdissect.model.joined import (
    ClockReport,
    Fate,
    FateRow,
    JoinedConnection,
    JoinReport,
    ResendReport,
    StreamReport,
    WayReport,
)
from netdissect.model.packets import flow_endpoints
from netdissect.model.reports import ConnectionReport
from netdissect.pipeline import Options, Pipeline, Recorder
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.reports import Reports

_NOT_COMPARED: Final = FateRow(Fate.APART, None, None, False, False, False, 0)


class Joined(Closing):
    """Two captures, joined. It may hold files: close it, or use it as a context manager."""

    def __init__(
        self,
        paths: tuple[str, str],
        matched: Matched,
        options: Options | None,
        span: tuple[int | None, int | None],
    ) -> None:
        self.paths = paths
        zero, (start, end) = matched.samples[0].info.first_time_ns or 0, span
        self.window: tuple[int, int] = (
            ALL_TIME[0] if start is None else zero + start,
            ALL_TIME[1] if end is None else zero + end,
        )
        """(from, to), common time, of what is counted."""
        self._matched = matched
        self.lanes: list[Lane] = matched.matcher.lanes
        """The compared flows, as the tables refer to them."""
        self.clock: Clock = matched.pairing.clock
        self.tables = matched.tables
        self.reports: list[Reports] = []
        """Per capture, all of its connections."""
        self._evidence: list[Evidence] = []
        self._conversations: dict[int, JoinedConnection] = {}
        """Number of the group -> conversation."""
        limits: dict[str, int] = {}
        for capture in (0, 1):
            self._track(capture, options, limits)
        self._revise_losses()
        self.report = self._make_report(limits)
        """All figures."""

    def close(self) -> None:
        """Close what it holds."""
        self._matched.close()
        for reports in self.reports:
            reports.close()

    # -- frame by frame ----------------------------------------------------------------------------

    def fate(self, capture: int, frame: int) -> FateRow:
        """Return what became of a frame of the first (0) or second (1) capture."""
        row = self.tables[capture].row(frame)
        return self._row(capture, row) if row[0] else _NOT_COMPARED

    def fates(
        self, capture: int, conversations: Container[int] | None = None
    ) -> Iterator[tuple[int, FateRow]]:
        """Yield (frame, fate) of the compared frames of a capture, within the window.

        Args:
            capture: 0 or 1.
            conversations: numbers of the conversations to include; None = all.

        """
        start, end = self.window
        for frame, row in self.tables[capture].rows():
            if not start <= row[4] <= end:
                continue
            if conversations is not None:
                one = self._conversations.get(self.lanes[row[2]].group)
                if one is None or one.number not in conversations:
                    continue
            yield frame, self._row(capture, row)

    def sent(
        self, capture: int, conversations: Container[int] | None = None
    ) -> Iterator[tuple[int, FateRow, int]]:
        """Yield (frame, fate, direction) of the datagrams sent at a capture in joined connections.

        Args:
            capture: 0 or 1.
            conversations: numbers of the conversations to include; None = all.

        """
        for frame, row in self.tables[capture].rows():
            lane = self.lanes[row[2]]
            one = self._conversations.get(lane.group)
            if one is None or one.client is None or (lane.toward > 0) != (capture == 0):
                continue
            if conversations is None or one.number in conversations:
                yield frame, self._row(capture, row), int(one.client != capture)

    def common_ns(self, capture: int, frame: int, time_ns: int) -> int:
        """Convert a time of a capture to the clock of the first one."""
        return self.clock.common(capture, frame, time_ns)

    def _row(self, capture: int, row: TableRow) -> FateRow:
        fate, flags, lane, partner, common = row
        delay = None
        if partner:
            difference = int(self.tables[1 - capture].common_ns(partner)) - common
            sends = (self.lanes[lane].toward > 0) == (capture == 0)
            # Always from sender to receiver, whichever capture the row is of.
            delay = (difference if sends else -difference) / 1e6
        return FateRow(
            Fate(fate),
            partner or None,
            delay,
            bool(flags & AMBIGUOUS),
            bool(flags & COPIED),
            bool(flags & REORDERED),
            common,
        )

    # -- construction ------------------------------------------------------------------------------

    def _track(self, capture: int, options: Options | None, limits: dict[str, int]) -> None:
        """Track the connections of a capture, and combine their units with the fates."""
        evidence = Evidence(self.tables[capture], self.window)
        recorder = Recorder(counted=True, choice=evidence)
        pipeline = Pipeline(options, recorder=recorder)
        with open_capture(self.paths[capture]) as reader:
            # Units are dropped once processed: a timeline would grow with the capture.
            reader.on_batch(lambda: evidence.read(recorder.ready(pipeline.now_ns)))
            Decapsulator().hand_over(reader, pipeline)
            pipeline.finish(reader.info.last_time_ns)
        evidence.read(recorder.drain())
        numbers = pipeline.renumber()
        if numbers is not None:
            evidence.renumber(numbers)
        self._evidence.append(evidence)
        self.reports.append(pipeline.reports)
        for limit, count in pipeline.limits_hit.items():
            limits[limit] = limits.get(limit, 0) + count

    def _revise_losses(self) -> None:
        """Revise the fate of datagrams that were not lost, but missed by the other capture."""
        same_place = self._matched.pairing.same_place
        for capture in (0, 1):
            table = self.tables[capture]
            evidence = self._evidence[capture]
            misses = evidence.other_misses(
                table.count_certain(Fate.APPEARED), table.count_certain(Fate.ARRIVED)
            )
            # Perhaps what arrived was sent again, and this capture missed that, ...
            sure = misses and not self.tables[1 - capture].count_certain(Fate.APPEARED)
            if not (misses or same_place or evidence.unseen):
                continue
            # ... or it had been sent already when the captures began.
            early_ns = self._matched.samples[capture].span(self.clock, capture)[0]
            if any(each.next_frame(0, bit_of(Fate.OUTSIDE)) for each in self.tables):
                early_ns += MAX_DELAY_NS
            continued_ns = self._continued(capture)
            frame = table.next_frame(0, bit_of(LOST))
            while frame:
                flags = flags_of(table.word(frame))
                if same_place or flags & ANSWERED:
                    table.set_fate(frame, int(Fate.UNSEEN))
                    since_ns = max(early_ns, continued_ns.get(table.row(frame)[2], 0))
                    if not same_place and not (sure and table.common_ns(frame) >= since_ns):
                        table.add_flags(frame, AMBIGUOUS)
                elif misses and flags & RESENT:
                    table.add_flags(frame, AMBIGUOUS)  # perhaps only its answer was lost
                elif misses:
                    table.set_fate(frame, int(Fate.DOUBTFUL))
                frame = table.next_frame(frame, bit_of(LOST))

    def _continued(self, capture: int) -> dict[int, int]:
        """Return lane -> common time before which what it carries may have been sent in another one
        of its direction, for those that began later than that: a translator may have given a flow
        another port.
        """
        flows = self._matched.samples[capture].flows
        begun: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for number, lane in enumerate(self.lanes):
            flow = flows.get(lane.flow)
            if lane.capture == capture and flow is not None:
                first_ns = self.clock.common(capture, flow.first_frame, flow.first_ns)
                begun[lane.group, lane.toward].append((first_ns, number))
        return {
            number: first_ns + MAX_DELAY_NS
            for each in begun.values()
            for first_ns, number in sorted(each)[1:]
        }

    def _make_report(self, limits: dict[str, int]) -> JoinReport:
        matched = self._matched
        matcher, samples = matched.matcher, matched.samples
        bounds = {
            "MAX_FLOWS": sum(sample.flows_dropped for sample in samples),
            "MAX_JUMPS": sum(sample.jumps_dropped for sample in samples),
            "MAX_WAITING": matcher.settled_early,
            "MAX_WEIGHED": matcher.too_many_equal,
            "MAX_SHARED": matched.not_shared,
        }
        limits.update({name: count for name, count in bounds.items() if count})
        ways = add_up(self.tables, self.lanes, len(matched.pairing.groups), self.window)
        builder = _Conversations(self)
        conversations = [builder.compared(number, both) for number, both in enumerate(ways)]
        self._conversations = dict(enumerate(conversations))
        conversations += builder.proxied(compare(self.paths, matched.streams, self.clock))
        conversations.sort(key=lambda one: builder.order[id(one)])
        for number, one in enumerate(conversations, 1):
            one.number = number
        spans = [sample.span(self.clock, capture) for capture, sample in enumerate(samples)]
        overlap = min(spans[0][1], spans[1][1]) - max(spans[0][0], spans[1][0])
        return JoinReport(
            captures=(samples[0].info, samples[1].info),
            clock=_clock_report(self.clock),
            same_place=matched.pairing.same_place,
            overlap_ms=max(0, overlap) / 1e6,
            conversations=conversations,
            reports=builder.reports,
            apart=(
                samples[0].datagrams - self.tables[0].compared(),
                samples[1].datagrams - self.tables[1].compared(),
            ),
            limits_hit=limits,
        )


class _Conversations:
    """Builds the reports of the joined conversations from the connections of both captures."""

    def __init__(self, joined: Joined) -> None:
        self._matched = joined._matched  # noqa: SLF001 - a part of that class
        self._evidence = joined._evidence  # noqa: SLF001
        self.order: dict[int, int] = {}
        """id() of a conversation -> number of its first flow in the first capture."""
        self.reports: tuple[list[ConnectionReport], list[ConnectionReport]] = ([], [])
        self._groups: tuple[dict[tuple[str, str, str], int], ...] = ({}, {})
        """Per capture: (transport, source, destination) -> group."""
        self._toward: dict[tuple[int, str, str, str], int] = {}
        self._lanes: dict[int, list[Lane]] = defaultdict(list)
        """Group -> its lanes."""
        tracked = [{_name(report) for report in reports} for reports in joined.reports]
        for lane in joined.lanes:
            self._lanes[lane.group].append(lane)
            name = _endpoints(lane.flow)
            # A flood has many lanes and few reports.
            if name in tracked[lane.capture]:
                self._groups[lane.capture][name] = lane.group
                self._toward[lane.capture, *name] = lane.toward
        self._members: dict[int, tuple[list[ConnectionReport], list[ConnectionReport]]]
        self._members = defaultdict(lambda: ([], []))
        self._unmatched: tuple[dict[tuple[str, str, str], list[ConnectionReport]], ...] = ({}, {})
        for capture in (0, 1):
            for report in joined.reports[capture]:
                name = _name(report)
                group = self._groups[capture].get(name)
                if group is not None:
                    self._members[group][capture].append(report)
                    self.reports[capture].append(report)
                # Only TCP can be relayed as a stream; a UDP connection without a group was not
                # captured there.
                elif report.transport == "tcp":
                    self._unmatched[capture].setdefault(name, []).append(report)

    def compared(self, group: int, ways: tuple[WayReport, WayReport]) -> JoinedConnection:
        """Return a conversation that was compared datagram by datagram."""
        members = self._members[group]
        lanes = self._lanes[group]
        client = self._client(members)
        # If no tracker knows the client, the direction from A to B comes first.
        ordered = [ways[client or 0], ways[1 - (client or 0)]]
        for direction, way in enumerate(ordered):
            way.resends = self._resends(members, direction, way.sender)
        ends = tuple(self._ends(capture, members[capture], lanes) for capture in (0, 1))
        same = {frozenset(pair) for pair in ends[0]} == {frozenset(pair) for pair in ends[1]}
        kind = "routed" if same else "relayed"
        found = JoinedConnection(
            number=0,
            kind="same place" if self._matched.pairing.same_place else kind,
            transport="tcp" if lanes[0].flow[0] else "udp",
            connections=([r.connection for r in members[0]], [r.connection for r in members[1]]),
            protocol=next((r.protocol for side in members for r in side), None),
            ends=(ends[0], ends[1]),
            client=client,
            ways=ordered,
        )
        flows = self._matched.samples[0].flows
        numbers = [flows[lane.flow].number for lane in lanes if lane.flow in flows]
        self.order[id(found)] = min(numbers, default=0)
        return found

    def _client(self, members: tuple[list[ConnectionReport], list[ConnectionReport]]) -> int | None:
        """Return which capture is next to the client."""
        for capture in (0, 1):
            for report in members[capture]:
                return 0 if self._toward[capture, *_name(report)] > 0 else 1
        return None

    def _resends(
        self,
        members: tuple[list[ConnectionReport], list[ConnectionReport]],
        direction: int,
        sender: int,
    ) -> ResendReport:
        """Return what the retransmissions of a direction were for, as the sender's capture shows,
        and what the network copied, as the receiver's shows.
        """
        spaces: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for capture in (0, 1):
            for report in members[capture]:
                found = self._evidence[capture].counts(report.connection, direction)
                for space, counts in found.items():
                    for kind, count in enumerate(counts):
                        if (kind == NETWORK_COPY) != (capture == sender):
                            spaces[space][kind] += count
        return resend_report(spaces)

    def _ends(
        self, capture: int, members: list[ConnectionReport], lanes: list[Lane]
    ) -> list[tuple[str, str]]:
        """Return the (client, server) endpoints of a conversation in one capture."""
        if members:
            return list(dict.fromkeys((report.client, report.server) for report in members))
        there = [lane for lane in lanes if lane.capture == capture and lane.toward > 0]
        found = [_endpoints(lane.flow)[1:] for lane in there]
        return [(source, destination) for source, destination in found]

    def proxied(self, streams: list[list[StreamReport]]) -> list[JoinedConnection]:
        """Return the conversations that are one stream in two TCP connections."""
        conversations = []
        for (sides, toward), reports in zip(self._matched.streams, streams, strict=True):
            names = [_endpoints((True, sides[capture][0].key)) for capture in (0, 1)]
            members: tuple[list[ConnectionReport], list[ConnectionReport]] = ([], [])
            swapped = False
            for capture, (kind, source, destination) in enumerate(names):
                unmatched = self._unmatched[capture]
                # The tracker knows the client better than the order of first packets does.
                swapped = (kind, destination, source) in unmatched
                members[capture].extend(unmatched.get((kind, source, destination), []))
                members[capture].extend(unmatched.get((kind, destination, source), []))
                self.reports[capture].extend(members[capture])
            one = JoinedConnection(
                number=0,
                kind="proxied",
                transport="tcp",
                connections=(
                    [r.connection for r in members[0]],
                    [r.connection for r in members[1]],
                ),
                protocol=next((r.protocol for side in members for r in side), None),
                ends=(
                    self._ends_of(members[0], names[0]),
                    self._ends_of(members[1], names[1]),
                ),
                client=(0 if toward > 0 else 1) ^ swapped,
                streams=reports[::-1] if swapped else reports,
            )
            self.order[id(one)] = sides[0][0].number
            conversations.append(one)
        return conversations

    def _ends_of(
        self, members: list[ConnectionReport], name: tuple[str, str, str]
    ) -> list[tuple[str, str]]:
        ends = list(dict.fromkeys((report.client, report.server) for report in members))
        return ends or [(name[1], name[2])]


def _endpoints(flow: tuple[bool, bytes]) -> tuple[str, str, str]:
    """Return (transport, source, destination)."""
    source, destination = flow_endpoints(flow[1])
    return "tcp" if flow[0] else "udp", str(source), str(destination)


def _name(report: ConnectionReport) -> tuple[str, str, str]:
    """Return (transport, client, server)."""
    return report.transport, report.client, report.server


def _clock_report(clock: Clock) -> ClockReport:
    first = clock.pieces[0]
    steps = [
        (capture, frame, span / 1e6) for capture in (0, 1) for frame, span in clock.steps[capture]
    ]
    bounds = [piece.bound_ns for piece in clock.pieces]
    least = [_least(clock.pieces, way) for way in (0, 1)]
    return ClockReport(
        offset_ms=first.offset_ns / 1e6,
        bound_ms=None if None in bounds else max(b for b in bounds if b is not None) / 1e6,
        drift_ppm=first.drift * 1e6,
        drift_bound_ppm=first.drift_bound * 1e6,
        least_delay_ms=(least[0], least[1]),
        anchors=sum(piece.anchors for piece in clock.pieces),
        contradicting=sum(piece.contradicting for piece in clock.pieces),
        steps=tuple(steps),
    )


def _least(pieces: tuple[ClockPiece, ...], way: int) -> float | None:
    found = [piece.least_ns[way] for piece in pieces]
    known = [value for value in found if value is not None]
    return min(known) / 1e6 if known else None


def join(
    first: str,
    second: str,
    *,
    options: Options | None = None,
    span: tuple[int | None, int | None] = (None, None),
) -> Joined:
    """Return two captures of one conversation, joined.

    Args:
        first: path of a capture. Each is read twice, so neither can be a pipe.
        second: path of the other.
        options: decode-as rules and the like.
        span: (from, to), ns since the first frame of the first capture: only what was sent in it is
            counted; None = open.

    Raises:
        CaptureError: a file is missing, unreadable or no capture.
        NotJoinedError: the captures are not of one conversation, or too little shows that they are.

    """
    with rare_collections():
        try:
            matched = match(first, second)
        except NotJoinedError as error:
            raise NotJoinedError(f"{first} and {second} do not belong together: {error}") from None
        return Joined((first, second), matched, options, span)
