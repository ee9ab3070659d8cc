"""The base class of all layers: a Scapy `Packet` that keeps the fields before an unreadable one."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from scapy.config import conf
from scapy.fields import Field, RawVal
from scapy.packet import Packet
from scapy.volatile import VolatileValue

from netdissect.layers.fields import FieldFault, innermost
from netdissect.layers.reading import Reader, make_reader
from netdissect.model.annotations import Severity
from netdissect.model.text import quoted

SUMMARY_ITEMS = 4
"""Maximum number of items that a one-line summary names."""


def summary_list(names: Sequence[str]) -> str:
    """Return the first names separated by commas, and the number of the others."""
    more = len(names) - SUMMARY_ITEMS
    shown = ", ".join(names[:SUMMARY_ITEMS])
    return f"{shown} and {more} more" if more > 0 else shown


@dataclass(frozen=True, slots=True)
class Gen:
    """A value derived from the fields of a layer: in brackets in the tree, ignored in building."""

    name: str
    """Name in the tree and in `fields`."""
    value: Callable[[Any], Any]
    """Called with the mapping of the fields that were read. None = not shown."""
    keeps_none: bool = False
    """True: show None as well."""


@dataclass(frozen=True, slots=True)
class Check:
    """A soft rule: if `when` is true, `code` is reported at the field named `at`."""

    when: Callable[[Any], Any]
    """Condition over the fields: an `E`, or a function of their mapping."""
    code: str
    """Code of the finding in the catalogue."""
    at: str
    """Name of the field that the finding points at."""
    message: str
    """Text of the finding, a format string with `{field}` places."""
    severity: Severity | None = None
    """Overrides the severity of the catalogue row."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the tracker knows about a packet. A session sets it as `packet.netdissect`."""

    frame: int
    """Number of the packet in the capture, from 1."""
    connection: int | None = None
    """Number of its connection; None if it belongs to none."""
    protocol: str | None = None
    dialect: str | None = None
    direction: int | None = None
    """`Direction`; None if client and server are unknown."""
    unit: tuple[str, int] | None = None
    """(space, full number) of its first numbered message."""
    resend_of: int | None = None
    """Number of the packet with the first copy of that unit; None if this is the first copy."""
    acked_in: int | None = None
    """Number of the packet that acknowledged the unit; None if unknown."""
    record: Any = None
    """The whole `DatagramRecord`."""


def _check_kind(pkt: Any, name: str, value: Any) -> None:
    """Refuse a value of a kind that the field can never write. Building checks numbers' ranges.

    A list of values for a field that is no list is accepted: Scapy makes a set of packets of it.

    Raises:
        TypeError: the value is of another kind.
    """
    known = pkt.fieldtype.get(name)
    if known is None or isinstance(value, (VolatileValue, RawVal)):
        return
    field = innermost(known)
    if value is None and not (field.holds_packets and field.islist):
        return
    several = isinstance(value, (list, tuple)) and (field.holds_packets or not field.islist)
    if several and not value and not field.islist:
        raise TypeError(f"{name} takes one value at least")
    for one in value if several else (value,):
        if isinstance(one, VolatileValue):
            continue
        if field.holds_packets:
            kind, fits = "packets", isinstance(one, (Packet, bytes)[: 1 if field.islist else 2])
        elif isinstance(field.default, bytes):
            made = one if isinstance(one, (bytearray, Packet)) else field.any2i(pkt, one)
            kind, fits = "bytes", isinstance(made, (bytes, bytearray, Packet))
        elif field.islist:
            kind = "a list"
            fits = isinstance(one, (list, tuple)) and _can_write(pkt, field, one)
        else:
            kind, fits = "a number", isinstance(one, int) or _can_write(pkt, field, one)
        if not fits:
            raise TypeError(f"{name} takes {kind}, not {type(one).__name__}")


def _is_same(value: Any, before: Any) -> bool:
    """Return whether a packet is the one that was read, with all that is in it and behind it."""
    part = value if value is before else None
    while part:
        if isinstance(part, Layer):
            as_read = part.is_as_read()
        else:
            as_read = part.raw_packet_cache is not None and not part.raw_packet_cache_fields
        if not as_read:
            return False
        part = part.payload
    return value is before


def _can_write(pkt: Any, field: Any, value: Any) -> bool:
    try:
        field.addfield(pkt, b"", field.any2i(pkt, value))
    except (TypeError, AttributeError, ValueError, struct.error):
        return False
    return True


def _read_as(layer: type[Any], octets: bytes) -> Any:
    """Return a packet of exactly this class."""
    return type.__call__(layer, octets)


