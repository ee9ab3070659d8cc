"""Round-trip samples in bounded memory."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import append, i64, mypyc_attr, vec
from netdissect.model.reports import RttSummary

MAX_SAMPLES: Final = 512
"""Samples kept for the percentiles of one space or probe."""
_NEVER: Final = (1 << 62) - 1
"""A time in ns beyond all samples."""


@mypyc_attr(acyclic=True)
class RttReservoir:
    """Count, extremes and percentiles of round trips, from every n-th sample. When the memory is
    full, every second sample is dropped and n doubles. The selection depends on the samples alone,
    so two runs give the same percentiles.
    """

    __slots__ = (
        "_kept", "_known", "_skip", "_step", "ambiguous", "highest", "latest", "lowest", "samples",
    )  # fmt: skip

    def __init__(self) -> None:
        self.samples: i64 = 0
        self.ambiguous = 0
        """Acknowledged units that gave no sample."""
        self.lowest: i64 = _NEVER
        """Smallest sample, ns; `_NEVER` without samples."""
        self.highest: i64 = -_NEVER
        """Largest sample, ns."""
        self.latest: i64 = 0
        """Newest sample, ns."""
        self._kept = vec[i64]()
        self._step: i64 = 1
        self._skip: i64 = 0
        self._known: RttSummary | None = None
        """The summary computed last, because ranking the samples costs more than taking them."""

    def add(self, sample_ns: i64) -> None:
        """Add one unambiguous sample."""
        self.add_many(sample_ns, 1)

    def add_many(self, sample_ns: i64, count: i64) -> None:
        """Add the same sample `count` times."""
        self.samples += count
        self.latest = sample_ns
        # Builtins would cost more than the rest.
        if sample_ns < self.lowest:  # noqa: PLR1730
            self.lowest = sample_ns
        if sample_ns > self.highest:  # noqa: PLR1730
            self.highest = sample_ns
        left = count
        while left > self._skip:
            left -= self._skip + 1
            self._skip = self._step - 1
            kept = self._kept = append(self._kept, sample_ns)
            if len(kept) >= MAX_SAMPLES:
                self._thin()
                self._step *= 2
                self._skip = self._step - 1
        self._skip -= left

    def _thin(self) -> None:
        """Drop every second sample, without a list, which would create an object for each."""
        kept = self._kept
        left: i64 = (len(kept) + 1) >> 1
        thinned = self._kept = vec[i64]([0] * int(left))
        place: i64 = 0
        while place < left:
            thinned[place] = kept[2 * place]
            place += 1

    def _copied(self) -> vec[i64]:
        """Return a copy of the samples, which selection may reorder."""
        kept = self._kept
        count: i64 = len(kept)
        copied = vec[i64]([0] * int(count))
        place: i64 = 0
        while place < count:
            copied[place] = kept[place]
            place += 1
        return copied

    def quick(self) -> int:
        """Return the first decile of the samples in ns, but never the smallest of several: the
        quickest round trip if a few samples may be answers to something else. Needs samples.
        """
        count: i64 = len(self._kept)
        return int(_selected(self._copied(), min(count - 1, max(1, count // 10))))

    def slow_ms(self) -> float:
        """Return the 95th percentile in milliseconds; 0 without samples."""
        return self.summary().p95 or 0.0

    def percentile(self, share: float) -> float | None:
        """Return a percentile in milliseconds (nearest rank); None without samples."""
        return _ranked(self._copied(), int(share * 1000)) if len(self._kept) else None

    def summary(self) -> RttSummary:
        """Return the figures of the report."""
        if not self.samples:
            return RttSummary(0, self.ambiguous)
        known = self._known
        # A sample changes the count, so that an equal count means the same samples.
        if known is not None and (known.samples, known.ambiguous) == (self.samples, self.ambiguous):
            return known
        samples = self._copied()
        known = self._known = RttSummary(
            self.samples, self.ambiguous,
            int(self.lowest) / 1e6, _ranked(samples, 500), _ranked(samples, 950),
            int(self.highest) / 1e6,
        )  # fmt: skip
        return known


def _ranked(samples: vec[i64], per_mille: i64) -> float:
    """Return a percentile in milliseconds (nearest rank), reordering the samples."""
    return int(_selected(samples, max(0, (per_mille * len(samples) + 999) // 1000 - 1))) / 1e6


def _selected(samples: vec[i64], rank: i64) -> i64:
    """Return the sample with this rank by Hoare's selection, reordering the samples. Sorting would
    create an object for each, and take three times as long.
    """
    low: i64 = 0
    high: i64 = len(samples) - 1
    while low < high:
        pivot = samples[(low + high) >> 1]
        left, right = low, high
        while left <= right:
            # The pivot itself stops both scans, so that no bound needs to be tested.
            while samples[left] < pivot:
                left += 1
            while samples[right] > pivot:
                right -= 1
            if left <= right:
                lower = samples[right]
                samples[right] = samples[left]
                samples[left] = lower
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return samples[rank]
