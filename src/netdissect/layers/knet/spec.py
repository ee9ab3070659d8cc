"""kNet as its published document describes it. No program is known to speak it.

```
 byte 0..1                 2                        3..
+-----------------+--+--+----------+--------+----------------+------------------+----------+
| PacketID 15-0 LE|IO|R |PID 21-16 | Count  | deltas (Count) | indexes (Count)  | messages |
+-----------------+--+--+----------+--------+----------------+------------------+----------+
                                    only if IO
```
*Source:* kNet doc/src/KristalliNetUDP.dox, "Datagram Byte Format", "InOrder Datagrams and
Messages". docs/protocols/knet.md section 11 lists where implementations differ.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.fields import BitField, ByteField, ConditionalField, FieldLenField, LEShortField

from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Flag, Items
from netdissect.layers.knet.contents import KnetApplication, chooser
from netdissect.layers.knet.datagrams import (
    FRAGMENT_COUNT,
    NO_MESSAGES,
    KnetMessage,
    NumberedDatagram,
)
from netdissect.layers.knet.fields import Content, OctetList, Vle, VleList, in_parts
from netdissect.wire.knet import SPECIFICATION
from netdissect.wire.varint import KNET_7_7_16

__all__ = ["KnetSpecDatagram", "KnetSpecHeader", "KnetSpecMessage"]

_MASK = (1 << 22) - 1
_LOW_BITS = 16
_PACKET_ID = in_parts("packet_id", _LOW_BITS)
_SINGLE, _MULTIPLE = 6, 7
"""InOrder codes of messages with one index, and with a list of indexes."""


def _depended(fields: Any) -> list[int] | None:
    """Return the PacketIDs on which messages in the datagram depend: ID - delta - 1 each."""
    deltas = fields["in_order_deltas"]
    if deltas is None:
        return None
    number = _PACKET_ID.value(fields)
    return [(number - delta - 1) & _MASK for delta in deltas]


def _depends_on(fields: Any) -> list[int] | None:
    """Return the PacketIDs on which a message depends, without indexes that are out of range."""
    code = fields["in_order_code"]
    numbers = _depended(fields) or []
    if not code:
        return None
    if code == _MULTIPLE:
        indexes = fields["multi_in_order_indexes"] or []
    else:
        indexes = [fields["single_in_order_index"] if code == _SINGLE else code - 1]
    return [numbers[index] for index in indexes if index < len(numbers)]


class KnetSpecMessage(KnetMessage):
    """A message of the document: an InOrder code instead of the flags InOrder and Reliable."""

    name = "kNet message (specification)"
    dialect = SPECIFICATION
    fields_desc = [
        ByteField("content_length_low", None),
        Flag("fragment_start"),
        Flag("fragment"),
        BitField("in_order_code", 0, 3),
        BitField("content_length_high", 0, 3),
        ConditionalField(ByteField("single_in_order_index", 0), E("in_order_code == 6")),
        ConditionalField(
            FieldLenField(
                "multi_in_order_index_count", None, count_of="multi_in_order_indexes", fmt="B"
            ),
            E("in_order_code == 7"),
        ),
        ConditionalField(
            OctetList("multi_in_order_indexes", E("multi_in_order_index_count")),
            E("in_order_code == 7"),
        ),
        ConditionalField(Vle("fragment_count", 2, KNET_7_7_16), E("fragment_start")),
        ConditionalField(ByteField("transfer_id", 1), E("fragment_start or fragment")),
        ConditionalField(
            Vle("fragment_number", 1, KNET_7_7_16), E("fragment and not fragment_start")
        ),
        Content(
            chooser(SPECIFICATION), E("content_length_high << 8 | content_length_low"),
            E("fragment and not fragment_start"), default=KnetApplication(),
        ),
    ]  # fmt: skip
    generated = (
        KnetMessage.generated[0],
        Gen("depends_on", _depends_on),
    )
    checks = (FRAGMENT_COUNT,)


_HEADER = [
    LEShortField("packet_id_low", 0),
    Flag("in_order"),
    Flag("reliable"),
    BitField("packet_id_high", 0, 6),
    ConditionalField(
        FieldLenField("in_order_delta_count", None, count_of="in_order_deltas", fmt="B"),
        E("in_order"),
    ),
    ConditionalField(
        VleList("in_order_deltas", E("in_order_delta_count")), E("in_order")
    ),
    ConditionalField(
        VleList("in_order_datagram_indexes", E("in_order_delta_count")), E("in_order")
    ),
]


class KnetSpecHeader(Layer):
    """The part of a datagram before the messages."""

    name = "kNet header (specification)"
    fields_desc = _HEADER


class KnetSpecDatagram(NumberedDatagram):
    """A datagram of the document."""

    name = "kNet datagram (specification)"
    dialect = SPECIFICATION
    fields_desc: list[Any] = [*_HEADER, Items("messages", KnetSpecMessage)]
    generated = (_PACKET_ID, Gen("depends_on_packet_ids", _depended))
    checks: ClassVar[tuple[Check, ...]] = (NO_MESSAGES,)
    low_bits = _LOW_BITS
