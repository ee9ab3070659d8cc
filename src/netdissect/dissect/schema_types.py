"""Checks the types of a user schema against those of its protocol."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from netdissect.dissect.schema import Schema, SchemaError, SchemaField
from netdissect.model.errors import did_you_mean
from netdissect.model.text import quoted
from netdissect.wire.cursor import Cursor, OutOfData, Sink
from netdissect.wire.values import BITS, Values


def check_types(schema: Schema, encodings: Sequence[Values], *, origin: str = "schema") -> None:
    """Refuse a schema with a type that no dialect of the protocol has.

    Args:
        schema: the schema.
        encodings: encodings of values in the protocol's dialects.
        origin: name of the schema in error messages.

    Raises:
        SchemaError: a type is neither a scalar, an object nor an enum, or cannot be used so.

    """
    scalars = {name for values in encodings for name in (*values.scalars, *values.aliases)}
    own = {*schema.objects, *schema.enums}
    for kind, names in (("objects", schema.objects), ("enums", schema.enums)):
        for name in names:
            if name in scalars:
                raise SchemaError(f"{origin}: {kind}.{name}: the protocol has a type of that name")
    _check_enums(schema, encodings, scalars, origin)
    if any(map(_has_all, encodings)):
        _refuse_endless(schema.objects, origin)
    sized = {name for values in encodings for name, row in values.scalars.items() if row is BITS}
    places = [(f"objects.{name}", fields) for name, fields in schema.objects.items()]
    places += [(f"messages.{key}", row.fields) for key, row in schema.messages.items()]
    for where, fields in places:
        for item in fields:
            base = item.type.base
            if base not in scalars and base not in own:
                near = did_you_mean(base, scalars | own)
                raise SchemaError(
                    f"{origin}: {where}.{item.name}: no type is called {quoted(base)}{near}"
                )
            if item.type.size is not None and schema.enum_types.get(base, base) not in sized:
                raise SchemaError(
                    f"{origin}: {where}.{item.name}: {quoted(base)} has its own number of bits"
                )


def _check_enums(
    schema: Schema, encodings: Sequence[Values], scalars: Collection[str], origin: str
) -> None:
    whole = {
        name
        for values in encodings
        for name in (*values.scalars, *values.aliases)
        if _is_whole(values, name)
    }
    for name, scalar in schema.enum_types.items():
        where = f"{origin}: enums.{name}"
        if scalar not in whole:
            if scalar in scalars:
                raise SchemaError(f"{where}: {quoted(scalar)} is not an integer type")
            near = did_you_mean(scalar, scalars)
            raise SchemaError(f"{where}: no type is called {quoted(scalar)}{near}")
        for number in schema.enums[name]:
            if not any(_fits(values, scalar, number) for values in encodings):
                raise SchemaError(f"{where}: {number} is not of type {scalar}")


def _is_whole(values: Values, name: str) -> bool:
    """Return whether a scalar type is an integer."""
    row = values.scalars.get(values.aliases.get(name, name))
    try:
        return row is not None and isinstance(row.read(Cursor(bytes(16), 0, 128), None), int)
    except (OutOfData, ValueError):
        return False


def _fits(values: Values, name: str, number: int) -> bool:
    """Return whether a scalar type can hold a number; True for `bits`, whose size is unknown."""
    row = values.scalars.get(values.aliases.get(name, name))
    try:
        if row is not None and row is not BITS:
            row.write(Sink(), number, None)
    except (struct.error, ValueError, OverflowError):
        return False
    return row is not None


def _has_all(values: Values) -> bool:
    """Return whether an encoding has no null, neither for values nor for objects."""
    cursor = Cursor(bytes(16), 0, 128)
    return values.present(cursor) and values.enter(cursor) is not None


def _refuse_endless(objects: Mapping[str, Sequence[SchemaField]], origin: str) -> None:
    """Refuse objects that contain themselves, other than in an array: nothing would end them."""
    held = {
        name: [
            item.type.base
            for item in fields
            if item.type.base in objects and all((size or 0) > 0 for size in item.type.dimensions)
        ]
        for name, fields in objects.items()
    }
    try:
        TopologicalSorter(held).prepare()
    except CycleError as fault:
        cycle = fault.args[1][::-1]
        way = f" by {cycle[1]}" if len(cycle) > 2 else ""  # noqa: PLR2004
        raise SchemaError(
            f"{origin}: objects.{cycle[0]}: it contains itself{way} without end"
        ) from None
