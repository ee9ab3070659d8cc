"""Builds one message from fields given as text or as the values that `decode --json` prints."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from scapy.volatile import RandBin, RandNum, RandString

from netdissect.craft.layers import message_layer
from netdissect.craft.wrapping import root, wrap
from netdissect.dissect.engine import Request
from netdissect.layers.base import Layer
from netdissect.layers.fields import Items, LsbTail, innermost
from netdissect.model.errors import UsageError
from netdissect.model.text import quoted
from netdissect.wire.bits import BitString

__all__ = ["encode_decoded", "encode_text", "encode_whole", "field_names"]

_GUESSES = 4
"""Layers tried for a payload at most."""
_TEXT_PREFIX = "text:"
"""Marks bytes given as text; without it they are hexadecimal digits."""


def field_names(layer: type[Layer]) -> list[str]:
    """Return the names of the fields that can be given."""
    return [field.name for field in layer.fields_desc]


def encode_text(
    protocol: str,
    dialect: str,
    transport: str,
    name: str,
    values: Mapping[str, str],
    *,
    bare: bool = False,
) -> bytes:
    """Return the bytes of a message whose fields are given as text.

    Numbers are decimal or `0x…`, names of an enumeration stand for their number, bytes are
    hexadecimal digits or `text:…`, lists and nested layers are JSON. What is not given has its
    default; lengths are computed.

    Args:
        protocol: name of the protocol.
        dialect: full name of the dialect.
        transport: `udp` or `tcp`.
        name: message type or layer class.
        values: field -> text.
        bare: the message alone, without the packet that carries it.

    Raises:
        UsageError: no such message or field, or a value that does not fit.
    """
    layer = message_layer(protocol, dialect, transport, name)
    packet = layer()
    for key, text in values.items():
        field = _field(layer, key)
        try:
            packet.fields[key] = _from_text(field, text)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(f"{key}={quoted(text)}: {error}") from error
    return _octets(packet if bare else wrap(protocol, dialect, packet, transport))


def encode_decoded(
    protocol: str, dialect: str, transport: str, name: str, values: Mapping[str, Any]
) -> bytes:
    """Return the bytes of a message whose fields are given as `decode --json` prints them.

    Values that are concluded, not fields of the layer, are passed over.

    Args:
        protocol: name of the protocol.
        dialect: full name of the dialect.
        transport: `udp` or `tcp`.
        name: message type or layer class.
        values: the object `fields`.

    Raises:
        UsageError: no such message, or a value that does not fit.
    """
    layer = message_layer(protocol, dialect, transport, name)
    try:
        return _octets(_packet(layer, values))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{name}: {error}") from error


def encode_whole(protocol: str, dialect: str, transport: str, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of a payload all of whose fields are given as `decode --json` prints them.

    Args:
        protocol: name of the protocol.
        dialect: full name of the dialect.
        transport: `udp` or `tcp`.
        values: the object `fields`.

    Raises:
        UsageError: a value that does not fit.
    """
    request = Request(dialect, None, transport)
    layer = root(protocol, b"", request)
    try:
        octets = _octets(_packet(layer, values))
        # Its first fields may say that another layer reads it.
        for _ in range(_GUESSES):
            layer, before = root(protocol, octets, request), layer
            if layer is before:
                break
            octets = _octets(_packet(layer, values))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"{layer.__name__}: {error}") from error
    return octets


def _field(layer: type[Layer], name: str) -> Any:
    for field in layer.fields_desc:
        if field.name == name:
            return field
    known = ", ".join(field_names(layer)) or "none"
    raise UsageError(f"{layer.__name__} has no field {quoted(name)}; it has: {known}")


def _holds_octets(field: Any) -> bool:
    """Return whether the field's values are bytes: by its default, else by what it would draw."""
    if isinstance(field.default, (bytes, int)):
        return isinstance(field.default, bytes)
    return isinstance(field.randval(), (RandBin, RandString))


def _from_text(outer: Any, text: str) -> Any:
    field = innermost(outer)
    if text == "none":
        return None
    if getattr(field, "islist", 0) or getattr(field, "holds_packets", 0):
        import json  # noqa: PLC0415 - only for nested values

        return _from_json(field, json.loads(text))
    if _holds_octets(field):
        if text.startswith(_TEXT_PREFIX):
            return text[len(_TEXT_PREFIX) :].encode("utf-8", "surrogateescape")
        return _hexadecimal(text)
    return _number(field, text)


def _hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"is neither hexadecimal digits nor {_TEXT_PREFIX}...") from None


def _number(field: Any, text: str) -> Any:
    for convert in (lambda: int(text, 0), lambda: float(text)):
        try:
            value = convert()
        except ValueError:
            continue
        return _fitting(field, field.any2i(None, value))
    return _fitting(field, field.any2i(None, text))


def _fitting(field: Any, value: Any) -> Any:
    """Return the value, unless it is of another kind than the field's, or does not fit its bits:
    it would be cut to them.
    """
    size = getattr(field, "size", 0)
    if isinstance(value, float) and not str(getattr(field, "fmt", "")).endswith(("f", "d")):
        raise TypeError("is no whole number")
    if isinstance(value, (str, list, dict)) and (size or isinstance(field.randval(), RandNum)):
        raise TypeError("is no number and no name of one")
    if not isinstance(size, int) or not size:
        return value
    if isinstance(value, int) and not -(1 << abs(size) - 1) <= value < 1 << abs(size):
        raise ValueError(f"does not fit {abs(size)} bits")
    return value


def _from_json(outer: Any, value: Any) -> Any:
    field = innermost(outer)
    if value is None:
        return None
    kind = getattr(field, "item", None) or getattr(field, "cls", None)
    if isinstance(value, list) and kind is not None:
        return [_packet(_item(field, kind, each), each) for each in value]
    if isinstance(value, dict) and kind is not None:
        return _packet(kind, value)
    if isinstance(value, str) and _holds_octets(field):
        return _hexadecimal(value)
    if getattr(field, "islist", 0) or getattr(field, "holds_packets", 0):
        return field.any2i(None, value)
    if isinstance(value, (list, dict)) and _holds_octets(field):
        raise TypeError("is no text of hexadecimal digits")
    return _fitting(field, field.any2i(None, value))


def _item(field: Any, kind: Any, values: Mapping[str, Any]) -> Any:
    """Return the layer of an item: where there are several, what its first fields say."""
    choose = getattr(field, "choose", None)
    if choose is None or not isinstance(field, Items):
        return kind
    return choose(None, bytes(_packet(kind, values)))


def _packet(layer: Any, values: Mapping[str, Any]) -> Any:
    packet = layer()
    at = 0.0
    for outer in layer.fields_desc:
        if outer.name not in values:
            continue
        try:
            value = _from_json(outer, values[outer.name])
        except (ValueError, TypeError) as error:
            raise type(error)(f"{outer.name}: {error}") from None
        field = innermost(outer)
        if isinstance(field, LsbTail):
            # The last bits were shown filled up to a byte: as many as end the message on one.
            value = BitString(value, 8 * len(value) - int(8 * at) % 8)
        packet.fields[outer.name] = value
        at += 0 if value is None else field.i2len(packet, value)
    return packet


def _octets(packet: Any) -> bytes:
    try:
        return bytes(packet)
    except (struct.error, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise UsageError(f"{type(packet).__name__} cannot be written: {error}") from error
