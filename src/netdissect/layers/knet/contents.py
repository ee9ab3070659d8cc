"""The contents of kNet messages: control messages, application messages and later fragments.

Every content but a later fragment begins with a message ID. Dialects differ in the IDs, not in the
layouts. *Source:* docs/protocols/knet.md sections 4 and 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from scapy.fields import BitField, ByteField, LEIntField, LEShortField, LEThreeBytesField

from netdissect.layers.base import Check, Gen, Layer, make_layer, summary_list
from netdissect.layers.expr import E
from netdissect.layers.knet.fields import PayloadTail, Vle, in_parts
from netdissect.wire.knet import (
    APPLICATIONS,
    CONTROL_SIZES,
    CONTROLS,
    DISCONNECT,
    DISCONNECT_ACK,
    FLOW_CONTROL,
    HANDSHAKE,
    LEGACY,
    PACKET_ACK,
    PERHAPS_2010,
    PING_REPLY,
    PING_REQUEST,
    SPECIFICATION,
    acknowledged,
    message_type,
)
from netdissect.wire.varint import KNET_7_7_16, VarintError

__all__ = [
    "KnetApplication",
    "KnetConnectAck",
    "KnetConnectSyn",
    "KnetConnectSynAck",
    "KnetContent",
    "KnetDisconnect",
    "KnetDisconnectAck",
    "KnetFlowControlRequest",
    "KnetFragmentData",
    "KnetPacketAck",
    "KnetPingReply",
    "KnetPingRequest",
    "KnetSpecPacketAck",
    "KnetTundraApplication",
    "KnetUrho3dApplication",
    "KnetWrongSize",
    "KnetWrongSize2010",
    "chooser",
]


def _id(number: int) -> Vle:
    return Vle("message_id", number, KNET_7_7_16)


def _name(dialect: str) -> Gen:
    return Gen("message_name", lambda fields: CONTROLS[dialect].get(fields["message_id"]))


def _application(dialect: str) -> Gen:
    names = APPLICATIONS[dialect]
    return Gen("application_name", lambda fields: names.get(fields["message_id"]))


_TITLE = re.compile(r"^Knet(2010|Spec|Urho3d|Tundra)?|2010$")
"""What the title of a layer leaves out of the class name."""


class KnetContent(Layer):
    """A content that begins with a message ID."""

    name = "kNet content"
    fields_desc = [_id(20), PayloadTail()]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the title."""
        super().__init_subclass__(**kwargs)
        cls._name = f"kNet {_TITLE.sub('', cls.__name__)}"


class KnetApplication(KnetContent):
    """An application message, or one whose ID only the specification reserves."""

    generated: ClassVar[tuple[Gen, ...]] = (
        Gen("message_name", lambda fields: _specification_name(fields["message_id"])),
    )


def _specification_name(number: int) -> str | None:
    name = HANDSHAKE.get(number)
    return None if name is None else f"{name} (specification)"


class KnetUrho3dApplication(KnetApplication):
    """A message of the Urho3D engine. Section 10.1."""

    generated = (*KnetApplication.generated, _application("knet-urho3d"))


class KnetTundraApplication(KnetApplication):
    """A message of realXtend Tundra. Section 10.2."""

    generated = (*KnetApplication.generated, _application("knet-tundra"))


class KnetFragmentData(Layer):
    """A later fragment: payload bytes without a message ID."""

    name = "kNet fragment"
    fields_desc = [PayloadTail()]


class KnetWrongSize(KnetContent):
    """A control message whose payload does not have the size of its layout."""

    generated = (_name("knet-2.x"),)
    checks = (
        Check(
            E("1"),
            "knet-control-size",
            "payload",
            "the payload does not have the size of this control message",
        ),
    )


class KnetWrongSize2010(KnetWrongSize):
    """`KnetWrongSize` with the message IDs of 2010."""

    generated = (_name(LEGACY),)


def _control(
    name: str, text: str, *fields: Any, dialect: str = "knet-2.x", prefix: str = "Knet",
    base: type[KnetContent] = KnetContent, gens: Sequence[Gen] = (), checks: Sequence[Check] = (),
) -> type[KnetContent]:  # fmt: skip
    """Return the layer of a control message, with the message ID that it has in a dialect."""
    number = next(number for number, known in CONTROLS[dialect].items() if known == name)
    return make_layer(
        globals(), prefix + name, base, text, fields_desc=[_id(number), *fields],
        generated=(_name(dialect), *gens), checks=checks,
    )  # fmt: skip


_ACKNOWLEDGES = Gen(
    "acknowledges",
    lambda fields: acknowledged(fields["acked_packet_id"], fields["sequence_bits"]),
)
_ACK_BITS = Check(
    E("acked_packet_id >> 22"),
    "knet-ack-bits",
    "acked_packet_id",
    "bits 22-23 of {acked_packet_id:#x} are set: the base acknowledges nothing",
)
_EMPTY = Check(
    E("data"),
    "knet-disconnect-payload",
    "payload",
    "an empty message with a payload",
)

