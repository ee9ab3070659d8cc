"""The messages of Teeworlds as Scapy layers: one class per row of the message table and family.

A class is named after its family and row: `Tw07SysInput`, `Tw06GameSvChat`, or `TwExSysWhatIs` for
a message with a UUID. *Source:* docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any, ClassVar, TypeAlias

from scapy.fields import ByteField, ShortField
from scapy.packet import Packet

from netdissect.layers.base import Check, Gen, Layer, make_layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Items, SizedBytes, Tail
from netdissect.layers.teeworlds.fields import (
    TRAILING,
    ArrayOf,
    Decimal,
    Maybe,
    Number,
    Octets,
    OptionalTail,
    Size,
    Text,
)
from netdissect.wire.teeworlds import (
    MessageRow,
    connless_rows,
    message_rows,
    object_named,
    table,
    uuid_rows,
)
from netdissect.wire.teeworlds_forms import FAMILIES, MAGIC_OCTETS, UUID_OCTETS
from netdissect.wire.varint import TEEWORLDS, VarintError

__all__ = [
    "CONNLESS",
    "MESSAGES",
    "UUID_MESSAGES",
    "TwEmpty",
    "TwMessage",
    "TwNamed",
    "TwOpaque",
    "TwUnknown",
    "TwUnknownUuid",
    "connless_layer",
    "message_layer",
]

_WIDEST_CLIENT = {"0.6": 127, "0.7": 63}
"""Highest client id in a family; DDNet servers have up to 128 slots."""
_MAX_PARTS, _MAX_PART_SIZE = 64, 900
"""Number of parts of a snapshot, and bytes of one, at most."""


class TwMessage(Layer):
    """Base class of messages."""

    name = "Teeworlds message"
    row: ClassVar[MessageRow | None] = None
    """Its row in the message table."""
    counted: ClassVar[str | None] = None
    """Its type: kind and name, such as `sys.input`."""

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the type of the message."""
        del fields
        return cls.counted

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        return str(self.name if self.row is None else self.row.type)


