"""The annotated tree that `dissect` makes of one payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from netdissect.model.annotations import Annotation

__all__ = [
    "ADDRESS", "JSON", "MASK", "OCTETS", "TEXT", "Buffer", "Dissection", "FieldNode",
    "LateFields", "MessageView", "concluded",
]  # fmt: skip

MASK = "********"
"""What stands for a password that is not shown."""
TEXT = "text"
"""A field that holds what people wrote, or what says who they are."""
OCTETS = "octets"
"""A field that holds an application's own bytes, texts perhaps among them."""
JSON = "json"
"""A field that holds JSON: the strings in it are text, the names of its members are not."""
ADDRESS = "address"
"""A field that holds an IPv6 address, or an IPv4 address mapped into one."""
LINE_FIELDS: Final = 6
LINE_TEXT: Final = 60
"""Fields of one message that its line shows at most, and characters of a text."""
_NOT_IN_LINE: Final = frozenset({"type_id", "padding", "trailing"})


class FieldNode:
    """One field of the tree. Siblings do not overlap; children lie inside their parent unless they
    refer to another buffer.
    """

    __slots__ = ("_children", "_display", "bit_length", "bit_offset", "buffer", "generated",
                 "is_list", "later", "name", "private", "raw", "shower", "value")  # fmt: skip

    # No dataclass: there are fifty of these in a datagram, and its `__init__` is not compiled.
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
        """Typed value: int, float, bool, str, bytes, None, list; for a node with children, None."""
        self.bit_offset = bit_offset
        """First bit in `buffer`. Bit i is bit i % 8 of byte i // 8, counted in the layer's own bit
        order.
        """
        self.bit_length = bit_length
        """Length in bits; 0 for generated nodes."""
        self._display = display
        self._children = children
        self.buffer = buffer
        """Index into `Dissection.buffers`."""
        self.generated = generated
        """True for values that are concluded, not read (shown in brackets)."""
        self.is_list = is_list
        """True where the children are the items of a list, not the fields of an object."""
        self.private = ""
        """`TEXT`, `OCTETS`, `JSON`, `ADDRESS` or a word of the protocol where it holds what a
        shared capture should not; its layer says so."""
        self.later: Callable[[], list[FieldNode]] | None = None
        """Makes the children where they are many and few ask for them."""
        self.shower: Callable[[Any], str] | None = None
        """Makes `display` of `raw` when it is first asked for: few ask for it."""
        self.raw: Any = None
        """The value as it was read."""

    @property
    def display(self) -> str:
        """Return the value for people where it differs from str(value): enum names, units. Not yet
        made safe for a terminal.
        """
        shower = self.shower
        if shower is not None:
            self.shower = None
            self._display = shower(self.raw)
            self.raw = None
        return self._display

    @display.setter
    def display(self, display: str) -> None:
        self.shower = None
        self._display = display

    @property
    def children(self) -> list[FieldNode]:
        """Return the nested fields."""
        later = self.later
        if later is not None:
            self.later = None
            self._children = later()
        found = self._children
        if found is None:  # most nodes never have any
            found = self._children = []
        return found

    @children.setter
    def children(self, children: list[FieldNode]) -> None:
        self.later = None
        self._children = children

    @property
    def nested(self) -> bool:
        """Return whether there are fields below it."""
        return bool(self._children or (self.later is not None and self.children))

    def field(self, name: str) -> FieldNode | None:
        """Return the first child of a name that was read, as `child`, which makes all that are made
        `later`.
        """
        for child in self._children or ():
            if child.name == name:
                return child
        return None

    def told(self, name: str) -> Any:
        """Return the value of a child of a name; of those that are made `later`, no more than that
        one is made where it can be made alone.
        """
        found = self.field(name)
        if found is None:
            alone = getattr(self.later, "told", None)
            if alone is not None:
                return alone(name)
            found = self.child(name)
        return None if found is None else found.value

    def line(self, kind: str) -> str:
        """Return a message's type and its first plain fields: the line of `read` where no finisher
        has written a better one.
        """
        facts = [kind]
        for child in self.children:
            if child.generated or child.is_list or child.nested or child.name in _NOT_IN_LINE:
                continue
            value = child.value
            if isinstance(value, bytes):
                if child.bit_length >= 8 or any(value):  # noqa: PLR2004 - less is padding
                    facts.append(f"{child.name}={len(value)} B")
            elif isinstance(value, str):
                # What Scapy displays of a text may be the bytes that it was read from.
                facts.append(f'{child.name}="{value[:LINE_TEXT]}"')
            elif value is not None:
                display = child.display
                if not (display.startswith(kind) and display in {kind, f"{kind} ({value})"}):
                    facts.append(f"{child.name}={display or value}")
            if len(facts) > LINE_FIELDS:
                break
        return " ".join(facts)

    def child(self, name: str) -> FieldNode | None:
        """Return the first child of a name; None without one."""
        for child in self.children:
            if child.name == name:
                return child
        return None

    def conclude(self, name: str, value: Any) -> None:
        """Add a concluded value."""
        self.children.append(concluded(name, value, self.bit_offset, self.buffer))

    def shift(self, by: int) -> None:
        """Move the node and all below it by bits."""
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


