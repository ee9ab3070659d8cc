"""The contents as RFC_01, RFC_02 and RFC_03 describe them, in every byte order and string form.

The documents leave both open. So there is one set of layers for each of the two orders and three
forms (`LAYERS[order, form]`), and `reading` chooses the set that consumes a content exactly.
*Source:* docs/protocols/eoudp.md, "Document forms".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scapy.fields import Field, FieldLenField

from netdissect.layers.base import Check, Gen, Layer, make_layer
from netdissect.layers.eoudp.fields import Flag, Nul, Stamp, Text
from netdissect.layers.expr import E
from netdissect.layers.fields import Items, SizedBytes, text
from netdissect.wire import eoudp_names as eoudp
from netdissect.wire.eoudp import (
    BIG,
    EXCLUDES_NUL,
    FORMS,
    INCLUDES_NUL,
    LITTLE,
    NO_NUL,
    TEXTS,
    Order,
    broken_reading,
    number_order,
    string_end,
    text_reading,
)
from netdissect.wire.eoudp_names import FAR_ID, key_name

STRINGS = Gen("strings", lambda f: [text(e["text"]) for e in f["entries"] if "text" in e] or None)
"""The texts of a list of strings, up to the first broken one."""
_DELETED = {"": eoudp.DELETE_COMPONENT, "rfc01": eoudp.RFC01_DELETE_COMPONENT}
"""Dialect -> number of DELETE_COMPONENT; "" = all other dialects."""
_KEY = (Gen("key_name", lambda f: key_name(f["key"])),)
PRESSED = Gen("pressed_raw", lambda f: f["pressed"] if f["pressed"] > 1 else None)
"""The byte of a boolean, if it is neither 0 nor 1."""


FAR_ACK = Check(
    E(f"acked_id >= {FAR_ID}"),
    "eoudp-far-id",
    "acked_id",
    "acknowledges id {acked_id}: above what a sender can count",
)
BELOW_ZERO = Check(
    E("received < 0 or sent < 0"),
    "eoudp-negative-count",
    "received",
    "received {received}, sent {sent}: counters do not go below zero",
)


DOCUMENT_LAYERS: dict[str, type[Layer]] = {}
"""Every layer of this module by name."""


@dataclass(frozen=True, slots=True)
class DocumentLayers:
    """The layers of one byte order and one string form."""

    strings: type[Layer]
    """One or more strings."""
    components: type[Layer]
    """COMPONENT_OF: entity, component name and data; further triples in `more`."""
    deleted: type[Layer]
    """DELETE_COMPONENT: entity and component name."""
    deleted_data: type[Layer]
    """DELETE_COMPONENT with the component's data."""
    entities: type[Layer]
    """DELETE_ENTITY: an entity; further ones in `more`."""
    pairs: type[Layer]
    """PACKET_INFO: packet counters."""
    acked: type[Layer]
    """ACK: the acknowledged id."""
    accept: type[Layer]
    """CONNECT_ACCEPT: the client's index."""
    goodbye: type[Layer]
    """CONNECT_REJECT or DISCONNECT with the id that the documents' section "Usage" shows."""
    connect: type[Layer]
    """CONNECT: the client's time and the server's id."""
    event: type[Layer]
    """EVENT: key and boolean."""
    key: type[Layer]
    """An event that is only a key."""


def _layer(
    title: str,
    suffix: str,
    fields: list[Any],
    *,
    command: int | dict[str, int] | None = None,
    item: bool = False,
    gens: tuple[Gen, ...] = (),
    checks: tuple[Check, ...] = (),
) -> type[Layer]:
    """Return a new layer class."""
    made = make_layer(
        globals(),
        f"EoudpDoc{title}{suffix}",
        Layer,
        f"{title} as the documents describe it ({suffix}).",
        name=f"EOUDP {title}",
        fields_desc=fields,
        is_item=item,
        generated=gens,
        checks=checks,
        commands={"": command} if isinstance(command, int) else command or {},
    )
    DOCUMENT_LAYERS[made.__name__] = made
    return made


def _string(order: str, form: str, name: str, length: str) -> list[Any]:
    """Return the fields of one string."""
    included = form == INCLUDES_NUL
    return [
        FieldLenField(
            length, None, length_of=name, fmt=f"{order}I", adjust=lambda _p, x: x + included
        ),
        Text(name, b"", E(f"{length} - 1" if included else length)),
        *([] if form == NO_NUL else [Nul(f"{name}_nul")]),
    ]


def data_fields(order: str) -> list[Any]:
    """Return the fields of a component's data."""
    return [
        FieldLenField("data_length", None, length_of="data", fmt=f"{order}I"),
        SizedBytes("data", b"", E("data_length"), shown="data_hex"),
    ]


