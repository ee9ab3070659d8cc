"""Plans of how the walker reads each layer, made once per layer instead of per datagram.

A Scapy field reads from a state, which each field slices anew. Here the common kinds of fields are
read at a bit position instead; all others still read from a Scapy state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from scapy.fields import (
    BitField,
    ConditionalField,
    Field,
    FlagsField,
    MayEnd,
    PacketField,
    StrField,
)

from netdissect.layers.base import Check, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import (
    Embedded,
    FieldFault,
    IfLeft,
    Items,
    NulString,
    SizedBytes,
    Varint,
    innermost,
    leading,
)
from netdissect.layers.lsb import LsbBits, LsbPad
from netdissect.wire.varint import VarintCodec, VarintError

_OURS: Final = ("netdissect.", "scapy.")
MAX_LAYERS = 4096
"""Maximum number of plans in the cache, more than there are layers."""

LEAF: Final = 0
"""Kind: a field with a value."""
PADDING: Final = 1
"""Kind: bits without a meaning."""
ITEMS: Final = 2
"""Kind: a list of layers."""
EMBEDDED: Final = 3
"""Kind: a layer in a number of bytes."""
PACKET: Final = 4
"""Kind: a layer in Scapy's own `PacketField`."""

BY_FIELD: Final = 0
"""Method: call `Step.read`."""
CACHED: Final = 1
"""Method: a number of variable length; look its first byte up in `Step.cached`."""
LOW_FIRST: Final = 2
"""Method: extract bits, least significant first, or little-endian bytes."""
HIGH_FIRST: Final = 3
"""Method: extract bits, most significant first, or big-endian bytes."""
_WORD: Final = 32
"""Maximum number of bits to extract: with the rest of their bytes they fit a machine word."""

_Read: TypeAlias = Callable[[bytes, int, Any], tuple[Any, int]]
"""(bytes of the layer, bit position, fields read so far) -> (value, position of the next bit)."""
_Decode: TypeAlias = Callable[[bytes, int, int], tuple[int, int]]
"""As `VarintCodec.read`."""
_Octets: TypeAlias = Callable[[Any, bytes], bytes]
"""(fields read so far, bytes that are left) -> those of the field."""
_Rule: TypeAlias = Callable[[Any], Any]
"""Fields read so far -> value of a rule."""


class Step:
    """How to read and show one field of a layer."""

    __slots__ = ("alignment", "cached", "clean_high", "clean_low", "codec", "condition", "count",
                 "decode", "display", "field", "findings", "kind", "lazy", "method", "min_bits",
                 "name", "octets", "plain", "private", "read", "shown", "signed",
                 "size")  # fmt: skip

    def __init__(self, field: Any) -> None:
        self.name: str = field.name
        inner = field.fld if isinstance(field, MayEnd) else field
        self.condition: Callable[[Any], Any] | None = None
        """Whether the field is present, from the fields read so far; None = always."""
        if isinstance(inner, ConditionalField):
            self.condition = _rule(inner.cond)
            inner = inner.fld
        self.field = inner
        self.kind = _kind(inner)
        self.shown: str = getattr(inner, "shown", inner.name)
        """Name in the tree."""
        self.octets: Any = _octets(inner) if isinstance(inner, Embedded) else None
        """Returns the bytes of an embedded layer, as `_Octets`; None for other kinds."""
        self.count: _Rule | None = None
        """Returns the number of items of a list; None = all that are there."""
        if isinstance(inner, Items) and inner.count is not None:
            self.count = _rule(inner.count)
        self.min_bits = 0
        """Number of bits that must be left; with fewer, the field is absent."""
        bare = inner
        if type(inner).getfield is IfLeft.getfield:
            self.min_bits, bare = inner.bits, inner.fld
        self.read = _reader(bare)
        self.plain = int if isinstance(inner, FlagsField) else getattr(inner, "plain", None)
        """Converts what was read to the value in the tree; None = no conversion."""
        self.display = _display(bare)
        """Returns the display of a value, "" if it is its `repr`; None = hex for bytes."""
        self.lazy = type(bare).i2repr.__module__.startswith(_OURS)
        """True if `display` may be called later. That of a plug-in's field is called while there is
        a time limit.
        """
        self.findings: Callable[[Any, bytes], Iterable[tuple[str, str]]] | None = getattr(
            inner, "findings", None
        )
        """(value, its bytes) -> (code, text) of each soft finding."""
        standard = isinstance(inner, Varint) and type(inner).findings is Varint.findings
        clean: Any = (None, None) if standard else getattr(inner, "clean_range", None)
        self.codec: VarintCodec | None = None if clean is None else inner.codec
        """Encoding of a number that has no findings if it is minimal and in the range `clean_low`
        to `clean_high`; None = call `findings` in any case.
        """
        self.clean_low: int | None = None if clean is None else clean[0]
        self.clean_high: int | None = None if clean is None else clean[1]
        self.method, self.size, self.alignment = _method(bare)
        """How to read the field if it is not cut short; its size in bits; a mask of the bits in the
        position that must be 0.
        """
        self.signed = self.method == LOW_FIRST and bool(getattr(bare, "signed", False))
        self.decode: _Decode | None = bare.codec.read if self.method == CACHED else None
        """Decodes a number of variable length at a whole byte."""
        self.cached: list[int | None] = [None] * (256 if self.method == CACHED else 0)
        """First byte -> number, if that byte was the whole number, and had no findings."""
        self.private: str = getattr(innermost(inner), "private", "")
        """Kind of private content for `anonymise`, or ""."""