KnetPingRequest = _control(
    PING_REQUEST, "Requests a PingReply with the same ID.", ByteField("ping_id", 1)
)
KnetPingReply = _control(
    PING_REPLY, "Answers a PingRequest immediately.", ByteField("ping_id", 1)
)
KnetFlowControlRequest = _control(
    FLOW_CONTROL,
    "Requests another datagram rate. The library never sends it, and 2.x ignores it.",
    LEShortField("rate", 15),
)
KnetPacketAck = _control(
    PACKET_ACK,
    "Acknowledges a PacketID and, for each bit i that is set, the PacketID + 1 + i.",
    LEThreeBytesField("acked_packet_id", 0), LEIntField("sequence_bits", 0),
    gens=(_ACKNOWLEDGES,), checks=(_ACK_BITS,),
)  # fmt: skip
KnetSpecPacketAck = _control(
    PACKET_ACK,
    """PacketAck of the published document: the top two bits of the u24 are sequence bits as well.

    They are the lowest two of 34, so that one message acknowledges up to 35 datagrams.
    """,
    LEShortField("acked_packet_id_low", 0), BitField("sequence_bits_low", 0, 2),
    BitField("acked_packet_id_high", 0, 6), LEIntField("sequence_bits_high", 0),
    dialect=SPECIFICATION, prefix="KnetSpec",
    gens=(in_parts("acked_packet_id", 16), in_parts("sequence_bits", 2), _ACKNOWLEDGES),
)  # fmt: skip
KnetDisconnect = _control(
    DISCONNECT, "The sender closes its side of the connection and sends nothing more.",
    PayloadTail(), checks=(_EMPTY,),
)  # fmt: skip
KnetDisconnectAck = _control(
    DISCONNECT_ACK, "Answers a Disconnect.", PayloadTail(), checks=(_EMPTY,)
)
KnetConnectSyn, KnetConnectSynAck, KnetConnectAck = _DOCUMENT = [
    _control(name, text, PayloadTail(), dialect=SPECIFICATION)
    for name, text in zip(HANDSHAKE.values(), (
        "First message of the published document's handshake, which no implementation has.",
        "Second message of the published document's handshake.",
        "Third message of the published document's handshake.",
    ), strict=True)
]  # fmt: skip

_LAYERS: Mapping[str, type[KnetContent]] = {
    PING_REQUEST: KnetPingRequest, PING_REPLY: KnetPingReply,
    FLOW_CONTROL: KnetFlowControlRequest, PACKET_ACK: KnetPacketAck,
    DISCONNECT: KnetDisconnect, DISCONNECT_ACK: KnetDisconnectAck,
}  # fmt: skip
_MADE_2010: Mapping[str, type[KnetContent]] = {
    name: _control(
        name, f"{base.__doc__} ID of 2010.", *base.fields_desc[1:], dialect=LEGACY, base=base,
        prefix="Knet2010", gens=base.generated[1:], checks=base.checks,
    )
    for name, base in _LAYERS.items() if CONTROL_SIZES[name]
}  # fmt: skip
"""Layers of the control messages whose ID was another one in 2010."""
__all__ += [layer.__name__ for layer in _MADE_2010.values()]
_LAYERS_2010: Mapping[str, type[Layer]] = {**_LAYERS, **_MADE_2010}
_LAYERS_DOCUMENT: Mapping[str, type[Layer]] = {
    **_LAYERS, PACKET_ACK: KnetSpecPacketAck,
    **dict(zip(HANDSHAKE.values(), _DOCUMENT, strict=True)),
}  # fmt: skip
_LAYERS_OF: Mapping[str, Mapping[str, type[Layer]]] = {
    LEGACY: _LAYERS_2010, SPECIFICATION: _LAYERS_DOCUMENT,
}  # fmt: skip


def _later_fragment(fields: Any, dialect: str) -> bool:
    """Return whether the message is a later fragment, which has no message ID."""
    try:
        values = fields if isinstance(fields, dict) else fields.fields
        later = values["fragment"] and not values["fragment_start"]
        return bool(later and (dialect not in PERHAPS_2010 or values["reliable"]))
    except KeyError:
        return False


def message_names(messages: Iterable[Any]) -> str:
    """Return the names of messages, or that there are none, for one-line summaries."""
    names = []
    for message in messages:
        content = getattr(message, "content", None)
        number = content.int_value("message_id") if isinstance(content, Layer) else None
        names.append("fragment" if number is None else message_type(number, message.dialect))
    return summary_list(names) or "no messages"


def chooser(dialect: str) -> Callable[[Any, bytes], type[Layer]]:
    """Return the function that chooses the layer of a content in a dialect, by its message ID."""
    controls = CONTROLS[dialect]
    layers = _LAYERS_OF.get(dialect, _LAYERS)
    wrong = KnetWrongSize2010 if dialect == LEGACY else KnetWrongSize
    others: type[Layer] = {
        "knet-urho3d": KnetUrho3dApplication, "knet-tundra": KnetTundraApplication,
    }.get(dialect, KnetApplication)  # fmt: skip

    def choose(fields: Any, octets: bytes) -> type[Layer]:
        if _later_fragment(fields, dialect):
            return KnetFragmentData
        try:
            number, after = KNET_7_7_16.read(octets, 0, len(octets))
        except VarintError:
            return KnetContent
        name = controls.get(number)
        if name is None or _fragment_start(fields):
            return others
        size = CONTROL_SIZES.get(name)
        if size and len(octets) - after != size:
            # The Urho3D fork passes message 3 of any size to its application.
            forked = dialect == "knet-urho3d" and name == FLOW_CONTROL
            return others if forked else wrong
        return layers[name]

    return choose


def _fragment_start(fields: Any) -> bool:
    values = fields if isinstance(fields, dict) else fields.fields
    try:
        return bool(values["fragment_start"])
    except KeyError:
        return False
