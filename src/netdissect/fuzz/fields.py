"""Mutators of fields: they dissect a message with its layer, change one thing, and build it again.

They know kinds of fields (a number with a range, bytes, a list, a length), not protocols: the Scapy
Field object tells what a field may hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from scapy.fields import ConditionalField
from scapy.packet import NoPayload, Packet, Raw
from scapy.volatile import RandNum

from netdissect.fuzz.chance import Chance
from netdissect.fuzz.octets import OCTET_MUTATORS, SIZE_LIMIT
from netdissect.fuzz.seeds import Seed
from netdissect.layers.expr import E
from netdissect.layers.fields import innermost, octets_of

PLACE_LIMIT = 512
"""Maximum number of fields of one message from which a mutator chooses."""

_LENGTH_WORDS = frozenset({"len", "length", "size", "count", "num", "total", "parts", "chunks"})
_FLOATS = (0.0, -0.0, 1.0, 5e-324, 3.4e38, float("inf"), float("-inf"), float("nan"))
_STRINGS = (
    b"",
    b"\0",
    b"%s%n%x",
    b"\xff\xfe\xfd",
    b"\xc0\x80",
    b"\x1b[2J",
    b"../../etc",
    b"A" * 256,
)
_TEMPLATE_LIMIT = 1200
"""Maximum size of a grown field in bytes: with its headers it still fits every protocol, ..."""
_SIZES = tuple((1 << bit) + by for bit in range(4, 12) for by in (-1, 0, 1))
"""Sizes at and next to which buffers and counters end, in bytes."""
_OVERSIZE_SHARE = 4
"""... but one grown field in this many may exceed it."""


@dataclass(frozen=True, slots=True)
class Place:
    """One field of one layer of a message."""

    packet: Any
    """The layer that holds it."""
    field: Any
    """Its innermost Field object, without ConditionalField around it."""
    parent: Place | None
    """The list or packet field that holds `packet`; None at the top level and in payloads."""

    @property
    def name(self) -> str:
        """Return the field's name."""
        return str(self.field.name)

    @property
    def value(self) -> Any:
        """Return the field's value; None if it is absent."""
        return self.packet.getfieldval(self.name)

    def put(self, value: Any) -> None:
        """Set the value unchecked, even one that the layer would refuse."""
        self.packet.fields[self.name] = value


@dataclass(frozen=True, slots=True)
class Edit:
    """A mutant and a description of the change."""

    octets: bytes
    """The mutant."""
    note: str
    """Description of the change."""
    touched: tuple[str, ...] = ()
    """Names of the live values that must not be inserted."""


FieldMutator: TypeAlias = Callable[[Any, Seed, Chance, Sequence[Seed]], Edit | None]
"""Called with the dissected packet, its seed, a `Chance` and the pool to splice from; it returns
None, or raises `_NoPlaceError`, if it does not apply."""


class _NoPlaceError(Exception):
    """The message has no field of the kind that a mutator changes."""


def reread(seed: Seed) -> Any:
    """Dissect the seed into a packet that is built from its fields again."""
    packet = seed.layer(seed.octets)  # type: ignore[misc]
    # Otherwise Scapy would write the cached bytes, whatever was changed.
    packet.clear_cache()
    return packet


def places(packet: Any, parent: Place | None = None) -> Iterator[Place]:
    """Yield the fields that are present, outer layers first."""
    while not isinstance(packet, NoPayload):
        for outer in packet.fields_desc:
            field = innermost(outer)
            place = Place(packet, field, parent)
            if outer.name not in packet.fields or place.value is None:
                continue
            yield place
            inner = place.value
            for item in inner if isinstance(inner, list) else (inner,):
                if isinstance(item, Packet):
                    yield from places(item, place)
        packet = packet.payload


def _some(packet: Any, wanted: Callable[[Place], bool], chance: Chance) -> Place:
    found = [place for place in islice(places(packet), PLACE_LIMIT) if wanted(place)]
    if not found:
        raise _NoPlaceError
    return chance.choice(found)


def number_range(place: Place) -> tuple[int, int] | None:
    """Return the smallest and largest number that the field can hold; None if it holds none."""
    if isinstance(place.value, bool) or not isinstance(place.value, int):
        return None
    # For every class of fields, the random value knows the range.
    drawn = place.field.randval()
    if isinstance(drawn, RandNum):
        return int(drawn.min), int(drawn.max)
    size = getattr(place.field, "sz", 0)
    return (0, (1 << 8 * int(size)) - 1) if size else None


def is_length(place: Place) -> bool:
    """Return whether the field is the length or count of something else."""
    if number_range(place) is None:
        return False
    if _LENGTH_WORDS & set(place.name.lower().split("_")):
        return True
    for other in place.packet.fields_desc:
        field = innermost(other)
        for rule in (getattr(field, "length", None), getattr(field, "count", None)):
            if isinstance(rule, E) and place.name in rule.names:
                return True
    return False


