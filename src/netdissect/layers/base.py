"""The base class of all layers: a Scapy `Packet` that keeps the fields before an unreadable one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from scapy.config import conf
from scapy.fields import ConditionalField, Field, RawVal
from scapy.packet import Packet
from scapy.volatile import VolatileValue

from netdissect.layers.fields import FieldFault, innermost
from netdissect.model.annotations import Severity
from netdissect.model.text import quoted

READ_FAULTS = (FieldFault, struct.error, IndexError, ValueError)
"""Exceptions that reading a field may raise on bad input. Any other one is a bug in the layer."""


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


def _can_write(pkt: Any, field: Any, value: Any) -> bool:
    try:
        field.addfield(pkt, b"", field.any2i(pkt, value))
    except (TypeError, AttributeError, ValueError, struct.error):
        return False
    return True


_L = TypeVar("_L", bound="Layer")


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


class _DispatchingMeta(type(Packet)):  # type: ignore[misc]
    """Records the candidate dialects in a packet whose class `dispatch_hook` chose by its bytes."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        packet = super().__call__(*args, **kwargs)
        # Another class than the one called: `dispatch_hook` chose that of a dialect.
        if type(packet) is not cls and isinstance(packet, Layer):
            packet.set_candidates(*cls.find_candidates(*args, **kwargs))
        return packet


# To mypy, a class made by an unknown metaclass is no Packet.
_Base: Any = Packet if TYPE_CHECKING else _DispatchingMeta("_Base", (Packet,), {"__slots__": []})


class Layer(_Base):  # type: ignore[misc]
    """A Scapy layer that ends at the first field it cannot read, and keeps those before it.

    The remaining bytes become the payload (`Raw`), and `fault` says what is wrong. Subclasses
    describe their format in `fields_desc` alone, and their soft rules in `checks`.
    """

    __slots__ = ["ambiguity", "candidates", "certain", "fault", "knowledge"]

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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.fault: FieldFault | None = None
        self.knowledge: Knowledge | None = None
        self.candidates: tuple[str, ...] = ()
        """Dialects that the bytes may be in, this packet's first. Empty if the bytes leave no
        choice, or if the dialect was given.
        """
        self.certain = ""
        """Dialect that was given or that the bytes leave no choice about; "" if none is known."""
        self.ambiguity = ""
        """Text about further candidates for titles and summaries; "" if there are none."""
        super().__init__(*args, **kwargs)
        for name, value in kwargs.items():
            _check_kind(self, name, value)

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
    def find_candidates(
        cls, *_args: Any, **_kwargs: Any
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the arguments of `set_candidates` for the arguments of `dispatch_hook`."""
        return (), ()

    def set_candidates(self, dialects: tuple[str, ...], others: tuple[str, ...]) -> None:
        """Record which dialects the bytes may be in.

        Args:
            dialects: all candidates, that of this packet first.
            others: those in which the packet would look different: titles and summaries name them.
        """
        self.candidates = dialects if len(dialects) > 1 else ()
        self.certain = dialects[0] if len(dialects) == 1 else ""
        self.ambiguity = f" (or {', '.join(others)})" if others else ""

    def _do_summary(self) -> tuple[int, str, list[Any]]:
        found, text, needed = super()._do_summary()
        return found, text + self.ambiguity, needed

    @property
    def _title(self) -> str:
        """Return what `show` calls the packet, without its dialect."""
        return str(self.name)

    def _show_or_dump(self, *args: Any, **kwargs: Any) -> Any:
        # Scapy has no hook for the title of `show`: it reads the packet's name.
        title: Any = self
        dialect = (self.knowledge and self.knowledge.dialect) or self.certain
        name = title.name
        title.name = f"{self._title}, {dialect}" if dialect else self._title + self.ambiguity
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
        whole = s
        state: Any = s
        self.raw_packet_cache_fields = {}  # type: ignore[misc]
        for field in self.fields_desc:
            try:
                state, value = field.getfield(self, state)
            except READ_FAULTS as fault:
                self.fault = FieldFault.detached(fault)
                break
            # As in Scapy, an absent conditional field is not in `fields`.
            if value is None and isinstance(field, ConditionalField):
                continue
            # As in Scapy: building compares with this copy, to notice a value changed in place.
            if (field.islist or field.holds_packets or field.ismutable) and value is not None:
                self.raw_packet_cache_fields[field.name] = self._raw_packet_cache_field_value(
                    field, value, copy=True
                )
            self.fields[field.name] = value
        # A byte of which only some bits were read belongs to this layer.
        rest: bytes = state[0][1:] if isinstance(state, tuple) else state
        self.raw_packet_cache = whole[: len(whole) - len(rest)]  # type: ignore[misc]
        # Scapy's mark of a dissected packet: none of its values stands for a set of packets.
        self.explicit = 1  # type: ignore[misc]
        return rest

    def clear_cache(self) -> None:
        """Forget the bytes that were read, so that the fields are built anew.

        A layer with a fault keeps its bytes: no field holds those behind the fault.
        """
        cache = None if self.fault is None else self.raw_packet_cache
        super().clear_cache()
        self.raw_packet_cache = cache  # type: ignore[misc, assignment]

    def copy(self) -> Layer:
        """Return a deep copy, with the fault, candidates and knowledge of this packet."""
        clone = super().copy()
        clone.fault, clone.knowledge = self.fault, self.knowledge
        clone.candidates, clone.ambiguity = self.candidates, self.ambiguity
        clone.certain = self.certain
        return clone  # type: ignore[no-any-return]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """Return (payload, padding): what follows an item is padding, which lists read on."""
        return (b"", s) if self.is_item else (s, None)
