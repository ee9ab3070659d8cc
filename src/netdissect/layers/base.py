"""The base class of all layers: a Scapy `Packet` that keeps what it read when a field fails."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from scapy.config import conf
from scapy.fields import ConditionalField, Field, RawVal
from scapy.packet import Packet
from scapy.volatile import VolatileValue

from netdissect.layers.fields import FieldFault, innermost
from netdissect.model.annotations import Severity
from netdissect.model.text import quoted

__all__ = ["READ_FAULTS", "Check", "Gen", "Knowledge", "Layer", "listed"]

READ_FAULTS = (FieldFault, struct.error, IndexError, ValueError)
"""What reading a field can raise on hostile input; anything else is a bug of the layer."""


SUMMARY_ITEMS = 4
"""Items that the one-line form of a packet names."""


def listed(names: Sequence[str]) -> str:
    """Return names in one line, further ones as a number."""
    more = len(names) - SUMMARY_ITEMS
    shown = ", ".join(names[:SUMMARY_ITEMS])
    return f"{shown} and {more} more" if more > 0 else shown


@dataclass(frozen=True, slots=True)
class Gen:
    """A value concluded from the fields of a layer; shown in brackets, never built."""

    name: str
    """Name in the tree and in `fields`."""
    value: Callable[[Any], Any]
    """Called with the mapping of the fields read; None = leave it out."""
    keeps_none: bool = False
    """True: None is shown as such instead."""


@dataclass(frozen=True, slots=True)
class Check:
    """A soft rule: when `when` holds, `code` is reported at the field named `at`."""

    when: Callable[[Any], Any]
    """Expression over the fields; read as a truth value."""
    code: str
    """Catalogue code."""
    at: str
    """Field that the finding points at."""
    message: str
    """Sentence with `{field}` places."""
    severity: Severity | None = None
    """Overrides the severity of the catalogue row."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the tracker knows of a packet: `packet.netdissect`, set by a session."""

    frame: int
    """Number of the packet from 1."""
    connection: int | None = None
    """Number of its connection; None where it belongs to none."""
    protocol: str | None = None
    dialect: str | None = None
    direction: int | None = None
    """`Direction`; None where the roles are not known."""
    unit: tuple[str, int] | None = None
    """(space, full number) of its first numbered message."""
    resend_of: int | None = None
    """Number of the packet that had the first copy of that unit; None for a first copy."""
    acked_in: int | None = None
    """Number of the packet that acknowledged it, as far as that is known."""
    record: Any = None
    """The whole `DatagramRecord`."""


def _check_kind(pkt: Any, name: str, value: Any) -> None:
    """Refuse what a field of a packet can never write; how large a number may be, building says.

    Several values for one field are a set of packets in Scapy.

    Raises:
        TypeError: it is of another kind.
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
            wanted, right = "packets", isinstance(one, (Packet, bytes)[: 1 if field.islist else 2])
        elif isinstance(field.default, bytes):
            made = one if isinstance(one, (bytearray, Packet)) else field.any2i(pkt, one)
            wanted, right = "octets", isinstance(made, (bytes, bytearray, Packet))
        elif field.islist:
            wanted = "a list"
            right = isinstance(one, (list, tuple)) and _is_written(pkt, field, one)
        else:
            wanted, right = "a number", isinstance(one, int) or _is_written(pkt, field, one)
        if not right:
            raise TypeError(f"{name} takes {wanted}, not {type(one).__name__}")


def _is_written(pkt: Any, field: Any, value: Any) -> bool:
    try:
        field.addfield(pkt, b"", field.any2i(pkt, value))
    except (TypeError, AttributeError, ValueError, struct.error):
        return False
    return True


class Weighing(type(Packet)):  # type: ignore[misc]
    """Notes in a packet whose class its bytes decided which other dialects they may be of."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a packet."""
        packet = super().__call__(*args, **kwargs)
        # Called may be one class and made another, that of the dialect which `dispatch_hook`
        # found.
        if type(packet) is not cls and isinstance(packet, Layer):
            packet.weigh(*cls.weighed(*args, **kwargs))
        return packet


# mypy takes a class made by an unknown metaclass for no Packet.
_Base: Any = Packet if TYPE_CHECKING else Weighing("_Base", (Packet,), {"__slots__": []})