def _number(
    packet: Any, chance: Chance, wanted: Callable[[Place], bool] = lambda _place: True
) -> tuple[Place, int, int]:
    """Choose a numeric field; return it and its range."""
    place = _some(packet, lambda place: number_range(place) is not None and wanted(place), chance)
    return place, *(number_range(place) or (0, 0))


def _one_of(
    packet: Any, number: tuple[Place, int, int], values: set[int], chance: Chance, note: str
) -> Edit | None:
    """Set one of the values that fit, other than the present one."""
    place, low, high = number
    fitting = sorted(value for value in values if low <= value <= high and value != place.value)
    if not fitting:
        return None
    place.put(chance.choice(fitting))
    return _done(packet, note, place)


def _done(packet: Any, note: str, place: Place) -> Edit:
    return Edit(bytes(packet), f"{note} {place.name}", (place.name,))


def boundary(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Set a number to a boundary: an end of its range, a power of two, a change of sign."""
    number = _number(packet, chance)
    _, low, high = number
    edges = {low, low + 1, high - 1, high, 0, 1, -1}
    # From 6 bits on: variable-length integers grow at 6, 7, 14, 15 and 16 bits.
    edges |= {
        sign * ((1 << bit) + by) for bit in range(6, 65) for by in (-1, 0) for sign in (1, -1)
    }
    return _one_of(packet, number, edges, chance, "boundary")


def neighbour(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Set an enumeration to a neighbouring or another name, any other number to a near one."""
    number = _number(packet, chance)
    place = number[0]
    names = getattr(place.field, "names", None) or getattr(place.field, "i2s", None)
    known = sorted(key for key in names if isinstance(key, int)) if isinstance(names, dict) else []
    near = {place.value + by for by in (-2, -1, 1, 2)} | {
        key + by for key in known for by in (-1, 0, 1)
    }
    return _one_of(packet, number, near, chance, "neighbour")


def flip_field(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Invert one bit of a number."""
    number = _number(packet, chance)
    place, low, high = number
    changed = place.value ^ (1 << chance.below(max(1, (high - low).bit_length())))
    if not low <= changed <= high:
        return None
    place.put(changed)
    return _done(packet, "flip", place)


def set_flag(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Set a flag that makes fields present, and set these to ends of their ranges."""
    place = _some(packet, lambda place: number_range(place) == (0, 1) and not place.value, chance)
    owner = place.packet
    absent = [
        outer
        for outer in owner.fields_desc
        if isinstance(outer, ConditionalField) and not outer._evalcond(owner)  # noqa: SLF001 - scapy's
    ]
    place.put(1)
    brought = [outer for outer in absent if outer._evalcond(owner)]  # noqa: SLF001
    for outer in brought:
        owner.fields[outer.name] = 0
        low, high = number_range(Place(owner, innermost(outer), place.parent)) or (0, 0)
        owner.fields[outer.name] = chance.choice((low, 1, 2, high // 2, high - 1, high))
    return _done(packet, "set", place) if brought else None


def length_lie(packet: Any, seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Make a length or count differ from what is there."""
    number = _number(packet, chance, is_length)
    place, low, high = number
    value, whole = place.value, len(seed.octets)
    lies = {value + by for by in (-1, 1, value, 256)} | {0, whole, whole + 1}
    lies |= {low, high, high - 1, high // 2}
    return _one_of(packet, number, lies, chance, "length lie")


def special_float(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Set a floating-point field to a special number."""
    place = _some(packet, lambda place: isinstance(place.value, float), chance)
    place.put(chance.choice(_FLOATS))
    return _done(packet, "special float", place)


def content(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Change bytes or a string; lengths are recomputed, or left wrong."""
    place = _some(packet, lambda place: isinstance(place.value, (bytes, str)), chance)
    old = place.value
    data = octets_of(old)
    if chance.one_in(3):
        new, how = chance.choice(_STRINGS), "string"
    else:
        how = chance.choice(sorted(OCTET_MUTATORS))
        limit = SIZE_LIMIT if chance.one_in(_OVERSIZE_SHARE) else _TEMPLATE_LIMIT
        new = OCTET_MUTATORS[how](data, chance)[:limit]
    place.put(new.decode("utf-8", "replace") if isinstance(old, str) else new)
    lies = chance.one_in(2)
    if not lies:
        _recompute(packet)
    edit = _done(packet, f"content {how} in", place)
    return edit if lies else Edit(edit.octets, f"{edit.note}, lengths right", edit.touched)


def size(packet: Any, seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Give a bytes field, or by it the whole message, a size at which buffers end, with correct
    lengths.
    """
    place = _some(packet, lambda place: isinstance(place.value, bytes), chance)
    wanted, whole = chance.choice(_SIZES), chance.one_in(2)
    old = bytes(place.value)
    room = wanted - (len(seed.octets) - len(old) if whole else 0)
    for _ in range(2):  # a length field that grows wider changes the size, too
        if room < 0:
            return None
        place.put((old + bytes(max(0, room - len(old))))[:room])
        _recompute(packet)
        octets = bytes(packet)
        if not whole or len(octets) == wanted:
            break
        packet.clear_cache()
        room += wanted - len(octets)
    return Edit(octets, f"size {len(octets)} by {place.name}", (place.name,))


def _recompute(packet: Any) -> None:
    """Reset every length that the layers can compute, so that building computes it."""
    for place in list(places(packet)):
        # A default of None means "computed on build".
        if is_length(place) and place.packet.get_field(place.name).default is None:
            place.put(None)


def _write(packet: Any, name: str, copies: int) -> bytes:
    """Build the layer with one of its fields omitted or written several times."""
    state: Any = b""
    for field in packet.fields_desc:
        for _ in range(copies if field.name == name else 1):
            state = field.addfield(packet, state, packet.getfieldval(field.name))
    if isinstance(state, tuple):
        # An incomplete byte of bit fields is written as far as it is filled.
        state = bytes(state[0]) + bytes([state[2] & 0xFF])
    return bytes(packet.post_build(state, bytes(packet.payload)))


def _rewritten(packet: Any, place: Place, copies: int, note: str) -> Edit | None:
    octets = _write(place.packet, place.name, copies)
    parent = place.parent
    if parent is None and place.packet is packet:
        return Edit(octets, f"{note} {place.name}", (place.name,))
    if parent is None:
        place.packet.underlayer.payload = Raw(octets)
    elif isinstance(parent.value, list):
        parent.put([Raw(octets) if item is place.packet else item for item in parent.value])
    else:
        parent.put(Raw(octets))
    return Edit(bytes(packet), f"{note} {place.name}", (place.name,))


def remove_field(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Omit one field, so that everything behind it moves up."""
    place = _some(packet, lambda _place: True, chance)
    return _rewritten(packet, place, 0, "without")


def duplicate_field(packet: Any, _seed: Seed, chance: Chance, _pool: Sequence[Seed]) -> Edit | None:
    """Write one field twice."""
    place = _some(packet, lambda _place: True, chance)
    return _rewritten(packet, place, 2, "twice")


def items(packet: Any, _seed: Seed, chance: Chance, pool: Sequence[Seed]) -> Edit | None:
    """Remove, duplicate, multiply, swap or import items of a list."""
    place = _some(packet, lambda place: isinstance(place.value, list) and bool(place.value), chance)
    values = list(place.value)
    at = chance.below(len(values))
    how = chance.choice(("remove", "double", "multiply", "swap", "import"))
    if how == "remove":
        del values[at]
    elif how in ("double", "multiply"):
        values[at:at] = [values[at]] * (1 if how == "double" else chance.choice((8, 64, 255)))
    elif how == "swap":
        other = chance.below(len(values))
        values[at], values[other] = values[other], values[at]
    else:
        values[at:at] = _foreign_items(place, chance.choice(pool))
    place.put(values)
    if chance.one_in(2):
        _recompute(packet)
    return _done(packet, f"{how} an item of", place)


def _foreign_items(place: Place, seed: Seed) -> list[Any]:
    """Return the items of the same list in another seed."""
    if seed.layer is None:
        return []
    return [
        item
        for other in places(reread(seed))
        if other.name == place.name and isinstance(other.value, list)
        for item in other.value
    ]


def splice(packet: Any, seed: Seed, chance: Chance, pool: Sequence[Seed]) -> Edit | None:
    """Replace a field by the same field, or bytes by the bytes, of another message."""
    other = chance.choice(pool)
    place = _some(packet, lambda place: not isinstance(place.value, list), chance)
    if other.layer is not None:
        same = [twin for twin in places(reread(other)) if twin.name == place.name]
        if same and same[0].value != place.value:
            place.put(same[0].value)
            return _done(packet, f"from {other.type}:", place)
    if isinstance(place.value, bytes):
        place.put(other.octets[:_TEMPLATE_LIMIT])
        return _done(packet, f"all of {other.type} in", place)
    head = chance.below(len(seed.octets) + 1)
    return Edit(seed.octets[:head] + other.octets[chance.below(len(other.octets) + 1) :], "halves")


def _guarded(mutator: FieldMutator) -> FieldMutator:
    """Wrap a mutator so that it returns None if the mutated fields cannot be built."""

    def guarded(packet: Any, seed: Seed, chance: Chance, pool: Sequence[Seed]) -> Edit | None:
        try:
            edit = mutator(packet, seed, chance, pool)
        except (_NoPlaceError, struct.error, ValueError, TypeError, OverflowError, AttributeError,
                IndexError):  # fmt: skip
            return None
        return None if edit is None else Edit(edit.octets[:SIZE_LIMIT], edit.note, edit.touched)

    return guarded


FIELD_MUTATORS: dict[str, FieldMutator] = {
    name: _guarded(mutator)
    for name, mutator in {
        "boundary": boundary, "neighbour": neighbour, "flip": flip_field, "flag": set_flag,
        "length": length_lie,
        "float": special_float, "content": content, "size": size, "remove": remove_field,
        "duplicate": duplicate_field, "items": items, "splice": splice,
    }.items()
}  # fmt: skip
"""Name -> mutator."""
