"""User schemas: descriptions of user messages, in one format for all protocols.

A schema is JSON or TOML: `{"format": "netdissect-schema/1", "protocol": ..., "enums": {...},
"objects": {...}, "messages": {id or name: {"name", "direction", "fields": [[name, type], ...]}}}`.
The type `T[]` is an array whose length is on the wire, `T[n]` an array of n items without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import get_data
from types import MappingProxyType
from typing import Any

from netdissect.model.dissection import FieldNode
from netdissect.model.errors import reason, unknown
from netdissect.model.files import parse_toml, read_text
from netdissect.model.text import quoted
from netdissect.wire.cursor import Cursor, OutOfData, Sink
from netdissect.wire.values import Values

__all__ = [
    "Decoder",
    "MessageSchema",
    "Schema",
    "SchemaError",
    "SchemaMismatch",
    "TypeRef",
    "built_in",
    "decode",
    "encode",
    "load_schema",
    "named_protocol",
    "parse_schema",
]

FORMAT = "netdissect-schema/1"
MAX_BITS = 64
"""Maximum number of bits that a schema may give a value."""
DEPTH_LIMIT = 64
"""Maximum nesting of objects: they may be recursive."""
NODE_LIMIT = 100_000
"""Maximum number of values decoded from a payload, against nested arrays with large counts."""
MAX_SCHEMA_OCTETS = 4 * 1024 * 1024
"""Maximum size of a schema file in bytes."""
_KEYS = ("format", "protocol", "note", "enums", "objects", "messages")
_MESSAGE_KEYS = ("name", "direction", "dialects", "note", "fields")
_FIELD_KEYS = ("name", "type", "bits", "note")
_ID = re.compile(r"-?(0|[1-9][0-9]{0,19})")
_NUMBER = re.compile(r"-?([0-9]{1,20}|0[xX][0-9A-Fa-f]{1,16})")
_TYPE = re.compile(r"^([A-Za-z_][\w.]*)(?:\(([0-9]{1,9})\))?((?:\[(?::?[0-9]{1,9})?\]){0,16})$")


class SchemaError(ValueError):
    """A schema cannot be used. The text is for the user."""


class SchemaMismatch(ValueError):  # noqa: N818 - names a condition
    """A payload does not fit its schema, from bit `position` on."""

    def __init__(
        self, message: str, position: int, nodes: list[FieldNode], cause: Exception
    ) -> None:
        super().__init__(message)
        self.position = position
        self.nodes = nodes
        self.short = isinstance(cause, OutOfData) or getattr(cause, "short", False)
        """True if the payload ends too early, False if the schema is wrong."""


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A type in a schema."""

    text: str
    """The type as written."""
    base: str
    """Name of a scalar, enum or object."""
    size: int | None
    """Number of bits, as in `bits(3)`; None if not given."""
    dimensions: tuple[int | None, ...]
    """For each array level, outermost first: n = n items, None = the length is on the wire, -n =
    the length is on the wire, in n bits.
    """


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One named value."""

    name: str
    type: TypeRef


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """The payload of a message."""

    name: str
    fields: tuple[SchemaField, ...]
    direction: str | None = None
    dialects: tuple[str, ...] = ()
    """Dialects with this message, without the protocol's prefix; () = all."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A loaded schema."""

    protocol: str | None
    """Its protocol; None = any."""
    messages: Mapping[str, MessageSchema]
    """Id or name -> message."""
    objects: Mapping[str, tuple[SchemaField, ...]] = field(default_factory=dict)
    enums: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    enum_types: Mapping[str, str] = field(default_factory=dict)
    """Enum -> scalar type on the wire."""

    def message(self, *keys: object) -> MessageSchema | None:
        """Return the message of the first key (id or name) that is known; None if none is."""
        for key in keys:
            found = self.messages.get(str(key))
            if found is not None:
                return found
        return None

    def field_names(self) -> frozenset[str]:
        """Return the names of the fields of all messages and objects."""
        groups = [*(row.fields for row in self.messages.values()), *self.objects.values()]
        return frozenset(each.name for group in groups for each in group)


