"""Overwrites the private data in one datagram or message without changing any size.

The layers state which fields are private (`FieldNode.private`). A protocol may have a module
(`Protocol.privacy`) that states what else is to be known, such as how to keep a compressed size:

* `COSTS`: compressed size of each byte; missing if it is the same for all bytes.
* `PACKERS`: name of a buffer -> function of (compressed bytes, bytes, new bytes) that returns the
  new bytes compressed to the same size, or None if that is impossible.
* `WRITERS`: privacy class of the protocol -> function of (bytes, function that overwrites text)
  that returns the new bytes.
* `PARTS`: privacy class whose bytes may be divided between datagrams -> names of the fields beside
  them that state the whole, the index of the part, and the number of parts. The writer of such a
  class takes the offsets of the cuts as a third argument, and says by `begins` and `ends` whether
  the bytes contain the first and the last part.
* `KEPT`: dialect -> pattern of what stays in a payload, also in a compressed one, even if the
  layers cannot read it.
* `members`: function of (the user's schema or None) that returns the names of members of JSON that
  are not private.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from netdissect.model.dissection import ADDRESS, JSON, OCTETS, TEXT, Dissection, FieldNode
from netdissect.model.text import words
from netdissect.protocols import registry
from netdissect.wire.bits import extract

FLATTEST = 8
"""Number of steps in which a text is made to compress better, the last one with a single letter."""
_RUN = re.compile(rb"(?:[\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]+){4,}")
"""Bytes of an application that are taken for text."""
_UNALIGNED_RUN = re.compile(rb"[\x20-\x7e]{6,}")
"""The same for text that does not begin at a byte boundary."""
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
"""A string in JSON, with the colon after the name of a member."""
_HALF = re.compile(rb"(\\u[dD][89a-fA-F][0-9a-fA-F]{2})")
"""Half of a surrogate pair in JSON. It is kept, because a finding may be about it."""
_TRIES = 100
"""Replacements of the name of a member that are tried until one is not used yet."""
_LENGTH_OCTETS = 8
"""Bytes of the length before a text at most."""
_ADDRESS_OCTETS = 16
"""Length of an IPv6 address, bytes."""
_Edit = tuple[int, int, bytes]
"""(first bit, length in bits, new bytes)."""


class Writer(Protocol):
    """Replaces texts and addresses: equal ones by equal ones, and without changing their length."""

    def text(self, octets: bytes, costs: Sequence[int] | None = None, *, flat: int = 0) -> bytes:
        """Return a text of the same length and cost with other visible characters; `flat` of
        `FLATTEST` characters are the same letter.
        """

    def address(self, octets: bytes) -> bytes:
        """Return another address of 4 or 16 bytes."""


class Habits:
    """What is known about the private data of one protocol."""

    def __init__(self, protocol: str, schema: Any, dialect: str | None = None) -> None:
        """Take a protocol, the user's schema for it or None, and the dialect of the bytes."""
        place = registry.get(protocol).privacy
        module = None if place is None else import_module(place)
        self.costs: Sequence[int] | None = getattr(module, "COSTS", None)
        self.packers: Mapping[str, Any] = getattr(module, "PACKERS", {})
        self.writers: Mapping[str, Any] = getattr(module, "WRITERS", {})
        self.parts: Mapping[str, tuple[str, str, str]] = getattr(module, "PARTS", {})
        self.kept: re.Pattern[bytes] | None = getattr(module, "KEPT", {}).get(dialect)
        members = getattr(module, "members", None)
        self.members: frozenset[str] = frozenset() if members is None else members(schema)


