"""Lists of anomalies, bounded: of too many the most severe are kept."""

from __future__ import annotations

from bisect import insort
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import chain

from netdissect.model.annotations import Severity
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import Anomaly
from netdissect.track.findings import REPORTED

MAX_ANOMALIES = 100_000
"""Anomalies kept. Beyond that, the one with the last frame of the least severe ones is dropped and
counted, so that those kept do not depend on the order in which they are found.
"""
MAX_COUNTED = 100_000
"""Pairs of connection and code whose repeats are counted. Beyond that, the one found longest ago is
forgotten and starts again at 1.
"""


class Anomalies:
    """Collects anomalies in the order in which they are found."""

    __slots__ = ("_kept", "_taken", "dropped")

    def __init__(self) -> None:
        self._kept: dict[Severity, list[tuple[int, Anomaly]]] = {each: [] for each in Severity}
        """Severity, lowest first -> (ordinal, anomaly), in order of `_place`."""
        self._taken = 0
        self.dropped = 0
        """Anomalies that were dropped."""

    def take(self, anomaly: Anomaly) -> None:
        """Add one anomaly."""
        insort(self._kept[anomaly.severity], (self._taken, anomaly), key=_place)
        self._taken += 1
        if self._taken - self.dropped > MAX_ANOMALIES:
            # The last one of the lowest severity that has any.
            next(filter(None, self._kept.values())).pop()
            self.dropped += 1

    def renumber(self, numbers: Sequence[int]) -> None:
        """Change the number of each connection n to `numbers[n - 1]`."""
        for _, anomaly in chain.from_iterable(self._kept.values()):
            if anomaly.connection is not None:
                anomaly.connection = numbers[anomaly.connection - 1]

    def settle(self, limits_hit: dict[str, int]) -> None:
        """Add the dropped anomalies to the bounds that were hit."""
        if self.dropped:
            limits_hit["MAX_ANOMALIES"] = limits_hit.get("MAX_ANOMALIES", 0) + self.dropped

    def listed(self) -> list[Anomaly]:
        """Return the anomalies that were kept, in order of discovery."""
        found = sorted(chain.from_iterable(self._kept.values()), key=lambda item: item[0])
        return [anomaly for _, anomaly in found]


def _place(item: tuple[int, Anomaly]) -> tuple[int, int, str, str]:
    """Return the sort key of an anomaly: whichever process finds it, it is the same."""
    anomaly = item[1]
    return anomaly.frame or 0, anomaly.repeats, anomaly.code, anomaly.message


class ContentFindings:
    """Collects the findings that only decoding makes: the tracker decodes no more than it needs."""

    def __init__(self) -> None:
        self.anomalies = Anomalies()
        self.totals: Counter[str] = Counter()
        """Code -> number of findings, including those that are not listed."""
        self._repeats: OrderedDict[tuple[int | None, str], int] = OrderedDict()

    def take(self, record: DatagramRecord) -> None:
        """Process the next datagram."""
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
