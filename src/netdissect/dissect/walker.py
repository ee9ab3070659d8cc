"""The walker: reads a payload with the Field objects of a layer, and builds the annotated tree.

It never raises on input: a field that cannot be read becomes an annotation, and the fields before
it stay. It knows no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.packet_scope import PacketScope
from netdissect.dissect.scope import LAYER, OUTER, Scope
from netdissect.dissect.steps import (
    CACHED,
    EMBEDDED,
    HIGH_FIRST,
    ITEMS,
    PADDING,
    Plan,
    Step,
    decoded,
    hexadecimal,
    plan_for,
)
from netdissect.layers.base import Check, Layer
from netdissect.layers.fields import READ_FAULTS, Embedded, FieldFault, Items
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

Fields: TypeAlias = Mapping[int, dict[str, Any]]

_OCTET: Final = 8
_ALL_BITS: Final = 2**62 - 1  # mypyc boxes larger numbers
DEPTH_LIMIT = 64
"""Maximum nesting of layers and objects."""


class Walker:
    """Reads one buffer of one payload, and collects annotations and messages on the way."""

    def __init__(self, catalogue: Catalogue, *, buffer: int = 0) -> None:
        self.catalogue = catalogue
        """Rows of the findings."""
        self._buffer = buffer
        """Index of the buffer in the dissection."""
        self._nested: list[Scope] = []
        """Scopes of nested layers. They are in a reference cycle with the enclosing scope, which
        `free` breaks: otherwise only the garbage collector would free them.
        """
        self.annotations: list[Annotation] = []
        self.messages: list[MessageView] = []
        self.used = 0
        """Number of bytes of the payload that were read. A finisher that reads on raises it."""

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
        """Read one layer; return its node, its scope, and the number of bytes that it took.

        Args:
            layer: the layer.
            data: bytes that begin with it.
            base: position of `data` in the buffer, in bits.
            outer: scope of the enclosing layer.
            name: name of the node; None = the layer's title.
            depth: number of enclosing layers.
        """
        plan = plan_for(layer)
        node = FieldNode(name or plan.title, None, base, 0, buffer=self._buffer)
        # Rules and fields of a plug-in may use it like a packet.
        scope = Scope() if plan.ours else PacketScope()
        scope[LAYER] = layer
        if outer is not None:
            scope[OUTER] = outer
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
                # What is left of a nested layer is shown as bytes, under the field's own name.
                label = step.name if step.kind > PADDING else step.shown
                self._fault(label, fault, node, base + position, total - position)
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
        outer: Scope | None = None,
    ) -> None:
        """Read the payload of a header into `holder`, as `Layer.shows` of the header says."""
        node, _scope, used = self.walk(layer, data, base=base, outer=outer, name=shows or None)
        self.free()
        self.trailing(node, data, used)
        holder.children += [node] if shows else node.children

    def into(self, dissection: Dissection, buffer: Buffer) -> Walker:
        """Add a buffer that was derived from the payload; return its walker, which shares the
        annotations and messages of this one.
        """
        inner = Walker(self.catalogue, buffer=len(dissection.buffers))
        inner.annotations, inner.messages = self.annotations, self.messages
        dissection.buffers.append(buffer)
        return inner

    def free(self) -> None:
        """Break the reference cycles between the scopes of nested and enclosing layers."""
        for scope in self._nested:
            scope.pop(OUTER, None)
        self._nested.clear()

    def trailing(self, node: FieldNode, data: bytes, used: int) -> None:
        """Show and report the bytes of `data` behind the first `used`, those of a whole layer."""
        rest = data[used:]
        if not rest:
            return
        offset = node.bit_offset + 8 * used
        leaf = FieldNode("trailing", rest, offset, 8 * len(rest), rest.hex(), buffer=self._buffer)
        leaf.private = OCTETS
        node.children.append(leaf)
        node.bit_length = 8 * len(data)
        self.note("trailing-bytes", f"{len(rest)} bytes after the end", offset, 8 * len(rest))

    def conclude(self, dissection: Dissection, *, lines: bool) -> None:
        """Complete the dissection of a whole tree: trailing bytes, fields, perhaps summaries."""
        root = dissection.root
        self.trailing(root, dissection.buffers[0].data, self.used)
        known: dict[int, dict[str, Any]] = {}
        for message in dissection.messages:
            if message.node is not None and message.node is not root:
                message.fields = message.fields or node_fields(message.node)
                # A copy: values that are added to a message later are no fields of the payload.
                known[id(message.node)] = dict(message.fields)
        make_fields = _Fields(root, known)
        dissection.make_fields = make_fields
        for message in dissection.messages:
            if message.node is root:
                message.make_fields = make_fields
            if lines and message.node is not None:
                message.summary = message.summary or message.node.line(message.type)
        if lines and not dissection.summary:
            dissection.summary = "; ".join([message.summary for message in dissection.messages])

    def _field(
        self,
        step: Step,
        data: bytes,
        position: int,
        node: FieldNode,
        scope: Scope,
        base: int,
        depth: int,
    ) -> int:
        """Read the field at bit `position` into node and scope; return the position behind it."""
        if step.kind > PADDING:
            rest, offset = data[position >> 3 :], base + position
            if step.kind == ITEMS:
                used = self._items(step, rest, node, scope, offset, depth)
            elif step.kind == EMBEDDED:
                used = self._embedded(step, rest, node, scope, offset, depth)
            else:
                used = self._packet(step.field, rest, node, scope, offset, depth)
            return position + 8 * used
        # An `IfLeft` is absent if too little is left.
        if step.min_bits and 8 * len(data) - position < step.min_bits:
            scope[step.name] = None
            return position
        value = inline_value(step, data, position) if step.method else None
        cached = value is not None and step.method == CACHED
        if value is not None:
            end = position + step.size
        elif step.decode is not None and not position & 7:  # not by `read`, a call more
            value, end = decoded(step.name, step.decode, data, position)
        else:
            value, end = step.read(data, position, scope)
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
        if not cached and (step.method == CACHED or step.findings is not None):
            self._report_value(step, value, data[position >> 3 : end >> 3], offset, length)
        return end

    def _report_value(self, step: Step, value: Any, raw: bytes, offset: int, length: int) -> None:
        """Report the findings about a value and its bytes; cache the value if there are none."""
        clean = True
        if step.findings is not None and not _is_clean(step, value, raw):
            for code, message in step.findings(value, raw):
                self.note(code, message, offset, length)
                clean = False
        if clean and step.method == CACHED and length == _OCTET:
            step.cached[raw[0]] = value

    def _packet(
        self,
        field: Any,
        data: bytes,
        node: FieldNode,
        scope: Scope,
        base: int,
        depth: int,
    ) -> int:
        """Read the layer in a field of Scapy's own; return the number of its bytes."""
        child, inner, used = self.walk(
            field.cls, data, base=base, outer=scope, name=field.name, depth=depth + 1
        )
        node.children.append(child)
        scope[field.name] = inner
        return used

    def _embedded(
        self, step: Step, data: bytes, node: FieldNode, scope: Scope, base: int, depth: int
    ) -> int:
        """Read the layer in the bytes of a field; return their number."""
        field: Embedded = step.field
        octets: bytes = step.octets(scope, data)
        if depth >= DEPTH_LIMIT:
            self.note("depth-limit", f"{step.name} is nested too deeply", base, 8 * len(octets))
            return len(octets)
        child, scope[step.name], used = self.walk(
            field.choose(scope, octets),
            octets,
            base=base,
            outer=scope,
            name=step.shown,
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
        self, step: Step, data: bytes, node: FieldNode, scope: Scope, base: int, depth: int
    ) -> int:
        """Read the items of a list; return the number of bytes. A short list is only reported."""
        field: Items = step.field
        choose = field.choose  # not by `Items.layer`, a call for each item
        holder = FieldNode(step.name, None, base, 0, buffer=self._buffer, is_list=True)
        node.children.append(holder)
        values: list[Scope] = []
        scope[step.name] = values
        data = data[: max(0, len(data) - field.reserve)]
        count = None if step.count is None else int(step.count(scope))
        position = 0
        while position < len(data) if count is None else len(values) < count:
            if depth >= DEPTH_LIMIT or position >= len(data):
                self.note(
                    "list-short",
                    f"{step.name} states {count} items, {len(values)} are there",
                    base + 8 * position,
                )
                break
            left = data[position:]
            cut = bool(field.rest) and field.unfinished(left)
            child, inner, used = self.walk(
                field.item if choose is None else choose(scope, left),
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
            # An item without bytes would be repeated for ever.
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

    def _conclude(self, plan: Plan, node: FieldNode, scope: Scope) -> None:
        """Add the derived values, apply the soft rules, record the message."""
        if plan.late:
            node.make_children = _Concluding(plan, scope, node)
        elif plan.generated:
            _add_concluded(plan, scope, node.children, node.bit_offset, node.buffer)
        if plan.checks and not _is_unbroken(plan, scope):
            for when, check in plan.checks:
                if _evaluate(when, scope):
                    self._report(check, node, scope)
        kind = None if plan.message_type is None else _evaluate(plan.message_type, scope)
        if kind is not None:
            self.messages.append(
                MessageView(
                    kind,
                    node.bit_offset >> 3,
                    (node.bit_length + 7) >> 3,
                    {},  # filled in by `conclude`
                    node,
                    self._buffer,
                )
            )

    def _report(self, check: Check, node: FieldNode, scope: Scope) -> None:
        at = node.child(check.at) or node
        self.note(
            check.code,
            check.message.format_map(scope),
            at.bit_offset,
            at.bit_length,
            severity=check.severity,
        )


class _Fields:
    """Returns the fields of a tree: `node_fields`, called when they are first requested."""

    __slots__ = ("_known", "_node")

    # Not a `partial`, which costs four times as much.
    def __init__(self, node: FieldNode, known: Fields) -> None:
        self._node = node
        self._known = known

    def __call__(self) -> dict[str, Any]:
        return node_fields(self._node, self._known)


class _Concluding:
    """Derives the values of a layer when its node is used (`Layer.concludes_late`)."""

    __slots__ = ("_buffer", "_nodes", "_offset", "_plan", "_scope")

    # It does not refer to the node, which refers to it: a cycle would need the garbage collector.
    def __init__(self, plan: Plan, scope: Scope, node: FieldNode) -> None:
        self._plan = plan
        self._scope = scope
        self._nodes = node.children
        self._offset = node.bit_offset
        self._buffer = node.buffer

    def __call__(self) -> list[FieldNode]:
        """Return the nodes of the fields and of the derived values."""
        _add_concluded(self._plan, self._scope, self._nodes, self._offset, self._buffer)
        return self._nodes

    def value_of(self, name: str) -> Any:
        """Return one of the derived values; None if there is none of that name."""
        for known, value_of, _ in self._plan.generated:
            if known == name:
                return _evaluate(value_of, self._scope)
        return None


def _add_concluded(
    plan: Plan, scope: Scope, nodes: list[FieldNode], offset: int, buffer: int
) -> None:
    """Add the derived values of a layer to its scope and to the tree."""
    for name, value_of, keeps_none in plan.generated:
        value = _evaluate(value_of, scope)
        if value is not None or keeps_none:
            scope[name] = value
            nodes.append(concluded(name, value, offset, buffer))


def _show(step: Step, leaf: FieldNode, value: Any) -> None:
    """Set the display of a field in its node."""
    display = step.display
    if display is None:
        if isinstance(value, (bytes, bytearray)):
            leaf.format_value, leaf.raw = hexadecimal, value
    elif step.lazy:
        leaf.format_value, leaf.raw = display, value
    else:
        leaf.display = display(value)


def _is_clean(step: Step, value: Any, raw: bytes) -> bool:
    """Return whether a number certainly has no findings: see `Step.codec`."""
    codec, low, high = step.codec, step.clean_low, step.clean_high
    if codec is None or (low is not None and value < low):
        return False
    return (high is None or value <= high) and codec.is_minimal(raw, value)


def inline_value(step: Step, data: bytes, position: int) -> Any:
    """Return the value of a field by its step's method; None if `Step.read` must be called."""
    if position & step.alignment or position + step.size > 8 * len(data):
        return None
    if step.method == CACHED:
        return step.cached[data[position >> 3]]
    at: i64 = position
    size: i64 = step.size
    if step.method == HIGH_FIRST:
        return _high_first(data, at, size)
    value = _low_first(data, at, size)
    if step.signed and value >> (size - 1):
        value -= _mask(size) + 1
    return value


def _mask(size: i64) -> i64:
    """Return a mask of `size` bits, 1 to 62."""
    return _ALL_BITS >> (62 - size)  # to mypyc, the 1 of `1 << size` is a C int of 32 bits


def _low_first(data: bytes, at: i64, size: i64) -> i64:
    """Return the number in `size` bits from bit `at` on, least significant bit first."""
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
    """Return the number in `size` bits from bit `at` on, most significant bit first."""
    place: i64 = at >> 3
    have: i64 = 8 - (at & 7)
    word: i64 = data[place]
    while have < size:
        place += 1
        octet: i64 = data[place]
        word = word << 8 | octet
        have += 8
    return word >> (have - size) & _mask(size)


def _is_unbroken(plan: Plan, scope: Mapping[str, Any]) -> bool:
    """Return whether certainly no soft rule is broken."""
    if plan.any_broken is None:
        return False
    try:
        return not plan.any_broken(scope)
    except (KeyError, NameError, TypeError):  # some rule needs a field that was not read
        return False


def _evaluate(rule: Any, scope: Mapping[str, Any]) -> Any:
    """Return the value of a rule; None if it needs a field that was not read."""
    try:
        return rule(scope)
    except (KeyError, NameError, TypeError):
        return None


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)


def node_fields(node: FieldNode, known: Fields | None = None) -> dict[str, Any]:
    """Return the values of a node's children by name. Of children with one name, the last counts.

    Args:
        node: a node of the tree.
        known: results for nodes below it by `id`, to be used again.

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
    """Return the value of a node as a plain value, list or object."""
    if known is not None and id(node) in known:
        return known[id(node)]
    if node.is_list:
        return [node_value(item, known) for item in node.children]
    return node_fields(node, known) if node.value is None and node.nested else node.value
