"""A pytest fixture: `netdissect_capture("run.pcap").assert_no_loss()`.

pytest loads it wherever netdissect is installed; it costs nothing unless the fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from netdissect.model.reports import ConnectionReport

__all__ = ["CheckedCapture", "netdissect_capture"]


class CheckedCapture:
    """An analysed capture with assertions about it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Analyse the capture.

        Raises:
            CaptureError: the file is missing, or is not a capture.
        """
        from netdissect.pipeline import analyze  # noqa: PLC0415 - only where it is used

        self.path = os.fspath(path)
        self.analysis = analyze(self.path)
        """The result of `netdissect.analyze`."""
        self.connections: list[ConnectionReport] = list(self.analysis.connections)
        """Reports of the connections."""

    def losses(self) -> list[str]:
        """Return a sentence for each loss, for each unit that was given up, and for each timeout. A
        retransmission that was sent too early is no loss.
        """
        return [sentence for report in self.connections for sentence in _losses(report)]

    def assert_no_loss(self) -> None:
        """Fail the test if anything was lost, or if the capture has no connection, which would
        prove nothing.
        """
        self._assert_read()
        found = self.losses()
        assert not found, f"{self.path}: " + "; ".join(found)  # noqa: S101

    def _assert_read(self) -> None:
        assert self.connections, f"{self.path} holds no connection of a known protocol"  # noqa: S101

    def assert_no_anomalies(self, *codes: str) -> None:
        """Fail the test if there are findings with these codes; without codes, any warnings or
        errors. A capture without a connection fails too.

        Raises:
            UsageError: there is no such code, so the test could never fail.
        """
        self._assert_read()
        _known(codes)
        found = [
            f"connection {report.connection}: {name} ({count} {'time' if count == 1 else 'times'})"
            for report in self.connections
            for name, count in (report.codes if codes else report.anomalies).items()
            if count and name in (codes or ("warn", "error"))
        ]
        assert not found, f"{self.path}: " + "; ".join(found)  # noqa: S101


def _known(codes: Iterable[str]) -> None:
    from netdissect.lookup import catalogue  # noqa: PLC0415 - only where it is used
    from netdissect.model.errors import UsageError, did_you_mean  # noqa: PLC0415 - as above
    from netdissect.model.text import quoted  # noqa: PLC0415 - as above

    rows = catalogue()
    for code in codes:
        if code not in rows:
            near = did_you_mean(code, rows)
            raise UsageError(f"no finding has the code {quoted(code)}{near}")


def _losses(report: ConnectionReport) -> Iterator[str]:
    who = f"connection {report.connection} ({report.client} -> {report.server})"
    for space in report.spaces:
        if space.given_up:
            side = ("client", "server")[space.direction]
            yield f"{who}: {space.given_up} of {space.units} {space.space} of the {side} given up"
    for direction, loss in enumerate(report.diagnosis.loss if report.diagnosis else ()):
        if loss.basis != "unknown" and loss.lost:
            side = ("client", "server")[direction]
            yield f"{who}: {loss.lost} of {loss.sent} of the {side} lost"
    for verdict in report.timeouts:
        if verdict.fired:
            yield f"{who}: the {verdict.side} timed out"


@pytest.fixture
def netdissect_capture() -> Callable[[Any], CheckedCapture]:
    """Return a function that analyses a capture: `netdissect_capture(path).assert_no_loss()`."""
    return CheckedCapture
