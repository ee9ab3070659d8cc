"""The walker: reads a payload through the Field objects of a layer and yields the annotated tree.

It never raises on input: a field that cannot be read becomes an annotation, what was read before it
stays. It holds no knowledge of a protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from netdissect.dissect.around import Around
from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.scope import Scope
from netdissect.dissect.steps import (
    EMBEDDED,
    HIGH_FIRST,
    ITEMS,
    PADDING,
    USUAL,
    Plan,
    Step,
    hexadecimal,
    plan_of,
)
from netdissect.layers.base import READ_FAULTS, Check, Layer
from netdissect.layers.fields import Embedded, FieldFault, Items
from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import (
    OCTETS,
    Buffer,
    Dissection,
    FieldNode,
    MessageView,
    concluded,
)
from netdissect.model.native import i64

__all__ = ["Walker", "node_fields", "node_value", "own_value"]

Fields: TypeAlias = Mapping[int, dict[str, Any]]

_OCTET: Final = 8
_ALL_BITS: Final = 2**62 - 1  # mypyc boxes larger numbers
DEPTH_LIMIT = 64
"""Nested layers and objects at most."""


class Walker:
    """Walks one buffer of one payload, gathering annotations and messages as it goes."""

    def __init__(self, catalogue: Catalogue, *, buffer: int = 0) -> None:
        self.catalogue = catalogue
        """The rows that findings are taken from."""
        self._buffer = buffer
        self._nested: list[Around] = []
        """Fields of layers inside others. Each knows the other: together they would be freed by a
        search for cyclic garbage alone.
        """
        self.annotations: list[Annotation] = []
        self.messages: list[MessageView] = []
        self.used = 0
        """Bytes of the payload that were read; a finisher raises it where it reads on."""

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
        outer: Around | None = None,
        name: str | None = None,
        depth: int = 0,
    ) -> tuple[FieldNode, Around, int]:
        """Read one layer from the start of `data`, which lies at bit `base` of the buffer.

        Returns its node, its scope and the number of bytes that it took.
        """
        # A class can be hashed, whatever its instances are.
        plan = plan_of(layer)  # type: ignore[arg-type]
        node = FieldNode(name or plan.title, None, base, 0, buffer=self._buffer)
        # What others have written may take it for a packet.
        scope = Around(outer, layer) if plan.ours else Scope(outer, layer)
        if depth:
            self._nested.append(scope)
        total = 8 * len(data)
        position = 0
        faulty = False
        for step in plan.steps:
            if step.condition is not None and not step.condition(scope):
                scope[step.name] = None
                continue
            try:
                position = self._field(step, data, position, node, scope, base, depth)
            except READ_FAULTS as fault:
                # The bytes of a layer that is cut are no fields: they have a name of their own.
                called = step.name if step.kind > PADDING else step.shown
                self._fault(called, fault, node, base + position, total - position)
                faulty = True
                break
        node.bit_length = total if faulty else position
        self._conclude(plan, node, scope)
        return node, scope, len(data) if faulty else (position + 7) >> 3

    def payload(
        self,
        holder: FieldNode,
        shows: str | None,
        layer: type[Layer],
        data: bytes,
        *,
        base: int = 0,
        outer: Around | None = None,
    ) -> None:
        """Read the layer that a header carries, whose `shows` says where it stands in the tree."""
        node, _scope, used = self.walk(layer, data, base=base, outer=outer, name=shows or None)
        self.free()
        self.trailing(node, data, used)
        holder.children += [node] if shows else node.children

    def into(self, dissection: Dissection, buffer: Buffer) -> Walker:
        """Add a buffer that was made of the payload, and return what walks it: what that finds, and
        its messages, are found by this one too.
        """
        inner = Walker(self.catalogue, buffer=len(dissection.buffers))
        inner.annotations, inner.messages = self.annotations, self.messages
        dissection.buffers.append(buffer)
        return inner

    def free(self) -> None:
        """Have the fields of layers that were read forget what is around them."""
        for scope in self._nested:
            scope.outer = None
        self._nested.clear()

    def trailing(self, node: FieldNode, data: bytes, used: int) -> None:
        """Show and report the bytes of `data` after a whole layer."""
        rest = data[used:]
        if not rest:
            return
        offset = node.bit_offset + 8 * used
        leaf = FieldNode("trailing", rest, offset, 8 * len(rest), rest.hex(), buffer=self._buffer)
        leaf.private = OCTETS
        node.children.append(leaf)
        node.bit_length = 8 * len(data)
        self.note("trailing-bytes", f"{len(rest)} bytes after the end", offset, 8 * len(rest))

    def conclude(self, dissection: Dissection) -> None:
        """Add what is left of the payload, values by name and lines, now that the tree is whole."""
        root = dissection.root
        self.trailing(root, dissection.buffers[0].data, self.used)
        known: dict[int, dict[str, Any]] = {}
        for message in dissection.messages:
            if message.node is not None and message.node is not root:
                message.fields = message.fields or node_fields(message.node)
                # A copy: what is added to a message later is no field of the payload.
                known[id(message.node)] = dict(message.fields)
        dissection.make_fields = partial(node_fields, root, known)
        for message in dissection.messages:
            if message.node is root:
                message.fields = dissection.fields
            if message.node is not None:
                message.summary = message.summary or message.node.line(message.type)
        if not dissection.summary:
            dissection.summary = "; ".join([message.summary for message in dissection.messages])

    def _field(
        self,
        step: Step,
        data: bytes,
        position: int,
        node: FieldNode,
        scope: Around,
        base: int,
        depth: int,
    ) -> int:
        """Read one field at bit `position` into `node` and `scope`; return the bit behind it."""
        if step.kind > PADDING:
            rest, offset = data[position >> 3 :], base + position
            if step.kind == ITEMS:
                used = self._items(step.field, rest, node, scope, offset, depth)
            elif step.kind == EMBEDDED:
                used = self._embedded(step.field, rest, node, scope, offset, depth)
            else:
                used = self._packet(step.field, rest, node, scope, offset, depth)
            return position + 8 * used
        # Absent, as `IfLeft` says: no fault.
        if step.least and 8 * len(data) - position < step.least:
            scope[step.name] = None
            return position
        value = own_value(step, data, position) if step.how else None
        usual = value is not None and step.how == USUAL
        if value is None:
            value, end = step.read(data, position, scope)
        else:
            end = position + step.size
        scope[step.name] = value
        if value is None:
            return end
        offset, length = base + position, end - position
        if step.kind == PADDING:
            self._padding(value, node, offset, length)
            return end
        plain = value if step.plain is None else step.plain(value)
        leaf = FieldNode(step.shown, plain, offset, length, buffer=self._buffer)
        leaf.private = step.private
        _show(step, leaf, value)
        node.children.append(leaf)
        if not usual and (step.how == USUAL or step.findings is not None):
            self._remarks(step, value, data[position >> 3 : end >> 3], offset, length)
        return end

    def _remarks(self, step: Step, value: Any, raw: bytes, offset: int, length: int) -> None:
        """Note what is found on a value and its bytes."""
        fine = True
        if step.findings is not None and not _is_quiet(step, value, raw):
            for code, message in step.findings(value, raw):
                self.note(code, message, offset, length)
                fine = False
        if fine and step.how == USUAL and length == _OCTET:
            step.usual[raw[0]] = value

    def _packet(
        self,
        field: Any,
        data: bytes,
        node: FieldNode,
        scope: Around,
        base: int,
        depth: int,
    ) -> int:
        """Read the layer that a field of Scapy's own holds; return its bytes."""
        child, inner, used = self.walk(
            field.cls, data, base=base, outer=scope, name=field.name, depth=depth + 1
        )
        node.children.append(child)
        scope[field.name] = inner
        return used

    def _embedded(
        self, field: Embedded, data: bytes, node: FieldNode, scope: Around, base: int, depth: int
    ) -> int:
        """Read the layer that stands in the bytes of one field; what it leaves is trailing."""
        octets = field.octets(scope, data)
        if depth >= DEPTH_LIMIT:
            self.note("depth-limit", f"{field.name} is nested too deeply", base, 8 * len(octets))
            return len(octets)
        child, scope[field.name], used = self.walk(
            field.choose(scope, octets),
            octets,
            base=base,
            outer=scope,
            name=field.shown,
            depth=depth + 1,
        )
        self.trailing(child, octets, used)
        if field.inline and child.children:
            node.children += child.children
        else:
            node.children.append(child)
        return len(octets)

    def _padding(self, value: int, node: FieldNode, offset: int, length: int) -> None:
        node.children.append(FieldNode("padding", value, offset, length, buffer=self._buffer))
        if value:
            self.note("nonzero-padding", f"padding bits hold {value:#x}, not zero", offset, length)

    def _items(
        self, field: Items, data: bytes, node: FieldNode, scope: Around, base: int, depth: int
    ) -> int:
        """Read the items of a list; a short list is reported, not an error of the layer."""
        holder = FieldNode(field.name, None, base, 0, buffer=self._buffer, is_list=True)
        node.children.append(holder)
        values: list[Around] = []
        scope[field.name] = values
        data = data[: max(0, len(data) - field.reserve)]
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
            left = data[position:]
            cut = bool(field.rest) and field.unfinished(left)
            child, inner, used = self.walk(
                field.layer(scope, left),
                left,
                base=base + 8 * position,
                outer=scope,
                name=field.rest if cut else None,
                depth=depth + 1,
            )
            if cut:
                node.children.append(child)
                holder.bit_length = 8 * position
                return len(data)
            holder.children.append(child)
            values.append(inner)
            # An item that takes nothing would come for ever.
            position += max(used, 1)
        if field.optional and not values:
            node.children.remove(holder)
        position = min(position, len(data))
        holder.bit_length = 8 * position
        return position

    def _fault(
        self, name: str, fault: BaseException, node: FieldNode, offset: int, length: int
    ) -> None:
        code = fault.code if isinstance(fault, FieldFault) else "truncated"
        text = str(fault) if isinstance(fault, FieldFault) else f"{name} is cut short"
        value = fault.value if isinstance(fault, FieldFault) else None
        if value is not None:
            shown = f"{_text(value)} (incomplete)"
            node.children.append(FieldNode(name, value, offset, length, shown, buffer=self._buffer))
            node.children[-1].private = OCTETS
        self.note(code, text, offset, length)

    def _conclude(self, plan: Plan, node: FieldNode, scope: Around) -> None:
        """Add generated values, apply the soft rules, record the message."""
        if plan.late:
            node.make_children = _Concluding(plan, scope, node)
        elif plan.generated:
            _add_concluded(plan, scope, node.children, node.bit_offset, node.buffer)
        if plan.checks and not _is_fine(plan, scope):
            for when, check in plan.checks:
                if _try(when, scope):
                    self._report(check, node, scope)
        kind = None if plan.kind is None else _try(plan.kind, scope)
        if kind is not None:
            self.messages.append(
                MessageView(
                    kind,
                    node.bit_offset >> 3,
                    (node.bit_length + 7) >> 3,
                    {},  # when the tree is whole
                    node,
                    self._buffer,
                )
            )

    def _report(self, check: Check, node: FieldNode, scope: Around) -> None:
        at = node.child(check.at) or node
        self.note(
            check.code,
            check.message.format_map(scope),
            at.bit_offset,
            at.bit_length,
            severity=check.severity,
        )


