"""Scapy layers of ENet 1.3: a datagram and its twelve commands. *Source:* docs/enet.md."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, ClassVar

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    ConditionalField,
    FieldLenField,
    IntField,
    ShortField,
    XIntField,
)  # fmt: skip
from scapy.packet import bind_bottom_up

from netdissect.dissect.walker import Walker
from netdissect.layers.base import Check, Layer, make_layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Items, SizedBytes, Tail
from netdissect.model.dissection import Buffer, Dissection
from netdissect_enet.rangecoder import RangeCoderError, decompress
from netdissect_enet.rules import ALL_CODES as CODES
from netdissect_enet.rules import CONNECT, CRC, LAYERS, MAX_COMMANDS, NAMES, NOBODY

__all__ = ["CODES", "COMMANDS", "READERS", "EnetCommand", "EnetPacket", "EnetPacketCrc", "bind",
           "command_layer", "finish", "root", "wrap"]  # fmt: skip


class EnetCommand(Layer):
    """Base class of commands: the fields with which each begins.

     0 1 2 3 4 5 6 7
    |A|U|0 0|command|  A: requests an acknowledgement, U: unsequenced
    | channel       |  0xFF: the peer itself
    | reliable seq. |  16 bits
    """

    name = "command"
    is_item = True
    number: ClassVar[int] = 0
    fields_desc: ClassVar[list[Any]] = [
        BitField("acknowledge", 0, 1),
        BitField("is_unsequenced", 0, 1),
        BitField("reserved", 0, 2),
        BitEnumField("command", 0, 4, NAMES),
        ByteField("channel", 0xFF),
        ShortField("reliable_seq", 0),
    ]

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the name of the command."""
        return NAMES.get(fields["command"], "unknown") if "reliable_seq" in fields else None


class EnetUnknown(EnetCommand):
    """A command with an undefined number. A receiver ignores everything from there on."""

    fields_desc: ClassVar[list[Any]] = [*EnetCommand.fields_desc, Tail("octets")]
    checks = (Check(E("1"), "enet-bad-command", "command", "command {command}"),)


def _command(number: int, flags: int, channel: int, *body: Any) -> type[EnetCommand]:
    head = [field.copy() for field in EnetCommand.fields_desc]
    for field, value in zip(head, (flags >> 7, flags >> 6 & 1, 0, number, channel, 1), strict=True):
        field.default = value
    return make_layer(
        globals(), LAYERS[number], EnetCommand, f"Command {number}.",
        name=NAMES[number], fields_desc=[*head, *body], number=number,
    )  # fmt: skip


def _data() -> list[Any]:
    return [FieldLenField("data_length", None, length_of="data", fmt="!H")]


def _ints(**defaults: int) -> list[Any]:
    return [IntField(name, value) for name, value in defaults.items()]


_PAYLOAD = SizedBytes("data", b"", E("data_length"))
_PEER = [ShortField("outgoing_peer", 0), ByteField("incoming_session", 0xFF),
         ByteField("outgoing_session", 0xFF), *_ints(
    mtu=1400, window_size=65536, channel_count=1, incoming_bandwidth=0, outgoing_bandwidth=0,
    throttle_interval=5000, throttle_acceleration=2, throttle_deceleration=2,
), XIntField("connect_id", 0x12345678)]  # fmt: skip
_FRAGMENT = [ShortField("start_seq", 1), *_data(), *_ints(
    fragment_count=1, fragment_number=0, total_length=0, fragment_offset=0,
), _PAYLOAD]  # fmt: skip
COMMANDS: dict[int, type[EnetCommand]] = {
    1: _command(1, 0, 0xFF, ShortField("received_seq", 0), ShortField("received_sent_time", 0)),
    2: _command(2, 0x80, 0xFF, *_PEER, *_ints(data=0)),
    3: _command(3, 0x80, 0xFF, *_PEER),
    4: _command(4, 0x80, 0xFF, *_ints(data=0)),
    5: _command(5, 0x80, 0xFF),
    6: _command(6, 0x80, 0, *_data(), _PAYLOAD),
    7: _command(7, 0, 0, ShortField("unreliable_seq", 1), *_data(), _PAYLOAD),
    8: _command(8, 0x80, 0, *_FRAGMENT),
    9: _command(9, 0x40, 0, ShortField("unsequenced_group", 1), *_data(), _PAYLOAD),
    10: _command(10, 0x80, 0xFF, *_ints(incoming_bandwidth=0, outgoing_bandwidth=0)),
    11: _command(11, 0x80, 0xFF, *_ints(
        throttle_interval=5000, throttle_acceleration=2, throttle_deceleration=2)),
    12: _command(12, 0, 0, *_FRAGMENT),
}  # fmt: skip
"""Number -> layer. *Source:* docs/enet.md, "On the wire"."""
__all__ += [layer.__name__ for layer in COMMANDS.values()]


def command_layer(_fields: Any, octets: bytes) -> type[EnetCommand]:
    """Return the layer of the command at the start of `octets`."""
    return COMMANDS.get(octets[0] & 0xF, EnetUnknown) if octets else EnetUnknown


