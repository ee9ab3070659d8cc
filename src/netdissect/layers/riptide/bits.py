"""Riptide 2.1 and 2.2: a stream of bits, least significant bit first, without alignment.

```
bit 0    4               20                36                 Ack      last_received, ack_bits,
extra flag, acked
    +----+----------------+-----------------+
    |type| fields, each at the next bit, low bits first ...   up to the end of the last byte
    +----+----------------+-----------------+
```
2.1 and 2.2 differ only in Ack: 2.1 always writes its last field.
*Source:* docs/protocols/riptide.md section 3.2; Riptide 2.2.1 `Message`, `Converter`.
"""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Check, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import IfLeft
from netdissect.layers.lsb import LsbBits, LsbPad, LsbTail, LsbVarULong
from netdissect.layers.riptide import common
from netdissect.wire.riptide import DISCONNECT_REASONS, REJECT_REASONS, TYPES_21

__all__ = [
    "BIT_LAYERS",
    "Riptide",
    "Riptide21Ack",
    "RiptideAck",
    "RiptideClientConnected",
    "RiptideClientDisconnected",
    "RiptideConnect",
    "RiptideDisconnect",
    "RiptideEmpty",
    "RiptideHeartbeat",
    "RiptideInvalid",
    "RiptideNotify",
    "RiptideReject",
    "RiptideReliable",
    "RiptideUnreliable",
    "RiptideWelcome",
]


class _Echo(LsbBits):
    """Bits that default to the value of the field `of`: what 2.1 writes after flag 0."""

    __slots__ = ["of"]

    def __init__(self, name: str, size: int, of: str) -> None:
        super().__init__(name, None, size)
        self.of = of

    def addfield(self, pkt: Any, s: Any, val: int | None) -> Any:
        """Append the value, or that of the other field if it is None."""
        return super().addfield(pkt, s, pkt.getfieldval(self.of) if val is None else val)


def _type(number: int) -> Any:
    return LsbBits("type_id", number, 4, dict(enumerate(TYPES_21)))


def _optional(field: Any) -> Any:
    return IfLeft(field, field.size if isinstance(field, LsbBits) else 8)


_SEQUENCE = LsbBits("sequence_id", 1, 16)
_RECEIVED = LsbBits("last_received", 1, 16)
_CLIENT_ID = LsbBits("client_id", 1, 16)
_MESSAGE_ID = _optional(LsbVarULong("message_id", 0, 16))
_DATA = LsbTail("data")
_PAD = LsbPad()
_REJECTED = dict(enumerate(REJECT_REASONS))
_ENDED = dict(enumerate(DISCONNECT_REASONS))


class Riptide(common.RiptideMessage):
    """Any message of riptide-2.1 or riptide-2.2; `Riptide(data)` is of the class of its type."""

    name = "Riptide"
    type_names = TYPES_21
    fields_desc = [_type(0), _DATA]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: Any, **_kwargs: Any) -> type[Any]:
        """Return the layer of the type in the low four bits of the first byte."""
        if cls is Riptide and _pkt:
            return BIT_LAYERS.get(_pkt[0] & 0xF, RiptideInvalid)
        return cls


class RiptideUnreliable(Riptide):
    """A user message that is sent once."""

    fields_desc = [_type(0), _MESSAGE_ID, _DATA]
    checks = (common.missing_message_id,)


class RiptideAck(Riptide):
    """Acknowledges `last_received`, or `extra_seq_field` if the flag is set.

    Bit i of `ack_bits` acknowledges last_received - 1 - i.
    """

    fields_desc = [
        _type(1),
        _RECEIVED,
        LsbBits("ack_bits", 1, 16),
        LsbBits("extra_flag", 0, 1),
        _optional(LsbBits("extra_seq_field", None, 16)),
        _PAD,
    ]
    generated = (common.acked,)
    checks = (
        Check(
            E("extra_flag and extra_seq_field is None"),
            "truncated",
            "extra_flag",
            "flag 1 announces an acked id that is not there: a real receiver reads 0",
        ),
    )


