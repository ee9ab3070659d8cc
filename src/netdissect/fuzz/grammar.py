"""What users know about their own messages: values from schemas, words from dictionaries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from netdissect.dissect.engine import Request, dissect
from netdissect.dissect.schema import Schema
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.seeds import Seed
from netdissect.model.dissection import FieldNode
from netdissect.model.errors import UsageError
from netdissect.model.files import read_text

VALUE_LIMIT = 512
"""Maximum number of values in one message."""
MAX_DICTIONARY_OCTETS = 1 << 20
MAX_WORDS = 10_000
"""Maximum number of words in all dictionaries."""
MAX_WORD_OCTETS = 1024
_LINE = re.compile(r'(?:[\w.@-]+\s*=\s*)?"((?:[^"\\]|\\.)*)"\s*\Z')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_LONG = 64
"""A value of more bits than this is mutated as text, not as a number."""
_TEXTS = (b"", b"\0", b"%s%n%x", b"\xff\xfe\xfd", b"A" * 256, b"A" * 1024)


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a user message and its place in the bytes of the seed."""

    name: str
    """Path in the message: `pos.x`."""
    at: int
    """Offset of the first bit, counted from the most significant bit of the first byte if `msb` is
    true, else from the least significant one."""
    size: int
    """Number of bits."""
    msb: bool
    """Whether bits are counted from the most significant bit of each byte."""

    def mutated(self, octets: bytes, chance: Chance) -> tuple[bytes, str]:
        """Return (the message with another value here, a description)."""
        whole = self.at % 8 == 0 and self.size % 8 == 0
        start, end = self.at // 8, (self.at + self.size) // 8
        if whole and chance.one_in(4):
            # Text of another length moves what follows it.
            text = chance.choice(_TEXTS)
            return octets[:start] + text + octets[end:], f"{end - start} -> {len(text)} bytes"
        top = (1 << self.size) - 1
        number = chance.choice(
            (0, 1, top, top >> 1, (top >> 1) + 1, chance.bits(self.size), top - 1)
        )
        order = "big" if self.msb else "little"
        low = 8 * len(octets) - self.at - self.size if self.msb else self.at
        all_bits = int.from_bytes(octets, order)  # type: ignore[arg-type]
        all_bits = all_bits & ~(top << low) | number << low
        shown = f"{number:#x}" if self.size <= _LONG else f"{self.size} bits"
        return all_bits.to_bytes(len(octets), order), shown  # type: ignore[arg-type]


Grammar: TypeAlias = Callable[[Seed], Sequence[Value]]
"""Returns the values of a seed that the schema describes; empty if it describes none."""


def schema_grammar(protocol: str, dialect: str, transport: str, schema: Schema) -> Grammar:
    """Return a function that finds the values of a user schema in seeds of one dialect."""

    def found(seed: Seed) -> Sequence[Value]:
        request = Request(dialect, seed.direction, transport, schema=schema)
        tree = dissect(protocol, seed.octets, request)
        nodes = [
            row
            for message in tree.messages
            if message.node is not None
            for node in _named(message.node, "decoded")
            for row in _leaves(node, "", 8 * len(seed.octets))
        ]
        msb = _is_msb(nodes, seed.octets)
        rows = [Value(name, node.bit_offset, node.bit_length, msb) for name, node in nodes]
        return rows[:VALUE_LIMIT]

    return found


def _named(node: FieldNode, name: str) -> Iterator[FieldNode]:
    for child in node.children:
        if child.name == name:
            yield child
        else:
            yield from _named(child, name)


def _leaves(node: FieldNode, path: str, bits: int) -> Iterator[tuple[str, FieldNode]]:
    """Yield the values in the message itself, not those in decompressed data."""
    for child in node.children:
        name = f"{path}.{child.name}" if path else child.name
        if child.children:
            yield from _leaves(child, name, bits)
        elif child.bit_length and not child.buffer and child.bit_offset + child.bit_length <= bits:
            yield name, child


def _is_msb(nodes: Sequence[tuple[str, FieldNode]], octets: bytes) -> bool:
    """Return whether bits are counted from the most significant bit of a byte: the order in which
    more of the small values are found at their offsets.
    """
    votes = 0
    size = 8 * len(octets)
    low, high = int.from_bytes(octets, "little"), int.from_bytes(octets, "big")
    for _name, node in nodes:
        if isinstance(node.value, int) and node.bit_length <= 8:  # noqa: PLR2004 - of one byte
            mask = (1 << node.bit_length) - 1
            there = size - node.bit_offset - node.bit_length
            votes += (high >> there & mask) == node.value
            votes -= (low >> node.bit_offset & mask) == node.value
    return votes > 0


def load_words(paths: Sequence[str | Path]) -> list[bytes]:
    r"""Return the words of dictionaries in the format of AFL and libFuzzer: lines `name="octets"`
    or `"octets"`, `\xNN` for any byte, and comments after `#`.

    Raises:
        UsageError: a file is missing, or a line is invalid; the text says which.
    """
    words: dict[bytes, None] = {}
    for path in paths:
        try:
            text = read_text(path, MAX_DICTIONARY_OCTETS)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from error
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                words[_word(line.strip(), f"{path}, line {number}")] = None
    words.pop(b"", None)
    if len(words) > MAX_WORDS:
        raise UsageError(f"the dictionaries have more than {MAX_WORDS:,} words")
    return list(words)


def _word(line: str, place: str) -> bytes:
    """Return the word in a line; `place` names the line in errors."""
    match = _LINE.match(line)
    if match is None:
        raise UsageError(f'{place}: write name="bytes", \\xNN for any byte')
    word = _unescaped(match[1])
    if len(word) > MAX_WORD_OCTETS:
        raise UsageError(f"{place}: a word has {MAX_WORD_OCTETS:,} bytes at most")
    return word


def _unescaped(text: str) -> bytes:
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[at : match.start()].encode())
        escape = match[1]
        parts.append(
            bytes([int(escape[1:], 16)])
            if len(escape) > 1
            else _CONTROLS.get(escape, escape).encode()
        )
        at = match.end()
    return b"".join([*parts, text[at:].encode()])
