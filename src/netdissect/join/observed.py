"""What views show of two joined captures: each unit and datagram as its sender's capture holds it,
with its fate, by the clock and the connection numbers of the first capture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from statistics import median
from typing import Final

from netdissect.diagnosis import cause_without_loss, diagnose_joined
from netdissect.join.joined import Joined
from netdissect.model.diagnosis import Cause, Limits, Loss, SilenceLoss
from netdissect.model.intervals import Interval
from netdissect.model.joined import Burst, Fate, Flight
from netdissect.model.packets import SIDES
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.pipeline.reports import Reports

MAX_DELAYS: Final = 256
"""One-way delays kept per span and direction for the median."""

DARK_NS: Final = 2_000_000_000
"""A direction that lost every datagram for this long was dark."""

_USUAL: Final = Limits()

_Item = UnitRecord | ConnectionEvent


class Observed:
    """Turns the timelines, records and reports of each capture into those of both."""

    def __init__(self, joined: Joined, limits: Limits = _USUAL) -> None:
        self._joined = joined
        self._limits = limits
        self._numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """Per capture: connection -> its number in the first capture."""
        self._senders: dict[tuple[int, int], int] = {}
        """(connection of the first capture, direction) -> capture next to the sender."""
        self.compared: set[int] = set()
        """Connections of the first capture whose datagrams are compared: not those of a proxy."""
        for conversation in joined.report.conversations:
            ours, theirs = conversation.connections
            ways = conversation.ways
            if not ours or conversation.client is None:
                continue
            for index, number in enumerate(theirs):
                # One capture may show more connections, as the other missed an end: surplus ones
                # count as the last.
                self._numbers[1][number] = ours[min(index, len(ours) - 1)]
            for number in ours:
                self._numbers[0][number] = number
                if ways:
                    self.compared.add(number)
                for direction in (0, 1):
                    # The segments of a proxied stream are not compared: the first capture's are
                    # shown as it alone has them.
                    self._senders[number, direction] = ways[direction].sender if ways else 0

    def numbers(self) -> list[int]:
        """Return the connections of the first capture that have a partner in the second."""
        return sorted(number for number, direction in self._senders if direction == 0)

    def own_numbers(self, capture: int, wanted: Container[int]) -> frozenset[int]:
        """Return the connections of a capture that are part of some of the first capture."""
        return frozenset(mine for mine, ours in self._numbers[capture].items() if ours in wanted)

    def timeline(self, sides: Sequence[Iterable[_Item]]) -> Iterator[_Item]:
        """Yield units as their senders' captures show them, with the fates of their copies, and the
        events of the first capture; in order of common time.

        Args:
            sides: the timelines of both captures.

        """
        streams = [self._side(capture, side) for capture, side in enumerate(sides)]
        yield from merge(*streams, key=_moment)

    def _side(self, capture: int, items: Iterable[_Item]) -> Iterator[_Item]:
        for item in items:
            number = self._numbers[capture].get(item.connection)
            if number is None:
                continue
            if isinstance(item, ConnectionEvent):
                # Both captures have most events; the first one's are shown.
                if capture == 0:
                    item.data["capture"] = capture
                    yield item
            elif self._senders.get((number, item.direction)) == capture:
                item.connection = number
                self._observe(capture, item)
                yield item

    def _observe(self, capture: int, unit: UnitRecord) -> None:
        """Write the fates of its copies and common times into a unit."""
        joined = self._joined
        arrived = False
        for copy in unit.copies:
            row = joined.fate(capture, copy.frame)
            copy.time_ns = joined.common_ns(capture, copy.frame, copy.time_ns)
            if row.fate is Fate.APART:
                continue
            copy.basis = "inferred" if row.ambiguous else "observed"
            copy.fate, copy.delay_ms = row.fate.label, row.delay_ms
            arrived = arrived or row.fate in {Fate.DELIVERED, Fate.UNSEEN}
            if copy.due_ns is not None:
                copy.due_ns = joined.common_ns(capture, copy.frame, copy.due_ns)
        last = unit.copies[-1].frame if unit.copies else 1
        for name in ("acked_time_ns", "next_resend_due_ns", "settled_ns"):
            value = getattr(unit, name)
            if value is not None:
                setattr(unit, name, joined.common_ns(capture, last, value))
        unit.extra["capture"] = capture
        unit.extra["arrived"] = arrived

    def flights(self, sides: Sequence[Iterable[DatagramRecord]]) -> Iterator[Flight]:
        """Yield the datagrams of joined connections, and arrivals that nobody sent; in order of the
        time at which they were first seen.

        Args:
            sides: the records of both captures, in order of frames.

        """
        streams = [self._flights(capture, side) for capture, side in enumerate(sides)]
        yield from merge(*streams, key=lambda flight: flight.moment_ns)

    def _flights(self, capture: int, records: Iterable[DatagramRecord]) -> Iterator[Flight]:
        joined = self._joined
        for record in records:
            row = joined.fate(capture, record.frame)
            number = self._numbers[capture].get(record.connection or 0)
            # An arrival is part of the flight that the other capture begins.
            if number is None or row.fate in {Fate.APART, Fate.ARRIVED}:
                continue
            record.connection = number
            common = row.common_ns
            sends = self._senders.get((number, record.direction or 0)) == capture
            if row.fate is Fate.COPY:
                sent = joined.fate(1 - capture, row.partner or 0).common_ns
                yield Flight(record, capture, row, sent, common, copy=True)
            elif sends:
                arrived = None
                if row.partner is not None:
                    arrived = joined.fate(1 - capture, row.partner).common_ns
                yield Flight(record, capture, row, common, arrived)
            else:
                # Nobody sent it: the other capture missed it, or began later.
                yield Flight(record, capture, row, None, common)

    def reports(self) -> Reports:
        """Return the connections of the first capture. The diagnosis of a connection that both have
        rests on both: its losses were observed, and it is known who fell silent.
        """
        return Reports(map(self._diagnosed, self._joined.reports[0]))

    def _diagnosed(self, report: ConnectionReport) -> ConnectionReport:
        found = report.diagnosis
        one = next(
            (
                one
                for one in self._joined.report.conversations
                if report.connection in one.connections[0] and one.ways and one.client is not None
            ),
            None,
        )
        if found is None or one is None:
            return report
        ways = [Loss(way.sent - way.outside, way.lost, "joined") for way in one.ways]
        loss = (ways[0], ways[1])
        # Bursts are ordered by datagrams, and a silence may hold few: the longest is sought.
        longest = [
            (max(way.bursts, key=_duration), direction)
            for direction, way in enumerate(one.ways)
            if way.bursts
        ]
        dark = [(burst, direction) for burst, direction in longest if _duration(burst) >= DARK_NS]
        shares = [part.share or 0.0 for part in loss]
        lossy = 100 * max(shares) > self._limits.high_loss
        limited = any(way.ceiling is not None for way in one.ways)
        cause = found.cause
        if dark:
            cause = _dark(dark)
        elif (cause.what == "loss" and (lossy or limited)) or (
            lossy and (cause.what in {"none", "closed"} or cause.to_ns is not None)
        ):
            worst = shares.index(max(shares))
            limit = one.ways[worst].ceiling
            cause = replace(
                cause,
                what="loss",
                direction=worst,
                from_ns=report.first_time_ns,
                to_ns=report.last_time_ns,
                from_frame=None,
                to_frame=None,
                confidence="certain",
                text=self._lost(shares)
                + ("" if limit is None else f" The rate was limited: {limit.text}."),
                calm=False,
            )
        elif cause.what in {"loss", "none", "closed"}:
            # One capture alone may have counted numbers that the sender had skipped as lost.
            cause = cause_without_loss(report, found.ending, loss, self._limits)
        elif cause.what in {"silence", "one-way"}:
            cause = replace(
                cause,
                confidence="certain",
                text=f"{cause.text} The network is ruled out: both captures show no span in which "
                "it lost everything.",
            )
        silent = cause.what in {"silence", "one-way"}
        around = self._around(one.number, cause) if silent else None
        diagnosis = diagnose_joined(report, found, cause, loss, around, self._limits)
        return replace(report, diagnosis=diagnosis)

    def _lost(self, shares: list[float]) -> str:
        """Return how much was lost per direction, the worst first."""
        parts = sorted(zip(shares, SIDES, strict=True), reverse=True)
        high = [each for each in parts if 100 * each[0] > self._limits.high_loss]
        lost = " and ".join(
            f"{100 * share:.1f}% of what the {side} sent" for share, side in high or parts[:1]
        )
        return f"The network lost {lost}, as both captures show."

    def _around(self, conversation: int, cause: Cause) -> SilenceLoss:
        """Return what was lost before the span of a cause and during it."""
        start, end = cause.from_ns or 0, cause.to_ns
        counts: Counter[tuple[bool, int, bool]] = Counter()
        for capture in (0, 1):
            for _, row, direction in self._joined.sent(capture, {conversation}):
                if row.fate in _KNOWN and (end is None or row.common_ns <= end):
                    counts[row.common_ns >= start, direction, row.fate is Fate.LOST] += 1

        def loss(direction: int, *, inside: bool) -> Loss:
            lost = counts[inside, direction, True]
            return Loss(lost + counts[inside, direction, False], lost, "joined")

        return SilenceLoss(
            (loss(0, inside=False), loss(1, inside=False)),
            (loss(0, inside=True), loss(1, inside=True)),
        )

    def spans(
        self,
        rows: Sequence[Interval],
        connection: int | None,
        window: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """Write observed losses and delays into the rows of `stats`, each datagram in the span in
        which it was sent.

        Args:
            rows: spans of both directions, in order of time.
            connection: a connection of the first capture; None = all.
            window: (from, to) of what counts, ns; None = open.

        """
        if not rows:
            return
        begin, end = window
        start, span = rows[0].start_ns, rows[0].span_ns
        lookup = {((row.start_ns - start) // span, row.direction): row for row in rows}
        delays: dict[int, list[float]] = {}
        for row in rows:
            row.lost = row.decided = 0
            row.observed = True
        for capture in (0, 1):
            numbers = self._conversations(connection)
            for _, sent, direction in self._joined.sent(capture, numbers):
                found = lookup.get(((sent.common_ns - start) // span, direction))
                inside = (begin or 0) <= sent.common_ns <= (end or sent.common_ns)
                if found is None or not inside or sent.fate not in _KNOWN:
                    continue
                found.decided += 1
                found.lost += sent.fate is Fate.LOST
                if sent.delay_ms is not None:
                    kept = delays.setdefault(id(found), [])
                    if len(kept) < MAX_DELAYS:
                        kept.append(sent.delay_ms)
        for row in rows:
            if id(row) in delays:
                row.delay_ms = median(delays[id(row)])

    def _conversations(self, connection: int | None) -> set[int] | None:
        """Return the numbers of the conversations of a connection; None for all."""
        if connection is None:
            return None
        return {
            one.number
            for one in self._joined.report.conversations
            if connection in one.connections[0]
        }


def _duration(burst: Burst) -> int:
    return burst.end_ns - burst.start_ns


def _dark(dark: list[tuple[Burst, int]]) -> Cause:
    """Return the cause if the network lost everything of a direction for a while."""
    burst, direction = max(dark, key=lambda item: _duration(item[0]))
    both = len(dark) > 1 and all(
        other.start_ns < burst.end_ns and burst.start_ns < other.end_ns for other, _ in dark
    )
    who = "both sides" if both else f"the {SIDES[direction]}"
    span = _duration(burst) / 1e9
    return Cause(
        what="silence" if both else "one-way",
        direction=None if both else direction,
        from_ns=burst.start_ns,
        to_ns=burst.end_ns,
        from_frame=burst.first_frame,
        to_frame=burst.last_frame,
        confidence="certain",
        text=f"The network lost everything that {who} sent for {span:.1f} s: "
        f"as both captures show, {burst.datagrams} datagrams of the {SIDES[direction]} in a row "
        "did not arrive.",
    )


_KNOWN: Final = frozenset({Fate.DELIVERED, Fate.LOST, Fate.UNSEEN})


def _moment(item: _Item) -> int:
    if isinstance(item, UnitRecord):
        return item.copies[0].time_ns if item.copies else 0
    return item.time_ns
