"""The packet of a flow that has had no other one: floods and port scans consist of such flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdissect.model.native import i64, mypyc_attr
from netdissect.model.packets import PacketKind
from netdissect.model.segments import TcpSegment

if TYPE_CHECKING:
    from netdissect.model.packets import FlowKey, Packet


@mypyc_attr(acyclic=True)
class LonePacket:
    """A packet that waits for a second one of its flow. Smaller than a `Packet`, and its numbers
    are no objects.
    """

    __slots__ = ("faults", "frame", "key", "kind", "payload", "segment", "time_ns")

    def __init__(
        self, kind: PacketKind, frame: i64, time_ns: i64, key: FlowKey, payload: bytes,
        segment: TcpSegment | None, faults: tuple[str, ...],
    ) -> None:  # fmt: skip
        """Create one from the items of a `Packet`."""
        self.kind = kind
        self.frame: i64 = frame
        self.time_ns: i64 = time_ns
        self.key = key
        self.payload = payload
        self.segment = segment
        self.faults = faults

    def packet(self) -> Packet:
        """Return it as a packet."""
        return (
            self.kind, self.frame, self.time_ns, self.key, self.payload, self.segment, self.faults,
        )  # fmt: skip

    def counts(self) -> bool:
        """Return whether it counts as a datagram, or segment with data, of a connection."""
        return self.segment is None or bool(self.payload)