class TwUnknown(TwMessage):
    """A message that no known release defines."""

    name = "Teeworlds unknown message"
    fields_desc = [Number("message_id", 0), Tail("data")]
    checks = (
        Check(
            E("message_id is not None"),
            "teeworlds-unknown-message",
            "message_id",
            "message id {message_id} (id << 1 | system) is not defined",
        ),
    )

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return `sys.unknown`, `game.unknown`, or `unknown` if the id cannot be read."""
        head = fields.get("message_id")
        if head is None:
            return "unknown"
        return "sys.unknown" if head & 1 else "game.unknown"


class TwUnknownUuid(TwMessage):
    """A message whose UUID is not in the table."""

    name = "Teeworlds unknown UUID message"
    fields_desc = [
        Number("message_id", 0),
        Octets("message_uuid", bytes(UUID_OCTETS), UUID_OCTETS),
        Tail("data"),
    ]
    checks = (
        Check(
            E("message_uuid is not None"),
            "teeworlds-unknown-uuid",
            "message_uuid",
            "the UUID is not known",
        ),
    )
    message_type = TwUnknown.message_type


class TwEmpty(TwMessage):
    """The body of a chunk of size 0. It is a message, `unknown`: the chunk may be vital."""

    name = "Teeworlds empty chunk"
    fields_desc: list[Any] = []
    checks = (
        Check(E("1"), "teeworlds-chunk-empty", "", "the chunk holds no message"),
    )
    message_type = TwUnknown.message_type


class TwOpaque(Layer):
    """Bytes that are not decoded."""

    name = "Teeworlds bytes"
    fields_desc = [Tail("data")]


class TwNamed(Layer):
    """A connectionless message that is being built and has no name yet."""

    name = "Teeworlds connectionless message"
    fields_desc = [Tail("magic_octets"), Tail("data")]


# -- fields of a row ------------------------------------------------------------------------------


def _limits(row: dict[str, Any], family: str) -> tuple[int | None, int | None]:
    if row["type"] == "bool":
        return 0, 1
    low, high = row.get("min"), row.get("max")
    symbol = row.get("max_symbol", "")
    if symbol.startswith("MAX_CLIENTS"):
        high = _WIDEST_CLIENT[family] + (symbol == "MAX_CLIENTS")
    return low, high


def _names(kind: str, group: str | None, family: str) -> dict[int, str] | None:
    """Return the names of an enumeration or of bits; those of DDNet if the family has none."""
    if group is None:
        return None
    for dialect in (family, "ddnet-0.6", "0.7"):
        found = table()[kind].get(dialect, {}).get(group)
        if found is not None:
            return {int(number): name for number, name in found.items()}
    return None


def _number(row: dict[str, Any], name: str, family: str) -> Number:
    return Number(
        name,
        int(row.get("default") or row.get("min") or 0),
        limits=_limits(row, family),
        names=_names("enums", row.get("enum"), family),
        flags=_names("flags", row.get("flags"), family),
        shown=row.get("name"),
    )


def _array(row: dict[str, Any], name: str, family: str) -> ArrayOf:
    item = _field({"name": row["name"], **row["item"]}, family)
    return ArrayOf(
        name, item, E(str(row["count"])), default=[item.default] * row["count"], shown=row["name"]
    )


def _object(row: dict[str, Any], name: str, family: str) -> ArrayOf:
    """Return the integers of a snapshot object; an earlier field states their bytes in memory."""
    ints = object_named(row["object"], family)["ints"]
    count = E(f"{row['length_field']} // 4")
    return ArrayOf(name, Number(row["name"]), count, default=[0] * ints, shown=row["name"])


def _raw(row: dict[str, Any], name: str) -> Any:
    private = row.get("private", "")
    if "length_field" in row:
        return SizedBytes(name, b"", E(row["length_field"]), private=private)
    octets = bytes.fromhex(row.get("value", "")) or bytes(row["length"])
    return Octets(name, octets, row["length"], private=private)


def _list(row: dict[str, Any], name: str, family: str) -> Items:
    """Return a list of objects: as many as an earlier field states, or up to the end."""
    item = type(
        "TwItem",
        (Layer,),
        {
            "__doc__": f"One entry of `{row['name']}`.",
            "__module__": __name__,
            "name": row["name"],
            "is_item": True,
            "fields_desc": [_field(entry, family) for entry in row["item"]],
        },
    )
    return Items(name, item, E(row["count_field"]) if "count_field" in row else None)


Maker: TypeAlias = Callable[[dict[str, Any], str, str], Any]
"""(row, name in Scapy, family) -> field"""


def _text(row: dict[str, Any], name: str, _family: str) -> Any:
    strict = "skip_leading" in row.get("sanitize", "")
    return Text(name, strict=strict, shown=row["name"], private=row.get("private", ""))


def _texts(row: dict[str, Any], name: str, _family: str) -> Any:
    """Return a list of strings: as many as an earlier field states, or up to the end."""
    count = E(row["count_field"]) if "count_field" in row else None
    return ArrayOf(name, Text(name, private=row.get("private", "")), count, shown=row["name"])


def _token(row: dict[str, Any], name: str, _family: str) -> Any:
    return Octets(name, bytes.fromhex(row.get("value", "00000000")), 4)


_MAKERS: dict[str, Maker] = {
    "string": _text,
    "int_string": lambda row, name, _family: Decimal(name, b"0", shown=row["name"]),
    "raw": lambda row, name, _family: _raw(row, name),
    "rest": lambda row, name, _family: Tail(name, private=row.get("private", "")),
    "uuid": lambda _row, name, _family: Octets(name, bytes(UUID_OCTETS), UUID_OCTETS),
    "token4": _token,
    "u32be": _token,
    "u8": lambda _row, name, _family: ByteField(name, 0),
    "u16be": lambda _row, name, _family: ShortField(name, 0),
    "array": _array,
    "strings": _texts,
    "strings_to_end": _texts,
    "ints_to_end": lambda row, name, _family: ArrayOf(name, Number(name), None, shown=row["name"]),
    "object": _object,
    "repeat": _list,
    "repeat_to_end": _list,
}
"""Type of a field in the table -> what makes it. Every other type is a number."""


def _field(row: dict[str, Any], family: str) -> Any:
    """Return the field of a row."""
    shown = row["name"]
    # Scapy's packets have an attribute of this name, or it is a keyword of Python.
    name = f"{shown}_" if hasattr(Packet, shown) or iskeyword(shown) else shown
    make: Maker = _MAKERS.get(row["type"], _number)
    field = make(row, name, family)
    return Maybe(field) if row.get("optional") else field


def _fields(row: MessageRow, family: str) -> list[Any]:
    """Return the fields of a message; its lengths and counts refer to what they measure."""
    fields: list[Any] = []
    measured = {entry["length_field"]: entry for entry in row.fields if "length_field" in entry}
    counted = {entry["count_field"]: entry for entry in row.fields if "count_field" in entry}
    for entry in row.fields:
        name = entry["name"]
        if name in measured:
            unit = 4 if measured[name]["type"] == "object" else 1
            highest = entry.get("max")
            fields.append(Size(name, measured[name]["name"], unit=unit, highest=highest))
        elif name in counted:
            fields.append(Size(name, counted[name]["name"]))
        else:
            fields.append(_field(entry, family))
    return fields


# -- rules ----------------------------------------------------------------------------------------

_SNAP_CHECKS = (
    Check(
        E(f"not 0 <= part < num_parts <= {_MAX_PARTS}"),
        "teeworlds-snap-part",
        "part",
        "part {part} of {num_parts}",
    ),
)
_SIZE_CHECK = Check(
    E(f"not 0 <= part_size <= {_MAX_PART_SIZE}"),
    "teeworlds-snap-part",
    "part_size",
    "part of {part_size} bytes",
)
_INPUT_CHECK = Check(
    E("size % 4 or size < 0"),
    "teeworlds-input-size",
    "size",
    "input of {size} bytes",
)


def _checks(row: MessageRow) -> tuple[Check, ...]:
    """Return the soft rules of a message."""
    found = [TRAILING]
    sender, name = row.sender, row.type
    if sender is not None:
        found.append(
            Check(
                E(f"_direction != {int(sender)} and _direction is not None"),
                "teeworlds-wrong-direction",
                "message_id",
                f"{name} is sent by the {'server' if sender else 'client'} only",
            )
        )
    if row.vital:
        found.append(
            Check(
                E("not vital"),
                "teeworlds-not-vital",
                "message_id",
                f"{name} counts in a vital chunk only",
            )
        )
    if row.name == "snap":
        found.extend((*_SNAP_CHECKS, _SIZE_CHECK))
    elif row.name == "snap_single":
        found.append(_SIZE_CHECK)
    elif row.name == "input":
        found.append(_INPUT_CHECK)
    return tuple(found)


def _gens(row: MessageRow, family: str) -> tuple[Gen, ...]:
    """Return the derived values of a message: the named integers of an input."""
    if row.name != "input":
        return ()
    names = tuple(entry["name"] for entry in object_named("player_input", family)["fields"])
    return (
        Gen(
            "player_input",
            lambda fields: dict(zip(names, fields["input"], strict=False)) or None,
        ),
    )


# -- classes --------------------------------------------------------------------------------------


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _make(row: MessageRow, family: str, prefix: str, head: list[Any]) -> type[TwMessage]:
    name = f"{prefix}{_camel(row.kind)}{_camel(row.name)}"
    made = make_layer(
        globals(),
        name,
        TwMessage,
        f"Message `{row.type}`.",
        name=f"Teeworlds {row.type}",
        row=row,
        counted=row.type,
        fields_desc=[*head, *_fields(row, family), OptionalTail()],
        checks=(TRAILING,) if row.kind == "connless" else _checks(row),
        generated=_gens(row, family),
    )
    for item in items_of(made):
        item.__name__ = item.__qualname__ = f"{name}{_camel(item().name)}Item"
    return made


def items_of(layer: type[Layer]) -> list[type[Layer]]:
    """Return the layers of the items in a message's lists."""
    return [field.item for field in layer.fields_desc if isinstance(field, Items)]


