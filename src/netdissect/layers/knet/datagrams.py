"""kNet datagrams and messages as all known programs send them.

```
 byte 0            1..2                    3..                      then
+--+--+----------+--------------------+----------------------+----------------------------+
|IO|R |PID 5-0   | PacketID 21-6 (LE) | ReliableBase (if R)  | messages up to the end     |
+--+--+----------+--------------------+----------------------+----------------------------+
message:
 byte 0            1
+------------------+--+--+--+--+--+---------+-------+-------+----------+--------+---------+
| ContentLength 7-0|FS|F |IO|R |- |CL 10-8  | Delta | Count | Transfer | Number | content |
+------------------+--+--+--+--+--+---------+-------+-------+----------+--------+---------+
```
*Source:* docs/protocols/knet.md section 4; kNet `UDPMessageConnection::ExtractMessages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scapy.fields import BitField, ByteField, ConditionalField, LEShortField

from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Flag, Items
from netdissect.layers.knet.contents import KnetApplication, chooser, message_names
from netdissect.layers.knet.fields import Content, PayloadTail, Vle, in_parts
from netdissect.layers.knet.pairs import is_answer
from netdissect.model.annotations import Severity
from netdissect.wire.knet import LEGACY, NULL_CONNECT, PACKET_ID_BITS, UNDECIDED, message_type
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16

__all__ = [
    "DATAGRAMS",
    "Knet2010Datagram",
    "Knet2010Message",
    "KnetConnect",
    "KnetDatagram",
    "KnetEmpty",
    "KnetMessage",
    "KnetTundraDatagram",
    "KnetTundraMessage",
    "KnetUndecidedDatagram",
    "KnetUndecidedMessage",
    "KnetUrho3dDatagram",
    "KnetUrho3dMessage",
]


class KnetEmpty(Layer):
    """A datagram without bytes."""

    name = "kNet empty datagram"
    fields_desc: list[Any] = []


class KnetConnect(Layer):
    """The client's first datagram: eight zero bytes, or what its application supplies."""

    name = "kNet connect datagram"
    pairing = b"knet"
    fields_desc = [PayloadTail()]
    generated = (Gen("null", lambda fields: fields["data"] == NULL_CONNECT),)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not args and "data" not in kwargs:
            self.fields["data"] = NULL_CONNECT


def _number(fields: Any) -> int | None:
    """Return the reliable number of a message; the base is 0 if the datagram has none."""
    delta = fields["reliable_delta"]
    base = fields["reliable_base"] or 0
    return None if delta is None else int(base + delta)


FRAGMENT_COUNT = Check(
    E("fragment_count is not None and fragment_count < 2"),
    "knet-fragment-count",
    "fragment_count",
    "fragment count must be at least 2, not {fragment_count}",
)


_UNUSED_BIT = Check(E("unused"), "knet-unused-bit", "unused", "bit 11 is set")


def _unreliable(fragment: str) -> Check:
    """Return the rule that fragments are reliable; `fragment` is the condition for one."""
    return Check(
        E(f"({fragment}) and not reliable"),
        "knet-unreliable-fragment",
        "fragment",
        "a fragment that is not reliable; a receiver without its first fragment discards it",
    )


def _fields(
    dialect: str,
    fragment: str = "fragment_start or fragment",
    later: str = "fragment and not fragment_start",
) -> list[Any]:
    """Return the fields of a message.

    Args:
        dialect: dialect whose message IDs choose the content.
        fragment: expression, true for a fragment: it has a transfer ID.
        later: expression, true for a fragment but the first: it has a fragment number.
    """
    return [
        ByteField("content_length_low", None),
        Flag("fragment_start"),
        Flag("fragment"),
        Flag("in_order"),
        Flag("reliable"),
        BitField("unused", 0, 1),
        BitField("content_length_high", 0, 3),
        ConditionalField(Vle("reliable_delta", 0, KNET_7_8), E("reliable")),
        ConditionalField(Vle("fragment_count", 2, KNET_7_7_16), E("fragment_start")),
        ConditionalField(ByteField("transfer_id", 1), E(fragment)),
        ConditionalField(Vle("fragment_number", 1, KNET_7_7_16), E(later)),
        Content(
            chooser(dialect), E("content_length_high << 8 | content_length_low"), E(later),
            default=KnetApplication(),
        ),
    ]  # fmt: skip


class FragmentBit(Layer):
    """A message with a field `fragment`: a property overrides Scapy's method of that name."""

    @property
    def fragment(self) -> Any:
        """Return the field."""
        return self.getfieldval("fragment")


class KnetMessage(FragmentBit):
    """A message in a datagram. Building fills in the content length."""

    name = "kNet message"
    is_item = True
    dialect: ClassVar[str] = "knet-2.x"
    fields_desc = _fields("knet-2.x")
    generated = (
        in_parts("content_length", 8),
        Gen("reliable_number", _number),
    )
    checks: ClassVar[tuple[Check, ...]] = (
        _UNUSED_BIT,
        _unreliable("fragment or fragment_start"),
        FRAGMENT_COUNT,
        Check(
            E("transfer_id is not None and transfer_id == 0"),
            "knet-transfer-zero", "transfer_id", "transfer 0",
        ),
    )  # fmt: skip

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the name of the message, marked if it is a fragment; `fragment` for later ones."""
        content = fields["content"]
        number = content.get("message_id")
        if number is None:
            return "fragment" if "data" in content else None
        name = message_type(number, cls.dialect)
        return f"{name}(first fragment)" if fields["fragment_start"] else name

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the content length unless it was given."""
        if self.fields.get("content_length_low") is None and self.content is not None:
            size = len(bytes(self.content))
            pkt = bytes([size & 0xFF, pkt[1] & 0xF8 | size >> 8 & 7]) + pkt[2:]
        return pkt + pay

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        return f"{self.name} {type(self.content).__name__}"


