"""The contents of messages, packed and little-endian, and the choice of the layer for a content.

`documents.py` has the forms of the documents, which leave byte order and string form open.
*Source:* docs/protocols/eoudp.md; engine `Network/Packet`, `Pack` and `Unpack` of its messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from scapy.fields import FieldLenField, LEIntField, LELongField, LESignedIntField

from netdissect.layers.base import Gen, Layer
from netdissect.layers.eoudp import documents
from netdissect.layers.eoudp.fields import AsciiNumber, Flag, Text
from netdissect.layers.expr import E
from netdissect.layers.fields import Items, Tail
from netdissect.wire import eoudp_names as eoudp
from netdissect.wire.eoudp import NO_NUL, TEXTS, consumes, legal, text_reading
from netdissect.wire.eoudp_names import DOCUMENTS, key_name

__all__ = [
    "Content",
    "EoudpAck",
    "EoudpComponentOf",
    "EoudpComponentOf32",
    "EoudpConnectAccept",
    "EoudpConnectAcceptText",
    "EoudpDeleteComponent",
    "EoudpDeleteComponent32",
    "EoudpDeleteEntity",
    "EoudpDeleteEntity32",
    "EoudpEvent",
    "EoudpGameEvent",
    "EoudpNothing",
    "EoudpPacketInfo",
    "EoudpPair",
    "EoudpRaw",
    "EoudpString",
    "EoudpSystemLoad",
    "content_layer",
]


class _Content(Layer):
    """Base class of all contents."""

    commands: ClassVar[dict[str, int]] = {}
    """Dialect -> default command number in a header with this content; "" = all other dialects."""
    fields_desc: list[Any] = []


class EoudpNothing(_Content):
    """No content."""

    name = "EOUDP nothing"


class EoudpRaw(_Content):
    """A content of unknown meaning."""

    name = "EOUDP raw content"
    fields_desc = [Tail("raw_hex")]


class EoudpPair(Layer):
    """Packets received and sent since the previous PACKET_INFO."""

    name = "EOUDP packet counters"
    is_item = True
    fields_desc = [LESignedIntField("received", 0), LESignedIntField("sent", 0)]
    checks = (documents.BELOW_ZERO,)


class EoudpPacketInfo(_Content):
    """The sender's packet counters. A server puts those of the clients before its own."""

    name = "EOUDP PACKET_INFO"
    commands = {"": eoudp.PACKET_INFO}
    fields_desc = [Items("pairs", EoudpPair)]


class EoudpAck(_Content):
    """Acknowledges one message. The id is little-endian here, but big-endian in headers."""

    name = "EOUDP ACK"
    commands = {"": eoudp.ACK}
    fields_desc = [LELongField("acked_id", 0)]
    checks = (documents.FAR_ACK,)


class EoudpConnectAccept(_Content):
    """Accepts a client; the index is the number of clients that were connected before."""

    name = "EOUDP CONNECT_ACCEPT"
    commands = {"": eoudp.CONNECT_ACCEPT}
    fields_desc = [LELongField("client_index", 0)]


class EoudpConnectAcceptText(_Content):
    """CONNECT_ACCEPT of v1.0, with the index in decimal digits."""

    name = "EOUDP CONNECT_ACCEPT (digits)"
    commands = {"": eoudp.CONNECT_ACCEPT}
    fields_desc = [AsciiNumber("client_index")]
    generated = (Gen("encoding", lambda _f: "ascii"),)


class EoudpEvent(_Content):
    """A key was pressed or released. A key that is held down repeats the press."""

    name = "EOUDP EVENT"
    commands = {
        "": eoudp.EVENT,
        **dict.fromkeys(("exodia-early", "exodia-early-long32"), eoudp.EARLY_EVENT),
    }
    fields_desc = [LEIntField("key", 32), Flag("pressed", 1)]
    generated = (Gen("key_name", lambda f: key_name(f["key"])), documents.PRESSED)


def _name() -> list[Any]:
    return [
        FieldLenField("name_length", None, length_of="component", fmt="<I"),
        Text("component", b"", E("name_length")),
    ]


class EoudpComponentOf(_Content):
    """One component of an entity. The component's name selects the layout of `data`."""

    name = "EOUDP COMPONENT_OF"
    commands = {"": eoudp.COMPONENT_OF}
    fields_desc = [LELongField("entity", 0), *_name(), *documents.data_fields("<")]


class EoudpComponentOf32(EoudpComponentOf):
    """COMPONENT_OF of a build with 32-bit `long`."""

    fields_desc = [LEIntField("entity", 0), *_name(), *documents.data_fields("<")]


class EoudpDeleteEntity(_Content):
    """Removes an entity."""

    name = "EOUDP DELETE_ENTITY"
    commands = {"": eoudp.DELETE_ENTITY}
    fields_desc = [LELongField("entity", 0)]


class EoudpDeleteEntity32(EoudpDeleteEntity):
    """DELETE_ENTITY of a build with 32-bit `long`."""

    fields_desc = [LEIntField("entity", 0)]


