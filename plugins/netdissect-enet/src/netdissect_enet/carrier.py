"""Commands stand in a datagram."""

from __future__ import annotations

from typing import Any

from netdissect_enet.layers import EnetCommand, EnetPacket, EnetPacketCrc
from netdissect_enet.rules import CRC, NOBODY

__all__ = ["wrap"]


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return the datagram of a command; one that wants an acknowledgement has a sent time."""
    del transport
    header = EnetPacketCrc if dialect == CRC else EnetPacket
    if not isinstance(packet, EnetCommand):
        return packet if type(packet) is header else None
    peer = NOBODY if packet.number == 2 else 0  # noqa: PLR2004 - CONNECT
    return header(peer=peer, has_sent_time=int(bool(packet.acknowledge)), commands=[packet])
