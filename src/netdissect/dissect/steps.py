"""How the walker reads the fields of a layer: worked out once for a layer, not for each datagram.

A field of Scapy reads from a state, bytes and perhaps a number of bits, that it slices anew. The
common fields are read here at a bit position instead; all others still read their own way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from scapy.fields import BitField, ConditionalField, Field, FlagsField, MayEnd, PacketField

from netdissect.layers.base import Check, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, FieldFault, IfLeft, Items, Varint, innermost
from netdissect.layers.lsb import LsbBits, LsbPad
from netdissect.wire.varint import VarintCodec, VarintError

__all__ = [
    "EMBEDDED", "HIGH_FIRST", "ITEMS", "LEAF", "PACKET", "PADDING", "USUAL", "Plan", "Step",
    "hexadecimal", "plan_of",
]  # fmt: skip

_OURS: Final = ("netdissect.", "scapy.")
MAX_LAYERS = 4096
"""Layers whose steps are remembered; more than all that exist."""

LEAF: Final = 0
"""A field with a value."""
PADDING: Final = 1
"""Bits that mean nothing."""
ITEMS: Final = 2
"""A list of layers."""
EMBEDDED: Final = 3
"""A layer in so many bytes."""
PACKET: Final = 4
"""A layer, as a field of Scapy's own holds it."""

ASKED: Final = 0
"""Read by its step."""
USUAL: Final = 1
"""A number of variable length: one byte tells it where that is all of it."""
LOW_FIRST: Final = 2
"""Bits, the least significant one first, or bytes in that order."""
HIGH_FIRST: Final = 3
"""Bits, the most significant one first, or bytes in that order."""
_WORD: Final = 32
"""Bits of a number at most that the walker reads by itself: with those around it, a word."""

_Read: TypeAlias = Callable[[bytes, int, Any], tuple[Any, int]]
"""(bytes of the layer, bit position, fields read so far) -> (value, bit behind it)."""
_Rule: TypeAlias = Callable[[Any], Any]
"""Fields read so far -> what follows from them."""


class Step:
    """One field of a layer, ready to be read."""

    __slots__ = ("codec", "condition", "display", "field", "findings", "highest", "how", "kind",
                 "late", "least", "lowest", "name", "plain", "private", "read", "shown", "signed",
                 "size", "usual", "whole")  # fmt: skip

    def __init__(self, field: Any) -> None:
        self.name: str = field.name
        inner = field.fld if isinstance(field, MayEnd) else field
        self.condition: Callable[[Any], Any] | None = None
        """Says from the fields read so far whether it is there; None: always."""
        if isinstance(inner, ConditionalField):
            self.condition = _rule(inner.cond)
            inner = inner.fld
        self.field = inner
        self.kind = _kind(inner)
        self.shown: str = getattr(inner, "shown", inner.name)
        """Its name in the tree."""
        self.least = 0
        """Bits that must be left, or it is absent."""
        bare = inner
        if type(inner).getfield is IfLeft.getfield:
            self.least, bare = inner.bits, inner.fld
        self.read = _reader(bare)
        self.plain = int if isinstance(inner, FlagsField) else getattr(inner, "plain", None)
        """Makes a plain value of Python of what was read; None: it is one."""
        self.display = _display(bare)
        """Returns what people see where that is more than the value; None = hex of bytes."""
        self.late = type(bare).i2repr.__module__.startswith(_OURS)
        """Whether that may be asked for later: a field of a plug-in is guarded while it is read."""
        self.findings: Callable[[Any, bytes], Iterable[tuple[str, str]]] | None = getattr(
            inner, "findings", None
        )
        """Says what is wrong with a value and its bytes."""
        usual = isinstance(inner, Varint) and type(inner).findings is Varint.findings
        quiet: Any = (None, None) if usual else getattr(inner, "quiet", None)
        self.codec: VarintCodec | None = None if quiet is None else inner.codec
        """Says what is the shortest form of a number, of which nothing is found in that form from
        `lowest` to `highest`; None: only `findings` tells.
        """
        self.lowest: int | None = None if quiet is None else quiet[0]
        self.highest: int | None = None if quiet is None else quiet[1]
        self.how, self.size, self.whole = _how(bare)
        """Whether the walker reads it by itself where it is not cut short: how, how many bits of
        it, and the bits of a position that must be 0 for that.
        """
        self.signed = self.how == LOW_FIRST and bool(getattr(bare, "signed", False))
        self.usual: list[int | None] = [None] * (256 if self.how == USUAL else 0)
        """By its first byte: the number that was all of it, where nothing was found on that."""
        self.private: str = getattr(innermost(inner), "private", "")
        """What it holds that a shared capture should not."""


class Plan:
    """A layer, ready to be read."""

    __slots__ = ("broken", "checks", "generated", "kind", "late", "ours", "steps", "title")

    def __init__(self, layer: Any) -> None:
        self.title = str(layer._name or layer.__name__)  # noqa: SLF001 - `name` is Scapy's slot
        self.ours: bool = layer.__module__.startswith("netdissect.layers.")
        self.steps = [Step(field) for field in layer.fields_desc]
        self.generated: list[tuple[str, _Rule, bool]] = [
            (gen.name, _rule(gen.value), gen.keeps_none) for gen in layer.generated
        ]
        """(name, value, whether None is shown) of what is concluded."""
        self.late: bool = bool(self.generated) and layer.concludes_late
        self.checks: list[tuple[_Rule, Check]] = [
            (_rule(check.when), check) for check in layer.checks
        ]
        whens = [check.when.source for check in layer.checks if isinstance(check.when, E)]
        several = len(whens) > 1 and len(whens) == len(self.checks)
        self.broken: _Rule | None = E(f"({') or ('.join(whens)})").rule if several else None
        """Says whether any of the soft rules is broken, where one call can tell."""
        told = layer.message_type
        usual = getattr(told, "__func__", None) is Layer.message_type.__func__  # type: ignore[attr-defined]
        self.kind: _Rule | None = None if usual else told
        """Returns the type of the message that it is; None = it is never one."""