class _Concluding:
    """Makes what is concluded from the fields of a layer, beside those in the tree."""

    __slots__ = ("_buffer", "_nodes", "_offset", "_plan", "_scope")

    # It holds no node: that holds it, and both would be freed by a search for cyclic garbage alone.
    def __init__(self, plan: Plan, scope: Around, node: FieldNode) -> None:
        self._plan = plan
        self._scope = scope
        self._nodes = node.children
        self._offset = node.bit_offset
        self._buffer = node.buffer

    def __call__(self) -> list[FieldNode]:
        """Return the fields and what is concluded."""
        _add_concluded(self._plan, self._scope, self._nodes, self._offset, self._buffer)
        return self._nodes

    def value_of(self, name: str) -> Any:
        """Return one of the values that are concluded."""
        for known, value_of, _ in self._plan.generated:
            if known == name:
                return _try(value_of, self._scope)
        return None


def _add_concluded(
    plan: Plan, scope: Around, nodes: list[FieldNode], offset: int, buffer: int
) -> None:
    """Add what is concluded from the fields of a layer to them and to the tree."""
    for name, value_of, keeps_none in plan.generated:
        value = _try(value_of, scope)
        if value is not None or keeps_none:
            scope[name] = value
            nodes.append(concluded(name, value, offset, buffer))


