"""What only decoding finds: tracking reads of a datagram no more than it needs."""

from __future__ import annotations

from collections import Counter, OrderedDict

from netdissect.model.records import DatagramRecord
from netdissect.model.reports import Anomaly
from netdissect.pipeline.anomalies import Anomalies
from netdissect.track.findings import REPORTED

__all__ = ["MAX_COUNTED", "ContentFindings"]

MAX_COUNTED = 100_000
"""Codes of connections whose repeats are counted; beyond, the one found longest ago starts anew."""


class ContentFindings:
    """Takes records; gathers the annotations on them that are no findings of the tracker."""

    def __init__(self) -> None:
        self.anomalies = Anomalies()
        self.totals: Counter[str] = Counter()
        """Code -> how often it was found, repeats that are not reported included."""
        self._repeats: OrderedDict[tuple[int | None, str], int] = OrderedDict()

    def take(self, record: DatagramRecord) -> None:
        """Take the next datagram."""
        if record.dissection is None:
            return
        known = {finding.code for finding in record.findings}
        for note in record.dissection.annotations:
            if note.code in known:
                continue
            self.totals[note.code] += 1
            repeats = self._count(record.connection, note.code)
            if repeats in REPORTED:
                self.anomalies.take(
                    Anomaly(
                        code=note.code,
                        severity=note.severity,
                        group=note.group,
                        frame=record.frame,
                        time_ns=record.time_ns,
                        connection=record.connection,
                        direction=record.direction,
                        message=note.message,
                        evidence={},
                        repeats=repeats,
                    )
                )

    def _count(self, connection: int | None, code: str) -> int:
        repeats = self._repeats.pop((connection, code), 0) + 1
        self._repeats[connection, code] = repeats
        if len(self._repeats) > MAX_COUNTED:
            self._repeats.popitem(last=False)
        return repeats
