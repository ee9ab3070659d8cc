"""Fills layers with values as the tree of a payload shows them: the inverse of the walker.

The bytes of a payload decide its layer. So the values are first built as the likeliest layer; if
the bytes are read as another one, the values are built again as that one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from scapy.packet import NoPayload, Packet, Raw
from scapy.volatile import RandBin, RandNum, RandString

from netdissect.dissect.names import range_of
from netdissect.layers.base import Layer
from netdissect.layers.fields import Embedded, IfLeft, Items, Tail, innermost
from netdissect.layers.lsb import LsbTail
from netdissect.wire.bits import BitString

Fields: TypeAlias = Mapping[str, Any]
"""Name -> value, as `decode --json` prints them."""
REFUSED = (
    ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, struct.error,
)  # fmt: skip
"""Exceptions that values raise which cannot be built: Scapy's fields pass on those of struct, int
and str.
"""
_Choose: TypeAlias = Callable[[bytes], type[Layer]]
"""Returns the layer that reads some bytes."""

_GUESSES = 4
"""Maximum number of layers to try for the same values."""
_SIZES = 9
"""Number of sizes to try for a tail that is not given: in some messages the size decides the layer.
"""


def names_within(packet: Any) -> Iterator[str]:
    """Yield the names that the tree may show of the fields of a packet, or of packets in a list,
    and of all that they hold.
    """
    if isinstance(packet, list):
        for each in packet:
            yield from names_within(each)
    elif isinstance(packet, Packet) and not isinstance(packet, NoPayload):
        for outer in packet.fields_desc:
            yield from (outer.name, _shown(outer), f"{outer.name}_raw")
            yield from filter(None, (getattr(innermost(outer), "rest", ""),))
            yield from names_within(packet.getfieldval(outer.name))
        yield from filter(None, (getattr(packet, "shows", None),))
        yield from names_within(packet.payload)


def shown_names(layer: type[Layer]) -> list[str]:
    """Return the names under which the tree shows the fields of a layer."""
    return [_shown(field) for field in layer.fields_desc]


def _shown(field: Any) -> str:
    name: str = getattr(innermost(field), "shown", field.name)
    return name


def chosen(
    choose: _Choose, values: Fields, start: type[Layer] | None = None, *, unknown: bool = False
) -> Packet:
    """Return the packet of values, of the layer that reads its bytes, with its trailing bytes.

    Args:
        choose: returns the layer that reads some bytes.
        values: the fields.
        start: layer to build first; None = `choose(b"")`.
        unknown: True: `start` is the layer of unknown messages. It stays if the layer of the bytes
            has no field for some of the values.

    Raises:
        ValueError: two values contradict each other about the same bytes.
    """
    layer = choose(b"") if start is None or not values else start
    first = packet = filled(layer, values)
    tail = _shown(first.fields_desc[-1]) if _has_tail(first) else ""
    for _ in range(_GUESSES):
        # The tail is not given: its size may decide the layer.
        sizes = range(_SIZES if packet is first and tail and tail not in values else 1)
        likely = [choose(bytes(packet) + bytes(size)) for size in sizes]
        found = max(likely, key=lambda each: len(values.keys() & shown_names(each)))
        names = shown_names(found)
        # A layer that lacks the value of its first field is not the one that was read.
        if found is layer or (names and names[0] not in values):
            break
        if unknown and packet is first and {*shown_names(layer)} & values.keys() - {*names}:
            break
        layer, packet = found, filled(found, values)
    own = [name for name in shown_names(layer) if name in values]
    if tail in values and tail not in own:
        # The values have the same bytes twice: as a tail, and as fields.
        own = [name for name in own if name not in shown_names(type(first))]
        if own and bytes(first) != bytes(packet):
            conflict = f"{tail} says otherwise than {', '.join(own)}"
            raise ValueError(f"{conflict}: change both, or leave out {tail}")
        packet = packet if own else first
    trailing = values.get("trailing")
    if isinstance(trailing, str) and "trailing" not in packet.fieldtype and not packet.payload:
        packet.add_payload(Raw(_from_hex(trailing)))
    return packet


def _has_tail(packet: Packet) -> bool:
    return bool(packet.fields_desc) and isinstance(packet.fields_desc[-1], Tail)


def filled(layer: type[Layer], values: Fields) -> Any:
    """Return a packet of the values that are fields of the layer or of its payload.

    Raises:
        ValueError, TypeError: a value is of another kind than its field, or does not fit.
    """
    if not isinstance(values, Mapping):
        raise TypeError("is not an object of fields")
    packet = layer()
    bits = 0.0
    for outer in layer.fields_desc:
        field = innermost(outer)
        given = _given(outer, field, values, packet)
        if given is None:
            if isinstance(outer, IfLeft) or (values and getattr(field, "inline", False)):
                packet.fields[outer.name] = None  # not in the tree, so it is absent
            continue
        try:
            value = of_json(field, given, packet)
        except (ValueError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{_shown(outer)}: {error}") from None
        if isinstance(field, LsbTail):
            # The tree has whole bytes: the message ends with one, which gives the number of bits.
            value = BitString(value, 8 * len(value) - int(8 * bits) % 8)
        packet.fields[outer.name] = value
        bits += field.i2len(packet, value) if value is not None else 0
    shows = getattr(layer, "shows", None)
    if shows is not None:
        inner = values.get(shows) if shows else values
        if inner:
            packet.add_payload(chosen(partial(packet.payload_layer, values), inner))
    if isinstance(packet, Layer):
        packet.load_shown(values, filled)
    return packet


def _given(outer: Any, field: Any, values: Fields, packet: Any) -> Any:
    """Return the value that the tree shows of a field; None if there is none."""
    if getattr(field, "inline", False) and outer.name not in values:
        return values if values.keys() & shown_names(field.choose(packet, b"")) else None
    shown = values.get(_shown(outer), values.get(outer.name))
    rest = getattr(field, "rest", "")
    if rest and rest in values:
        shown = [*(shown or ()), values[rest]]
    raw = values.get(f"{outer.name}_raw")
    return shown if raw is None or field.plain(raw) != shown else raw


def of_json(field: Any, value: Any, packet: Any = None) -> Any:
    """Return the internal value of a field for a value from JSON.

    Args:
        field: the field.
        value: the value from JSON.
        packet: packet with the fields before it.

    Raises:
        ValueError: the value does not fit the field.
        TypeError: the value is of another kind.
    """
    field = innermost(field)
    if getattr(field, "holds_packets", 0):
        return _packets(field, value, packet)
    if getattr(field, "islist", 0):
        if not isinstance(value, list):
            raise TypeError("is not a list")
        for each in value:
            _check_truth(getattr(field, "item", field), each)
        return field.any2i(None, value)
    _check_truth(field, value)
    if holds_octets(field) and not isinstance(value, int):
        return _octets(field, value)
    if str(getattr(field, "fmt", "")).endswith(("f", "d")):
        if isinstance(value, (list, dict)):
            raise TypeError("is not a number")  # to Scapy, a list would be a set of packets
        if isinstance(value, str):
            return float(value)  # NaN and infinity
    return fitting(field, field.any2i(None, value))


def _check_truth(field: Any, value: Any) -> None:
    """Refuse true and false, which are 1 and 0 to Python, unless the field shows them itself."""
    plain = None if holds_octets(field) else getattr(field, "plain", None)
    if isinstance(value, bool) and (plain is None or plain(1) is not True):
        raise TypeError("cannot be true or false")


def _packets(field: Any, value: Any, packet: Any) -> Any:
    """Return the packets for a field; for what could not be read there are bytes in hex."""
    if isinstance(value, str):
        return Raw(_from_hex(value))
    if field.islist:
        if not isinstance(value, list):
            raise TypeError("is not a list")
        return [_item(field, packet, each) for each in value]
    if isinstance(field, Embedded):
        known = field.start is None
        return chosen(partial(field.choose, packet), value, field.start, unknown=not known)
    return filled(field.cls, value)


def _octets(field: Any, value: Any) -> bytes:
    if isinstance(value, str) and hasattr(field, "plain"):
        return _utf8(value)
    octets = _from_hex(value)
    # A field of fixed size would silently cut or pad the bytes.
    if str(field.fmt).endswith("s") and len(octets) != field.sz:
        raise ValueError(f"has {field.sz} bytes, not {len(octets)}")
    return octets


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("holds half a character (a lone surrogate)") from None


def _from_hex(value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise ValueError("is not a string of hexadecimal digits") from None


def _item(field: Any, packet: Any, values: Any) -> Any:
    """Return an item of a list."""
    if not isinstance(field, Items) or field.choose is None:
        return filled(field.cls, values)
    return chosen(partial(field.layer, packet), values, field.item)


def holds_octets(field: Any) -> bool:
    """Return whether the field's values are bytes, judged by its default or a random value."""
    if isinstance(field.default, (bytes, int, float)):
        return isinstance(field.default, bytes)
    return isinstance(field.randval(), (RandBin, RandString))


def fitting(field: Any, value: Any) -> Any:
    """Return the value if the field can hold it: building would silently cut it.

    Raises:
        ValueError: the value is out of range.
        TypeError: the value is of another kind.
    """
    limits = range_of(field)
    if isinstance(value, float) and not str(getattr(field, "fmt", "")).endswith(("f", "d")):
        raise TypeError("is not an integer")
    if isinstance(value, (str, list, dict)) and (limits or isinstance(field.randval(), RandNum)):
        raise TypeError("is neither a number nor the name of one")
    if limits and isinstance(value, int) and not limits[0] <= value <= limits[1]:
        raise ValueError(f"must be {limits[0]} to {limits[1]}")
    return value
