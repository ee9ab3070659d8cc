"""Counters of everything that this room reads, sets aside or gives up. Nothing is dropped without
being counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True)
class FlowStats:
    """The counters of a capture. Each starts at 0 and only grows."""

    frames: int = 0
    """Frames read."""
    udp: int = 0
    """UDP datagrams passed on."""
    tcp: int = 0
    """TCP segments passed on."""
    icmp_unreachable: int = 0
    """Destination-unreachable errors passed on."""
    unknown_link: dict[int, int] = field(default_factory=dict)
    """Link type -> frames that could not be read because of it."""
    non_ip: int = 0
    """Frames without an IP packet (ARP, spanning tree ...), or with a cut link header."""
    other_protocols: int = 0
    """IP packets with neither UDP nor TCP nor an error that is passed on."""
    malformed: int = 0
    """Packets set aside because an IP, UDP or TCP header is broken or not captured."""
    tunnelled: int = 0
    """Packets found inside GRE, VXLAN, IP-in-IP or PPPoE; each level counts."""
    too_deep: int = 0
    """Packets set aside because of too many nested tunnels, tags or extension headers."""
    capture_duplicates: int = 0
    """Packets marked `capture-duplicate`."""
    snapped: int = 0
    """Datagrams and segments marked `snapped`."""

    fragments: int = 0
    """IP fragments read."""
    fragments_joined: int = 0
    """Datagrams joined from fragments."""
    fragments_duplicate: int = 0
    """Fragments of which all bytes were there before, with the same values."""
    fragments_overlapping: int = 0
    """Fragments that overlap others without being duplicates."""
    fragments_bad: int = 0
    """Fragments set aside: cut by the snap length, of an illegal length, or past 65,535 bytes."""
    fragments_timed_out: int = 0
    """Incomplete datagrams given up after FRAGMENT_TIMEOUT_NS."""
    fragments_evicted: int = 0
    """Incomplete datagrams given up because a bound was reached."""
    fragments_unfinished: int = 0
    """Datagrams that are incomplete at the end of the capture."""

    tcp_connections: int = 0
    """TCP connections seen."""
    tcp_evicted: int = 0
    """TCP connections evicted because MAX_TCP_CONNECTIONS was reached, longest idle first."""
    tcp_gaps: int = 0
    """Gaps in TCP streams that were given up, for any reason."""
    tcp_gap_octets: int = 0
    """Missing bytes in those gaps."""
    tcp_gaps_by_bound: int = 0
    """Gaps given up because a bound of a buffer was reached."""
    tcp_overlaps: int = 0
    """Segments marked `tcp-overlap`."""
    tcp_out_of_window: int = 0
    """Segments marked `tcp-out-of-window`."""

    def add(self, share: FlowStats) -> None:
        """Add the counters of a process that has another share of the flows of this capture.

        Every process reads all frames, so only the counters per flow are added.
        """
        for name in _BY_FLOW:
            setattr(self, name, getattr(self, name) + getattr(share, name))


_BY_FLOW: Final = (
    "udp", "tcp", "icmp_unreachable", "snapped", "tcp_connections", "tcp_evicted", "tcp_gaps",
    "tcp_gap_octets", "tcp_gaps_by_bound", "tcp_overlaps", "tcp_out_of_window",
)  # fmt: skip
"""Counters of events that belong to a flow."""
