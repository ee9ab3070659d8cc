"""The fields of a protocol by name, derived from its layers, for filters and columns."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from scapy.fields import (
    Field,
    FieldListField,
    IEEEDoubleField,
    IEEEFloatField,
    LEThreeBytesField,
    PacketField,
    PacketListField,
    StrField,
    ThreeBytesField,
)

from netdissect.layers.base import Layer
from netdissect.layers.fields import NulString, innermost
from netdissect.model.names import FieldInfo

_WHOLE = frozenset("BHILQ")
"""`struct` codes of unsigned integers; lower case is signed."""
_THREE = (ThreeBytesField, LEThreeBytesField)
"""Integer fields whose size is not that of their `struct` code."""


def layer_fields(module: Any) -> dict[str, FieldInfo]:
    """Return the fields of all layers of a module or package by name, in no particular order.

    Fields that a finisher or inspector adds are listed in `ADDED_FIELDS` of the layer module, as
    name -> kind.
    """
    added: dict[str, str] = getattr(module, "ADDED_FIELDS", {})
    found = {name: FieldInfo.parse(name, kind) for name, kind in added.items()}
    for layer in layers_of(module):
        for field in layer.fields_desc:
            inner = innermost(field)
            name, kind = getattr(inner, "shown", field.name), _kind(inner)
            limits = (range_of(inner) if kind == "int" else None) or ()
            stated = FieldInfo(name, kind, "", "", *limits)
            before = found.get(name, stated)
            # A name may be a number in one message and text in another.
            found[name] = (
                FieldInfo(name, "any", "")
                if before.kind != kind
                else replace(
                    stated,
                    minimum=min(stated.minimum, before.minimum),
                    maximum=max(stated.maximum, before.maximum),
                )
            )
        for generated in layer.generated:
            found.setdefault(generated.name, FieldInfo(generated.name, "any", ""))
    return found


def range_of(field: Any) -> tuple[int, int] | None:
    """Return the range of integers that a field can hold; None if it is not an integer field."""
    stated: tuple[int, int] | None = getattr(field, "limits", None)
    size, code = getattr(field, "size", 0), str(getattr(field, "fmt", ""))[-1:]
    if stated is not None:
        return stated
    if isinstance(size, int) and size:
        return 0, (1 << abs(size)) - 1
    plain = type(field).addfield is Field.addfield or isinstance(field, _THREE)
    if not plain or code.upper() not in _WHOLE:
        return None
    bits = 8 * field.sz
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if code.islower() else (0, (1 << bits) - 1)


def layers_of(module: Any) -> list[type[Layer]]:
    """Return the layers that a module or package defines, sorted by name."""
    prefix = module.__name__
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        import_module(f"{prefix}.{part.name}")  # some modules are imported only if needed
    return [
        layer
        for layer in sorted(_layers(Layer), key=_name)
        if f"{layer.__module__}.".startswith(f"{prefix}.")
    ]


def _name(layer: type[Layer]) -> tuple[str, str]:
    """Return a sort key that does not depend on the order of imports."""
    return layer.__module__, layer.__qualname__


def _layers(base: type[Layer]) -> Iterator[type[Layer]]:
    for layer in base.__subclasses__():
        yield layer
        yield from _layers(layer)


def _kind(field: Any) -> str:
    kinds: tuple[tuple[tuple[type, ...], str], ...] = (
        ((PacketListField, FieldListField), "list"),
        ((PacketField,), "object"),
        ((NulString,), "str"),
        ((StrField,), "bytes"),
        ((IEEEFloatField, IEEEDoubleField), "float"),
    )
    stated = "list" if getattr(field, "islist", 0) else "int"
    if stated == "int":
        stated = {"f": "float", "d": "float", "s": "bytes"}.get(
            str(getattr(field, "fmt", ""))[-1:], stated
        )
    return next((kind for classes, kind in kinds if isinstance(field, classes)), stated)
