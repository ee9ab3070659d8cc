"""Layers filled with the values that the tree of a payload shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from scapy.fields import BitField

from netdissect.layers.base import Layer
from netdissect.layers.fields import Items, NulString, innermost

__all__ = ["Fields", "filled", "plain", "unshown"]

Fields: TypeAlias = Mapping[str, Any]
"""Values by name, as `decode --json` prints them."""


def filled(
    layer: type[Layer], values: Fields, taken: Callable[[Any, Any], Any] | None = None, **more: Any
) -> Any:
    """Return a packet of those values that are fields of the layer, under the names that the tree
    shows them by; `taken` (field, value) returns one as its field takes it.
    """
    packet = layer()
    for field in layer.fields_desc:
        value = values.get(getattr(field, "shown", field.name))
        if value is not None and field.name not in more:
            packet.fields[field.name] = (taken or plain)(field, value)
    packet.fields.update(more)
    return packet


def plain(outer: Any, value: Any) -> Any:
    """Return a value of JSON as its field takes it."""
    field = innermost(outer)
    if isinstance(value, list):
        kind = getattr(field, "item", None)
        return value if kind is None else [filled(kind, each) for each in value]
    if isinstance(value, str) and isinstance(field.default, bytes):
        return value.encode("utf-8", "surrogateescape")
    return float(value) if isinstance(value, str) else value


def unshown(outer: Any, value: Any) -> Any:
    """Return a value of the tree as its field takes it.

    Raises:
        ValueError: it has more or fewer bytes than the field, or more bits.
    """
    field = innermost(outer)
    if isinstance(field, Items):
        return [filled(field.item, each, unshown) for each in value]
    if isinstance(field, BitField) and not 0 <= value < 1 << field.size:
        raise ValueError(f"{field.name} = {value} has more than {field.size} bits")
    if isinstance(field.default, bytes) and not isinstance(field, NulString):
        octets = bytes.fromhex(value)
        # Fields of a fixed size would cut or fill what they are given.
        if field.fmt.endswith("s") and len(octets) != field.sz:
            raise ValueError(f"{field.name} has {field.sz} bytes, not {len(octets)}")
        return octets
    return field.any2i(None, value)