def load_schema(
    path: str | Path, formats: Mapping[str, Callable[[str], Any]] = MappingProxyType({})
) -> Schema:
    """Load a schema from a JSON or TOML file, or from a file in a protocol's own format.

    Args:
        path: the file.
        formats: suffix of a file name -> function that converts the text to the object of a schema.
            It raises ValueError if the text is invalid.

    Raises:
        SchemaError: the file is missing, malformed or not a schema.

    """
    try:
        text = read_text(path, MAX_SCHEMA_OCTETS)
    except OSError as fault:
        raise SchemaError(f"{path}: {fault.strerror}") from None
    except ValueError as fault:
        raise SchemaError(f"{path}: {fault}") from None
    for end, read in formats.items():
        if str(path).endswith(end):
            try:
                return parse_schema(read(text), origin=str(path))
            except ValueError as fault:
                place = "" if isinstance(fault, SchemaError) else f"{path}: "
                raise SchemaError(f"{place}{fault}") from None
    toml = str(path).endswith(".toml")
    try:
        data = parse_toml(text) if toml else json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as fault:
        kind = "TOML" if toml else "JSON"
        raise SchemaError(f"{path}: no schema in {kind}: {reason(fault)}") from None
    return parse_schema(data, origin=str(path))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError if it has a name twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{quoted(name)} is given twice in one object")
        found[name] = value
    return found


