"""Builds a message from fields that are given as text, or as in the output of `decode --json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netdissect.craft.filling import REFUSED, filled, fitting, holds_octets, names_within, of_json
from netdissect.craft.layers import message_layer
from netdissect.craft.wrapping import wrap
from netdissect.layers.base import Layer
from netdissect.layers.fields import innermost
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.text import quoted

_TEXT_PREFIX = "text:"
"""Prefix of bytes that are given as text instead of hexadecimal digits."""
_MAX_DIGITS = 1000
"""Longest decimal number that is converted: Python refuses some thousand digits."""


def field_names(layer: type[Layer]) -> list[str]:
    """Return the names of a layer's fields."""
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

    Numbers are decimal, `0x…` or a name of their value, bytes are hexadecimal digits or `text:…`,
    lists and nested layers are JSON. Other fields have their default; lengths are computed.

    Args:
        protocol: name of the protocol.
        dialect: full name of the dialect.
        transport: `udp` or `tcp`.
        name: message type, or name of a layer class.
        values: field -> text.
        bare: True: only the message, without the packet that carries it.

    Raises:
        UsageError: there is no such message or field, or a value does not fit.
    """
    layer = message_layer(protocol, dialect, transport, name)
    packet = layer()
    for key, text in values.items():
        field = _field(layer, key)
        try:
            packet.fields[key] = _from_text(field, text)
        except REFUSED as error:
            raise UsageError(f"{key}={quoted(text)}: {error}") from error
    carrier = packet if bare else wrap(protocol, dialect, packet, transport)
    if carrier is None:
        raise UsageError(f"{dialect} has no message {layer.__name__}")
    return _octets(carrier)


def encode_decoded(
    protocol: str, dialect: str, transport: str, name: str, values: Mapping[str, Any]
) -> bytes:
    """Return the bytes of a message whose fields are given as `decode --json` prints them.

    Derived values, which are not fields of the layer, are ignored.

    Args:
        protocol: name of the protocol.
        dialect: full name of the dialect.
        transport: `udp` or `tcp`.
        name: message type, or name of a layer class.
        values: the object `fields`.

    Raises:
        UsageError: there is no such message, or a value does not fit.
    """
    layer = message_layer(protocol, dialect, transport, name)
    try:
        return _octets(filled(layer, values))
    except REFUSED as error:
        raise UsageError(f"{name}: {error}") from error


def _field(layer: type[Layer], name: str) -> Any:
    for field in layer.fields_desc:
        if field.name == name:
            return field
    known = field_names(layer)
    near = did_you_mean(name, known) or f"; it has: {', '.join(known) or 'none'}"
    raise UsageError(f"{layer.__name__} has no field {quoted(name)}{near}")


def _from_text(outer: Any, text: str) -> Any:
    field = innermost(outer)
    if text == "none":
        return None
    if getattr(field, "islist", 0) or getattr(field, "holds_packets", 0):
        import json  # noqa: PLC0415 - only for nested values

        given = json.loads(text)
        made = of_json(field, given)
        known = {"trailing", *names_within(made)}
        for name in _keys(given):
            if name not in known:
                raise ValueError(f"has no field {quoted(name)}{did_you_mean(name, known)}")
        return made
    if holds_octets(field):
        if text.startswith(_TEXT_PREFIX):
            return text[len(_TEXT_PREFIX) :].encode("utf-8", "surrogateescape")
        return _hexadecimal(text)
    return _number(field, text)


def _keys(value: Any) -> Iterator[str]:
    """Yield the names in a value from JSON."""
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from _keys(each)


def _hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"is neither hexadecimal digits nor {_TEXT_PREFIX}...") from None


def _number(field: Any, text: str) -> Any:
    # Python also accepts 1_000, and digits of other scripts.
    plain = text.isascii() and "_" not in text
    if plain and len(text) > _MAX_DIGITS and text.lstrip("+-").isdigit():
        raise ValueError("has too many digits")
    for convert in (lambda: int(text, 0), lambda: float(text)) if plain else ():
        try:
            value = convert()
        except ValueError:
            continue
        return fitting(field, field.any2i(None, value))
    return fitting(field, field.any2i(None, text))


def _octets(packet: Any) -> bytes:
    try:
        return bytes(packet)
    except REFUSED as error:
        raise UsageError(f"{type(packet).__name__} cannot be written: {error}") from error
