"""Remembers recent datagrams, so that those around a notable event can be shown in full without
reading the capture again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from netdissect.model.annotations import Severity
from netdissect.model.packets import Packet
from netdissect.model.records import DatagramRecord
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.records import Records

MAX_RECENT = 32_768
"""Datagrams of all connections that are remembered."""
MAX_RECENT_OCTETS = 64 * 1024 * 1024
"""Memory of these datagrams, as `Datagram.weigh` estimates it: one can have hundreds of units."""
MAX_SCENE = 40
"""Datagrams in one scene."""
MAX_DISORDER = 1024
"""Frames by which a datagram may be late, because its flow was not recognised or bytes were
missing.
"""

Told = Callable[[int, int, int, int, int], None]
"""Called with connection, direction, time in ns, frame and bytes of each datagram."""


class Scene:
    """Some datagrams of one connection, not yet decoded."""

    __slots__ = ("_items", "_records", "cut")

    def __init__(self, records: Scenes, items: list[Datagram], *, cut: bool) -> None:
        self._records = records
        self._items = items
        self.cut = cut
        """Whether some datagrams between the first and the last are left out."""

    def has(self, frame: int) -> bool:
        """Return whether a frame is in the scene."""
        return any(item.frame == frame for item in self._items)

    def records(self) -> Iterator[DatagramRecord]:
        """Yield the records in the order of frames."""
        for item in self._items:
            yield self._records.record_of(item)


class Scenes(Records):
    """Reports every datagram of a known protocol to a callback, and remembers the last ones."""

    def __init__(
        self,
        told: Told,
        *,
        schemas: Mapping[str, Any] | None = None,
        strict: bool = False,
        remember: bool = True,
        **more: Any,
    ) -> None:
        """Create one; `told` is called for each datagram, `remember` is False if no scenes are
        needed, and the rest goes to `Records`.
        """
        super().__init__(schemas=schemas, strict=strict, **more)
        self._told = told
        self._remember = remember
        self._recent: deque[Datagram] = deque()
        self._octets = 0
        """Estimated memory of the datagrams in `_recent`."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Ignore a finding: findings are reported elsewhere."""

    def seen(self, item: Datagram) -> None:
        """Report and remember one datagram."""
        if item.connection is not None:
            number, octets = item.connection.number, len(item.payload)
            self._told(number, item.direction, item.time_ns, item.frame, octets)
        if self._remember:
            item.follows = self._follows(item)
            item.release_events()
            self._recent.append(item)
            self._octets += item.weigh()
            while len(self._recent) > MAX_RECENT or self._octets > MAX_RECENT_OCTETS:
                self._octets -= self._recent.popleft().octets

    def other(self, packet: Packet) -> None:
        """Ignore a datagram of an unknown protocol."""

    def scene(self, connection: int, frames: frozenset[int], first: int, last: int) -> Scene:
        """Return the datagrams of a connection between two frames, as far as they are remembered.
        If there are too many, return those of `frames` and their neighbours.
        """
        found: list[Datagram] = []
        for item in reversed(self._recent):
            frame = item.frame
            # Datagrams are not strictly in order, so that an earlier one does not end the search.
            if frame < first - MAX_DISORDER:
                break
            owner = item.connection
            if first <= frame <= last and owner is not None and owner.number == connection:
                found.append(item)
        found.sort(key=lambda item: item.frame)
        cut = len(found) > MAX_SCENE
        if cut:
            near = [index for index, item in enumerate(found) if item.frame in frames] or [
                0,
                len(found) - 1,
            ]
            chosen = {index + step for index in near[:MAX_SCENE] for step in (-1, 0, 1)}
            found = [item for index, item in enumerate(found) if index in chosen][:MAX_SCENE]
        return Scene(self, found, cut=cut)
