"""Counters of everything that flow saw, set aside or gave up. Nothing is dropped without one of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["FlowStats"]


@dataclass(slots=True)
class FlowStats:
    """What became of the frames. Every number starts at 0 and only grows."""

    frames: int = 0
    """Frames taken in."""
    udp: int = 0
    """UDP datagrams yielded."""
    tcp: int = 0
    """TCP segments yielded."""
    icmp_unreachable: int = 0
    """Port-unreachable errors yielded."""
    unknown_link: dict[int, int] = field(default_factory=dict)
    """Link type -> frames that could not be read because of it."""
    non_ip: int = 0
    """Frames that carry no IP packet (ARP, spanning tree ...), or whose link header is cut."""
    other_protocols: int = 0
    """IP packets that carry neither UDP nor TCP nor a port-unreachable error."""
    malformed: int = 0
    """Packets set aside because an IP, UDP or TCP header is broken or not captured."""
    tunnelled: int = 0
    """Packets found inside GRE, VXLAN, IP-in-IP or PPPoE (each level counts)."""
    too_deep: int = 0
    """Packets set aside because tunnels, tags or extension headers nest too deeply."""
    capture_duplicates: int = 0
    """Packets marked `capture-duplicate`."""
    snapped: int = 0
    """Datagrams and segments marked `snapped`."""

    fragments: int = 0
    """IP fragments taken in."""
    fragments_joined: int = 0
    """Datagrams joined from fragments."""
    fragments_duplicate: int = 0
    """Fragments that brought no byte that was not there with the same value."""
    fragments_overlapping: int = 0
    """Fragments that overlapped others without being plain duplicates."""
    fragments_bad: int = 0
    """Fragments set aside: cut by the snap length, of a length that no fragment has, past 65,535.
    """
    fragments_timed_out: int = 0
    """Unfinished datagrams given up after FRAGMENT_TIMEOUT_NS."""
    fragments_evicted: int = 0
    """Unfinished datagrams given up because a bound was reached."""
    fragments_unfinished: int = 0
    """Datagrams still unfinished at the end of the capture."""

    tcp_connections: int = 0
    """TCP connections seen."""
    tcp_evicted: int = 0
    """TCP connections forgotten because MAX_TCP_CONNECTIONS was reached, longest idle first."""
    tcp_gaps: int = 0
    """Gaps in TCP streams given up, whatever the reason."""
    tcp_gap_octets: int = 0
    """Bytes that those gaps lack."""
    tcp_gaps_by_bound: int = 0
    """Gaps given up because a buffer bound was reached."""
    tcp_overlaps: int = 0
    """Segments marked `tcp-overlap`."""
    tcp_out_of_window: int = 0
    """Segments marked `tcp-out-of-window`."""

    def add(self, share: FlowStats) -> None:
        """Add what another share of the flows of the same capture has: it has read every frame, so
        what is counted before a flow is known is known already.
        """
        for name in _BY_FLOW:
            setattr(self, name, getattr(self, name) + getattr(share, name))


_BY_FLOW: Final = (
    "udp", "tcp", "icmp_unreachable", "snapped", "tcp_connections", "tcp_evicted", "tcp_gaps",
    "tcp_gap_octets", "tcp_gaps_by_bound", "tcp_overlaps", "tcp_out_of_window",
)  # fmt: skip
"""Counters of packets whose flow is known."""