class Riptide21Ack(RiptideAck):
    """An Ack of 2.1: the acknowledged id follows even if the flag is 0."""

    name = "Riptide 2.1"
    fields_desc = [
        _type(1),
        _RECEIVED,
        LsbBits("ack_bits", 1, 16),
        LsbBits("extra_flag", 0, 1),
        _Echo("extra_seq_field", 16, "last_received"),
        _PAD,
    ]


class RiptideConnect(Riptide):
    """Requests a connection. The server's empty echo means "pending"."""

    fields_desc = [_type(2), _DATA]
    checks = (
        Check(
            lambda fields: common.from_server(fields) and any(fields["data"]),
            "riptide-wrong-direction",
            "data",
            "a server's Connect echo carries no data",
        ),
    )


class RiptideReject(Riptide):
    """Refuses a connection. Only the reason Custom has `data`."""

    fields_desc = [_type(3), LsbBits("reason", 2, 8, _REJECTED), _DATA]
    generated = (common.reason(_REJECTED),)
    checks = common.servers_only("Reject")


class RiptideHeartbeat(Riptide):
    """A client's ping with its last round-trip time, or the server's answer without one."""

    fields_desc = [
        _type(4),
        LsbBits("ping_id", 0, 8),
        _optional(LsbBits("rtt_ms", None, 16, signed=True)),
        _PAD,
    ]
    checks = common.HEARTBEAT_CHECKS


class RiptideDisconnect(Riptide):
    """Ends a connection. Only servers give a reason, and only Kicked has `data`."""

    fields_desc = [_type(5), _optional(LsbBits("reason", None, 8, _ENDED)), _DATA]
    generated = common.DISCONNECT_GEN
    checks = common.DISCONNECT_CHECKS


class RiptideNotify(Riptide):
    """A message that is never retransmitted. Its header acknowledges those of the other direction.

    On the wire, the acknowledgement is before the sequence id. There is no message id.
    """

    fields_desc = [_type(6), _RECEIVED, LsbBits("ack_bits", 1, 8), _SEQUENCE, _DATA]


class RiptideReliable(Riptide):
    """A user message that is retransmitted until it is acknowledged."""

    fields_desc = [_type(7), _SEQUENCE, _MESSAGE_ID, _DATA]
    checks = (common.missing_message_id,)


class RiptideWelcome(Riptide):
    """Accepts a client; the client's copy of it confirms."""

    fields_desc = [_type(8), _SEQUENCE, _CLIENT_ID, _PAD]


class RiptideClientConnected(Riptide):
    """Informs the other clients of a new one."""

    fields_desc = [_type(9), _SEQUENCE, _CLIENT_ID, _PAD]
    checks = common.servers_only("ClientConnected")


class RiptideClientDisconnected(Riptide):
    """Informs the other clients that one has left."""

    fields_desc = [_type(10), _SEQUENCE, _CLIENT_ID, _PAD]
    checks = common.servers_only("ClientDisconnected")


class RiptideEmpty(Layer):
    """An empty datagram, which is no message."""

    name = "Riptide (empty datagram)"
    fields_desc: list[Any] = []


class RiptideInvalid(Riptide):
    """A message of a type that no release defines. Receivers acknowledge it."""

    fields_desc = [_type(11), _optional(LsbBits("sequence_id", None, 16)), _DATA]
    checks = (common.invalid_type,)


BIT_LAYERS: dict[int, type[Riptide]] = {
    0: RiptideUnreliable, 1: RiptideAck, 2: RiptideConnect, 3: RiptideReject, 4: RiptideHeartbeat,
    5: RiptideDisconnect, 6: RiptideNotify, 7: RiptideReliable, 8: RiptideWelcome,
    9: RiptideClientConnected, 10: RiptideClientDisconnected,
}  # fmt: skip
"""Type in riptide-2.1 and riptide-2.2 -> layer. Any other number is `RiptideInvalid`."""
