"""What the layers in whole bytes and those in bits have in common: rules and derived values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.expr import E
from netdissect.model.packets import Direction
from netdissect.wire.riptide import DISCONNECT_REASONS, MISENCODED_STOP, TYPES_21, type_name


class RiptideMessage(Layer):
    """Base class of all messages. The field `type_id` selects the class."""

    pairing = b"riptide"
    type_names: ClassVar[tuple[str, ...]] = TYPES_21
    """Names of the dialect's types by number."""
    generated: ClassVar[tuple[Gen, ...]] = ()

    family: ClassVar[str] = ""
    """First part of the titles in this dialect."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the title, and the derived value `type`."""
        super().__init_subclass__(**kwargs)
        names = cls.type_names
        own = cls.__dict__.get("_name")
        if own is not None:
            cls.family = own
        if RiptideMessage not in cls.__bases__:
            number = cls.fields_desc[0].default
            kind = names[number] if number < len(names) else "invalid type"
            cls._name = f"{cls.family} {kind}"
        shown = Gen("type", lambda fields: type_name(fields["type_id"], names))
        cls.generated = (shown, *(gen for gen in cls.generated if gen.name != "type"))

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the name of the type; None if the message has no bytes."""
        kind: str | None = fields.get("type")
        return kind

    def answers(self, other: Any) -> bool:
        """Return whether this replies to a Connect, echoes a Welcome or Heartbeat, or acknowledges
        `other`.
        """
        if not isinstance(other, RiptideMessage):
            return False
        kind, requested = self.kind(), other.kind()
        if kind in ("Ack", "AckExtra"):
            numbered = requested not in _NOT_ACKNOWLEDGED and "sequence_id" in _values(other)
            return numbered and self._acked() == _values(other)["sequence_id"]
        if kind == "Heartbeat":
            number = _values(self).get("ping_id")
            same = number is not None and number == _values(other).get("ping_id")
            return requested == kind and same
        return requested in _REPLIES.get(kind, ())

    def _acked(self) -> int | None:
        """Return the sequence id that an Ack acknowledges."""
        names = [gen for gen in self.generated if gen.name == "acked"]
        return names[0].value(_values(self)) if names else None

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        return f"{self.family} {self.kind()}"

    def kind(self) -> str:
        """Return the name of the type."""
        number = self.int_value("type_id")
        return "of no type" if number is None else str(type_name(number, self.type_names))


_REPLIES = {"Welcome": ("Connect", "Welcome"), "Reject": ("Connect",)}
"""Type -> types that it answers."""
_NOT_ACKNOWLEDGED = ("Notify",)
"""Types whose sequence ids no Ack acknowledges."""


def _values(packet: Any) -> dict[str, Any]:
    """Return the fields of a packet by name."""
    return {field.name: packet.getfieldval(field.name) for field in packet.fields_desc}


def from_server(fields: Mapping[str, Any]) -> bool:
    """Return whether the server sent it; False if the direction is unknown."""
    return bool(fields["_direction"] == Direction.S2C)


def reason(names: dict[int, str]) -> Gen:
    """Return the derived value with the name of a reason."""
    return Gen(
        "reason_name", lambda fields: names.get(fields["reason"], f"unknown {fields['reason']}")
    )


def disconnect_reason(fields: Mapping[str, Any]) -> str | None:
    """Return the name of a Disconnect reason. 80 is a mis-encoded ServerStopped (defect D5)."""
    value = fields["reason"]
    if value is None:
        return None
    if value == MISENCODED_STOP:
        return "ServerStopped (mis-encoded)"
    return DISCONNECT_REASONS[value] if value < len(DISCONNECT_REASONS) else f"unknown {value}"


def intended_reason(fields: Mapping[str, Any]) -> int | None:
    """Return the reason that a server with defect D5 meant."""
    return 5 if fields["reason"] == MISENCODED_STOP else None


DISCONNECT_GEN = (Gen("reason_name", disconnect_reason), Gen("intended_reason", intended_reason))

missing_message_id = Check(
    E("message_id is None"),
    "riptide-missing-message-id",
    "type_id",
    "no message id: a real receiver reads 0",
)
acked = Gen(
    "acked",
    lambda fields: (
        fields["extra_seq_field"]
        if fields["extra_flag"] and fields["extra_seq_field"] is not None
        else fields["last_received"]
    ),
)
_CLIENT = "_direction is not None and _direction == 0"


def servers_only(kind: str) -> tuple[Check]:
    """Return the rule of a message that only servers send."""
    text = f"{kind} is sent by servers only"
    return (Check(E(_CLIENT), "riptide-wrong-direction", "type_id", text),)


connect_from_server = Check(
    E("_direction == 1 and data"),
    "riptide-wrong-direction",
    "type_id",
    "a server's Connect echo carries no data",
)
HEARTBEAT_CHECKS = (
    Check(
        E(f"{_CLIENT} and rtt_ms is None"),
        "riptide-heartbeat-form",
        "ping_id",
        "a client's heartbeat without RTT field: a real server reads 0",
    ),
    Check(
        E("_direction == 1 and rtt_ms is not None"),
        "riptide-heartbeat-form",
        "rtt_ms",
        "a server's heartbeat answer carries no RTT field",
    ),
    Check(
        E("rtt_ms < -1"),
        "riptide-implausible-rtt",
        "rtt_ms",
        "RTT {rtt_ms} ms: only -1 (none yet) is a valid negative value",
    ),
)
DISCONNECT_CHECKS = (
    Check(
        E(f"{_CLIENT} and reason is not None"),
        "riptide-wrong-direction",
        "reason",
        "a client's Disconnect carries no reason",
    ),
    Check(
        E(f"reason == {MISENCODED_STOP}"),
        "riptide-misencoded-stop",
        "reason",
        "reason 80 is ServerStopped, sent as the raw bytes 05 05 by servers 2.1.0 to 2.2.0",
    ),
)
invalid_type = Check(
    E("True"),
    "riptide-invalid-type",
    "type_id",
    "type {type_id} is not defined: a real receiver acknowledges it as reliable, then discards it",
)