class EoudpDeleteComponent(_Content):
    """Removes a component. Real clients stop processing world messages after it."""

    name = "EOUDP DELETE_COMPONENT"
    commands = {"": eoudp.DELETE_COMPONENT}
    fields_desc = [LELongField("entity", 0), *_name()]


class EoudpDeleteComponent32(EoudpDeleteComponent):
    """DELETE_COMPONENT of a build with 32-bit `long`."""

    fields_desc = [LEIntField("entity", 0), *_name()]


class EoudpString(Layer):
    """A string as the programs write it: length, then text."""

    name = "EOUDP string"
    is_item = True
    fields_desc = [
        FieldLenField("length", None, length_of="text", fmt="<I"),
        Text("text", b"", E("length")),
    ]


class EoudpSystemLoad(_Content):
    """Names of systems to load. No release sends it."""

    name = "EOUDP SYSTEM_LOAD"
    commands = {"": eoudp.SYSTEM_LOAD}
    fields_desc = [Items("entries", EoudpString)]
    generated = (documents.STRINGS,)


class EoudpGameEvent(EoudpSystemLoad):
    """Names of game events. No release sends it."""

    name = "EOUDP GAME_EVENT"
    commands = {"": eoudp.GAME_EVENT}


@dataclass(frozen=True, slots=True)
class Content:
    """How to read a content."""

    layer: type[Layer]
    """Its layer; EoudpRaw if the size is illegal or the command unknown."""
    legal: bool = True
    """False: the command never has a content of this size. True for contents with strings, whose
    layers report bad lengths.
    """
    order: str = "<"
    """Byte order: `<` or `>`."""
    form: str | None = None
    """String form; None if it has no strings."""
    shown_as: str | None = None
    """The command to which the content really belongs; None = that of the header."""


_ILLEGAL = Content(EoudpRaw, legal=False)
_LAYERS: dict[str, type[Layer]] = {
    "PACKET_INFO": EoudpPacketInfo, "ACK": EoudpAck, "CONNECT_ACCEPT": EoudpConnectAccept,
    "CONNECT_REJECT": EoudpNothing, "CONNECT": EoudpNothing, "DISCONNECT": EoudpNothing,
    "COMPONENT_OF": EoudpComponentOf, "DELETE_ENTITY": EoudpDeleteEntity,
    "DELETE_COMPONENT": EoudpDeleteComponent, "EVENT": EoudpEvent, "IMPORTANT_EVENT": EoudpEvent,
    "IMPORTANT_EVENT_0x8c": EoudpEvent,
}  # fmt: skip
"""Command -> layer in the dialects of the programs."""
_LAYERS_32: dict[str, type[Layer]] = {
    **_LAYERS, "COMPONENT_OF": EoudpComponentOf32, "DELETE_ENTITY": EoudpDeleteEntity32,
    "DELETE_COMPONENT": EoudpDeleteComponent32,
}  # fmt: skip
"""The same in builds where C `long` has four bytes."""
_STRINGS = {"SYSTEM_LOAD": EoudpSystemLoad, "GAME_EVENT": EoudpGameEvent}


def content_layer(dialect: str, command: str, data: bytes, order: str | None = None) -> Content:
    """Return how to read a content.

    Args:
        dialect: canonical name.
        command: name of the command.
        data: the content.
        order: byte order of the strings in this flow; None if unknown.

    """
    if dialect in DOCUMENTS:
        return _document(command, data, order)
    if command in _STRINGS:
        return _strings(command, data)
    layer = (_LAYERS_32 if dialect.endswith("long32") else _LAYERS).get(command)
    if layer is None:
        return Content(EoudpRaw)
    if command in TEXTS or legal(dialect, command, data):
        digits = command == "CONNECT_ACCEPT" and len(data) != 8  # noqa: PLR2004 - a binary index
        return Content(EoudpConnectAcceptText if digits else layer)
    # The whole counters of a PACKET_INFO, or the id of an ACK that is too long, can be read.
    readable = command == "PACKET_INFO" or (command == "ACK" and len(data) > 8)  # noqa: PLR2004 - an id
    return Content(layer, legal=False) if readable else _ILLEGAL


def _strings(command: str, data: bytes) -> Content:
    """Return how to read strings that no program sends: without NUL, unless only NUL fits."""
    found = text_reading("strings", data, None)
    no_nul = consumes("strings", data, "<", NO_NUL)
    if no_nul or found is None or found[0] == ">":
        return Content(_STRINGS[command], form=NO_NUL)
    return Content(documents.LAYERS[found].strings, form=found[1])


def _document(command: str, data: bytes, order: str | None) -> Content:
    reading = documents.reading(command, data, order)
    if reading is None:
        return _ILLEGAL if command in documents.KNOWN else Content(EoudpRaw)
    return Content(
        reading.layer or EoudpNothing,
        legal=reading.legal,
        order=reading.order,
        form=reading.form,
        shown_as=reading.shown_as,
    )