class Rewriter:
    """Overwrites the buffers of one tree, innermost first."""

    def __init__(self, tree: Dissection, habits: Habits, writer: Writer) -> None:
        self._tree = tree
        self.habits = habits
        self._writer = writer
        self.given: dict[FieldNode, bytes] = {}
        """Field -> its new bytes, where they are known already."""
        self._texts: list[FieldNode] = []
        self._decoded: list[FieldNode] = []
        """Values that were decoded from the bytes of the application."""
        self._private: list[FieldNode] = []
        self._edits: dict[int, list[_Edit]] = {}
        self._flat = 0
        """Argument `flat` of `Writer.text`."""

    def payload(self) -> tuple[bytes, int]:
        """Return the new payload, and the number of compressed places that were left."""
        nodes = list(nodes_of(self._tree.root))
        self._texts = [node for node in nodes if isinstance(node.value, str) and node.bit_length]
        self._decoded = [node for node in nodes if node.generated and node.bit_length]
        for index, buffer in enumerate(self._tree.buffers):
            if buffer.private:
                whole = FieldNode("", None, 0, 8 * len(buffer.data), buffer=index)
                whole.private = buffer.private
                nodes.append(whole)
        self._private = [node for node in nodes if node.private and node.bit_length]
        left = 0
        for index in range(len(self._tree.buffers) - 1, -1, -1):
            inner = list(self._edits.get(index, ()))
            self._write(index)
            done = not index or self._pack(index)
            while not done and self._flat < FLATTEST:
                # The more often one letter occurs, the smaller the compressed text.
                self._edits[index], self._flat = list(inner), self._flat + 1
                self._write(index)
                done = self._pack(index)
            left += not done
            self._flat = 0
        return self._new(0), left

    def _write(self, index: int) -> None:
        for node in self._private:
            if node.buffer == index:
                self._node(node)

    def _new(self, index: int) -> bytes:
        """Return a buffer with its edits."""
        octets = self._tree.buffers[index].data
        edits = self._edits.get(index)
        if not edits:
            return octets
        if not any(first & 7 or length & 7 for first, length, _ in edits):
            whole = bytearray(octets)
            for first, length, new in edits:
                whole[first >> 3 : (first + length) >> 3] = new
            return bytes(whole)
        # Fields may begin within a byte: treat the buffer as one number, lowest bit first.
        number = int.from_bytes(octets, "little")
        for first, length, new in edits:
            mask = (1 << length) - 1
            number ^= (number >> first & mask ^ int.from_bytes(new, "little") & mask) << first
        return number.to_bytes(len(octets), "little")

    def _pack(self, index: int) -> bool:
        """Compress a changed buffer into the one it came from; return False if it does not fit."""
        buffer, new = self._tree.buffers[index], self._new(index)
        if new == buffer.data:
            return True
        outer = self._tree.buffers[buffer.of].data
        first, length = buffer.source or (0, 8 * len(outer))
        packed = outer[first >> 3 : (first + length) >> 3]
        packer = self.habits.packers.get(buffer.name)
        done = None if packer is None else packer(packed, buffer.data, new)
        if done is None or len(done) != len(packed):
            return False
        self._edits.setdefault(buffer.of, []).append((first, length, done))
        return True

    # -- fields ------------------------------------------------------------------------------------

    def _node(self, node: FieldNode) -> None:
        first, length = node.bit_offset, node.bit_length
        octets = self.octets(node)
        if node.private != OCTETS:
            new = self.given.get(node) or self._written(octets, node.private)
            self._edit(node.buffer, first, length, new)
            return
        inside = [
            text for text in self._texts
            if text.buffer == node.buffer and not text.private
            and first <= text.bit_offset and text.bit_offset + text.bit_length <= first + length
        ]  # fmt: skip
        known = max((text.bit_offset + text.bit_length for text in inside), default=first)
        for text in inside:
            self._value(text)
        covered = any(
            decoded.buffer == node.buffer and decoded.bit_offset == first
            and decoded.bit_length >= length - 7
            for decoded in self._decoded
        )  # fmt: skip
        if covered:
            return
        skip = (known - first + 7) >> 3 if inside else 0
        start, rest = first + 8 * skip, octets[skip:]
        new = _RUN.sub(self._run, rest)
        if first & 7:
            new = self._unaligned(new)
        if self.habits.kept is not None and not start & 7:
            new = self._with_kept(self.habits.kept, node.buffer, start >> 3, new)
        self._edit(node.buffer, start, length - 8 * skip, new)

    def _with_kept(self, kept: re.Pattern[bytes], index: int, start: int, new: bytes) -> bytes:
        """Return the new bytes that begin at `start` in a buffer, but for what stays."""
        data, out = self._tree.buffers[index].data, bytearray(new)
        for match in kept.finditer(data):
            first, end = (min(max(at, start), start + len(new)) for at in match.span())
            out[first - start : end - start] = data[first:end]
        return bytes(out)

    def octets(self, node: FieldNode) -> bytes:
        """Return the bytes of a field; if it is not aligned, least significant bit first."""
        data = self._tree.buffers[node.buffer].data
        first, length = node.bit_offset, node.bit_length
        if not (first & 7 or length & 7):
            return data[first >> 3 : (first + length) >> 3]
        return extract(data, first, length).to_bytes((length + 7) >> 3, "little")

    def _edit(self, index: int, first: int, length: int, new: bytes) -> None:
        self._edits.setdefault(index, []).append((first, length, new))

    def _written(self, octets: bytes, kind: str) -> bytes:
        if kind == TEXT:
            return self._text(octets)
        if kind == JSON:
            return self._json(octets)
        if kind == ADDRESS and len(octets) == _ADDRESS_OCTETS:
            return self._writer.address(octets)
        write: Callable[[bytes, Callable[[bytes], bytes]], bytes] | None
        write = self.habits.writers.get(kind)
        return octets if write is None else write(octets, self._text)

    def _text(self, octets: bytes) -> bytes:
        return self._writer.text(octets, self.habits.costs, flat=self._flat)

    def _value(self, node: FieldNode) -> None:
        """Overwrite a text that a user's schema has decoded, but not its length."""
        octets = self.octets(node)
        value = node.value.encode("utf-8", "surrogateescape")
        at = octets.rfind(value) if value else -1
        if at < 0:
            at = _start_of(node.value, octets)
            new = octets[:at] + self._text(octets[at:]) if at else _RUN.sub(self._run, octets)
        else:
            new = octets[:at] + self._text(value) + octets[at + len(value) :]
        self._edit(node.buffer, node.bit_offset, node.bit_length, new)

    def _run(self, match: re.Match[bytes]) -> bytes:
        """Overwrite a run of characters, except a first one that is the length of the others."""
        octets = match[0]
        own = octets[0] == len(octets) - 1
        return octets[:own] + self._text(octets[own:])

    def _unaligned(self, octets: bytes) -> bytes:
        """Overwrite text that does not begin at a byte boundary."""
        size = len(octets)
        for shift in range(1, 8):
            number = int.from_bytes(octets, "little")
            moved = (number >> shift).to_bytes(size, "little")
            new = _UNALIGNED_RUN.sub(self._run, moved)
            if new != moved:
                low = number & ((1 << shift) - 1)
                number = int.from_bytes(new, "little") << shift | low
                octets = number.to_bytes(size + 1, "little")[:size]
        return octets

    def _json(self, octets: bytes) -> bytes:
        try:
            json.loads(octets.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            # Only words are overwritten: the findings depend on the other characters.
            return self._halves_kept(octets, partial(words, spell=self._text))
        names = [match[1] for match in _STRING.finditer(octets) if match[2]]
        members = self._new_members(dict.fromkeys(names))

        def string(match: re.Match[bytes]) -> bytes:
            new = members[match[1]] if match[2] else self._escaped(match[1])
            return b'"' + new + b'"' + (match[2] or b"")

        return _STRING.sub(string, octets)

    def _new_members(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return old -> new names of members, which are as different as the old ones."""
        known = self.habits.members
        new = {name: name for name in names if name.decode("utf-8", "replace") in known}
        taken = set(new)
        for name in names:
            if name not in new:
                new[name] = self._untaken(name, taken)
                taken.add(new[name])
        return new

    def _untaken(self, name: bytes, taken: set[bytes]) -> bytes:
        """Return a name that is not taken; the old one if none is found."""
        other = name
        for _ in range(_TRIES + 1):
            other = self._escaped(other)
            if other not in taken:
                return other
        return name

    def _escaped(self, octets: bytes) -> bytes:
        """Overwrite a string in JSON."""
        return self._halves_kept(octets, self._text)

    @staticmethod
    def _halves_kept(octets: bytes, write: Callable[[bytes], bytes]) -> bytes:
        """Overwrite JSON, but for halves of surrogate pairs."""
        parts = _HALF.split(octets)
        return b"".join(part if at & 1 else write(part) for at, part in enumerate(parts))


def _start_of(value: str, octets: bytes) -> int:
    """Return where a text begins that is not all UTF-8, behind its length; 0 if it is not found."""
    for at in range(1, _LENGTH_OCTETS + 1):
        if octets[at:].decode("utf-8", "replace") == value:
            return at
    return 0


def nodes_of(node: FieldNode) -> Iterator[FieldNode]:
    """Yield the nodes of a tree, parents first."""
    pending = [node]
    while pending:
        item = pending.pop()
        yield item
        pending += item.children