def _numbered(family: str) -> dict[int, type[TwMessage]]:
    prefix = f"Tw{family.replace('.', '')}"
    return {
        head: _make(row, family, prefix, [Number("message_id", head)])
        for head, row in message_rows(family).items()
    }


def _connless(family: str) -> dict[bytes, type[TwMessage]]:
    prefix = f"Tw{family.replace('.', '')}"
    return {
        magic: _make(row, family, prefix, [Octets("magic_octets", magic, len(magic))])
        for magic, row in connless_rows(family).items()
    }


MESSAGES: dict[str, dict[int, type[TwMessage]]] = {family: _numbered(family) for family in FAMILIES}
"""Family -> first number of a message (id << 1 | system) -> layer."""
UUID_MESSAGES: dict[bytes, type[TwMessage]] = {
    uuid: _make(
        row,
        "0.6",
        "TwEx",
        [Number("message_id", row.head), Octets("message_uuid", uuid, UUID_OCTETS)],
    )
    for uuid, row in uuid_rows().items()
}
"""UUID -> layer, in every dialect."""
CONNLESS: dict[str, dict[bytes, type[TwMessage]]] = {
    family: _connless(family) for family in FAMILIES
}
"""Family -> the 8 bytes that name a connectionless message -> layer."""


def message_layer(octets: bytes, family: str) -> type[Layer]:
    """Return the layer of the message in a chunk."""
    if not octets:
        return TwEmpty
    try:
        head, position = TEEWORLDS.read(octets, 0, len(octets))
    except VarintError:
        return TwUnknown
    if head >> 1:
        return MESSAGES[family].get(head, TwUnknown)
    uuid = octets[position : position + UUID_OCTETS]
    if len(uuid) < UUID_OCTETS:
        return TwUnknownUuid
    layer = UUID_MESSAGES.get(uuid)
    matches = layer is not None and layer.row is not None and layer.row.head == head
    return layer if layer is not None and matches else TwUnknownUuid


def connless_layer(octets: bytes, family: str) -> type[Layer]:
    """Return the layer of a connectionless message."""
    return CONNLESS[family].get(octets[:MAGIC_OCTETS], TwOpaque)