_L = TypeVar("_L", bound="Layer")
Chooser: TypeAlias = Callable[[], tuple[tuple[str, ...], tuple[str, ...]]]
"""Returns the dialects that the bytes of a packet may be in, that of the packet first, and those of
them in which it would look different."""


def make_layer(
    names: dict[str, Any], title: str, base: type[_L], text: str | None, **attributes: Any
) -> type[_L]:
    """Return a new layer class, and add it to a module, where pickle and Scapy look for it.

    Args:
        names: `globals()` of the module.
        title: name of the class.
        base: its base class.
        text: its docstring.
        attributes: its `fields_desc` and other attributes.
    """
    body = {"__doc__": text, "__module__": names["__name__"], **attributes}
    make: Any = type(base)
    made: type[_L] = make(title, (base,), body)
    names[title] = made
    return made


_READERS: dict[type[Any], Reader] = {}
"""Layer -> the function that reads its fields, made when it is first needed."""


_SET_LATER = (
    "overload_fields", "fields", "overloaded_fields", "post_transforms", "original", "underlayer",
    "parent", "stop_dissection_after",
)  # fmt: skip
"""Attributes that are of each packet alone."""
_READING = {"_internal", "_underlayer", "_parent", "stop_dissection_after"}
"""Arguments with which Scapy reads a packet from bytes."""
_ATTRIBUTES: dict[str, Any] = {
    "fault": None, "knowledge": None, "choose": None,
}  # fmt: skip
"""Values of the attributes of a new packet that Scapy's do not have."""


@cache
def _first_values(layer: type[Any]) -> tuple[tuple[Callable[[Any, Any], None], Any], ...]:
    """Return (setter, value) of each attribute that all packets of a layer begin with."""
    blank = object.__new__(layer)
    Packet.__init__(blank, _internal=1)
    values = {name: getattr(blank, name) for name in Packet.__slots__ if hasattr(blank, name)}
    values |= {**_ATTRIBUTES, "surplus": None}
    for name in _SET_LATER:
        values.pop(name, None)
    return tuple((getattr_static(layer, name).__set__, value) for name, value in values.items())


