"""Rebuilds the snapshots of one connection: joins parts, applies deltas to their bases. Bounded."""

from __future__ import annotations

from typing import NamedTuple

from netdissect.wire.teeworlds_snapshots import (
    Delta,
    Items,
    SnapshotError,
    apply,
    checksum,
    read_delta,
)

__all__ = ["MAX_PARTIAL", "MAX_SNAPSHOTS", "Part", "Snapshot", "Snapshots"]

MAX_SNAPSHOTS = 200
"""Snapshots kept as possible bases: a server uses one that is at most 3 s old, of 25 a second."""
SPARE = 16
"""Snapshots kept that are older than the base of the newest. Clients drop them all then; what comes
late may rest on them. Source: Teeworlds `CClient::ProcessServerPacket`, `PurgeUntil`.
"""
MAX_PARTIAL = 8
"""Snapshots of which parts are held at once; beyond, the oldest is incomplete."""
MAX_PARTS = 64


class Part(NamedTuple):
    """One snapshot message as it stands on the wire."""

    tick: int
    delta: int
    """Ticks since the base; tick + 1 = there is no base."""
    crc: int | None
    """Checksum; None for an empty snapshot."""
    data: bytes
    part: int = 0
    parts: int = 1


class Snapshot(NamedTuple):
    """What became of a snapshot message."""

    tick: int
    base: int | None
    """Tick of the base; None = it needs none."""
    items: Items | None
    """All items; None where the base or parts are missing, or the data is damaged."""
    delta: Delta | None
    """The changes; None while parts are missing."""
    code: str | None
    """Catalogue code of what is wrong, None = nothing."""
    message: str = ""


class Snapshots:
    """The snapshots of one connection."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.counts: dict[str, int] = {}
        """`rebuilt`, `crc_differs`, `no_base`, `damaged`, `incomplete`."""
        self._known: dict[int, Items] = {}
        self._partial: dict[int, dict[int, bytes]] = {}
        self._parts: dict[int, int] = {}
        """Tick -> parts of a snapshot in `_partial`."""
        self._told: set[int] = set()
        """Ticks in `_partial` that `given_up` has named."""

    def reset(self) -> None:
        """Forget everything: a map change sets the ticks back."""
        self._known.clear()
        for tick in list(self._partial):
            self._forget(tick)

    def feed(self, part: Part) -> Snapshot:
        """Take one snapshot message and return what it gives."""
        base = None if part.delta == part.tick + 1 else part.tick - part.delta
        if part.parts > 1 and part.tick in self._known and part.tick not in self._partial:
            # The network copied a part: its snapshot is there already.
            return Snapshot(part.tick, base, self._known[part.tick], None, None)
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
            self._count("damaged")
            return Snapshot(part.tick, base, None, fault.delta, "teeworlds-snap-data", str(fault))
        return self._rebuild(part, base, delta)

    def given_up(self, tick: int) -> list[str]:
        """Return what receivers lack of earlier snapshots now that one of `tick` comes.

        They drop the parts that they have as soon as a newer snapshot begins. Source: Teeworlds
        `CClient::ProcessServerPacket`. Each is told once; parts that come late still complete it.
        """
        lost = []
        for older, held in self._partial.items():
            if older < tick and older not in self._told:
                self._told.add(older)
                self._count("incomplete")
                parts = self._parts[older]
                lost.append(f"snapshot {older}: {_missing(held, parts)} of {parts} did not come")
        return lost

    def _join(self, part: Part) -> bytes | None:
        """Return the whole data once all parts are there."""
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
        """Hold the parts of a snapshot no longer."""
        del self._partial[tick], self._parts[tick]
        self._told.discard(tick)

    def _unchanged(self, part: Part, base: int | None) -> Snapshot:
        if base is None:
            # A 0.6.5 server telling an older client its token: no snapshot.
            return Snapshot(part.tick, None, None, Delta(), None)
        items = self._known.get(base)
        if items is None:
            self._count("no_base")
            return Snapshot(part.tick, base, None, Delta(), "teeworlds-snap-base", _lacks(base))
        self._keep(part.tick, items, base)
        return Snapshot(part.tick, base, items, Delta(), None)

    def _rebuild(self, part: Part, base: int | None, delta: Delta) -> Snapshot:
        before: Items | None = {} if base is None else self._known.get(base)
        if before is None:
            self._count("no_base")
            return Snapshot(part.tick, base, None, delta, "teeworlds-snap-base", _lacks(base))
        items = apply(before, delta)
        found = checksum(items)
        if found != part.crc:
            self._count("crc_differs")
            text = f"{found}, the server says {part.crc}"
            return Snapshot(part.tick, base, items, delta, "teeworlds-snap-crc", text)
        self._count("rebuilt")
        self._keep(part.tick, items, base)
        return Snapshot(part.tick, base, items, delta, None)

    def _keep(self, tick: int, items: Items, base: int | None) -> None:
        known = self._known
        known.pop(tick, None)
        known[tick] = items
        if base is not None and len(known) > SPARE:
            for older in [each for each in known if each < base][:-SPARE]:
                del known[older]
        while len(known) > MAX_SNAPSHOTS:
            del known[next(iter(known))]

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


def _missing(held: dict[int, bytes], parts: int) -> str:
    """Return which parts are not held: "parts 1 and 3" (counted from 0, as on the wire)."""
    lacking = [str(index) for index in range(min(parts, MAX_PARTS)) if index not in held]
    if len(lacking) <= 1:
        return f"part {''.join(lacking)}"
    return f"parts {', '.join(lacking[:-1])} and {lacking[-1]}"


def _lacks(base: int | None) -> str:
    return f"snapshot {base} is not in the capture"
