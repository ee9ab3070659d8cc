"""Finds the flow of a packet in a capture with several interfaces.

Two conversations can use the same addresses and ports on two interfaces, and one conversation can
come in on one interface and go out on another. An interface with packets of both directions has a
flow of its own. One with packets of a single direction shares the flow of an interface with only
the other direction. Interfaces that never capture at the same time, as in files of one capture that
were joined, share all flows.
"""

from __future__ import annotations

from collections import OrderedDict

from netdissect.model.packets import FlowKey, reverse_key

MAX_PAIRS = 65_536
"""Pairs of endpoints that are remembered; the longest idle is forgotten for one more."""
MAX_ALTERNATING = 65_536
"""Pairs of interfaces that are known to capture at the same time; further pairs share flows."""
MAX_SHARING = 64
"""Interfaces of one pair of endpoints that are told apart; others share the flows of these."""


class Interfaces:
    """The interfaces of a capture, and the directions of flows on each of them."""

    __slots__ = ("_alternating", "_current", "_pairs", "_seen")

    def __init__(self) -> None:
        self._pairs: OrderedDict[FlowKey, dict[int, int]] = OrderedDict()
        """Key of one direction -> interface -> bits of the directions with packets, 1 and 2."""
        self._seen: set[int] = set()
        """Interfaces with frames so far."""
        self._current = -1
        """Interface of the last frame."""
        self._alternating: set[tuple[int, int]] = set()
        """Pairs of interfaces whose frames alternate: they capture at the same time."""

    def frame(self, interface: int) -> None:
        """Note the interface of the next frame."""
        if interface == self._current:
            return
        # A frame after that of another interface: the two are no consecutive files.
        if interface in self._seen and len(self._alternating) < MAX_ALTERNATING:
            self._alternating |= {(interface, self._current), (self._current, interface)}
        self._seen.add(interface)
        self._current = interface

    def key(self, key: FlowKey, interface: int, *, new: bool) -> FlowKey:
        """Return the key of a packet's flow.

        The first flow of a pair of endpoints has the plain key; those of others end with their
        interface. `new` is False for a packet that was captured before at another place, or is
        quoted.
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
        # So do all flows of a capture on one interface.
        return key if home == next(iter(seen)) else key + home.to_bytes(2, "big")

    def _home(self, seen: dict[int, int], interface: int, way: int, *, new: bool) -> int:
        """Return the interface whose flow a packet belongs to.

        Args:
            seen: interface -> directions of this pair of endpoints.
            interface: that of the packet.
            way: direction of the packet, 1 or 2.
            new: see `key`.

        """
        first = next(iter(seen))
        if not new:
            return next((other for other, ways in seen.items() if ways & way), first)
        if interface == first or (interface, first) not in self._alternating:
            return first
        if seen[interface] == way:
            for other, ways in seen.items():
                if other == interface:
                    break
                # It comes in on one interface and goes out on the other: one conversation.
                if ways == 3 - way:
                    return other
        return interface
