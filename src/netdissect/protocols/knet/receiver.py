"""What the reference receiver makes of fragments. It knows transfers by their number alone.

Source: docs/protocols/knet.md, "Fragments"; kNet `FragmentedReceiveManager` and
`UDPMessageConnection::ExtractMessages` at revision 6f121b4 (2010) and at the head (2.x).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["MAX_NUMBERS", "SHARED", "Receiver"]

SHARED: Final = -1
"""Stands for the reliable number that all fragments of 2010 have in common."""
MAX_NUMBERS: Final = 65_536
"""Reliable numbers of fragments remembered; beyond, the oldest is forgotten."""
_PACKETS: Final = 0xFFFF
"""The receiver remembers one PacketID for each value of its low bits."""


class _Filling:
    """A transfer that the receiver has opened."""

    __slots__ = ("count", "indices", "owner", "strange")

    def __init__(self, owner: int, count: int) -> None:
        self.owner = owner
        """Transfer of the sender that opened it."""
        self.count = count
        self.indices: dict[int, None] = {0: None}
        """Fragment numbers in the order of their arrival."""
        self.strange = 0
        """Fragments of other transfers among them."""


class Receiver:
    """The receiver of one direction."""

    __slots__ = ("_heard", "_numbers", "_open", "_shared", "delivered", "mixed")

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}
        self._numbers: OrderedDict[int, None] = OrderedDict()
        """A plain dict leaves a gap for what is taken from its front, and the next look at its
        front walks over all of them.
        """
        self._open: dict[int, _Filling] = {}
        self._shared = False
        """Whether the number that fragments of 2010 share has come."""
        self.delivered: tuple[int, list[int]] | None = None
        """The transfer that the last fragment completed, and its fragments in their order."""
        self.mixed = 0
        """Fragments of other transfers in it."""

    def hears(self, packet_id: int) -> bool:
        """Take a datagram; return False for one whose number it knows: it reads nothing of it."""
        slot = packet_id & _PACKETS
        if self._heard.get(slot) == packet_id:
            return False
        self._heard[slot] = packet_id
        return True

    def number(self, number: int) -> bool:
        """Take a reliable number; return whether it is new."""
        if number == SHARED:
            new, self._shared = not self._shared, True
            return new
        if number in self._numbers:
            return False
        self._numbers[number] = None
        if len(self._numbers) > MAX_NUMBERS:
            self._numbers.popitem(last=False)
        return True

    def begin(self, name: int, count: int, number: int, owner: int) -> None:
        """Take a first fragment: it opens a transfer, and throws away an older one of its name."""
        if self.number(number):
            self._open.pop(name, None)
            self._open[name] = _Filling(owner, count)

    def add(self, name: int, index: int, number: int, owner: int | None) -> str | None:
        """Take a later fragment; return `early` where nothing is open that it could belong to,
        `misfiled` where it goes to another transfer.
        """
        self.delivered = None
        # In 2010 only whole messages and first fragments are thrown away for a known number.
        if not self.number(number) and number != SHARED:
            return None
        filling = self._open.get(name)
        if filling is None:
            return "early"
        strange = owner != filling.owner
        if index not in filling.indices:
            filling.indices[index] = None
            filling.strange += strange
            if len(filling.indices) >= filling.count:
                del self._open[name]
                self.delivered = (filling.owner, list(filling.indices))
                self.mixed = filling.strange
        return "misfiled" if strange else None