@lru_cache(maxsize=MAX_LAYERS)
def plan_of(layer: Any) -> Plan:
    """Return how a layer is read."""
    return Plan(layer)


def _rule(rule: _Rule) -> _Rule:
    """Return a rule over the fields read so far, by the shortest way."""
    return rule.rule if isinstance(rule, E) else rule


def _kind(field: Any) -> int:
    for kind, number in (
        (Items, ITEMS), (Embedded, EMBEDDED), (PacketField, PACKET), (LsbPad, PADDING),
    ):  # fmt: skip
        if isinstance(field, kind):
            return number
    return LEAF


# -- reading ---------------------------------------------------------------------------------------


def _how(field: Any) -> tuple[int, int, int]:
    """Return how the walker reads a field by itself, bits of it, bits of its place that are 0."""
    method, converts = type(field).getfield, _converter(field) is not None
    if hasattr(field, "reader"):
        return ASKED, 0, 0
    if method is Varint.getfield:
        return USUAL, 8, 7
    # A subclass that reads its own way must be asked.
    if isinstance(field, LsbBits) and type(field).read_at is LsbBits.read_at:
        return (LOW_FIRST if field.size <= _WORD else ASKED), field.size, 0
    if method is BitField.getfield and not field.rev and not converts:
        return (HIGH_FIRST if 0 < field.size <= _WORD else ASKED), field.size, 0
    if method is Field.getfield and not converts and str(field.fmt)[1:] in ("B", "H", "I"):
        return (LOW_FIRST if field.fmt[0] == "<" else HIGH_FIRST), 8 * field.sz, 7
    return ASKED, 0, 0


def _reader(field: Any) -> _Read:
    """Return what reads a field, by the method that its class has for it."""
    if hasattr(field, "reader"):
        return field.reader(_reader)  # type: ignore[no-any-return]
    method = type(field).getfield
    if method is BitField.getfield and not field.rev:
        return _bits(field.size, _converter(field))
    if hasattr(field, "read_at"):
        return field.read_at  # type: ignore[no-any-return]
    if method is Varint.getfield:
        return _varint(field)
    if method is Field.getfield and isinstance(field.sz, int):
        return _number(field, _converter(field))
    return _stated(field)


def _converter(field: Any) -> Callable[[Any, Any], Any] | None:
    return None if type(field).m2i is Field.m2i else field.m2i


def _bits(size: int, convert: Callable[[Any, Any], Any] | None) -> _Read:
    """Read bits, the most significant one first."""
    mask = (1 << size) - 1

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        end = position + size
        if end > 8 * len(data):
            raise struct.error(f"{size} bits wanted, {8 * len(data) - position} left")
        at = position >> 3
        if (end - 1) >> 3 == at:
            value = data[at] >> (-end & 7) & mask
            return (value if convert is None else convert(scope, value)), end
        octets = data[at : (end + 7) >> 3]
        value = int.from_bytes(octets, "big") >> (-end & 7) & mask
        return (value if convert is None else convert(scope, value)), end

    return read


def _number(field: Any, convert: Callable[[Any, Any], Any] | None) -> _Read:
    """Read what `struct` reads."""
    unpack, size, stated = field.struct.unpack_from, 8 * field.sz, _stated(field)

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        # Behind bits the bytes of a number are no whole ones: the field itself knows how to go on.
        if position & 7:
            return stated(data, position, scope)
        value = unpack(data, position >> 3)[0]
        return (value if convert is None else convert(scope, value)), position + size

    return read


def _varint(field: Any) -> _Read:
    """Read a number of variable length."""
    name, codec, stated = field.name, field.codec.read, _stated(field)

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        if position & 7:
            return stated(data, position, scope)
        try:
            value, after = codec(data, position >> 3, len(data))
        except VarintError as fault:
            raise FieldFault("truncated", f"{name}: {fault}") from None
        return value, after << 3

    return read


def _stated(field: Any) -> _Read:
    """Read as the field itself does."""
    getfield = field.getfield

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        state: Any = data[position >> 3 :]
        if position & 7:
            state = (state, position & 7)
        after, value = getfield(scope, state)
        rest, bits = after if isinstance(after, tuple) else (after, 0)
        return value, 8 * (len(data) - len(rest)) + bits

    return read


# -- showing ---------------------------------------------------------------------------------------


def _display(field: Any) -> Callable[[Any], str] | None:
    kind = type(field)
    if kind.i2repr is Field.i2repr and kind.i2h is Field.i2h:
        return None
    # A bare number of ours says no more than its value does.
    if getattr(field, "is_bare", False) and kind.i2repr.__module__.startswith("netdissect.layers."):
        return None

    def shown(value: Any) -> str:
        if isinstance(value, (bytes, bytearray)):
            return value.hex()
        text = field.i2repr(None, value)
        return "" if text == repr(value) else str(text)

    return shown


def hexadecimal(value: Any) -> str:
    """Return what people see of bytes; nothing of what is not bytes."""
    return value.hex() if isinstance(value, (bytes, bytearray)) else ""
