"""Which kNet message answers which: for Scapy's `sr`, which pairs by `answers`.

Source: docs/protocols/knet.md, control messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from netdissect.layers.knet import contents as layers
from netdissect.wire.knet import ACK_BITS, PACKET_SPAN

__all__ = ["is_answer"]


def is_answer(messages: Iterable[Any], asked: Iterable[Any], packet_id: int | None = None) -> bool:
    """Return whether one of `messages` answers one of `asked`, or acknowledges their datagram."""
    wanted = [message.content for message in asked or ()]
    return any(_answers(message.content, wanted, packet_id) for message in messages or ())


def _answers(content: Any, wanted: list[Any], packet_id: int | None) -> bool:
    if isinstance(content, layers.KnetPingReply):
        pings = [each for each in wanted if isinstance(each, layers.KnetPingRequest)]
        return any(each.ping_id == content.ping_id for each in pings)
    if isinstance(content, layers.KnetDisconnectAck):
        return any(isinstance(each, layers.KnetDisconnect) for each in wanted)
    if isinstance(content, layers.KnetPacketAck):
        return packet_id is not None and _acknowledges(content, packet_id)
    return False


def _acknowledges(content: Any, packet_id: int) -> bool:
    """Return whether a PacketAck names a PacketID, by number or by a bit behind it."""
    behind = (packet_id - content.acked_packet_id) % PACKET_SPAN
    return behind == 0 or (behind <= ACK_BITS and bool(content.sequence_bits >> (behind - 1) & 1))
