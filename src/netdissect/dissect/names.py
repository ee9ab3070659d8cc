"""The names of the fields of a protocol, read off its layers: what filters and columns can name."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from scapy.fields import (
    Field,
    FieldListField,
    IEEEDoubleField,
    IEEEFloatField,
    PacketField,
    PacketListField,
    StrField,
)

from netdissect.layers.base import Layer
from netdissect.layers.fields import NulString

__all__ = ["layer_fields", "layers_of"]


def layer_fields(module: Any) -> dict[str, str]:
    """Return field name -> kind over all layers of a module or package, in no particular order.

    What a finisher or an inspector adds is not stated by a layer; a layer module may list it, name
    -> kind, in `ADDED_FIELDS`.
    """
    found: dict[str, str] = dict(getattr(module, "ADDED_FIELDS", {}))
    for layer in layers_of(module):
        for field in layer.fields_desc:
            inner = _inner(field)
            name, kind = getattr(inner, "shown", field.name), _kind(inner)
            # One name may be a number in one message and a text in another.
            found[name] = kind if found.get(name, kind) == kind else "any"
        for generated in layer.generated:
            found.setdefault(generated.name, "any")
    return found


def layers_of(module: Any) -> list[type[Layer]]:
    """Return the layers of a module or package by name."""
    prefix = module.__name__
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        import_module(f"{prefix}.{part.name}")  # some layers are read in only where needed
    return [
        layer
        for layer in sorted(_layers(Layer), key=_name)
        if f"{layer.__module__}.".startswith(f"{prefix}.")
    ]


def _name(layer: type[Layer]) -> tuple[str, str]:
    """Return what orders layers alike, whichever of them was imported first."""
    return layer.__module__, layer.__qualname__


def _layers(base: type[Layer]) -> Iterator[type[Layer]]:
    for layer in base.__subclasses__():
        yield layer
        yield from _layers(layer)


def _inner(field: Any) -> Any:
    """Return the field inside Scapy's wrappers (conditional, optional, emphasised)."""
    while not isinstance(field, Field) and hasattr(field, "fld"):
        field = field.fld
    return field


def _kind(field: Any) -> str:
    kinds: tuple[tuple[tuple[type, ...], str], ...] = (
        ((PacketListField, FieldListField), "list"),
        ((PacketField,), "object"),
        ((NulString,), "str"),
        ((StrField,), "bytes"),
        ((IEEEFloatField, IEEEDoubleField), "float"),
    )
    stated = "list" if getattr(field, "islist", 0) else "int"
    if stated == "int" and str(getattr(field, "fmt", ""))[-1:] in ("f", "d"):
        stated = "float"
    return next((kind for classes, kind in kinds if isinstance(field, classes)), stated)