class Plan:
    """How to read a layer."""

    __slots__ = ("any_broken", "checks", "generated", "late", "message_type", "ours", "steps",
                 "title")  # fmt: skip

    def __init__(self, layer: Any) -> None:
        self.title = str(layer._name or layer.__name__)  # noqa: SLF001 - `name` is Scapy's slot
        self.ours: bool = layer.__module__.startswith("netdissect.layers.")
        self.steps = [Step(field) for field in layer.fields_desc]
        self.generated: list[tuple[str, _Rule, bool]] = [
            (gen.name, _rule(gen.value), gen.keeps_none) for gen in layer.generated
        ]
        """(name, rule, whether None is shown) of each derived value."""
        self.late: bool = bool(self.generated) and layer.concludes_late
        self.checks: list[tuple[_Rule, Check]] = [
            (_rule(check.when), check) for check in layer.checks
        ]
        whens = [check.when.source for check in layer.checks if isinstance(check.when, E)]
        several = len(whens) > 1 and len(whens) == len(self.checks)
        self.any_broken: _Rule | None = E(f"({') or ('.join(whens)})").rule if several else None
        """Whether any soft rule is broken, if all are expressions; else None."""
        own = layer.message_type
        default = getattr(own, "__func__", None) is Layer.message_type.__func__  # type: ignore[attr-defined]
        self.message_type: _Rule | None = None if default else own
        """Returns the type of the message; None = the layer is never a message."""


_plans: dict[Any, Plan] = {}


def plan_for(layer: Any) -> Plan:
    """Return the plan for a layer."""
    # Not by `lru_cache`, which makes a tuple for each look-up.
    plan = _plans.get(layer)
    if plan is None:
        if len(_plans) >= MAX_LAYERS:
            _plans.clear()
        plan = _plans[layer] = Plan(layer)
    return plan


def _rule(rule: _Rule) -> _Rule:
    """Return a rule that is called with a mapping only, without the checks of `E.__call__`."""
    return rule.rule if isinstance(rule, E) else rule


def _kind(field: Any) -> int:
    for kind, number in (
        (Items, ITEMS), (Embedded, EMBEDDED), (PacketField, PACKET), (LsbPad, PADDING),
    ):  # fmt: skip
        if isinstance(field, kind):
            return number
    return LEAF


# -- reading ---------------------------------------------------------------------------------------


def _octets(field: Embedded) -> _Octets:
    """Return the function that returns the bytes of a layer: the field's own, or one without the
    checks of `E.__call__`.
    """
    if type(field).octets is not Embedded.octets or field.length is None:
        return field.octets
    name, length = field.name, _rule(field.length)

    def octets(scope: Any, data: bytes) -> bytes:
        return leading(name, length(scope), data)

    return octets


def _method(field: Any) -> tuple[int, int, int]:
    """Return method, size and alignment of a step."""
    getfield, converts = type(field).getfield, _converter(field) is not None
    if hasattr(field, "reader"):
        return BY_FIELD, 0, 0
    if getfield is Varint.getfield:
        return CACHED, 8, 7
    # Not for a subclass that overrides the reading.
    if isinstance(field, LsbBits) and type(field).read_at is LsbBits.read_at:
        return (LOW_FIRST if field.size <= _WORD else BY_FIELD), field.size, 0
    if getfield is BitField.getfield and not field.rev and not converts:
        return (HIGH_FIRST if 0 < field.size <= _WORD else BY_FIELD), field.size, 0
    if getfield is Field.getfield and not converts and str(field.fmt)[1:] in ("B", "H", "I"):
        return (LOW_FIRST if field.fmt[0] == "<" else HIGH_FIRST), 8 * field.sz, 7
    return BY_FIELD, 0, 0


