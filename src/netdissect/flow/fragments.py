"""Joins IP fragments. Bounded in datagrams, bytes and time; the first copy of a byte counts.

Source: RFC 791 section 3.2 (IPv4), RFC 8200 section 4.5 and RFC 5722 (IPv6).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from netdissect.flow.codes import FRAGMENT_OVERLAP, joined
from netdissect.flow.pieces import PieceBuffer

if TYPE_CHECKING:
    from netdissect.flow.stats import FlowStats

MAX_FRAGMENT_DATAGRAMS = 4096
"""Incomplete datagrams that are kept; the oldest is given up for one more."""
MAX_FRAGMENT_OCTETS = 16 * 1024 * 1024
"""Bytes that all incomplete datagrams may take, FRAGMENT_COST included."""
FRAGMENT_COST: Final = 256
"""Bytes that one fragment is counted for in addition to its data."""
FRAGMENT_TIMEOUT_NS: Final = 60_000_000_000
"""Time after its first fragment at which an incomplete datagram is given up: 60 s.
Source: RFC 8200 section 4.5.
"""

_MAX_DATAGRAM: Final = 65_535
"""Size of the largest datagram, bytes."""


class Fragment(NamedTuple):
    """One fragment of an IP packet."""

    identity: bytes
    """Addresses, identification, protocol: the same in all fragments of a packet."""
    offset: int
    """Offset of the data in the packet's payload."""
    more: bool
    """False for the last fragment."""
    data: bytes
    protocol: int
    """Protocol that the fragment's header names."""
    faults: tuple[str, ...]
    """Fault codes found so far."""


class Joined(NamedTuple):
    """The joined payload of a packet."""

    data: bytes
    protocol: int
    """Protocol of the payload: that of the first fragment (RFC 8200 section 4.5)."""
    faults: tuple[str, ...]
    """Fault codes of its fragments."""


class _Incomplete:
    """The fragments of one packet that have come so far."""

    __slots__ = ("end", "faults", "pieces", "protocol", "since_ns", "total")

    def __init__(self, since_ns: int) -> None:
        self.pieces = PieceBuffer()
        self.protocol = 0
        self.end = 0
        """End of the fragment that reaches furthest, as an offset."""
        self.total: int | None = None
        """Size of the payload, as the last fragment states it."""
        self.since_ns = since_ns
        """Time of the first fragment."""
        self.faults: tuple[str, ...] = ()

    @property
    def cost(self) -> int:
        """Return the bytes that the packet is counted for."""
        return self.pieces.octets + FRAGMENT_COST * (len(self.pieces) + 1)


class FragmentTable:
    """The incomplete packets of a capture."""

    __slots__ = ("_cost", "_incomplete", "_stats")

    def __init__(self, stats: FlowStats) -> None:
        self._stats = stats
        self._incomplete: OrderedDict[bytes, _Incomplete] = OrderedDict()
        """Identity -> packet, the oldest first."""
        self._cost = 0
        """Sum of their costs."""

    def add(self, fragment: Fragment, time_ns: int) -> Joined | None:
        """Add a fragment; return the whole payload if that completes it."""
        self._expire(time_ns)
        end = fragment.offset + len(fragment.data)
        # Only the last fragment may be empty, or have a size that is no multiple of 8.
        if end > _MAX_DATAGRAM or (fragment.more and (len(fragment.data) % 8 or not fragment.data)):
            self._stats.fragments_bad += 1
            return None
        entry = self._incomplete.get(fragment.identity)
        if entry is None:
            entry = self._incomplete[fragment.identity] = _Incomplete(time_ns)
            self._cost += entry.cost
        before = entry.cost
        self._insert(entry, fragment, end)
        self._cost += entry.cost - before
        if entry.pieces.octets == entry.total:
            self._remove(fragment.identity)
            self._stats.fragments_joined += 1
            whole = b"".join(piece[1] for piece in entry.pieces.drain())
            return Joined(whole, entry.protocol, entry.faults)
        self._evict()
        return None

    def finish(self) -> None:
        """Count the packets that are incomplete at the end of the capture, and remove them."""
        self._stats.fragments_unfinished += len(self._incomplete)
        self._incomplete.clear()
        self._cost = 0

    def _insert(self, entry: _Incomplete, fragment: Fragment, end: int) -> None:
        """Add a fragment that ends at offset `end` to its packet."""
        faults = fragment.faults
        # The first end that is stated counts, unless an earlier fragment reaches beyond it.
        if not fragment.more and entry.total is None and end >= entry.end:
            entry.total = end
        if end > (entry.total or end) or (not fragment.more and end != entry.total):
            # It contradicts the size that other fragments show.
            faults = (*faults, FRAGMENT_OVERLAP)
            self._stats.fragments_overlapping += 1
        else:
            entry.end = max(entry.end, end)
            if fragment.offset == 0:
                entry.protocol = fragment.protocol
            added = entry.pieces.add(fragment.offset, fragment.data, 0)
            if added.covered and not added.fresh and not added.differs:
                self._stats.fragments_duplicate += 1
            elif added.covered:
                self._stats.fragments_overlapping += 1
                faults = (*faults, FRAGMENT_OVERLAP)
        if faults:
            entry.faults = joined(entry.faults, *faults)

    def _remove(self, identity: bytes) -> None:
        self._cost -= self._incomplete.pop(identity).cost

    def _expire(self, time_ns: int) -> None:
        """Give up the packets that have timed out."""
        while self._incomplete:
            identity, entry = next(iter(self._incomplete.items()))
            if time_ns - entry.since_ns < FRAGMENT_TIMEOUT_NS:
                return
            self._remove(identity)
            self._stats.fragments_timed_out += 1

    def _evict(self) -> None:
        """Give up the oldest packets until the bounds are kept."""
        while len(self._incomplete) > MAX_FRAGMENT_DATAGRAMS or self._cost > MAX_FRAGMENT_OCTETS:
            self._remove(next(iter(self._incomplete)))
            self._stats.fragments_evicted += 1
