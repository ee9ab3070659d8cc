"""The histories of the connections of a capture: of all, or of some that are requested."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from netdissect.model.reports import Anomaly, ConnectionEvent, ConnectionReport, UnitRecord
from netdissect.plot.history import MAX_SLOWEST, History
from netdissect.plot.thin import MAX_POINTS

MAX_HISTORIES = 1024
"""Connections that have a history; in a capture with more of them, the first ones."""
_SHARES = ((8, 1), (64, 5), (MAX_HISTORIES, 40))
"""(number of histories up to which it applies, divisor of the points of each): the more histories,
the fewer points in each, so that the total is bounded.
"""

Worst = Callable[[History, UnitRecord], None]


class Gallery:
    """Passes what is read to the history of its connection."""

    def __init__(
        self,
        wanted: Collection[int] | None = None,
        *,
        limit: int = MAX_POINTS,
        span: tuple[int, int] | None = None,
        only: Callable[[int], bool] | None = None,
    ) -> None:
        """Take what is requested.

        Args:
            wanted: numbers of the connections; None = the first MAX_HISTORIES.
            limit: points of one kind that a history keeps, before it is divided.
            span: (from, to), ns since the first datagram of a connection: units in it are kept in
                full.
            only: whether what belongs to a frame is taken, a unit by any of its copies; None = all.

        """
        self.wanted = wanted
        self.limit = limit
        self.span = span
        self.only = only
        self.histories: dict[int, History] = {}
        self.left_out = 0
        """Datagrams of connections that have no history because of MAX_HISTORIES."""
        self.worst: Worst | None = None
        """Called with each unit that is the slowest of its connection so far."""

    def history(self, connection: int) -> History | None:
        """Return the history of a connection; None if it has none."""
        found = self.histories.get(connection)
        if found is None:
            if self.wanted is not None and connection not in self.wanted:
                return None
            if len(self.histories) >= MAX_HISTORIES:
                return None
            count = len(self.histories if self.wanted is None else self.wanted)
            share = next((part for most, part in _SHARES if count < most), _SHARES[-1][1])
            limit = max(1, self.limit // share)
            slowest = MAX_SLOWEST if share <= _SHARES[1][1] else MAX_SLOWEST // 5
            found = History(connection, limit=limit, slowest=slowest, span=self.span)
            self.histories[connection] = found
        return found

    def take(self, item: UnitRecord | ConnectionEvent) -> None:
        """Process a unit or an event."""
        history, only = self.history(item.connection), self.only
        if history is None:
            return
        if only is not None:
            frames = [item.frame or 0] if isinstance(item, ConnectionEvent) else [
                copy.frame for copy in item.copies]  # fmt: skip
            if not any(map(only, frames)):
                return
        if isinstance(item, ConnectionEvent):
            history.event(item)
        elif history.unit(item) and self.worst is not None:
            self.worst(history, item)

    def datagram(
        self, connection: int, direction: int, time_ns: int, frame: int, octets: int
    ) -> None:
        """Process a datagram."""
        history = self.histories.get(connection) or self.history(connection)
        if self.only is not None and not self.only(frame):
            return
        if history is None:
            self.left_out += self.wanted is None
        else:
            history.datagram(direction, time_ns, frame, octets)

    def finding(self, found: Anomaly) -> None:
        """Process a finding."""
        if self.only is not None and (found.frame is None or not self.only(found.frame)):
            return
        history = None if found.connection is None else self.history(found.connection)
        if history is not None:
            history.finding(found)

    def finish(self, reports: Sequence[ConnectionReport]) -> None:
        """Process the final reports of the connections."""
        for report in reports:
            history = self.histories.get(report.connection)
            if history is not None:
                history.finish(report)