class _DispatchingMeta(type(Packet)):  # type: ignore[misc]
    """Tells a packet whose class `dispatch_hook` chose by its bytes how it was chosen."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "dispatch_hook" not in cls.__dict__:
            # What Scapy's metaclass does then.
            return type.__call__(cls, *args, **kwargs)
        packet = super().__call__(*args, **kwargs)
        # Another class than the one called: `dispatch_hook` chose that of a dialect.
        if type(packet) is not cls and isinstance(packet, Layer):
            packet.choose = cls.chooser(*args, **kwargs)
        return packet


# To mypy, a class made by an unknown metaclass is no Packet.
_Base: Any = Packet if TYPE_CHECKING else _DispatchingMeta("_Base", (Packet,), {"__slots__": []})


class Layer(_Base):  # type: ignore[misc]
    """A Scapy layer that ends at the first field it cannot read, and keeps those before it.

    The remaining bytes become the payload (`Raw`), and `fault` says what is wrong. Subclasses
    describe their format in `fields_desc` alone, and their soft rules in `checks`.
    """

    __slots__ = ["choose", "fault", "knowledge", "surplus"]

    checks: ClassVar[tuple[Check, ...]] = ()
    """Soft rules that the walker applies after the fields."""
    generated: ClassVar[tuple[Gen, ...]] = ()
    """Derived values that the walker adds after the fields."""
    concludes_late: ClassVar[bool] = False
    """True if the derived values are rarely needed and depend on the layer's own fields alone. The
    walker then computes them when the tree is used, and the soft rules cannot name them.
    """
    is_item: ClassVar[bool] = False
    """True for an item of a list or stream: the bytes behind it belong to the next item."""
    shows: ClassVar[str | None] = None
    """Name of the payload's node in the tree. "" = the payload's fields are siblings of the
    layer's own; None = the payload is not in the tree.
    """
    pairing: ClassVar[bytes | None] = None
    """Constant for `hashret`, if no value of a request recurs in every answer: then `answers` alone
    pairs them. None = as in Scapy.
    """

    def __init__(self, *args: Any, _listed: bool = False, **kwargs: Any) -> None:
        """Make a packet. `_listed`: bytes behind an item go to `surplus`, else they are padding."""
        if len(args) == 1 and type(args[0]) is bytes and args[0] and kwargs.keys() <= _READING:
            self._start(args[0], _listed=_listed, **kwargs)
            return
        for name, value in _ATTRIBUTES.items():
            setattr(self, name, value)
        self.surplus = b"" if _listed else None
        super().__init__(*args, **kwargs)
        for name, value in kwargs.items():
            _check_kind(self, name, value)

    def _start(
        self, octets: bytes, *, _listed: bool, _internal: int = 0, _underlayer: Any = None,
        _parent: Any = None, stop_dissection_after: Any = None,
    ) -> None:  # fmt: skip
        """Read `octets` into a new packet, as Scapy's constructor does in twice the time."""
        kind: Any = type(self)
        for set_first, value in _first_values(kind):
            set_first(self, value)
        put = object.__setattr__
        if not _internal:
            put(self, "time", time.time())
        if _listed:
            put(self, "surplus", b"")
        put(self, "overload_fields", self._overload_fields)
        put(self, "fields", {})
        put(self, "overloaded_fields", {})
        put(self, "post_transforms", [])
        put(self, "original", octets)
        put(self, "underlayer", _underlayer)
        put(self, "parent", _parent)
        put(self, "stop_dissection_after", stop_dissection_after)
        self.dissect(octets)
        if not _internal:
            self.dissection_done(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse field names that are attributes of every Scapy packet: they would hide the field.

        Raises:
            TypeError: a field has such a name.
        """
        super().__init_subclass__(**kwargs)
        for field in vars(cls).get("fields_desc", ()):
            if isinstance(field, Field) and field.name in Packet.__slots__:
                raise TypeError(
                    f"{cls.__name__}: no field can be called {quoted(field.name)}: packets of"
                    " Scapy have an attribute of that name"
                )

    def __getattr__(self, attr: str) -> Any:
        """Return a field, or `netdissect`: carriers such as UDP find it in their payload."""
        return self.knowledge if attr == "netdissect" else super().__getattr__(attr)

    @classmethod
    def chooser(cls, *_args: Any, **_kwargs: Any) -> Chooser | None:
        """Return what `choose` of a packet is to be, for the arguments of `dispatch_hook`."""
        return None

    def _choice(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what `choose` returns; nothing where the bytes did not decide."""
        # Only now: it takes several times as long as reading the packet.
        return ((), ()) if self.choose is None else self.choose()

    @property
    def candidates(self) -> tuple[str, ...]:
        """Return the dialects that the bytes may be in, that of this packet first; () if the
        dialect is certain or the bytes did not decide.
        """
        dialects = self._choice()[0]
        return dialects if len(dialects) > 1 else ()

    @property
    def _ambiguity(self) -> str:
        """Return the words for the dialects in which the packet would look different."""
        others = self._choice()[1]
        return f" (or {', '.join(others)})" if others else ""

    def _do_summary(self) -> tuple[int, str, list[Any]]:
        found, text, needed = super()._do_summary()
        return found, text + self._ambiguity, needed

    @property
    def _title(self) -> str:
        """Return what `show` calls the packet, without its dialect."""
        return str(self.name)

    def _show_or_dump(self, *args: Any, **kwargs: Any) -> Any:
        # Scapy has no hook for the title of `show`: it reads the packet's name.
        title: Any = self
        dialects = self._choice()[0]
        certain = dialects[0] if len(dialects) == 1 else ""
        dialect = (self.knowledge and self.knowledge.dialect) or certain
        name = title.name
        title.name = f"{self._title}, {dialect}" if dialect else self._title + self._ambiguity
        try:
            return super()._show_or_dump(*args, **kwargs)
        finally:
            title.name = name

    def hashret(self) -> bytes:
        """Return what a request and its answer have in common, for Scapy's `sr`."""
        return super().hashret() if self.pairing is None else self.pairing

    def int_value(self, name: str) -> int | None:
        """Return the integer in a field; None if there is none, a list or a random value."""
        value = self.getfieldval(name) if name in self.fieldtype else None
        return value if isinstance(value, int) else None

    def setfieldval(self, attr: str, val: Any) -> None:
        """Set a field.

        Raises:
            TypeError: the field cannot hold a value of this kind.
        """
        _check_kind(self, attr, val)
        super().setfieldval(attr, val)

    @classmethod
    def message_type(cls, _fields: Mapping[str, Any]) -> str | None:
        """Return the type of message that this layer is; None if it is not a message of its own."""
        return None

    def payload_layer(self, _shown: Mapping[str, Any], octets: bytes) -> type[Any]:
        """Return the layer with which to rebuild a payload from the values that the tree shows.

        Args:
            _shown: the values of this layer's node.
            octets: the payload as built so far; b"" asks for the likeliest layer.
        """
        return self.guess_payload_class(octets)  # type: ignore[no-any-return]

    def bound_layer(self, payload: bytes, default: type[Any]) -> type[Any]:
        """Return the layer that `bind_layers` has bound to a payload, or `default`."""
        bound: type[Any] = super().guess_payload_class(payload)
        return default if bound is conf.raw_layer else bound

    def load_shown(
        self, shown: Mapping[str, Any], build: Callable[[type[Layer], Mapping[str, Any]], Any]
    ) -> None:
        """Restore what the tree shows of this layer besides its fields and payload.

        Args:
            shown: the values of this layer's node.
            build: returns the packet of a layer with such values.
        """

    def do_dissect(self, s: bytes) -> bytes:
        """Read the fields up to the first that fails, and keep those before it."""
        kind = type(self)
        read = _READERS.get(kind)
        if read is None:
            read = _READERS[kind] = make_reader(kind)
        kept: dict[str, Any] = {}
        state, fault = read(self, s, self.fields, kept)
        # A byte of which only some bits were read belongs to this layer.
        rest: bytes = state[0][1:] if isinstance(state, tuple) else state
        put = object.__setattr__
        if fault is not None:
            put(self, "fault", FieldFault.detached(fault))
        put(self, "raw_packet_cache_fields", kept)
        put(self, "raw_packet_cache", s[: len(s) - len(rest)])
        # Scapy's mark of a dissected packet: none of its values stands for a set of packets.
        put(self, "explicit", 1)
        return rest

    def is_as_read(self) -> bool:
        """Return whether the bytes that were read are still those of the layer, payload aside.

        Scapy compares only the fields of the packets in a field, not the packets in those.
        """
        octets: bytes | None = self.raw_packet_cache
        kept: dict[str, Any] | None = self.raw_packet_cache_fields
        if octets is None or kept is None:
            return False
        for name, before in kept.items():
            value = self.getfieldval(name)
            if not self.fieldtype[name].holds_packets:
                same = value == before
            elif isinstance(before, tuple):
                same = len(value) == len(before) and all(map(_is_same, value, before))
            else:
                same = _is_same(value, before)
            if not same:
                return False
        return True

    def self_build(self) -> bytes:
        """Return the layer's bytes: those that were read, or, if a value has changed, new ones."""
        octets: Any = self.raw_packet_cache  # type: ignore[has-type]
        if self.is_as_read():
            return bytes(octets)
        self.raw_packet_cache = None  # type: ignore[misc]
        return bytes(super().self_build())

    def clear_cache(self) -> None:
        """Forget the bytes that were read, so that the fields are built anew.

        A layer with a fault keeps its bytes: no field holds those behind the fault.
        """
        if self.fault is None:
            super().clear_cache()
        else:
            self.payload.clear_cache()

    def copy_fields_dict(self, fields: Any) -> Any:
        """Return deep copies of values, but `raw_packet_cache_fields` itself."""
        kept = fields is self.raw_packet_cache_fields
        return fields if kept else super().copy_fields_dict(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as Scapy does, but as this class: `dispatch_hook` may choose another."""
        _rebuild, arguments, *state = super().__reduce__()
        return _read_as, (type(self), *arguments), *state

    def __copy__(self) -> Layer:
        """Return a copy with the same values; otherwise, `copy.copy` would build and read them."""
        return self.copy()

    def copy(self) -> Layer:
        """Return a deep copy, with the fault, candidates and knowledge of this packet."""
        clone = super().copy()
        clone.raw_packet_cache = self.raw_packet_cache if self.is_as_read() else None
        kept: dict[str, Any] = dict(self.raw_packet_cache_fields or {})
        for name in kept.keys() & {field.name for field in self.packetfields}:
            value = clone.getfieldval(name)
            kept[name] = tuple(value) if isinstance(value, list) else value
        clone.raw_packet_cache_fields = kept
        clone.fault, clone.knowledge, clone.choose = self.fault, self.knowledge, self.choose
        return clone  # type: ignore[no-any-return]

    def dissect(self, s: bytes) -> None:
        """Read the fields and the payload. What follows an item is padding, or `surplus`."""
        rest = self.post_dissect(self.do_dissect(self.pre_dissect(s)))
        payload, padding = self.extract_padding(rest)
        self.do_dissect_payload(payload)
        if padding and self.surplus is not None:
            self.surplus = padding
        elif padding and conf.padding:
            self.add_payload(conf.padding_layer(padding))

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """Return (payload, padding): what follows an item is padding, which lists read on."""
        return (b"", s) if self.is_item else (s, None)
