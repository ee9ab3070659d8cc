"""Whose flow a packet is, where a capture has several interfaces.

Two conversations can have the same addresses and ports on two interfaces, and one conversation can
come in on one and go out on another. An interface that has seen both directions of a pair of
endpoints has a flow of its own; one that has seen a single direction shares the flow of another
that has seen only the other. Interfaces of which one ends where the next begins (files of one
capture that were joined) share all their flows.
"""

from __future__ import annotations

from collections import OrderedDict

from netdissect.model.packets import FlowKey, reverse_key

__all__ = ["MAX_ALTERNATING", "MAX_PAIRS", "MAX_SHARING", "Interfaces"]

MAX_PAIRS = 65_536
"""Pairs of endpoints remembered; beyond, the one longest unheard is forgotten."""
MAX_ALTERNATING = 65_536
"""Pairs of interfaces known to capture at once; further ones share their flows."""
MAX_SHARING = 64
"""Interfaces told apart of one pair of endpoints; what comes at further ones is put to those."""


class Interfaces:
    """The interfaces of a capture and the directions of flows that each has seen."""

    __slots__ = ("_at_once", "_met", "_now", "_pairs")

    def __init__(self) -> None:
        self._pairs: OrderedDict[FlowKey, dict[int, int]] = OrderedDict()
        """Key of one direction -> interface -> directions seen, 1 and 2."""
        self._met: set[int] = set()
        self._now = -1
        self._at_once: set[tuple[int, int]] = set()
        """Pairs of interfaces whose frames alternate."""

    def frame(self, interface: int) -> None:
        """Take a frame of an interface."""
        if interface == self._now:
            return
        # Its frames come again after another's: neither is a file that follows the other.
        if interface in self._met and len(self._at_once) < MAX_ALTERNATING:
            self._at_once |= {(interface, self._now), (self._now, interface)}
        self._met.add(interface)
        self._now = interface

    def key(self, key: FlowKey, interface: int, *, new: bool) -> FlowKey:
        """Return the key with a mark of its interface where the flow is not the first of its
        endpoints. `new` is False for what was seen elsewhere before, or is quoted.
        """
        back = reverse_key(key)
        name, way = (key, 1) if key <= back else (back, 2)
        seen = self._pairs.get(name)
        if seen is None:
            if not new:
                return key
            seen = self._pairs[name] = {}
            if len(self._pairs) > MAX_PAIRS:
                self._pairs.popitem(last=False)
        self._pairs.move_to_end(name)
        if interface not in seen and len(seen) >= MAX_SHARING:
            new = False
        if new:
            seen[interface] = seen.get(interface, 0) | way
        home = self._home(seen, interface, way, new=new)
        # The first has the plain key, as all flows of a capture on one interface have.
        return key if home == next(iter(seen)) else key + home.to_bytes(2, "big")

    def _home(self, seen: dict[int, int], interface: int, way: int, *, new: bool) -> int:
        """Return the interface whose flow a packet belongs to."""
        first = next(iter(seen))
        if not new:
            return next((other for other, ways in seen.items() if ways & way), first)
        if interface == first or (interface, first) not in self._at_once:
            return first
        if seen[interface] == way:
            for other, ways in seen.items():
                if other == interface:
                    break
                # In at one interface, out at the other: one conversation.
                if ways == 3 - way:
                    return other
        return interface