def _make(order: str, form: str) -> DocumentLayers:
    """Return the layers of one byte order and string form."""
    suffix = ("Le" if order == LITTLE else "Be") + {
        EXCLUDES_NUL: "", INCLUDES_NUL: "Incl", NO_NUL: "Plain"
    }[form]  # fmt: skip

    def number(name: str, letter: str) -> Any:
        return Field(name, 0, order + letter)

    def named() -> list[Any]:
        return [number("entity", "Q"), *_string(order, form, "component", "name_length")]

    entry = _layer("String", suffix, _string(order, form, "text", "length"), item=True)
    triple = _layer("Component", suffix, [*named(), *data_fields(order)], item=True)
    entity = _layer("Entity", suffix, [number("entity", "Q")], item=True)
    pair = _layer(
        "Pair", suffix, [number("received", "i"), number("sent", "i")], item=True,
        checks=(BELOW_ZERO,),
    )  # fmt: skip
    return DocumentLayers(
        strings=_layer(
            "Strings", suffix, [Items("entries", entry)], command=eoudp.SYSTEM_LOAD,
            gens=(STRINGS,),
        ),
        components=_layer(
            "Components",
            suffix,
            [*named(), *data_fields(order), Items("more", triple, optional=True)],
            command=eoudp.COMPONENT_OF,
        ),
        deleted=_layer("Deleted", suffix, named(), command=_DELETED),
        deleted_data=_layer(
            "DeletedData", suffix, [*named(), *data_fields(order)], command=_DELETED
        ),
        entities=_layer(
            "Entities",
            suffix,
            [number("entity", "Q"), Items("more", entity, optional=True)],
            command=eoudp.DELETE_ENTITY,
        ),
        pairs=_layer("PacketInfo", suffix, [Items("pairs", pair)], command=eoudp.PACKET_INFO),
        acked=_layer(
            "Ack", suffix, [number("acked_id", "Q")], command=eoudp.ACK, checks=(FAR_ACK,),
        ),
        accept=_layer(
            "Accept", suffix, [number("client_index", "Q")], command=eoudp.CONNECT_ACCEPT,
        ),
        goodbye=_layer("Goodbye", suffix, [number("goodbye_id", "Q")], command=eoudp.DISCONNECT),
        connect=_layer(
            "Connect",
            suffix,
            [Stamp("client_timestamp", f"{order}f"), number("server_id", "Q")],
            command=eoudp.CONNECT,
        ),
        event=_layer(
            "Event", suffix, [number("key", "I"), Flag("pressed", 1)], command=eoudp.EVENT,
            gens=(*_KEY, PRESSED),
        ),
        key=_layer("Key", suffix, [number("key", "I")], command=eoudp.EVENT_8A, gens=_KEY),
    )


LAYERS: Mapping[tuple[str, str], DocumentLayers] = {
    (order, form): _make(order, form) for order in (LITTLE, BIG) for form in FORMS
}
"""(byte order, string form) -> layers."""

_NUMBERS: Mapping[str, Mapping[int, str | None]] = {
    "ACK": {8: "acked"},
    "CONNECT_ACCEPT": {8: "accept", 0: None},
    "CONNECT_REJECT": {0: None, 8: "goodbye"},
    "DISCONNECT": {0: None, 8: "goodbye"},
    "CONNECT": {12: "connect", 0: None},
    "EVENT": {5: "event"},
    "IMPORTANT_EVENT": {5: "event"},
    "IMPORTANT_EVENT_0x8c": {5: "event"},
    "EVENT_0x8a": {4: "key"},
    "EVENT_0x11": {4: "key", 0: None, 8: "goodbye"},
}
"""Command -> size of the content -> attribute of `DocumentLayers`; None = the content is empty. Of
two sizes, the second is that of the documents' section "Usage".
"""
KNOWN = frozenset({*_NUMBERS, *TEXTS, "PACKET_INFO", "DELETE_ENTITY"})
"""Commands whose content the documents describe."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a content of a document dialect; see `contents.Content`."""

    layer: type[Layer] | None
    """None = the content is empty."""
    order: Order
    form: str | None = None
    legal: bool = True
    shown_as: str | None = None
    """As of `Content`: game events are sent as COMPONENT_OF."""


def reading(command: str, data: bytes, order: str | None) -> Reading | None:
    """Return how to read a content; None if its size is illegal or the command unknown."""
    known: Order | None = "<" if order == LITTLE else ">" if order == BIG else None
    if command in TEXTS:
        return _text(command, data, known)
    size = len(data)
    chosen = number_order(command, data, known)
    layers = LAYERS[chosen, EXCLUDES_NUL]
    if command == "PACKET_INFO":
        return Reading(layers.pairs, chosen, legal=size > 0 and size % 8 == 0)
    if command == "DELETE_ENTITY":
        return Reading(layers.entities, chosen) if size and size % 8 == 0 else None
    # None in the table is a legal, empty content.
    name = _NUMBERS.get(command, {}).get(size, "")
    if name == "":
        return None
    return Reading(None if name is None else getattr(layers, name), chosen)


def _text(command: str, data: bytes, order: Order | None) -> Reading:
    """Return the reading that consumes `data` exactly, else the one with the most whole strings."""
    kind = TEXTS[command]
    found = text_reading(kind, data, order)
    shown_as = None
    if found is None and kind == "components":
        found = text_reading("strings", data, order)
        if found is not None:
            kind, shown_as = "strings", "GAME_EVENT"
    chosen, form = found or broken_reading(kind, data, order)
    layers = LAYERS[chosen, form]
    layer: type[Layer] = getattr(layers, kind)
    if kind == "deleted" and string_end(data, eoudp.ID_OCTETS, chosen, form) != len(data):
        # Bytes behind the name: the component's data.
        layer = layers.deleted_data
    return Reading(layer, chosen, form, shown_as=shown_as)