class Buffer(NamedTuple):
    """Bytes that offsets refer to."""

    name: str
    """`payload` for the wire, else what made it: `decompressed`, `reassembled`, `re-aligned`."""
    data: bytes
    """The bytes."""
    source: tuple[int, int] | None = None
    """First bit and length in bits of what they were made of; None = not one place."""
    of: int = 0
    """Index of the buffer that `source` is in: the payload, unless one was taken out of another."""
    private: str = ""
    """As of a field: what all of the bytes are."""


class MessageView:
    """One message inside a payload, as `read --json` prints it."""

    __slots__ = ("buffer", "fields", "later", "length", "node", "offset", "summary", "type")

    def __init__(
        self,
        type: str,  # noqa: A002 - a key of the JSON
        offset: int,
        length: int,
        fields: dict[str, Any],
        node: FieldNode | None = None,
        buffer: int = 0,
    ) -> None:
        self.type = type
        """Type name, as counted in `connections`."""
        self.offset = offset
        """First byte in its buffer."""
        self.length = length
        """Length in bytes."""
        self.fields = fields
        """Typed values by name."""
        self.node = node
        """Its node in the tree."""
        self.buffer = buffer
        """Index into `Dissection.buffers`."""
        self.summary = ""
        """One line for people. Not yet made safe for a terminal."""
        self.later: Callable[[], dict[str, Any]] | None = None
        """Adds to `fields` what is dear, and returns them: for who asks for values, once."""


class LateFields:
    """What has values by name that are made when they are first asked for."""

    __slots__ = ("_fields", "later")

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self.later: Callable[[], dict[str, Any]] | None = None
        """Makes `fields`; None once they are made."""

    @property
    def fields(self) -> dict[str, Any]:
        """Return typed values by name, the `fields` object of the JSON."""
        later = self.later
        if later is not None:
            self.later = None
            self._fields = later()
        return self._fields

    @fields.setter
    def fields(self, fields: dict[str, Any]) -> None:
        self.later = None
        self._fields = fields


class Dissection(LateFields):
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
        """Direction used for decoding; None = it does not matter."""
        self.transport = transport
        """`udp` or `tcp`."""
        self.buffers = buffers
        """Bytes; index 0 is the payload on the wire."""
        self.root = root
        """The tree."""
        self.annotations: list[Annotation] = [] if annotations is None else annotations
        """Findings, in order of discovery."""
        self.messages: list[MessageView] = [] if messages is None else messages
        """The messages of the payload, in wire order; empty where it has none."""
        self.summary = summary
        """One line for people. Not yet made safe for a terminal."""
