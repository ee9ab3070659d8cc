"""The annotated tree that `dissect` makes of one payload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from netdissect.model.annotations import Annotation

__all__ = [
    "ADDRESS", "JSON", "MASK", "OCTETS", "TEXT", "Buffer", "Dissection", "FieldNode", "MessageView",
]  # fmt: skip

MASK = "********"
"""What stands for a password that is not shown."""
TEXT = "text"
"""A field that holds what people wrote, or what says who they are."""
OCTETS = "octets"
"""A field that holds an application's own octets, texts perhaps among them."""
JSON = "json"
"""A field that holds JSON: the strings in it are text, the names of its members are not."""
ADDRESS = "address"
"""A field that holds an IPv6 address, or an IPv4 address mapped into one."""


class FieldNode:
    """One field of the tree. Siblings do not overlap; children lie inside their parent unless they
    refer to another buffer.
    """

    __slots__ = ("_children", "bit_length", "bit_offset", "buffer", "display", "generated",
                 "is_list", "later", "name", "private", "value")  # fmt: skip

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
        """First bit in `buffer`. Bit i is bit i % 8 of octet i // 8, counted in the layer's own bit
        order.
        """
        self.bit_length = bit_length
        """Length in bits; 0 for generated nodes."""
        self.display = display
        """Value for people where it differs from str(value): enum names, units. Not yet made safe
        for a terminal.
        """
        self._children: list[FieldNode] = [] if children is None else children
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

    @property
    def children(self) -> list[FieldNode]:
        """Return the nested fields."""
        later = self.later
        if later is not None:
            self.later = None
            self._children = later()
        return self._children

    @children.setter
    def children(self, children: list[FieldNode]) -> None:
        self.later = None
        self._children = children

    def __repr__(self) -> str:
        children = f", {len(self.children)} children" if self.children else ""
        return f"<FieldNode {self.name}={self.value!r} at bit {self.bit_offset}{children}>"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Octets that offsets refer to."""

    name: str
    """`payload` for the wire, else what made it: `decompressed`, `reassembled`, `re-aligned`."""
    data: bytes
    """The octets."""
    source: tuple[int, int] | None = None
    """First bit and length in bits of what they were made of; None = not one place."""
    of: int = 0
    """Index of the buffer that `source` is in: the payload, unless one was taken out of another."""
    private: str = ""
    """As of a field: what all of the octets are."""


@dataclass(slots=True)
class MessageView:
    """One message inside a payload, as `read --json` prints it."""

    type: str
    """Type name, as counted in `connections`."""
    offset: int
    """First octet in its buffer."""
    length: int
    """Length in octets."""
    fields: dict[str, Any]
    """Typed values by name."""
    node: FieldNode | None = None
    """Its node in the tree."""
    buffer: int = 0
    """Index into `Dissection.buffers`."""
    summary: str = ""
    """One line for people. Not yet made safe for a terminal."""
    later: Callable[[], dict[str, Any]] | None = None
    """Adds to `fields` what is dear, and returns them: for who asks for values, once."""


@dataclass(slots=True)
class Dissection:
    """Everything that the walker read from one payload."""

    protocol: str
    """Protocol name."""
    dialect: str
    """Full dialect name."""
    direction: int | None
    """Direction used for decoding; None = it does not matter."""
    transport: str
    """`udp` or `tcp`."""
    buffers: list[Buffer]
    """Octets; index 0 is the payload on the wire."""
    root: FieldNode
    """The tree."""
    annotations: list[Annotation] = field(default_factory=list)
    """Findings, in order of discovery."""
    messages: list[MessageView] = field(default_factory=list)
    """The messages of the payload, in wire order; empty where it has none."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The tree as plain values, the `fields` object of `decode --json`."""
    summary: str = ""
    """One line for people. Not yet made safe for a terminal."""
