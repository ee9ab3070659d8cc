"""Anomalies one by one: all of them, or the worst where they are too many."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import chain

from netdissect.model.annotations import Severity
from netdissect.model.reports import Anomaly

__all__ = ["MAX_ANOMALIES", "Anomalies"]

MAX_ANOMALIES = 100_000
"""Anomalies kept; beyond, the least severe are let go, of these the newest, and counted."""


class Anomalies:
    """Takes anomalies as they are found."""

    __slots__ = ("_kept", "_taken", "dropped")

    def __init__(self) -> None:
        self._kept: dict[Severity, list[tuple[int, Anomaly]]] = {each: [] for each in Severity}
        """Severity, least first -> (ordinal, anomaly)."""
        self._taken = 0
        self.dropped = 0
        """How many were let go."""

    def take(self, anomaly: Anomaly) -> None:
        """Take one anomaly."""
        self._kept[anomaly.severity].append((self._taken, anomaly))
        self._taken += 1
        if self._taken - self.dropped > MAX_ANOMALIES:
            next(filter(None, self._kept.values())).pop()
            self.dropped += 1

    def renumber(self, numbers: Sequence[int]) -> None:
        """Give connection n the number `numbers[n - 1]`."""
        for _, anomaly in chain.from_iterable(self._kept.values()):
            if anomaly.connection is not None:
                anomaly.connection = numbers[anomaly.connection - 1]

    def settle(self, limits_hit: dict[str, int]) -> None:
        """Count those that were let go among the bounds that were hit."""
        if self.dropped:
            limits_hit["MAX_ANOMALIES"] = limits_hit.get("MAX_ANOMALIES", 0) + self.dropped

    def listed(self) -> list[Anomaly]:
        """Return those kept, in order of discovery."""
        return [anomaly for _, anomaly in merge(*self._kept.values(), key=lambda item: item[0])]
