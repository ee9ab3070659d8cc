"""Models how the reference receiver reassembles fragments: by the transfer number alone.

Source: docs/protocols/knet.md, "Fragments"; kNet `FragmentedReceiveManager` and
`UDPMessageConnection::ExtractMessages` at revision 6f121b4 (2010) and at the head (2.x).
"""

from __future__ import annotations

from itertools import islice
from typing import Final

SHARED: Final = -1
"""Stands for the reliable number 0, which all fragments of 2010 share."""
MAX_NUMBERS: Final = 65_536
"""Reliable numbers that are remembered; the older half is forgotten for one more."""
_SLOT_MASK: Final = 0xFFFF
"""Bits of a PacketID that select a slot: the receiver remembers one PacketID per slot."""


class _OpenTransfer:
    """A transfer that the receiver is reassembling."""

    __slots__ = ("count", "foreign", "indices", "owner")

    def __init__(self, owner: int, count: int) -> None:
        self.owner = owner
        """Identity of the sender's transfer whose first fragment opened it."""
        self.count = count
        """Fragments that complete it."""
        self.indices: dict[int, None] = {0: None}
        """Fragment numbers in the order of arrival."""
        self.foreign = 0
        """Fragments that belong to other transfers of the sender."""


class Receiver:
    """The receiver of one direction."""

    __slots__ = ("_numbers", "_packet_ids", "_shared_seen", "_transfers", "delivered", "foreign")

    def __init__(self) -> None:
        self._packet_ids: dict[int, int] = {}
        """Slot -> last PacketID."""
        self._numbers: dict[int, None] = {}
        """Known reliable numbers, in the order in which they came."""
        self._transfers: dict[int, _OpenTransfer] = {}
        """Transfer number -> the transfer that it identifies now."""
        self._shared_seen = False
        """Whether the reliable number `SHARED` is known."""
        self.delivered: tuple[int, list[int]] | None = None
        """(owner, fragment numbers in order) of the transfer that the last fragment completed."""
        self.foreign = 0
        """Fragments in it that belong to other transfers."""

    def accept_datagram(self, packet_id: int) -> bool:
        """Process a PacketID; return False if it is known, so that the datagram is not read."""
        slot = packet_id & _SLOT_MASK
        if self._packet_ids.get(slot) == packet_id:
            return False
        self._packet_ids[slot] = packet_id
        return True

    def accept_number(self, number: int) -> bool:
        """Process a reliable number; return whether it is new."""
        if number == SHARED:
            is_new, self._shared_seen = not self._shared_seen, True
            return is_new
        if number in self._numbers:
            return False
        self._numbers[number] = None
        if len(self._numbers) > MAX_NUMBERS:
            self._numbers = dict.fromkeys(islice(self._numbers, MAX_NUMBERS // 2, None))
        return True

    def begin(self, transfer: int, count: int, number: int, owner: int) -> None:
        """Process a first fragment: it opens a transfer and discards an open one of its number.

        Args:
            transfer: transfer number.
            count: number of fragments.
            number: reliable number.
            owner: identity of the sender's transfer.

        """
        if self.accept_number(number):
            self._transfers[transfer] = _OpenTransfer(owner, count)

    def add(self, transfer: int, index: int, number: int, owner: int | None) -> str | None:
        """Process a later fragment; arguments as for `begin`, and its fragment number.

        Return `early` if no transfer with its number is open, `misfiled` if it is added to another
        transfer than its own, else None.
        """
        self.delivered = None
        # Receivers of 2010 discard only whole messages and first fragments for a known number.
        if not self.accept_number(number) and number != SHARED:
            return None
        open_ = self._transfers.get(transfer)
        if open_ is None:
            return "early"
        is_foreign = owner != open_.owner
        if index not in open_.indices:
            open_.indices[index] = None
            open_.foreign += is_foreign
            if len(open_.indices) >= open_.count:
                del self._transfers[transfer]
                self.delivered = (open_.owner, list(open_.indices))
                self.foreign = open_.foreign
        return "misfiled" if is_foreign else None
