"""The annotated field tree that `dissect` builds from one payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.model.annotations import Annotation
from netdissect.model.native import mypyc_attr

MASK = "********"
"""Shown instead of a hidden password."""
TEXT = "text"
"""Privacy class of a field with text that people wrote or that identifies them."""
OCTETS = "octets"
"""Privacy class of a field with bytes of the application, which may include text."""
JSON = "json"
"""Privacy class of a field with JSON: its strings are private, and so are the names of members that
no schema has.
"""
ADDRESS = "address"
"""Privacy class of a field with an IPv6 address, or an IPv4 address mapped into one."""
LINE_FIELDS: Final = 6
"""Fields of one message that its summary line shows at most."""
LINE_TEXT: Final = 60
"""Characters of a text that a summary line shows at most."""
_NOT_IN_LINE: Final = frozenset({"type_id", "padding", "trailing"})
"""Fields that a summary line never shows."""


@mypyc_attr(acyclic=True)
class FieldNode:
    """One field of the tree. Siblings do not overlap. Children lie inside their parent unless they
    refer to another buffer.

    Nothing that a node holds may refer to it: the garbage collector does not see nodes.
    """

    __slots__ = ("_children", "_display", "bit_length", "bit_offset", "buffer", "format_value",
                 "generated", "is_list", "make_children", "name", "private", "raw",
                 "value")  # fmt: skip

    # Not a dataclass, whose `__init__` is not compiled: a datagram has about fifty nodes.
    def __init__(
        self,
        name: str,
        value: Any,
        bit_offset: int,
        bit_length: int,
        display: str = "",
        children: list[FieldNode] | None = None,
        buffer: int = 0,
        *,
        generated: bool = False,
        is_list: bool = False,
    ) -> None:
        self.name = name
        """Field name as in the layer, snake_case."""
        self.value = value
        """Typed value: int, float, bool, str, bytes, None or list; None for a node with children.
        """
        self.bit_offset = bit_offset
        """First bit in `buffer`. Bit i is bit i % 8 of byte i // 8 in the layer's bit order."""
        self.bit_length = bit_length
        """Length in bits; 0 for generated nodes."""
        self._display = display
        self._children = children
        self.buffer = buffer
        """Index into `Dissection.buffers`."""
        self.generated = generated
        """True for a value that follows from others and was not read; shown in brackets."""
        self.is_list = is_list
        """True if the children are the items of a list instead of the fields of an object."""
        self.private = ""
        """Privacy class of a value that a shared capture should not contain: `TEXT`, `OCTETS`,
        `JSON`, `ADDRESS` or a word of the protocol. "" if it may be shared.
        """
        self.make_children: Callable[[], list[FieldNode]] | None = None
        """Creates the children on first use; None once they exist."""
        self.format_value: Callable[[Any], str] | None = None
        """Creates `display` from `raw` on first use; None once it exists."""
        self.raw: Any = None
        """Argument of `format_value`: the value as it was read."""

    @property
    def display(self) -> str:
        """Return the value for people if it differs from str(value): enum names, units. Not yet
        made safe for a terminal.
        """
        format_value = self.format_value
        if format_value is not None:
            self.format_value = None
            self._display = format_value(self.raw)
            self.raw = None
        return self._display

    @display.setter
    def display(self, display: str) -> None:
        self.format_value = None
        self._display = display

    @property
    def children(self) -> list[FieldNode]:
        """Return the nested fields."""
        make = self.make_children
        if make is not None:
            self.make_children = None
            self._children = make()
        found = self._children
        if found is None:  # no list until now: most nodes never have children
            found = self._children = []
        return found

    @children.setter
    def children(self, children: list[FieldNode]) -> None:
        self.make_children = None
        self._children = children

    @property
    def nested(self) -> bool:
        """Return whether the node has children."""
        return bool(self._children or (self.make_children is not None and self.children))

    def field(self, name: str) -> FieldNode | None:
        """Return the first child with a name among those that exist already; unlike `child`, this
        does not call `make_children`.
        """
        for child in self._children or ():
            if child.name == name:
                return child
        return None

    def value_of(self, name: str) -> Any:
        """Return the value of the first child with a name; None without one. If `make_children` has
        a method `value_of` too, only that value is computed instead of all children.
        """
        found = self.field(name)
        if found is None:
            alone = getattr(self.make_children, "value_of", None)
            if alone is not None:
                return alone(name)
            found = self.child(name)
        return None if found is None else found.value

    def line(self, kind: str) -> str:
        """Return the summary line of a message that has none from a finisher: the type `kind` and
        the first plain fields.
        """
        facts = [kind]
        for child in self.children:
            if child.generated or child.is_list or child.nested or child.name in _NOT_IN_LINE:
                continue
            value = child.value
            if isinstance(value, bytes):
                if child.bit_length >= 8 or any(value):  # noqa: PLR2004 - fewer bits: padding
                    facts.append(f"{child.name}={len(value)} B")
            elif isinstance(value, str):
                # Not `display`: Scapy may show the bytes that the text was decoded from.
                facts.append(f'{child.name}="{value[:LINE_TEXT]}"')
            elif value is not None:
                display = child.display
                if not (display.startswith(kind) and display in {kind, f"{kind} ({value})"}):
                    facts.append(f"{child.name}={display or value}")
            if len(facts) > LINE_FIELDS:
                break
        return " ".join(facts)

    def child(self, name: str) -> FieldNode | None:
        """Return the first child with a name; None without one."""
        for child in self.children:
            if child.name == name:
                return child
        return None

    def conclude(self, name: str, value: Any) -> None:
        """Append a child for a value that follows from others."""
        self.children.append(concluded(name, value, self.bit_offset, self.buffer))

    def shift(self, by: int) -> None:
        """Add a number of bits to the offset of the node and of everything below it."""
        self.bit_offset += by
        if self.nested:
            for child in self.children:
                child.shift(by)

    def __repr__(self) -> str:
        children = f", {len(self.children)} children" if self.children else ""
        return f"<FieldNode {self.name}={self.value!r} at bit {self.bit_offset}{children}>"


