"""The walker: reads a payload through the Field objects of a layer and yields the annotated tree.

It never raises on input: a field that cannot be read becomes an annotation, what was read before it
stays. It holds no knowledge of a protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scapy.fields import ConditionalField, FlagsField, MayEnd, PacketField

from netdissect.dissect.catalogue import Catalogue
from netdissect.layers.base import READ_FAULTS, Check, Layer
from netdissect.layers.fields import Embedded, FieldFault, Items, LsbPad
from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import FieldNode, MessageView

__all__ = ["Scope", "Walker", "node_fields"]

DEPTH_LIMIT = 64
"""Nested layers and objects at most."""


class Scope(dict[str, Any]):
    """The fields of one layer as read so far; unknown names are looked up in the layers around it.

    Stands in for the packet when Field objects ask for other fields.
    """

    __slots__ = ("layer", "outer")

    def __init__(self, outer: Scope | None = None, layer: type[Layer] | None = None) -> None:
        super().__init__()
        self.outer = outer
        self.layer = layer

    def __missing__(self, name: str) -> Any:
        if self.outer is None:
            raise KeyError(name)
        return self.outer[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (self.outer is not None and name in self.outer)

    def getfieldval(self, name: str) -> Any:
        """Return a field's value as a Scapy packet would."""
        return self[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Walker:
    """Walks one buffer of one payload, gathering annotations and messages as it goes."""

    def __init__(self, catalogue: Catalogue, *, buffer: int = 0) -> None:
        self.catalogue = catalogue
        """The rows that findings are taken from."""
        self._buffer = buffer
        self.annotations: list[Annotation] = []
        self.messages: list[MessageView] = []
        self.used = 0
        """Octets of the payload that were read; a finisher raises it where it reads on."""

    def note(
        self,
        code: str,
        message: str,
        offset: int,
        length: int = 0,
        *,
        severity: Severity | None = None,
    ) -> None:
        """Add one finding at bit `offset` of this walker's buffer."""
        row = self.catalogue[code]
        self.annotations.append(
            Annotation(
                code,
                row.severity if severity is None else severity,
                row.group,
                message,
                offset,
                length,
                self._buffer,
            )
        )

    def walk(
        self,
        layer: type[Layer],
        data: bytes,
        *,
        base: int = 0,
        outer: Scope | None = None,
        name: str | None = None,
        depth: int = 0,
    ) -> tuple[FieldNode, Scope, int]:
        """Read one layer from the start of `data`, which lies at bit `base` of the buffer.

        Returns its node, its scope and the number of octets that it took.
        """
        title = layer._name or layer.__name__  # noqa: SLF001 - `name` is Scapy's slot
        node = FieldNode(name or str(title), None, base, 0, buffer=self._buffer)
        scope = Scope(outer, layer)
        state: Any = data
        total = 8 * len(data)
        faulty = False
        for field in layer.fields_desc:
            inner = field
            if isinstance(inner, MayEnd):
                inner = inner.fld
            if isinstance(inner, ConditionalField):
                if not inner._evalcond(scope):  # noqa: SLF001 - Scapy has no public name for it
                    scope[field.name] = None
                    continue
                inner = inner.fld
            before = _position(state, total)
            try:
                state = self._field(inner, state, node, scope, base=base, total=total, depth=depth)
            except READ_FAULTS as fault:
                self._fault(inner.name, fault, node, base + before, total - before)
                faulty = True
                break
        used = _position(state, total)
        octets = (used + 7) >> 3
        node.bit_length = total if faulty else used
        self._conclude(layer, node, scope)
        return node, scope, len(data) if faulty else octets

    def trailing(self, node: FieldNode, data: bytes, used: int) -> None:
        """Show and report the octets of `data` after a whole layer."""
        rest = data[used:]
        if not rest:
            return
        offset = node.bit_offset + 8 * used
        node.children.append(
            FieldNode("trailing", rest, offset, 8 * len(rest), rest.hex(), buffer=self._buffer)
        )
        node.bit_length = 8 * len(data)
        self.note("trailing-bytes", f"{len(rest)} octets after the end", offset, 8 * len(rest))

    def _field(
        self,
        field: Any,
        state: Any,
        node: FieldNode,
        scope: Scope,
        *,
        base: int,
        total: int,
        depth: int,
    ) -> Any:
        """Read one field into `node` and `scope`; returns the new state."""
        before = _position(state, total)
        if isinstance(field, Items):
            return self._items(field, state, node, scope, base=base + before, depth=depth)
        if isinstance(field, Embedded):
            return self._embedded(field, state, node, scope, base=base + before, depth=depth)
        if isinstance(field, PacketField):
            child, inner, used = self.walk(
                field.cls, state, base=base + before, outer=scope, name=field.name, depth=depth + 1
            )
            node.children.append(child)
            scope[field.name] = inner
            return state[used:]
        after, value = field.getfield(scope, state)
        scope[field.name] = value
        if value is None:
            return after
        length = _position(after, total) - before
        if isinstance(field, LsbPad):
            self._padding(value, node, base + before, length)
            return after
        node.children.append(
            FieldNode(
                getattr(field, "shown", field.name),
                _plain(field, value),
                base + before,
                length,
                _display(field, value),
                buffer=self._buffer,
            )
        )
        findings = getattr(field, "findings", None)
        if findings is not None:
            raw = state[: len(state) - len(after)]
            for code, message in findings(value, raw):
                self.note(code, message, base + before, length)
        return after

    def _embedded(
        self, field: Embedded, data: bytes, node: FieldNode, scope: Scope, *, base: int, depth: int
    ) -> bytes:
        """Read the layer that stands in the octets of one field; what it leaves is trailing."""
        octets = field.octets(scope, data)
        if depth >= DEPTH_LIMIT:
            self.note("depth-limit", f"{field.name} is nested too deeply", base, 8 * len(octets))
            return data[len(octets) :]
        child, scope[field.name], used = self.walk(
            field.choose(scope, octets),
            octets,
            base=base,
            outer=scope,
            name=field.shown,
            depth=depth + 1,
        )
        self.trailing(child, octets, used)
        node.children.append(child)
        return data[len(octets) :]

    def _padding(self, value: int, node: FieldNode, offset: int, length: int) -> None:
        node.children.append(FieldNode("padding", value, offset, length, buffer=self._buffer))
        if value:
            self.note("nonzero-padding", f"padding bits hold {value:#x}, not zero", offset, length)

    def _items(
        self, field: Items, data: bytes, node: FieldNode, scope: Scope, *, base: int, depth: int
    ) -> bytes:
        """Read the items of a list; a short list is reported, not an error of the layer."""
        holder = FieldNode(field.name, None, base, 0, buffer=self._buffer, is_list=True)
        node.children.append(holder)
        values: list[Scope] = []
        scope[field.name] = values
        whole, data = data, data[: max(0, len(data) - field.reserve)]
        wanted = None if field.count is None else int(field.count(scope))
        position = 0
        while position < len(data) if wanted is None else len(values) < wanted:
            if depth >= DEPTH_LIMIT or position >= len(data):
                self.note(
                    "list-short",
                    f"{field.name} states {wanted} items, {len(values)} are there",
                    base + 8 * position,
                )
                break
            child, inner, used = self.walk(
                field.item,
                data[position:],
                base=base + 8 * position,
                outer=scope,
                depth=depth + 1,
            )
            holder.children.append(child)
            values.append(inner)
            position += max(used, 1)
        position = min(position, len(data))
        holder.bit_length = 8 * position
        return whole[position:]

    def _fault(
        self, name: str, fault: BaseException, node: FieldNode, offset: int, length: int
    ) -> None:
        code = fault.code if isinstance(fault, FieldFault) else "truncated"
        text = str(fault) if isinstance(fault, FieldFault) else f"{name} is cut short"
        value = fault.value if isinstance(fault, FieldFault) else None
        if value is not None:
            node.children.append(
                FieldNode(
                    name, value, offset, length, f"{_text(value)} (incomplete)", buffer=self._buffer
                )
            )
        self.note(code, text, offset, length)

    def _conclude(self, layer: type[Layer], node: FieldNode, scope: Scope) -> None:
        """Add generated values, apply the soft rules, record the message."""
        for gen in layer.generated:
            value = _try(gen.value, scope)
            if value is None and not gen.keeps_none:
                continue
            scope[gen.name] = value
            node.children.append(
                FieldNode(gen.name, value, node.bit_offset, 0, buffer=self._buffer, generated=True)
            )
        for check in layer.checks:
            if _try(check.when, scope):
                self._report(check, node, scope)
        kind = _try(layer.message_type, scope)
        if kind is not None:
            self.messages.append(
                MessageView(
                    kind,
                    node.bit_offset >> 3,
                    (node.bit_length + 7) >> 3,
                    node_fields(node),
                    node,
                    self._buffer,
                )
            )

    def _report(self, check: Check, node: FieldNode, scope: Scope) -> None:
        at = next((child for child in node.children if child.name == check.at), node)
        self.note(
            check.code,
            check.message.format_map(scope),
            at.bit_offset,
            at.bit_length,
            severity=check.severity,
        )


def _position(state: Any, total: int) -> int:
    """Return how many of `total` bits a Scapy dissection state has consumed."""
    if isinstance(state, tuple):
        return int(total - 8 * len(state[0]) + state[1])
    return int(total - 8 * len(state))


def _try(rule: Any, scope: Mapping[str, Any]) -> Any:
    """Return the rule's value, or None where a field that it needs was not read."""
    try:
        return rule(scope)
    except (KeyError, NameError, TypeError):
        return None


def _plain(field: Any, value: Any) -> Any:
    """Return a field value as a plain Python value."""
    if isinstance(field, FlagsField):
        return int(value)
    plain = getattr(field, "plain", None)
    return value if plain is None else plain(value)


def _display(field: Any, value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    text = field.i2repr(None, value)
    return "" if text == repr(value) else str(text)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)


def _pairs(node: FieldNode) -> Iterator[tuple[str, Any]]:
    for child in node.children:
        if child.is_list:
            yield child.name, [node_value(item) for item in child.children]
        else:
            yield child.name, node_value(child)


def node_value(node: FieldNode) -> Any:
    """Return a node as a plain value: its own value, or an object of its children."""
    if node.is_list:
        return [node_value(item) for item in node.children]
    return node_fields(node) if node.children and node.value is None else node.value


def node_fields(node: FieldNode) -> dict[str, Any]:
    """Return the children of a node by name; of equal names the last wins."""
    return dict(_pairs(node))