_RELIABLE_FRAGMENTS = (
    "fragment_start or fragment and reliable", "fragment and reliable and not fragment_start",
)  # fmt: skip


class Knet2010Message(KnetMessage):
    """A message of knet-2010. Only reliable messages are fragments, whatever the Fragment bit says.

    The flags of control messages are uninitialised memory, and transfer IDs begin at 0.
    *Source:* section 4.1; kNet of November 2010, `SplitAndQueueMessage`.
    """

    dialect = LEGACY
    fields_desc = _fields(LEGACY, *_RELIABLE_FRAGMENTS)
    checks = (
        _UNUSED_BIT,
        _unreliable("fragment_start"),
        FRAGMENT_COUNT,
        Check(
            E("fragment and not reliable and not fragment_start"),
            "knet-stray-fragment-bit",
            "fragment",
            "left-over Fragment bit; read as a whole message",
        ),
    )


class KnetUndecidedMessage(Knet2010Message):
    """A message of 2010 or of 2.x: control messages that they number differently have no name."""

    dialect = UNDECIDED
    fields_desc = _fields(UNDECIDED, *_RELIABLE_FRAGMENTS)


class KnetUrho3dMessage(KnetMessage):
    """A message of the Urho3D fork."""

    dialect = "knet-urho3d"
    fields_desc = _fields("knet-urho3d")


class KnetTundraMessage(KnetMessage):
    """A message of realXtend Tundra."""

    dialect = "knet-tundra"
    fields_desc = _fields("knet-tundra")


def _header(item: type[KnetMessage]) -> list[Any]:
    return [
        Flag("in_order"),
        Flag("reliable"),
        BitField("packet_id_low", 0, 6),
        LEShortField("packet_id_high", 0),
        ConditionalField(Vle("reliable_base", 0, KNET_15_16), E("reliable")),
        Items("messages", item),
    ]


NO_MESSAGES = Check(
    E("not messages"), "knet-no-messages", "messages", "a header and no messages"
)
_RELIABLE_MISMATCH = Check(
    E("messages and reliable != messages.reliable"),
    "knet-flag-mismatch",
    "reliable",
    "the Reliable flag is not the OR of the messages' Reliable bits",
)
_ORDER_MISMATCH = Check(
    E("messages and in_order != messages.in_order"),
    "knet-flag-mismatch",
    "in_order",
    "the InOrder flag is not the OR of the messages' InOrder bits",
    Severity.NOTE,
)


class NumberedDatagram(Layer):
    """A datagram whose PacketID is in two fields. `packet_id` gets and sets both."""

    low_bits: ClassVar[int]
    """Number of bits in the lower field."""

    def __init__(self, *args: Any, packet_id: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if packet_id is not None:
            self.packet_id = packet_id

    @property
    def packet_id(self) -> int:
        """Return the PacketID (22 bits)."""
        return int((self.packet_id_high or 0) << self.low_bits | (self.packet_id_low or 0))

    @packet_id.setter
    def packet_id(self, value: int) -> None:
        self.setfieldval("packet_id_low", value & (1 << self.low_bits) - 1)
        high = value >> self.low_bits & (1 << PACKET_ID_BITS - self.low_bits) - 1
        self.setfieldval("packet_id_high", high)


class KnetDatagram(NumberedDatagram):
    """A datagram of knet-2.x."""

    name = "kNet datagram"
    pairing = b"knet"
    dialect: ClassVar[str] = "knet-2.x"
    item: ClassVar[type[KnetMessage]] = KnetMessage
    fields_desc = _header(KnetMessage)
    low_bits = 6
    generated = (in_parts("packet_id", low_bits),)
    checks: ClassVar[tuple[Check, ...]] = (NO_MESSAGES, _RELIABLE_MISMATCH, _ORDER_MISMATCH)

    def answers(self, other: Any) -> bool:
        """Return whether this answers a message of `other`, acknowledges it, or follows its connect
        datagram.
        """
        if isinstance(other, KnetConnect):
            return True
        if not isinstance(other, KnetDatagram):
            return False
        return is_answer(self.messages, other.messages, other.packet_id if other.reliable else None)

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        parts = self.int_value("packet_id_low"), self.int_value("packet_id_high")
        shown = "" if None in parts else f" #{self.packet_id}"
        return f"{self.name}{shown}: {message_names(self.messages)}"


class Knet2010Datagram(KnetDatagram):
    """A datagram of knet-2010. Its InOrder bits are meaningless."""

    dialect = LEGACY
    item = Knet2010Message
    fields_desc = _header(Knet2010Message)
    checks = (NO_MESSAGES, _RELIABLE_MISMATCH)


class KnetUndecidedDatagram(Knet2010Datagram):
    """A datagram of 2010 or of 2.x."""

    dialect = UNDECIDED
    item = KnetUndecidedMessage
    fields_desc = _header(KnetUndecidedMessage)


class KnetUrho3dDatagram(KnetDatagram):
    """A datagram of the Urho3D fork."""

    dialect = "knet-urho3d"
    item = KnetUrho3dMessage
    fields_desc = _header(KnetUrho3dMessage)


class KnetTundraDatagram(KnetDatagram):
    """A datagram of realXtend Tundra."""

    dialect = "knet-tundra"
    item = KnetTundraMessage
    fields_desc = _header(KnetTundraMessage)


DATAGRAMS: dict[str, type[KnetDatagram]] = {
    layer.dialect: layer
    for layer in (
        KnetDatagram, Knet2010Datagram, KnetUndecidedDatagram, KnetUrho3dDatagram,
        KnetTundraDatagram,
    )
}
"""Dialect -> layer of its datagrams."""
