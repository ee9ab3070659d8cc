"""Joins IP fragments. Bounded in datagrams, bytes and time; the first copy of a byte stays.

Source: RFC 791 section 3.2 (IPv4), RFC 8200 section 4.5 and RFC 5722 (IPv6).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from netdissect.flow.codes import FRAGMENT_OVERLAP, joined
from netdissect.flow.pieces import PieceBuffer

if TYPE_CHECKING:
    from netdissect.flow.stats import FlowStats

__all__ = [
    "FRAGMENT_TIMEOUT_NS",
    "MAX_FRAGMENT_DATAGRAMS",
    "MAX_FRAGMENT_OCTETS",
    "Fragment",
    "FragmentTable",
    "Joined",
]

MAX_FRAGMENT_DATAGRAMS = 4096
"""Unfinished datagrams kept; the longest waiting is given up for one more."""
MAX_FRAGMENT_OCTETS = 16 * 1024 * 1024
"""Bytes kept for all unfinished datagrams, FRAGMENT_COST included."""
FRAGMENT_COST: Final = 256
"""What one fragment costs beside its bytes, in bytes, as the bound counts it."""
FRAGMENT_TIMEOUT_NS: Final = 60_000_000_000
"""An unfinished datagram is given up this long after its first fragment. Source: RFC 8200 section
4.5 (60 s).
"""

_MAX_DATAGRAM: Final = 65_535


class Fragment(NamedTuple):
    """One fragment of an IP packet."""

    identity: bytes
    """What all fragments of one packet share: addresses, identification, protocol."""
    offset: int
    """Offset of its bytes in the packet's payload."""
    more: bool
    """True where it is not the last."""
    data: bytes
    """Its bytes."""
    protocol: int
    """Protocol that its header names."""
    faults: tuple[str, ...]
    """Fault codes found so far."""


class Joined(NamedTuple):
    """The payload of a packet, whole again."""

    data: bytes
    """The bytes."""
    protocol: int
    """Protocol of the payload: the one that the first fragment names (RFC 8200 section 4.5)."""
    faults: tuple[str, ...]
    """Fault codes of its fragments."""


class _Unfinished:
    """What has come of one packet."""

    __slots__ = ("end", "faults", "pieces", "protocol", "since_ns", "total")

    def __init__(self, since_ns: int) -> None:
        self.pieces = PieceBuffer()
        self.protocol = 0
        self.end = 0
        """End of the furthest fragment."""
        self.total: int | None = None
        """Length that the last fragment states."""
        self.since_ns = since_ns
        self.faults: tuple[str, ...] = ()

    @property
    def cost(self) -> int:
        """Return what it counts for the bound, in bytes."""
        return self.pieces.octets + FRAGMENT_COST * (len(self.pieces) + 1)


class FragmentTable:
    """The unfinished packets, longest waiting first."""

    __slots__ = ("_cost", "_stats", "_unfinished")

    def __init__(self, stats: FlowStats) -> None:
        self._stats = stats
        self._unfinished: OrderedDict[bytes, _Unfinished] = OrderedDict()
        self._cost = 0

    def add(self, fragment: Fragment, time_ns: int) -> Joined | None:
        """Take a fragment in; return the whole payload if it was the last one missing."""
        self._expire(time_ns)
        end = fragment.offset + len(fragment.data)
        # Only the last fragment may have a length that is no multiple of 8, or be empty.
        if end > _MAX_DATAGRAM or (fragment.more and (len(fragment.data) % 8 or not fragment.data)):
            self._stats.fragments_bad += 1
            return None
        entry = self._unfinished.get(fragment.identity)
        if entry is None:
            entry = self._unfinished[fragment.identity] = _Unfinished(time_ns)
            self._cost += entry.cost
        before = entry.cost
        self._take(entry, fragment, end)
        self._cost += entry.cost - before
        if entry.pieces.octets == entry.total:
            self._forget(fragment.identity)
            self._stats.fragments_joined += 1
            whole = b"".join(piece[1] for piece in entry.pieces.drain())
            return Joined(whole, entry.protocol, entry.faults)
        self._evict()
        return None

    def finish(self) -> None:
        """Count what is unfinished at the end of the capture, and forget it."""
        self._stats.fragments_unfinished += len(self._unfinished)
        self._unfinished.clear()
        self._cost = 0

    def _take(self, entry: _Unfinished, fragment: Fragment, end: int) -> None:
        faults = fragment.faults
        # The first end stated is believed, unless a fragment beyond it has come already.
        if not fragment.more and entry.total is None and end >= entry.end:
            entry.total = end
        if end > (entry.total or end) or (not fragment.more and end != entry.total):
            # It contradicts the end that other fragments show: it can belong to no datagram.
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

    def _forget(self, identity: bytes) -> None:
        self._cost -= self._unfinished.pop(identity).cost

    def _expire(self, time_ns: int) -> None:
        while self._unfinished:
            identity, entry = next(iter(self._unfinished.items()))
            # In order of their first fragments: all further ones are younger.
            if time_ns - entry.since_ns < FRAGMENT_TIMEOUT_NS:
                return
            self._forget(identity)
            self._stats.fragments_timed_out += 1

    def _evict(self) -> None:
        while len(self._unfinished) > MAX_FRAGMENT_DATAGRAMS or self._cost > MAX_FRAGMENT_OCTETS:
            self._forget(next(iter(self._unfinished)))
            self._stats.fragments_evicted += 1