def _reader(field: Any) -> _Read:
    """Return the function that reads a field."""
    if hasattr(field, "reader"):
        return field.reader(_reader)  # type: ignore[no-any-return]
    getfield = type(field).getfield
    if getfield is BitField.getfield and not field.rev:
        return _bits(field.size, _converter(field))
    if hasattr(field, "read_at"):
        return field.read_at  # type: ignore[no-any-return]
    if getfield is Field.getfield and isinstance(field.sz, int):
        return _number(field, _converter(field))
    return _BY_GETFIELD.get(getfield, _from_state)(field)


def _converter(field: Any) -> Callable[[Any, Any], Any] | None:
    return None if type(field).m2i is Field.m2i else field.m2i


def _bits(size: int, convert: Callable[[Any, Any], Any] | None) -> _Read:
    """Return a function that reads bits, most significant first."""
    mask = (1 << size) - 1

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        end = position + size
        if end > 8 * len(data):
            raise struct.error(f"{size} bits needed, {8 * len(data) - position} left")
        at = position >> 3
        if (end - 1) >> 3 == at:
            value = data[at] >> (-end & 7) & mask
            return (value if convert is None else convert(scope, value)), end
        octets = data[at : (end + 7) >> 3]
        value = int.from_bytes(octets, "big") >> (-end & 7) & mask
        return (value if convert is None else convert(scope, value)), end

    return read


def _number(field: Any, convert: Callable[[Any, Any], Any] | None) -> _Read:
    """Return a function that reads a value with `struct`."""
    unpack, size, from_state = field.struct.unpack_from, 8 * field.sz, _from_state(field)

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        # Not at a whole byte: only the field itself can go on.
        if position & 7:
            return from_state(data, position, scope)
        value = unpack(data, position >> 3)[0]
        return (value if convert is None else convert(scope, value)), position + size

    return read


def _varint(field: Any) -> _Read:
    """Return a function that reads a number of variable length."""
    name, decode, from_state = field.name, field.codec.read, _from_state(field)

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        if position & 7:
            return from_state(data, position, scope)
        return decoded(name, decode, data, position)

    return read


def decoded(name: str, decode: _Decode, data: bytes, position: int) -> tuple[int, int]:
    """Return the number of variable length at a whole byte, and the position behind it."""
    try:
        value, after = decode(data, position >> 3, len(data))
    except VarintError as fault:
        raise FieldFault("truncated", f"{name}: {fault}") from None
    return value, after << 3


def _sized(field: Any) -> _Read:
    """Return a function that reads bytes of a stated length."""
    name, length, from_state = field.name, _rule(field.length), _from_state(field)

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        if position & 7:
            return from_state(data, position, scope)
        octets = leading(name, length(scope), data[position >> 3 :])
        return octets, position + 8 * len(octets)

    return read


def _text(field: Any) -> _Read:
    """Return a function that reads text up to its terminator."""
    mark: bytes = field.mark
    from_state = _from_state(field)

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        end = data.find(mark, position >> 3)
        if end < 0 or position & 7:
            return from_state(data, position, scope)
        return data[position >> 3 : end], 8 * (end + len(mark))

    return read


def _tail(field: Any) -> _Read:
    """Return a function that reads all bytes that are left."""
    from_state = _from_state(field)
    if field.remain or type(field).m2i is not StrField.m2i:
        return from_state

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        if position & 7:
            return from_state(data, position, scope)
        return data[position >> 3 :], 8 * len(data)

    return read


def _from_state(field: Any) -> _Read:
    """Return a function that calls the field's own `getfield` with a Scapy state."""
    getfield = field.getfield

    def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
        state: Any = data[position >> 3 :]
        if position & 7:
            state = (state, position & 7)
        after, value = getfield(scope, state)
        rest, bits = after if isinstance(after, tuple) else (after, 0)
        return value, 8 * (len(data) - len(rest)) + bits

    return read


_BY_GETFIELD: Final[dict[Any, Callable[[Any], _Read]]] = {
    Varint.getfield: _varint,
    SizedBytes.getfield: _sized,
    NulString.getfield: _text,
    StrField.getfield: _tail,
}
"""`getfield` of a class -> what returns the function that reads its fields."""

# -- showing ---------------------------------------------------------------------------------------


def _display(field: Any) -> Callable[[Any], str] | None:
    kind = type(field)
    if kind.i2repr is Field.i2repr and kind.i2h is Field.i2h:
        return None
    # A number without names: the display is the value.
    if getattr(field, "is_bare", False) and kind.i2repr.__module__.startswith("netdissect.layers."):
        return None

    def display(value: Any) -> str:
        if isinstance(value, (bytes, bytearray)):
            return value.hex()
        text = field.i2repr(None, value)
        return "" if text == repr(value) else str(text)

    return display


def hexadecimal(value: Any) -> str:
    """Return bytes in hex, "" for other values."""
    return value.hex() if isinstance(value, (bytes, bytearray)) else ""
