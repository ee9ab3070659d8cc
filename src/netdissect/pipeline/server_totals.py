"""Totals by server of a running capture, for monitoring."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from netdissect.model.annotations import Severity
from netdissect.model.live import ServerFigures
from netdissect.model.reports import ConnectionReport, SpaceReport
from netdissect.track.connection import Connection

MAX_SERVERS = 100
"""Servers with totals of their own, those seen first. All others are counted together."""
OTHER = "other"
"""Name of the totals of all other servers."""


class ServerTotals:
    """Totals by server, of connections that have ended and of those that are still tracked."""

    def __init__(self) -> None:
        self._ended: dict[tuple[str, str], ServerFigures] = {}
        self._shown: dict[tuple[str, str], ServerFigures] = {}
        self._apart: set[str] = set()

    @property
    def servers(self) -> int:
        """Return how many servers have totals of their own."""
        return len(self._apart)

    def ended(self, report: ConnectionReport) -> None:
        """Add the report of a connection that has ended."""
        row = self._row(self._ended, report.server, report.protocol)
        _add(row, report.datagrams, report.octets, report.spaces)
        counts = [report.anomalies.get(level.label, 0) for level in Severity]
        row.findings = [a + b for a, b in zip(row.findings, counts, strict=True)]
        row.begun += 1

    def now(self, tracked: Iterable[Connection]) -> list[ServerFigures]:
        """Return the present totals of all servers, which never decrease; `tracked` are the
        connections that have not ended.
        """
        rows = deepcopy(self._ended)
        for connection in tracked:
            row = self._row(rows, connection.endpoints[1], connection.protocol)
            there, back = connection.lanes
            spaces = [space.report() for lane in connection.lanes for space in lane.space_list]
            _add(row, (there.datagrams, back.datagrams), (there.octets, back.octets), spaces)
            found = connection.findings.by_severity
            row.findings = [a + b for a, b in zip(row.findings, found, strict=True)]
            row.begun += 1
            row.open += 1
            trip_ms = median_round_trip(connection)
            if trip_ms is not None:
                row.trips_ms.append(trip_ms)
        for key, row in rows.items():
            # A unit counted as lost may arrive late, but a counter must not decrease.
            row.lost = max(row.lost, self._shown[key].lost if key in self._shown else 0)
        self._shown = rows
        return list(rows.values())

    def _row(
        self, rows: dict[tuple[str, str], ServerFigures], server: str, protocol: str
    ) -> ServerFigures:
        if server not in self._apart:
            if len(self._apart) < MAX_SERVERS:
                self._apart.add(server)
            else:
                server = OTHER
        return rows.setdefault((server, protocol), ServerFigures(server, protocol))


def _add(
    row: ServerFigures,
    datagrams: tuple[int, int],
    octets: tuple[int, int],
    spaces: Iterable[SpaceReport],
) -> None:
    for direction in range(2):
        row.datagrams[direction] += datagrams[direction]
        row.octets[direction] += octets[direction]
    for space in spaces:
        row.units += space.units
        row.retransmissions += space.retransmissions
        row.lost += space.never_seen


def median_round_trip(connection: Connection) -> float | None:
    """Return the median round trip by the measure with the most samples, milliseconds; None without
    one. Next to one side, only measurements of that side are round trips.
    """
    client, server = connection.lanes
    lanes = {"client": (client,), "server": (server,)}.get(
        connection.vantage.word, (client, server)
    )
    trips = (trip for lane in lanes for trip in lane.round_trips())
    most = max(trips, key=lambda trip: trip.samples, default=None)
    return None if most is None else most.percentile(0.5)