class EnetHead(Layer):
    """The fields before the commands.

    |T|C|ses|  peer number  |  T: sent time follows, C: compressed; 12 bits of peer number
    """

    fields_desc: ClassVar[list[Any]] = [
        BitField("has_sent_time", 0, 1),
        BitField("compressed", 0, 1),
        BitField("session", 0, 2),
        BitField("peer", NOBODY, 12),
        ConditionalField(ShortField("time_sent", 0), E("has_sent_time")),
    ]


class EnetHeadCrc(EnetHead):
    """`EnetHead` with a checksum."""

    fields_desc: ClassVar[list[Any]] = [*EnetHead.fields_desc, XIntField("checksum", None)]


_COMMANDS = [
    ConditionalField(Items("commands", EnetCommand, choose=command_layer), E("not compressed")),
    ConditionalField(Tail("packed", private=""), E("compressed")),
]


class EnetPacket(Layer):
    """A datagram without a checksum."""

    name = "enet"
    fields_desc: ClassVar[list[Any]] = [*EnetHead.fields_desc, *_COMMANDS]


class EnetPacketCrc(EnetPacket):
    """A datagram with a checksum. Building fills it in for a datagram to an unknown peer."""

    fields_desc: ClassVar[list[Any]] = [*EnetHeadCrc.fields_desc, *_COMMANDS]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the checksum unless it was given."""
        if self.fields.get("checksum") is None:
            at = 4 if self.has_sent_time else 2
            pkt = pkt[:at] + checksum(pkt, at, 0).to_bytes(4, "big") + pkt[at + 4 :]
        return pkt + pay


def checksum(octets: bytes, at: int, connect_id: int) -> int:
    """Return the CRC-32 of an uncompressed datagram, with the connectID in the checksum field.

    Args:
        octets: the datagram.
        at: offset of the checksum.
        connect_id: 0 if the receiver has not assigned a peer number yet.
    """
    return zlib.crc32(octets[:at] + connect_id.to_bytes(4, "big") + octets[at + 4 :])


def root(_payload: bytes, request: Any) -> type[Layer]:
    """Return the layer that reads a datagram."""
    return EnetPacketCrc if request.dialect == CRC else EnetPacket


def wrap(packet: Any, request: Any) -> Any:
    """Return a datagram with a command; it has a sent time if it requests an acknowledgement."""
    header = root(b"", request)
    if not isinstance(packet, EnetCommand):
        return packet if type(packet) is header else None
    peer = NOBODY if packet.number == CONNECT else 0
    return header(peer=peer, has_sent_time=int(bool(packet.acknowledge)), commands=[packet])


def bind(port: int = 1234) -> None:
    """Let Scapy dissect UDP at `port` as ENet, which has no port of its own."""
    from scapy.layers.inet import UDP  # noqa: PLC0415 - slow import, needed only here

    for direction in ("sport", "dport"):
        bind_bottom_up(UDP, EnetPacket, {direction: port})


def finish(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Read compressed commands from a second buffer; check the datagram as a whole."""
    node, payload = dissection.root, dissection.buffers[0].data
    fields = {child.name: child for child in node.children}
    commands, plain = fields.get("commands"), payload
    packed = fields.get("packed")
    if packed is not None:
        start = packed.bit_offset >> 3
        try:
            opened = decompress(packed.value)
        except RangeCoderError as fault:
            walker.note("enet-compression", str(fault), packed.bit_offset, packed.bit_length)
            return
        made = Buffer("decompressed", opened, (packed.bit_offset, packed.bit_length))
        walker.into(dissection, made).payload(node, "", _Commands, opened)
        commands, plain = node.child("commands"), payload[:start] + opened
    if commands is not None and "peer" in fields:
        _check(fields, commands.children, plain, request.hints, walker)


class _Commands(Layer):
    """Commands that were compressed."""

    fields_desc: ClassVar[list[Any]] = [Items("commands", EnetCommand, choose=command_layer)]


def _check(
    fields: dict[str, Any], commands: list[Any], plain: bytes, hints: Any, walker: Walker
) -> None:
    if len(commands) > MAX_COMMANDS:
        walker.note("enet-commands", f"{len(commands)} commands", 0)
    values = [{child.name: child for child in command.children} for command in commands]
    requests = any("acknowledge" in each and each["acknowledge"].value for each in values)
    if requests and not fields["has_sent_time"].value:
        walker.note("enet-sent-time", "an acknowledgement is requested, no sent time", 0, 16)
    field = fields.get("checksum")
    if field is None:
        return
    connect_id = 0 if fields["peer"].value == NOBODY else getattr(hints, "connect_id", None)
    if connect_id is not None:
        at = field.bit_offset >> 3
        if checksum(plain, at, connect_id) != field.value:
            walker.note("enet-checksum", "the checksum is wrong", field.bit_offset, 32)


READERS = [(layer, ()) for layer in [EnetHead, EnetHeadCrc, *COMMANDS.values()]]
"""(layer, fields to skip) for the derived readers that `commands` calls."""
