"""Which kNet message answers which, for the method `answers` that Scapy's `sr` uses.

*Source:* docs/protocols/knet.md, "Control messages".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from netdissect.layers.knet import contents as layers
from netdissect.wire.knet import ACK_BITS, PACKET_SPAN


def is_answer(
    messages: Iterable[Any], requests: Iterable[Any], packet_id: int | None = None
) -> bool:
    """Return whether one of `messages` answers one of `requests`, or acknowledges `packet_id`."""
    contents = [message.content for message in requests or ()]
    return any(_answers(message.content, contents, packet_id) for message in messages or ())


def _answers(content: Any, requests: list[Any], packet_id: int | None) -> bool:
    if isinstance(content, layers.KnetPingReply):
        pings = [each for each in requests if isinstance(each, layers.KnetPingRequest)]
        return any(each.ping_id == content.ping_id for each in pings)
    if isinstance(content, layers.KnetDisconnectAck):
        return any(isinstance(each, layers.KnetDisconnect) for each in requests)
    if isinstance(content, layers.KnetPacketAck):
        return packet_id is not None and _acknowledges(content, packet_id)
    return False


def _acknowledges(content: Any, packet_id: int) -> bool:
    """Return whether a PacketAck covers a PacketID, as its base or by a sequence bit."""
    after = (packet_id - content.acked_packet_id) % PACKET_SPAN
    return after == 0 or (after <= ACK_BITS and bool(content.sequence_bits >> (after - 1) & 1))
