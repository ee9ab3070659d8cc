"""Rebuilds the snapshots of a connection: joins parts, applies deltas to their bases. Bounded."""

from __future__ import annotations

from typing import NamedTuple

from netdissect.wire.teeworlds_snapshots import (
    Delta,
    Items,
    NamedItems,
    SnapshotError,
    apply,
    read_delta,
)

MAX_SNAPSHOTS = 200
"""Snapshots kept as possible bases. A server sends 25 per second, and a base is at most 3 s old."""
SPARE = 16
"""Snapshots kept that are older than the base of the newest. A client drops them all, but a late
snapshot may need them. Source: Teeworlds `CClient::ProcessServerPacket`, `PurgeUntil`.
"""
MAX_PARTIAL = 8
"""Incomplete snapshots held at once; the oldest is given up for one more."""
MAX_PARTS = 64
"""Parts of one snapshot. Source: docs/protocols/teeworlds.md, snapshots."""


class Part(NamedTuple):
    """One snapshot message as it is on the wire."""

    tick: int
    delta: int
    """Ticks since the base; tick + 1 means that there is no base."""
    crc: int | None
    """Checksum; None for an empty snapshot."""
    data: bytes
    part: int = 0
    """Index of the part."""
    parts: int = 1
    """Number of parts of the snapshot."""


class Snapshot(NamedTuple):
    """The result of a snapshot message."""

    tick: int
    base: int | None
    """Tick of the base; None where it needs none."""
    items: Items | None
    """All items; None where the base or parts are missing, or the data is damaged."""
    delta: Delta | None
    """The changes; None while parts are missing."""
    code: str | None
    """Catalogue code of what is wrong; None where nothing is."""
    message: str = ""
    """Sentence about `code`, or about the missing parts."""


class Snapshots:
    """The snapshots of one connection."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.namer = NamedItems(family)
        """Names the items."""
        self._complete: dict[int, tuple[Items, int]] = {}
        """Tick -> items and checksum of the snapshots that are possible bases."""
        self._purge_at = SPARE
        """Number of snapshots at which those that are too old are dropped."""
        self._partial: dict[int, dict[int, bytes]] = {}
        """Tick -> index -> data of the parts of incomplete snapshots."""
        self._parts: dict[int, int] = {}
        """Tick in `_partial` -> number of parts of the snapshot."""
        self._reported: set[int] = set()
        """Ticks in `_partial` that `given_up` has returned."""

    def reset(self) -> None:
        """Forget everything, because a map change resets the ticks."""
        self._complete.clear()
        for tick in list(self._partial):
            self._forget(tick)

    def feed(self, part: Part) -> Snapshot:
        """Process one snapshot message and return its result."""
        base = None if part.delta == part.tick + 1 else part.tick - part.delta
        if part.parts > 1 and part.tick in self._complete and part.tick not in self._partial:
            # A duplicate of a part of a snapshot that is complete.
            return Snapshot(part.tick, base, self._complete[part.tick][0], None, None)
        data = self._join(part)
        if data is None:
            held = self._partial.get(part.tick, {})
            text = f"{_missing(held, part.parts)} of {part.parts} still missing"
            return Snapshot(part.tick, base, None, None, None, text)
        if part.crc is None:
            return self._unchanged(part, base)
        try:
            delta = read_delta(data, self.family)
        except SnapshotError as fault:
            return Snapshot(part.tick, base, None, fault.delta, "teeworlds-snap-data", str(fault))
        return self._rebuild(part, base, delta)

    def given_up(self, tick: int) -> list[str]:
        """Return a sentence on each incomplete snapshot that receivers drop when `tick` comes.

        They drop the parts that they have as soon as a newer snapshot begins. Each snapshot is
        returned once; late parts can still complete it here.
        Source: Teeworlds `CClient::ProcessServerPacket`.
        """
        lost = []
        for older, held in self._partial.items():
            if older < tick and older not in self._reported:
                self._reported.add(older)
                parts = self._parts[older]
                lost.append(f"snapshot {older}: {_missing(held, parts)} of {parts} did not come")
        return lost

    def _join(self, part: Part) -> bytes | None:
        """Add a part; return the data of the snapshot once all parts are there."""
        if part.parts <= 1:
            return part.data
        if not 0 <= part.part < part.parts <= MAX_PARTS:
            return None
        parts = self._partial.setdefault(part.tick, {})
        self._parts[part.tick] = part.parts
        parts[part.part] = part.data
        if len(parts) == part.parts:
            self._forget(part.tick)
            return b"".join(parts[index] for index in sorted(parts))
        while len(self._partial) > MAX_PARTIAL:
            self._forget(next(iter(self._partial)))
        return None

    def _forget(self, tick: int) -> None:
        """Drop the parts of an incomplete snapshot."""
        del self._partial[tick], self._parts[tick]
        self._reported.discard(tick)

    def _unchanged(self, part: Part, base: int | None) -> Snapshot:
        """Return the result of an empty snapshot, which equals its base."""
        if base is None:
            # A 0.6.5 server sends its token to an older client in this form: it is no snapshot.
            return Snapshot(part.tick, None, None, Delta(), None)
        before = self._complete.get(base)
        if before is None:
            return self._without_base(part, base, Delta())
        self._keep(part.tick, before, base)
        return Snapshot(part.tick, base, before[0], Delta(), None)

    def _without_base(self, part: Part, base: int | None, delta: Delta) -> Snapshot:
        text = f"snapshot {base} is not in the capture"
        return Snapshot(part.tick, base, None, delta, "teeworlds-snap-base", text)

    def _rebuild(self, part: Part, base: int | None, delta: Delta) -> Snapshot:
        """Return the result of applying a delta to its base."""
        before = ({}, 0) if base is None else self._complete.get(base)
        if before is None:
            return self._without_base(part, base, delta)
        items, found = apply(before[0], before[1], delta)
        if found != part.crc:
            text = f"{found}, the server says {part.crc}"
            return Snapshot(part.tick, base, items, delta, "teeworlds-snap-crc", text)
        self._keep(part.tick, (items, found), base)
        return Snapshot(part.tick, base, items, delta, None)

    def _keep(self, tick: int, snapshot: tuple[Items, int], base: int | None) -> None:
        """Keep a snapshot as a possible base, and drop those that are no longer needed."""
        kept = self._complete
        # Deleted first, so that it becomes the newest entry.
        kept.pop(tick, None)
        kept[tick] = snapshot
        # Not after each snapshot: to look through all of them costs more than to apply a delta.
        if base is not None and len(kept) >= self._purge_at:
            for older in [each for each in kept if each < base][:-SPARE]:
                del kept[older]
            self._purge_at = len(kept) + SPARE
        while len(kept) > MAX_SNAPSHOTS:
            del kept[next(iter(kept))]


def _missing(held: dict[int, bytes], parts: int) -> str:
    """Return which parts are not held: "parts 1 and 3" (counted from 0, as on the wire)."""
    missing = [str(index) for index in range(min(parts, MAX_PARTS)) if index not in held]
    if len(missing) <= 1:
        return f"part {''.join(missing)}"
    return f"parts {', '.join(missing[:-1])} and {missing[-1]}"