class Layer(_Base):  # type: ignore[misc]
    """A Scapy layer whose first failing field ends the layer instead of losing it.

    The rest of the data becomes the payload (`Raw`), and `fault` says what happened. Subclasses
    state
    their format in `fields_desc` alone, and their soft rules in `checks`.
    """

    __slots__ = ["candidates", "doubt", "fault", "knowledge"]

    checks: ClassVar[tuple[Check, ...]] = ()
    """Soft rules that the walker applies after the fields."""
    generated: ClassVar[tuple[Gen, ...]] = ()
    """Concluded values that the walker adds after the fields."""
    concludes_late: ClassVar[bool] = False
    """True where the concluded values are few people's concern and follow from the layer's own
    fields: the walker makes them when the tree is asked for, and after the soft rules.
    """
    is_item: ClassVar[bool] = False
    """True for an item of a list or stream: the bytes behind it are the next item's."""
    shows: ClassVar[str | None] = None
    """Name in the tree of what its payload holds; "" = its fields stand beside those of the layer,
    None = the tree has none of it.
    """
    pairing: ClassVar[bytes | None] = None
    """Constant that `hashret` returns where nothing in a request is repeated in every answer:
    `answers` alone pairs the two. None = as Scapy does.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.fault: FieldFault | None = None
        self.knowledge: Knowledge | None = None
        self.candidates: tuple[str, ...] = ()
        """Dialects that the bytes may be of, this one first; empty where the bytes tell, or the
        dialect was named."""
        self.doubt = ""
        super().__init__(*args, **kwargs)
        for name, value in kwargs.items():
            _check_kind(self, name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a field that nobody could read: Scapy finds its own attribute of that name first.

        Raises:
            TypeError: a field is called so.
        """
        super().__init_subclass__(**kwargs)
        for field in vars(cls).get("fields_desc", ()):
            if isinstance(field, Field) and field.name in Packet.__slots__:
                raise TypeError(
                    f"{cls.__name__}: no field can be called {quoted(field.name)}: packets of"
                    " Scapy have an attribute of that name"
                )

    def __getattr__(self, attr: str) -> Any:
        """Return a field; the layers below ask here for `netdissect`, which is no field."""
        return self.knowledge if attr == "netdissect" else super().__getattr__(attr)

    @classmethod
    def weighed(cls, *_args: Any, **_kwargs: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what `weigh` takes, of bytes that `dispatch_hook` finds a class for."""
        return (), ()

    def weigh(self, dialects: tuple[str, ...], others: tuple[str, ...]) -> None:
        """Note the dialects that the bytes may be of; `others` would show another packet, which
        titles and summaries say.
        """
        self.candidates = dialects if len(dialects) > 1 else ()
        self.doubt = f" (or {', '.join(others)})" if others else ""

    def _do_summary(self) -> tuple[int, str, list[Any]]:
        found, text, needed = super()._do_summary()
        return found, text + self.doubt, needed

    def _show_or_dump(self, *args: Any, **kwargs: Any) -> Any:
        # Scapy has no hook for its title: it reads the packet's name.
        title: Any = self
        name, title.name = title.name, title.name + self.doubt
        try:
            return super()._show_or_dump(*args, **kwargs)
        finally:
            title.name = name

    def hashret(self) -> bytes:
        """Return what a request and its answer have in common, for Scapy's `sr`."""
        return super().hashret() if self.pairing is None else self.pairing

    def number_in(self, name: str) -> int | None:
        """Return the number in a field, None where it holds nothing, several or a random one."""
        value = self.getfieldval(name) if name in self.fieldtype else None
        return value if isinstance(value, int) else None

    def setfieldval(self, attr: str, val: Any) -> None:
        """Set a field.

        Raises:
            TypeError: it cannot hold a value of this kind.
        """
        _check_kind(self, attr, val)
        super().setfieldval(attr, val)

    @classmethod
    def message_type(cls, _fields: Mapping[str, Any]) -> str | None:
        """Return the type under which this layer counts as a message, None if it is none."""
        return None

    def payload_layer(self, _shown: Mapping[str, Any], octets: bytes) -> type[Any]:
        """Return the layer of a payload that is built of what the tree of this layer shows; without
        bytes the likeliest.
        """
        return self.guess_payload_class(octets)  # type: ignore[no-any-return]

    def bound_layer(self, payload: bytes, usual: type[Any]) -> type[Any]:
        """Return the layer that `bind_layers` has bound for a payload, `usual` if there is none."""
        bound: type[Any] = super().guess_payload_class(payload)
        return usual if bound is conf.raw_layer else bound

    def take_shown(
        self, shown: Mapping[str, Any], build: Callable[[type[Layer], Mapping[str, Any]], Any]
    ) -> None:
        """Take what the tree shows of this layer that is neither a field nor the payload; `build`
        makes a packet of a layer and such values.
        """

    def do_dissect(self, s: bytes) -> bytes:
        """Read the fields; stop at the first that fails and keep the ones before it."""
        whole = s
        state: Any = s
        self.raw_packet_cache_fields = {}  # type: ignore[misc]
        for field in self.fields_desc:
            try:
                state, value = field.getfield(self, state)
            except READ_FAULTS as fault:
                self.fault = FieldFault.kept(fault)
                break
            if value is None and isinstance(field, ConditionalField):
                continue
            # As Scapy's own: what is changed in place is noticed when the packet is built again.
            if (field.islist or field.holds_packets or field.ismutable) and value is not None:
                self.raw_packet_cache_fields[field.name] = self._raw_packet_cache_field_value(
                    field, value, copy=True
                )
            self.fields[field.name] = value
        # A cut inside a byte leaves that byte with this layer.
        rest: bytes = state[0][1:] if isinstance(state, tuple) else state
        self.raw_packet_cache = whole[: len(whole) - len(rest)]  # type: ignore[misc]
        # Scapy's mark of a packet that was read: no value in it stands for a set of packets.
        self.explicit = 1  # type: ignore[misc]
        return rest

    def clear_cache(self) -> None:
        """Forget the bytes that were read, so that they are built again from the fields; not those
        of a layer that a fault has ended: no field holds the rest of it.
        """
        kept = None if self.fault is None else self.raw_packet_cache
        super().clear_cache()
        self.raw_packet_cache = kept  # type: ignore[misc, assignment]

    def copy(self) -> Layer:
        """Return a deep copy; the fault is carried over."""
        clone = super().copy()
        clone.fault, clone.knowledge = self.fault, self.knowledge
        clone.candidates, clone.doubt = self.candidates, self.doubt
        return clone  # type: ignore[no-any-return]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """Return (payload, rest): an item of a list leaves all that follows to the next one."""
        return (b"", s) if self.is_item else (s, None)