def _show(step: Step, leaf: FieldNode, value: Any) -> None:
    """Say in a field's node what people see of its value."""
    display = step.display
    if display is None:
        if isinstance(value, (bytes, bytearray)):
            leaf.format_value, leaf.raw = hexadecimal, value
    elif step.late:
        leaf.format_value, leaf.raw = display, value
    else:
        leaf.display = display(value)


def _is_quiet(step: Step, value: Any, raw: bytes) -> bool:
    """Return whether nothing is found on a number, as far as its step tells."""
    codec, lowest, highest = step.codec, step.lowest, step.highest
    if codec is None or (lowest is not None and value < lowest):
        return False
    return (highest is None or value <= highest) and codec.is_minimal(raw, value)


def own_value(step: Step, data: bytes, position: int) -> Any:
    """Return the value of a field whose step need not be asked; None where it must."""
    if position & step.whole or position + step.size > 8 * len(data):
        return None
    if step.how == USUAL:
        return step.usual[data[position >> 3]]
    at: i64 = position
    size: i64 = step.size
    if step.how == HIGH_FIRST:
        return _high_first(data, at, size)
    value = _low_first(data, at, size)
    if step.signed and value >> (size - 1):
        value -= _mask(size) + 1
    return value


def _mask(size: i64) -> i64:
    """Return a number of so many bits, 1 to 62, all of them set."""
    return _ALL_BITS >> (62 - size)  # mypyc writes the 1 of `1 << size` as an `int`, with 32 bits


