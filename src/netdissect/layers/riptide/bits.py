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



class Riptide(common.RiptideMessage):
    """Any message of riptide-2.1 or riptide-2.2; `Riptide(data)` is of the class of its type."""

    name = "Riptide"
    type_names = TYPES_21
    fields_desc = [_type(0), LsbTail("data")]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: Any, **_kwargs: Any) -> type[Any]:
        """Return the layer of the type in the low four bits of the first byte."""
        if cls is Riptide and _pkt:
            return BIT_LAYERS.get(_pkt[0] & 0xF, INVALID)
        return cls


class RiptideEmpty(Layer):
    """An empty datagram, which is no message."""

    name = "Riptide (empty datagram)"
    fields_desc: list[Any] = []


_FIELDS = {
    "type": _type,
    "sequence_id": LsbBits("sequence_id", 1, 16),
    "any_sequence_id": _optional(LsbBits("sequence_id", None, 16)),
    "last_received": LsbBits("last_received", 1, 16),
    "ack_bits": LsbBits("ack_bits", 1, 16),
    "few_ack_bits": LsbBits("ack_bits", 1, 8),
    "extra_flag": LsbBits("extra_flag", 0, 1),
    "extra_seq_field": _optional(LsbBits("extra_seq_field", None, 16)),
    "client_id": LsbBits("client_id", 1, 16),
    "message_id": _optional(LsbVarULong("message_id", 0, 16)),
    "ping_id": LsbBits("ping_id", 0, 8),
    "rtt_ms": _optional(LsbBits("rtt_ms", None, 16, signed=True)),
    "reject": LsbBits("reason", 2, 8, dict(enumerate(REJECT_REASONS))),
    "end": _optional(LsbBits("reason", None, 8, dict(enumerate(DISCONNECT_REASONS)))),
    "data": LsbTail("data"),
    "padding": LsbPad(),
}
_NAMED_ACK = Check(
    E("extra_flag and extra_seq_field is None"),
    "truncated",
    "extra_flag",
    "flag 1 announces an acked id that is not there: a real receiver reads 0",
)
_NO_ECHO = Check(
    lambda fields: common.from_server(fields) and any(fields["data"]),
    "riptide-wrong-direction",
    "data",
    "a server's Connect echo carries no data",
)
BIT_LAYERS = common.message_layers(globals(), Riptide, _FIELDS, {
    **common.padded("Heartbeat", "Welcome", "ClientConnected", "ClientDisconnected"),
    "Ack": (
        "Acknowledges `last_received`, or `extra_seq_field` if the flag is set; bit i of `ack_bits`"
        " acknowledges last_received - 1 - i.",
        "last_received ack_bits extra_flag extra_seq_field padding",
        {"generated": (common.acked,), "checks": (_NAMED_ACK,)},
    ),
    "Connect": common.changed("Connect", checks=(_NO_ECHO,)),
    "Disconnect": common.changed("Disconnect", checks=common.DISCONNECT_CHECKS),
}, REJECT_REASONS)  # fmt: skip
"""Type in riptide-2.1 and riptide-2.2 -> layer. Any other number is `INVALID`."""
INVALID = BIT_LAYERS.pop(common.UNDEFINED)
__all__ = [  # noqa: PLE0604
    "BIT_LAYERS", "Riptide", "Riptide21Ack", "RiptideEmpty", INVALID.__name__,
    *(layer.__name__ for layer in BIT_LAYERS.values()),
]  # fmt: skip


_ACK: Any = BIT_LAYERS[1]


class Riptide21Ack(_ACK):  # type: ignore[misc]
    """An Ack of 2.1: the acknowledged id follows even if the flag is 0."""

    name = "Riptide 2.1"
    fields_desc = [
        *_ACK.fields_desc[:4], _Echo("extra_seq_field", 16, "last_received"), LsbPad(),
    ]  # fmt: skip