def _refuse_others(row: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuse unknown keys: a misspelt one would be ignored silently."""
    for name in row:
        if name not in known:
            raise SchemaError(f"{where}: {unknown('key', name, known)}")


@cache
def built_in(protocol: str) -> Schema:
    """Return the built-in schema of a protocol: messages of its samples and of our captures."""
    name = f"{protocol}.schema.json"
    return parse_schema(json.loads(get_data("netdissect", f"data/{name}") or b""), origin=name)


def parse_schema(data: Any, *, origin: str = "schema") -> Schema:
    """Return the schema in a JSON or TOML object; raise SchemaError with the place of an error."""
    if not isinstance(data, dict) or data.get("format", FORMAT) != FORMAT:
        raise SchemaError(f'{origin}: not a schema ("format" must be "{FORMAT}")')
    _refuse_others(data, _KEYS, origin)
    objects = {
        name: _fields(rows, f"{origin}: objects.{name}")
        for name, rows in _table(data, "objects", origin).items()
    }
    messages: dict[str, MessageSchema] = {}
    for key, row in _table(data, "messages", origin).items():
        messages[key] = message = _message(key, row, f"{origin}: messages.{key}")
        messages.setdefault(message.name, message)
    enums: dict[str, dict[int, str]] = {}
    enum_types: dict[str, str] = {}
    for name, row in _table(data, "enums", origin).items():
        where = f"{origin}: enums.{name}"
        enums[name] = _enum(row, where)
        enum_types[name] = scalar = row.get("type", "int")
        if not isinstance(scalar, str):
            raise SchemaError(f"{where}: type must be a text, not {quoted(scalar)}")
        if name in objects:
            raise SchemaError(f"{where}: an object has that name as well")
    protocol = data.get("protocol")
    if protocol is not None and not isinstance(protocol, str):
        raise SchemaError(f"{origin}: protocol must be a name, not {quoted(protocol)}")
    return Schema(protocol, messages, objects, enums, enum_types)


def _message(key: str, row: Any, where: str) -> MessageSchema:
    if not isinstance(row, dict):
        raise SchemaError(f"{where}: must be an object with name and fields")
    if not key or (key[0] in "+-.0123456789" and not _ID.fullmatch(key)):
        raise SchemaError(f"{where}: {quoted(key)} is neither an id in decimal nor a name")
    _refuse_others(row, _MESSAGE_KEYS, where)
    name, direction = row.get("name", key), row.get("direction")
    if not isinstance(name, str):
        raise SchemaError(f"{where}: name must be a text, not {quoted(name)}")
    if direction not in (None, "c2s", "s2c"):
        raise SchemaError(f"{where}: direction must be c2s or s2c, not {quoted(direction)}")
    fields, dialects = row.get("fields", []), row.get("dialects", ())
    return MessageSchema(name, _fields(fields, where), direction, _names(dialects, where))


def named_protocol(schema: Schema) -> str:
    """Return the protocol of a schema; raise SchemaError if it names none."""
    if schema.protocol is None:
        raise SchemaError("the schema does not say its protocol")
    return schema.protocol


def _names(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise SchemaError(f"{where}: dialects must be a list of names")
    return tuple(value)


def _enum(row: Any, where: str) -> dict[int, str]:
    """Return number -> name."""
    found: dict[int, str] = {}
    for key, name in row.items() if isinstance(row, dict) else [(row, None)]:
        if key == "type":
            continue
        if not isinstance(name, str) or not _NUMBER.fullmatch(key):
            raise SchemaError(f"{where}: must be an object of numbers to names")
        number = int(key, 16 if "x" in key.lower() else 10)
        if number in found:
            raise SchemaError(f"{where}: {number} has two names")
        found[number] = name
    return found


def _table(data: dict[str, Any], key: str, origin: str) -> dict[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise SchemaError(f"{origin}: {key} must be an object")
    return table


def _fields(rows: Any, where: str) -> tuple[SchemaField, ...]:
    if not isinstance(rows, list):
        raise SchemaError(f"{where}: fields must be a list of [name, type]")
    found: dict[str, SchemaField] = {}
    for index, row in enumerate(rows):
        place = f"{where}.fields[{index}]"
        item = _field(row, place)
        if found.setdefault(item.name, item) is not item:
            raise SchemaError(f"{place}: field {quoted(item.name)} is defined twice")
    return tuple(found.values())


def _field(row: Any, where: str) -> SchemaField:
    if isinstance(row, dict):
        _refuse_others(row, _FIELD_KEYS, where)
        row = [row.get("name"), row.get("type"), *([row["bits"]] if "bits" in row else [])]
    if not isinstance(row, list) or not 2 <= len(row) <= 3:  # noqa: PLR2004
        raise SchemaError(f"{where}: must be [name, type]")
    name, text, *bits = row
    if not isinstance(name, str) or not isinstance(text, str) or not name:
        raise SchemaError(f"{where}: name and type must be texts")
    if bits and (type(bits[0]) is not int or not 1 <= bits[0] <= MAX_BITS):
        raise SchemaError(f"{where}: bits must be 1 to {MAX_BITS}, not {quoted(bits[0])}")
    match = _TYPE.match(text)
    if match is None:
        raise SchemaError(f"{where}: {quoted(text)} is not a type")
    base, size, dimensions = match.groups()
    number = int(size) if size else bits[0] if bits else None
    if number is not None and not 1 <= number <= MAX_BITS:
        raise SchemaError(f"{where}: bits must be 1 to {MAX_BITS}, not {number}")
    sizes = tuple(_dimension(part) for part in re.findall(r"\[(:?\d*)\]", dimensions))
    long = any(part is not None and part < -MAX_BITS for part in sizes)
    if long or re.search(r"\[:0+\]", dimensions):
        raise SchemaError(f"{where}: a length has 1 to {MAX_BITS} bits")
    return SchemaField(name, TypeRef(text, base, number, sizes))


def _dimension(text: str) -> int | None:
    """Return the entry of `TypeRef.dimensions` for the text in brackets: "", "n" or ":n"."""
    if not text:
        return None
    return -int(text[1:]) if text.startswith(":") else int(text)


def decode(
    schema: Schema, values: Values, message: MessageSchema, data: FieldNode, bits: int
) -> tuple[FieldNode, SchemaMismatch | None]:
    """Decode a user message; return the node `decoded`, and the mismatch that ended it, or None.

    Args:
        schema: the user's schema.
        values: encoding of values in the protocol.
        message: description of the message.
        data: node with its bytes; offsets are relative to its start.
        bits: number of bits of the message.

    """
    cursor = Cursor(bytes(data.value), 0, bits)
    fault: SchemaMismatch | None = None
    try:
        nodes = Decoder(schema, values).fields(message.fields, cursor)
    except SchemaMismatch as mismatch:
        nodes, fault = mismatch.nodes, mismatch
    for node in nodes:
        node.shift(data.bit_offset)
    position = cursor.position
    return FieldNode("decoded", None, data.bit_offset, position, "", nodes, generated=True), fault


class Decoder:
    """Reads the values of a payload into nodes, according to a schema."""

    def __init__(self, schema: Schema, values: Values, *, buffer: int = 0) -> None:
        self._schema = schema
        self._values = values
        self._buffer = buffer
        self._nodes = 0

    def fields(
        self, fields: Sequence[SchemaField], cursor: Cursor, depth: int = 0
    ) -> list[FieldNode]:
        """Return a node per field; raise SchemaMismatch with the nodes before the mismatch."""
        nodes: list[FieldNode] = []
        for item in fields:
            start = cursor.position
            try:
                node = self._value(item.name, self._resolve(item.type), cursor, depth)
            except SchemaMismatch as fault:
                fault.nodes = [*nodes, *([_holder(item.name, fault, start)] if fault.nodes else [])]
                raise
            except (OutOfData, ValueError) as fault:
                raise SchemaMismatch(
                    f"{item.name} ({item.type.text}): {fault}", start, nodes, fault
                ) from None
            nodes.append(node)
        return nodes

    def _resolve(self, ref: TypeRef) -> TypeRef:
        alias = self._values.aliases.get(ref.base)
        if alias is None:
            return ref
        match = _TYPE.match(alias)
        assert match is not None  # noqa: S101 - aliases are constants of this package
        inner = tuple(int(p) if p else None for p in re.findall(r"\[(\d*)\]", match.group(3)))
        return TypeRef(ref.text, match.group(1), ref.size, (*ref.dimensions, *inner))

    def _value(self, name: str, ref: TypeRef, cursor: Cursor, depth: int) -> FieldNode:
        # The data do not bound an array of nulls or of empty objects, which take no bits.
        self._nodes += 1
        if self._nodes > NODE_LIMIT or depth > DEPTH_LIMIT:
            raise ValueError("too many or too deeply nested values")
        start = cursor.position
        if not self._values.present(cursor):
            return self._node(name, None, start, cursor, "null")
        if ref.dimensions:
            return self._array(name, ref, cursor, start, depth)
        if ref.base in self._schema.objects:
            return self._object(name, ref.base, cursor, start, depth)
        names = self._schema.enums.get(ref.base)
        scalar = ref.base if names is None else self._schema.enum_types[ref.base]
        # `_resolve` has resolved a field's type, but not that of an enum, such as EOUDP's `int`.
        scalar = self._values.aliases.get(scalar, scalar)
        row = self._values.scalars.get(scalar)
        if row is None:
            raise ValueError(f"unknown type {quoted(scalar)}")
        value = row.read(cursor, ref.size)
        label = "" if names is None else f"{names.get(value, '?')} ({value})"
        return self._node(name, value, start, cursor, label)

    def _array(self, name: str, ref: TypeRef, cursor: Cursor, start: int, depth: int) -> FieldNode:
        size = ref.dimensions[0]
        # Some encodings have an array type of their own, such as packed booleans.
        whole = self._values.scalars.get(f"{ref.base}[]") if len(ref.dimensions) == 1 else None
        if size is not None and size < 0:
            count = cursor.bits(-size)
        else:
            count = self._values.count(cursor) if size is None else size
        if whole is not None:
            return self._node(name, whole.read(cursor, count), start, cursor)
        item = TypeRef(ref.text, ref.base, ref.size, ref.dimensions[1:])
        node = FieldNode(name, None, start, 0, buffer=self._buffer, is_list=True)
        for index in range(count):
            before = cursor.position
            try:
                node.children.append(self._value(str(index), item, cursor, depth + 1))
            except (OutOfData, ValueError) as fault:
                node.bit_length = before - start
                raise SchemaMismatch(
                    f"{name}[{index}] of {count}: {fault}", before, [node], fault
                ) from None
        node.bit_length = cursor.position - start
        return node

    def _object(self, name: str, kind: str, cursor: Cursor, start: int, depth: int) -> FieldNode:
        inner = self._values.enter(cursor)
        if inner is None:
            return self._node(name, None, start, cursor, "null")
        children = self.fields(self._schema.objects[kind], inner, depth + 1)
        # Skip fields that a later version has added to the object.
        if inner is not cursor:
            cursor.position = inner.end
        # {} distinguishes an object without fields from null.
        value: dict[str, Any] | None = None if children else {}
        node = FieldNode(name, value, start, cursor.position - start, buffer=self._buffer)
        node.children = children
        return node

    def _node(
        self, name: str, value: Any, start: int, cursor: Cursor, display: str = ""
    ) -> FieldNode:
        return FieldNode(name, value, start, cursor.position - start, display, buffer=self._buffer)


def _holder(name: str, fault: SchemaMismatch, start: int) -> FieldNode:
    """Return a node with the part of an array or object that could be read."""
    if len(fault.nodes) == 1 and fault.nodes[0].name == name:
        return fault.nodes[0]
    node = FieldNode(name, None, start, fault.position - start, "incomplete")
    node.children = fault.nodes
    return node


def encode(
    schema: Schema, values: Values, fields: Sequence[SchemaField], data: Mapping[str, Any]
) -> Sink:
    """Encode `data` (name -> value) in the order of the schema; a missing value is zero or null."""
    sink = Sink()
    _Encoder(schema, values, sink).fields(fields, data, 0)
    return sink


class _Encoder:
    def __init__(self, schema: Schema, values: Values, sink: Sink) -> None:
        self._schema = schema
        self._values = values
        self._sink = sink
        self._resolver = Decoder(schema, values)

    def fields(self, fields: Sequence[SchemaField], data: Mapping[str, Any], depth: int) -> None:
        for item in fields:
            self._value(self._resolver._resolve(item.type), data.get(item.name), depth)  # noqa: SLF001

    def _value(self, ref: TypeRef, value: Any, depth: int) -> None:
        if depth > DEPTH_LIMIT:
            raise ValueError("too deeply nested values")
        if not self._values.put_present(self._sink, present=value is not None):
            return
        if ref.dimensions:
            self._array(ref, value or [], depth)
        elif ref.base in self._schema.objects:
            self._object(ref.base, value or {}, depth)
        else:
            scalar = self._schema.enum_types.get(ref.base, ref.base)
            scalar = self._values.aliases.get(scalar, scalar)
            self._values.scalars[scalar].write(self._sink, value, ref.size)

    def _object(self, kind: str, value: Mapping[str, Any], depth: int) -> None:
        outer, self._sink = self._sink, Sink()
        self.fields(self._schema.objects[kind], value, depth + 1)
        body, self._sink = self._sink, outer
        self._values.wrap(outer, body)

    def _array(self, ref: TypeRef, items: Sequence[Any], depth: int) -> None:
        size = ref.dimensions[0]
        if size is None:
            self._values.put_count(self._sink, len(items))
        elif size < 0:
            self._sink.bits(len(items), -size)
        whole = self._values.scalars.get(f"{ref.base}[]") if len(ref.dimensions) == 1 else None
        if whole is not None:
            whole.write(self._sink, items, len(items))
            return
        inner = TypeRef(ref.text, ref.base, ref.size, ref.dimensions[1:])
        for item in items:
            self._value(inner, item, depth + 1)
