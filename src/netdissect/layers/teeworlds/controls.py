"""The control messages of every dialect. *Source:* docs/protocols/teeworlds.md.

They are not in the table of messages, which has no optional tokens, and no token behind the reason
of a close.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scapy.fields import ByteField

from netdissect.layers.base import Check, Gen, Layer, make_layer
from netdissect.layers.expr import E
from netdissect.layers.fields import IfLeft, Tail
from netdissect.layers.teeworlds.fields import TRAILING, Maybe, Octets, OptionalTail, Text
from netdissect.wire.teeworlds_forms import (
    CLOSE,
    CONTROL_NAMES,
    NO_TOKEN,
    PADDED_OCTETS,
    TOKEN_MAGIC,
    TOKEN_OCTETS,
    is_bare_token,
)

__all__ = [
    "CONTROLS", "TwControl", "TwControlEmpty", "TwControlUnknown", "TwDdnetControlCloseBare",
    "control_layer",
]  # fmt: skip


class TwControl(Layer):
    """A control message: `control_id`, then its own fields."""

    name = "Teeworlds control"
    control_name: ClassVar[str] = ""
    checks = (TRAILING,)
    generated: ClassVar[tuple[Gen, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the derived value `control`."""
        super().__init_subclass__(**kwargs)
        name = cls.control_name or None
        kind = Gen("control", lambda _fields: name)
        cls.generated = (kind, *(gen for gen in cls.generated if gen.name != "control"))

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the type of the message, such as `control.close`."""
        del fields
        return f"control.{cls.control_name}" if cls.control_name else None

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        return f"{self.name}"


class TwControlEmpty(TwControl):
    """A control packet without a message."""

    name = "Teeworlds empty control"
    fields_desc: list[Any] = []
    checks = (
        Check(E("1"), "teeworlds-control-missing", "", "no byte names the message"),
    )


class TwControlUnknown(TwControl):
    """A control message that the dialect does not define."""

    name = "Teeworlds unknown control"
    fields_desc = [ByteField("control_id", 255), Tail("data")]
    checks = (
        Check(
            E("control_id is not None"),
            "teeworlds-control-unknown",
            "control_id",
            "control message {control_id}",
        ),
    )

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return `control.unknown`."""
        return "control.unknown" if fields["control_id"] is not None else None


_BODY_LENGTH = Gen(
    "body_len", lambda fields: len(fields["response_token"]) + len(fields["padding"] or b"")
)
_MAGIC = Gen("magic", lambda fields: (fields["magic_octets"] or b"").decode("latin-1") or None)


def _token(name: str, default: bytes = bytes(TOKEN_OCTETS)) -> Octets:
    return Octets(name, default, TOKEN_OCTETS)


def _optional(name: str, default: bytes = bytes(TOKEN_OCTETS), *, absent: bool = False) -> IfLeft:
    """Return a token that is present if enough bytes are left."""
    return IfLeft(_token(name, default), 8 * TOKEN_OCTETS, absent=absent)


def _reason() -> Maybe:
    return Maybe(Text("reason", private="close_reason"))


def _request() -> list[Any]:
    """Return the fields of a request whose body is padded to 512 bytes."""
    return [_token("response_token"), Tail("padding", bytes(PADDED_OCTETS - TOKEN_OCTETS))]


_LAYOUTS: dict[str, dict[int, list[Any]]] = {
    "0.6": {0: [], 1: [], 2: [], 3: [], 4: [_reason()]},
    "0.6.5": {
        0: [],
        1: [
            _optional("padding_a"),
            _optional("client_token"),
            Tail("padding_b", bytes(PADDED_OCTETS - 2 * TOKEN_OCTETS)),
        ],
        2: [_optional("server_token")],
        3: [],
        4: [_reason()],
    },
    "ddnet-0.6": {
        0: [_optional("token")],
        1: [_token("magic_octets", TOKEN_MAGIC), _token("token", NO_TOKEN)],
        2: [_optional("magic_octets", TOKEN_MAGIC), _optional("token")],
        3: [_optional("token")],
        4: [_reason(), _optional("token", absent=True)],
    },
    "0.7": {
        0: [],
        1: _request(),
        2: [_optional("accept_extra", absent=True)],
        4: [_reason()],
        5: _request(),
    },
}
"""Dialect -> control id -> fields. `accept_extra` is a token that DDNet servers append."""


def _make(dialect: str, number: int, fields: list[Any]) -> type[TwControl]:
    family = "0.7" if dialect == "0.7" else "0.6"
    control = CONTROL_NAMES[family][number]
    prefix = {"0.6": "Tw06", "0.6.5": "Tw065", "ddnet-0.6": "TwDdnet", "0.7": "Tw07"}[dialect]
    camel = "".join(part.capitalize() for part in control.split("_"))
    names = {field.name for field in fields}
    gens = [_BODY_LENGTH] if "response_token" in names else []
    gens += [_MAGIC] if "magic_octets" in names else []
    # A `Tail` leaves nothing for another one.
    tail = [] if fields and isinstance(fields[-1], Tail) else [OptionalTail()]
    return make_layer(
        globals(),
        f"{prefix}Control{camel}",
        TwControl,
        f"Control message `{control}` of {dialect}.",
        name=f"Teeworlds control {control}",
        control_name=control,
        generated=tuple(gens),
        fields_desc=[ByteField("control_id", number), *fields, *tail],
    )


CONTROLS: dict[str, dict[int, type[TwControl]]] = {
    dialect: {number: _make(dialect, number, fields) for number, fields in layouts.items()}
    for dialect, layouts in _LAYOUTS.items()
}
"""Dialect without prefix -> control id -> layer."""


class TwDdnetControlCloseBare(TwControl):
    """Control message `close` of ddnet-0.6 with a token and without a reason."""

    name = "Teeworlds control close"
    control_name = "close"
    fields_desc = [ByteField("control_id", CLOSE), _token("token")]


def control_layer(dialect: str, payload: bytes) -> type[Layer]:
    """Return the layer of a control message."""
    if not payload:
        return TwControlEmpty
    number = payload[0]
    if dialect == "ddnet-0.6" and number == CLOSE and is_bare_token(payload[1:]):
        return TwDdnetControlCloseBare
    return CONTROLS[dialect].get(number, TwControlUnknown)
