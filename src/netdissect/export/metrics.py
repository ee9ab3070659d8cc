"""The figures of a running capture for Prometheus: OpenMetrics over HTTP, served by
`prometheus_client`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdissect.model.annotations import Severity
from netdissect.model.errors import UsageError
from netdissect.model.live import ServerFigures
from netdissect.model.text import parse_count, quoted

_DIRECTIONS = ("c2s", "s2c")
_QUANTILES = (0.5, 0.95)
_MS = 1000.0
_SERVER = ("server", "protocol")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is served. The capture makes a new one for each update; the server only reads it."""

    packets: int = 0
    dropped: int = 0
    """Packets that arrived too fast to be parsed."""
    others: int = 0
    """Datagrams of no known protocol."""
    servers: Sequence[ServerFigures] = field(default_factory=tuple)


class Endpoint:
    """Serves the newest facts. Set `facts` to update them; `close` ends it."""

    def __init__(self, address: str) -> None:
        """Start serving.

        Args:
            address: `host:port`; port 0 = any free port.

        Raises:
            UsageError: it is no address, it is in use, or prometheus_client is not installed.

        """
        host, _, port = address.rpartition(":")
        known = parse_count(port)
        if known is None or known > 0xFFFF:  # noqa: PLR2004 - the largest port
            given = quoted(address)
            raise UsageError(f"--metrics wants HOST:PORT, such as 127.0.0.1:9464, not {given}")
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise UsageError(
                "--metrics needs prometheus_client: pip install 'netdissect[metrics]'"
            ) from error
        self.facts = Facts()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(
                known, host.strip("[]") or "127.0.0.1", registry
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"{address}: {reason}; another port may be free") from error
        self.address = f"{host or '127.0.0.1'}:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def describe(self) -> Iterable[Any]:
        """Return nothing: which metrics there are depends on the capture."""
        return []

    def collect(self) -> Iterable[Any]:
        """Return the current metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        facts = self.facts

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Any:
            return CounterMetricFamily(f"netdissect_{name}", text, labels=labels)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Any:
            return GaugeMetricFamily(f"netdissect_{name}", text, labels=labels)

        whole = [
            (counter("packets", "Packets taken"), facts.packets),
            (counter("dropped_packets", "Packets not parsed in time"), facts.dropped),
            (counter("other_datagrams", "Datagrams of no known protocol"), facts.others),
        ]
        for metric, value in whole:
            metric.add_metric((), value)
        way = counter("datagrams", "Datagrams of known connections", (*_SERVER, "direction"))
        octets = counter("payload_bytes", "Payload of these datagrams", (*_SERVER, "direction"))
        findings = counter("findings", "Findings by severity", (*_SERVER, "severity"))
        units = counter("units", "Numbered messages and packets sent", _SERVER)
        again = counter("retransmissions", "Units retransmitted", _SERVER)
        lost = counter("lost_units", "Units never seen, though later ones were", _SERVER)
        begun = counter("connections_begun", "Connections so far", _SERVER)
        now = gauge("connections_open", "Open connections", _SERVER)
        lag = gauge(
            "round_trip_seconds", "Round trip over open connections", (*_SERVER, "quantile")
        )
        for row in facts.servers:
            who = (row.server, row.protocol)
            for index, name in enumerate(_DIRECTIONS):
                way.add_metric((*who, name), row.datagrams[index])
                octets.add_metric((*who, name), row.octets[index])
            for severity in Severity:
                findings.add_metric((*who, severity.label), row.findings[severity])
            units.add_metric(who, row.units)
            again.add_metric(who, row.retransmissions)
            lost.add_metric(who, row.lost)
            begun.add_metric(who, row.begun)
            now.add_metric(who, row.open)
            trips = sorted(row.trips_ms)
            for share in _QUANTILES if trips else ():
                at = min(len(trips) - 1, int(share * len(trips)))
                lag.add_metric((*who, str(share)), trips[at] / _MS)
        figures = [way, octets, findings, units, again, lost, begun, now, lag]
        return [*(metric for metric, _ in whole), *figures]