def concluded(name: str, value: Any, bit_offset: int, buffer: int) -> FieldNode:
    """Return the node of a value that follows from others."""
    return FieldNode(name, value, bit_offset, 0, buffer=buffer, generated=True)


class Buffer:
    """Bytes that bit offsets refer to."""

    __slots__ = ("data", "name", "of", "private", "source")

    # Not a NamedTuple, whose `__new__` is not compiled: each datagram has one.
    def __init__(
        self,
        name: str,
        data: bytes,
        source: tuple[int, int] | None = None,
        of: int = 0,
        private: str = "",
    ) -> None:
        self.name = name
        """`payload` for the bytes on the wire, otherwise how they were obtained: `decompressed`,
        `reassembled`, `re-aligned`.
        """
        self.data = data
        self.source = source
        """First bit and length in bits of the field they were obtained from; None if that is not
        one contiguous range.
        """
        self.of = of
        """Index of the buffer that `source` refers to."""
        self.private = private
        """Privacy class of all of the bytes, as in `FieldNode.private`."""


class LazyFields:
    """Base of values whose `fields` are created when they are first requested."""

    __slots__ = ("_fields", "make_fields")

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self.make_fields: Callable[[], dict[str, Any]] | None = None
        """Creates `fields`; None once they exist."""

    def take_fields(self, other: LazyFields) -> None:
        """Take the fields of another value, whether they exist already or not."""
        self._fields = other._fields
        self.make_fields = other.make_fields

    @property
    def fields(self) -> dict[str, Any]:
        """Return typed values by name, the `fields` object of the JSON."""
        make = self.make_fields
        if make is not None:
            self.make_fields = None
            self._fields = make()
        return self._fields

    @fields.setter
    def fields(self, fields: dict[str, Any]) -> None:
        self.make_fields = None
        self._fields = fields


class MessageView(LazyFields):
    """One message inside a payload, as `read --json` prints it."""

    __slots__ = ("buffer", "length", "node", "offset", "summary", "type")

    def __init__(
        self,
        type: str,  # noqa: A002 - a key of the JSON
        offset: int,
        length: int,
        fields: dict[str, Any],
        node: FieldNode | None = None,
        buffer: int = 0,
    ) -> None:
        super().__init__(fields)
        self.type = type
        """Type name, as counted by `connections`."""
        self.offset = offset
        """First byte in its buffer."""
        self.length = length
        """Length in bytes."""
        self.node = node
        """Its node in the tree."""
        self.buffer = buffer
        """Index into `Dissection.buffers`."""
        self.summary = ""
        """One line for people. Not yet made safe for a terminal."""


class Dissection(LazyFields):
    """Everything that the walker read from one payload."""

    __slots__ = ("annotations", "buffers", "dialect", "direction", "messages", "protocol", "root",
                 "summary", "transport")  # fmt: skip

    def __init__(
        self,
        protocol: str,
        dialect: str,
        direction: int | None,
        transport: str,
        buffers: list[Buffer],
        root: FieldNode,
        annotations: list[Annotation] | None = None,
        messages: list[MessageView] | None = None,
        fields: dict[str, Any] | None = None,
        summary: str = "",
    ) -> None:
        super().__init__({} if fields is None else fields)
        self.protocol = protocol
        """Protocol name."""
        self.dialect = dialect
        """Full dialect name."""
        self.direction = direction
        """Direction used for decoding; None if it does not matter."""
        self.transport = transport
        """`udp` or `tcp`."""
        self.buffers = buffers
        """Bytes; index 0 is the payload on the wire."""
        self.root = root
        """The tree."""
        self.annotations: list[Annotation] = [] if annotations is None else annotations
        """Findings, in order of discovery."""
        self.messages: list[MessageView] = [] if messages is None else messages
        """The messages of the payload, in wire order."""
        self.summary = summary
        """One line for people. Not yet made safe for a terminal."""