def _low_first(data: bytes, at: i64, size: i64) -> i64:
    """Return the number of the bits from bit `at` on, the least significant one first."""
    place: i64 = at >> 3
    have: i64 = 8 - (at & 7)
    word: i64 = data[place] >> (at & 7)
    while have < size:
        place += 1
        octet: i64 = data[place]
        word |= octet << have
        have += 8
    return word & _mask(size)


def _high_first(data: bytes, at: i64, size: i64) -> i64:
    """Return the number of the bits from bit `at` on, the most significant one first."""
    place: i64 = at >> 3
    have: i64 = 8 - (at & 7)
    word: i64 = data[place]
    while have < size:
        place += 1
        octet: i64 = data[place]
        word = word << 8 | octet
        have += 8
    return word >> (have - size) & _mask(size)


def _is_fine(plan: Plan, scope: Mapping[str, Any]) -> bool:
    """Return whether no soft rule is broken, as far as one call tells."""
    if plan.broken is None:
        return False
    try:
        return not plan.broken(scope)
    except (KeyError, NameError, TypeError):  # a field was not read: some rules need it
        return False


def _try(rule: Any, scope: Mapping[str, Any]) -> Any:
    """Return the rule's value, or None where a field that it needs was not read."""
    try:
        return rule(scope)
    except (KeyError, NameError, TypeError):
        return None


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)


def node_fields(node: FieldNode, known: Fields | None = None) -> dict[str, Any]:
    """Return the children of a node by name; of equal names the last wins.

    Args:
        node: a node of the tree.
        known: `id` of a node below it -> what this returns for that one.

    """
    found = {}
    for child in node.children:
        value = child.value
        if child.is_list:
            value = [node_value(item, known) for item in child.children]
        elif value is None and child.nested:
            value = node_value(child, known)
        found[child.name] = value
    return found


def node_value(node: FieldNode, known: Fields | None = None) -> Any:
    """Return a node as a plain value: its own value, or an object of its children."""
    if known is not None and id(node) in known:
        return known[id(node)]
    if node.is_list:
        return [node_value(item, known) for item in node.children]
    return node_fields(node, known) if node.value is None and node.nested else node.value
