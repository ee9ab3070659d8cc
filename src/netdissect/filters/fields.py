"""The names in filters: facts about the datagram, its connection and its messages, and fields of
protocols.

A getter, `(Scope) -> sequence of values`, reads a name: a field may occur several times in a
datagram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from netdissect.model.names import FieldInfo
from netdissect.model.packets import Direction
from netdissect.model.policy import split_space_name
from netdissect.model.records import DatagramRecord, MessageRecord, Reliability
from netdissect.model.reports import ConnectionReport


@dataclass(slots=True)
class Scope:
    """What a filter is evaluated on."""

    record: DatagramRecord
    """The datagram."""
    chosen: tuple[MessageRecord, ...] | None = None
    """The message inside `any(msg: ...)` and `all(msg: ...)`; None = all messages of the datagram.
    """
    connection: ConnectionReport | None = None
    """Final report of the connection; None = use what was known when the record was made."""
    first_ns: int = 0
    """Time of the first frame."""

    @property
    def single(self) -> bool:
        """Whether this is about one message instead of a datagram."""
        return self.chosen is not None

    @property
    def items(self) -> Sequence[MessageRecord]:
        """The messages. Asking for those of a datagram decodes it."""
        return self.record.messages if self.chosen is None else self.chosen


Getter: TypeAlias = Callable[[Scope], Sequence[Any]]

_UDP_HEADER = 8
_NUMBERS = frozenset({"int", "float"})
"""Kinds of fields that hold numbers."""
_VALUES: dict[str, tuple[str, ...]] = {
    "direction": ("c2s", "s2c"),
    "conn.state": ("open", "closed", "timed_out", "rejected", "silent", "unknown"),
    "conn.handshake": ("accepted", "rejected", "unanswered", "not_seen"),
    "conn.vantage": ("client", "server", "middle", "unknown"),
    "msg.kind": ("original", "retransmission", "duplicate", "unknown"),
    "anomaly.severity": ("chat", "note", "warn", "error"),
}
"""Field -> all texts that it can hold."""
_PORTS, _WHOLE = (0, 65_535), (0, inf)
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("udp.srcport", "udp.dstport", "udp.port", "udp.length"), _PORTS),
    **dict.fromkeys(("tcp.srcport", "tcp.dstport", "tcp.port"), _PORTS),
    **dict.fromkeys(("data.len", "msg.index", "msg.offset", "msg.length"), _WHOLE),
    **dict.fromkeys(("msg.rtt", "msg.since", "msg.latency", "msg.added_ms"), _WHOLE),
    **dict.fromkeys(("frame.number", "conn.id", "msg.attempts"), _WHOLE),
    **dict.fromkeys(("msg.resend_of", "msg.duplicate_of", "msg.acked_in"), _WHOLE),
}
"""Field -> its minimum and maximum, as in Wireshark."""
_DEPTH_LIMIT = 32


def _one(value: Any) -> Sequence[Any]:
    return () if value is None else (value,)


def _split(endpoint: str) -> tuple[str, int]:
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port)


def _addresses(*sides: str) -> Getter:
    return lambda scope: tuple(_split(getattr(scope.record, side))[0] for side in sides)


def _ports(transport: str, *sides: str) -> Getter:
    def get(scope: Scope) -> Sequence[Any]:
        if scope.record.transport != transport:
            return ()
        return tuple(_split(getattr(scope.record, side))[1] for side in sides)

    return get


def _of_connection(attribute: str) -> Getter:
    def get(scope: Scope) -> Sequence[Any]:
        known = scope.connection or scope.record.facts
        return () if known is None else _one(getattr(known, attribute))

    return get


def _of_messages(read: Callable[[MessageRecord], Any]) -> Getter:
    """Return a getter over the messages; a message for which `read` returns None has no value."""
    return lambda scope: [value for item in scope.items if (value := read(item)) is not None]


class UnitGetter:
    """Reads what the tracker knows about the units of the messages, or about copies of one kind:
    retransmissions include messages of which TCP has retransmitted bytes.
    """

    __slots__ = ("_read", "kind")

    def __init__(self, read: Callable[[Reliability], Any], kind: str | None = None) -> None:
        self._read = read
        self.kind = kind

    def __call__(self, scope: Scope) -> Sequence[Any]:
        """Return the values."""
        kind, kinds = self.kind, scope.record.kinds
        if kinds is not None and (not kinds if kind is None else kind not in kinds):
            return ()  # without decoding the datagram
        return [
            value
            for item in scope.items
            if (facts := item.reliability) is not None
            and (kind is None or facts.kind == kind or (
                kind == "retransmission" and facts.retransmitted_in is not None))
            and (value := self._read(facts)) is not None
        ]


def _of_unit(attribute: str) -> Getter:
    return UnitGetter(lambda facts: getattr(facts, attribute))


def _key(facts: Reliability) -> int | None:
    _, key = split_space_name(facts.space)
    return int(key) if key.isdecimal() else None


def _of_findings(attribute: str) -> Getter:
    """Return the getter of the codes, or severities, of findings: those of the tracker on this
    frame, and those of the decoder in these messages.
    """

    def get(scope: Scope) -> Sequence[Any]:
        values = [getattr(note, attribute) for item in scope.items for note in item.annotations]
        values += [getattr(finding, attribute) for finding in scope.record.findings]
        if attribute == "code":
            values += [code for code in scope.record.faults if code not in values]
            return values
        return [value.label for value in values]

    return get


_Row: TypeAlias = tuple[FieldInfo, Getter]


def _listed(name: str) -> str:
    *rest, last = _VALUES[name]
    return f"{', '.join(rest)} or {last}"


def _row(name: str, kind: str, meaning: str, getter: Getter, unit: str = "") -> tuple[str, _Row]:
    return name, (FieldInfo(name, kind, meaning, unit), getter)


_BUILTIN: dict[str, _Row] = dict(
    (
        _row("frame.number", "int", "frame number, from 1", lambda s: (s.record.frame,)),
        _row("frame.time_epoch", "float", "time", lambda s: (s.record.time_ns / 1e9,),
            "s since 1970"),
        _row("frame.time_relative", "float", "time since the first frame",
            lambda s: ((s.record.time_ns - s.first_ns) / 1e9,), "s"),
        _row("frame.time_ns", "int", "time", lambda s: (s.record.time_ns,), "ns since 1970"),
        _row("ip.src", "address", "source address", _addresses("src")),
        _row("ip.dst", "address", "destination address", _addresses("dst")),
        _row("ip.addr", "address", "either address", _addresses("src", "dst")),
        _row("udp.srcport", "int", "UDP source port", _ports("udp", "src")),
        _row("udp.dstport", "int", "UDP destination port", _ports("udp", "dst")),
        _row("udp.port", "int", "either UDP port", _ports("udp", "src", "dst")),
        _row("udp.length", "int", "UDP length, header included",
            lambda s: (s.record.length + _UDP_HEADER,) if s.record.transport == "udp" else (),
            "bytes"),
        _row("tcp.srcport", "int", "TCP source port", _ports("tcp", "src")),
        _row("tcp.dstport", "int", "TCP destination port", _ports("tcp", "dst")),
        _row("tcp.port", "int", "either TCP port", _ports("tcp", "src", "dst")),
        _row("udp", "presence", "carried by UDP",
            lambda s: (True,) if s.record.transport == "udp" else ()),
        _row("tcp", "presence", "carried by TCP",
            lambda s: (True,) if s.record.transport == "tcp" else ()),
        _row("data.len", "int", "payload", lambda s: (s.record.length,), "bytes"),
        _row("data", "bytes", "payload bytes", lambda s: (s.record.payload,)),
        _row("protocol", "str", "name of the protocol", lambda s: _one(s.record.protocol)),
        _row("dialect", "str", "name of the dialect", lambda s: _one(s.record.dialect)),
        _row("direction", "str", _listed("direction"),
            lambda s: () if s.record.direction is None else (Direction(s.record.direction).label,)),
        _row("conn.id", "int", "connection number", lambda s: _one(s.record.connection)),
        _row("conn.state", "str", _listed("conn.state"), _of_connection("state")),
        _row("conn.handshake", "str", _listed("conn.handshake"), _of_connection("handshake")),
        _row("conn.client", "str", "client's address and port", _of_connection("client")),
        _row("conn.server", "str", "server's address and port", _of_connection("server")),
        _row("conn.vantage", "str", _listed("conn.vantage"), _of_connection("vantage")),
        _row("msg.type", "str", "message type", _of_messages(lambda item: item.type)),
        _row("msg.index", "int", "position in the datagram, from 0",
            _of_messages(lambda item: item.index)),
        _row("msg.offset", "int", "first byte", _of_messages(lambda item: item.offset), "bytes"),
        _row("msg.length", "int", "length", _of_messages(lambda item: item.length), "bytes"),
        _row("msg.space", "str", "sequence space", _of_unit("space")),
        _row("msg.key", "int", "number of the sequence space, such as its channel",
            UnitGetter(_key)),
        _row("msg.seq", "int", "full sequence number", _of_unit("seq")),
        _row("msg.wire_seq", "int", "sequence number on the wire", _of_unit("wire_seq")),
        _row("msg.kind", "str", _listed("msg.kind"), _of_unit("kind")),
        # None instead of False: `msg.reliable` alone holds if there is any value.
        _row("msg.reliable", "presence", "repeated until acknowledged",
            UnitGetter(lambda facts: facts.reliable or None)),
        _row("msg.resend", "presence", "retransmitted by its sender",
            UnitGetter(lambda _: True, "retransmission")),
        _row("msg.duplicate", "presence", "duplicated by the network",
            UnitGetter(lambda _: True, "duplicate")),
        _row("msg.resend_of", "int", "frame of the first copy, of a resend",
            UnitGetter(lambda facts: facts.of_frame, "retransmission")),
        _row("msg.duplicate_of", "int", "frame of the first copy, of a network copy",
            UnitGetter(lambda facts: facts.of_frame, "duplicate")),
        _row("msg.acked_in", "int", "frame of the acknowledgement", _of_unit("acked_in")),
        _row("msg.rtt", "float", "unambiguous round trip", _of_unit("rtt_ms"), "ms"),
        _row("msg.since", "float", "time since the previous copy", _of_unit("since_ms"), "ms"),
        _row("msg.attempts", "int", "how often the unit was sent", _of_unit("attempts")),
        _row("msg.latency", "float", "from the first copy to the acknowledgement",
            _of_unit("latency_ms"), "ms"),
        _row("msg.added_ms", "float", "what resends added to that", _of_unit("added_ms"), "ms"),
        _row("anomaly", "str", "codes of findings", _of_findings("code")),
        _row("anomaly.severity", "str", _listed("anomaly.severity"), _of_findings("severity")),
    )
)  # fmt: skip

_OF_MESSAGES = ("msg.", "anomaly")
_OF_TRACKER = frozenset(
    name for name in _BUILTIN if name.startswith("msg.")
) - {"msg.type", "msg.index", "msg.offset", "msg.length"}

BUILTIN_FIELDS: tuple[FieldInfo, ...] = tuple(info for info, _ in _BUILTIN.values())
"""Fields that exist for every protocol."""


def _lookup(value: Any, path: tuple[str, ...], depth: int = 0) -> Iterator[Any]:
    """Yield each value whose dotted path ends in `path`, through objects and lists, in order."""
    if depth > _DEPTH_LIMIT:
        return
    if isinstance(value, Mapping):
        if path[0] in value:
            yield from _leaves(value[path[0]], path[1:], depth + 1)
        for name, inner in value.items():
            if name != path[0] and isinstance(inner, (Mapping, list, tuple)):
                yield from _lookup(inner, path, depth + 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            if isinstance(inner, (Mapping, list, tuple)):
                yield from _lookup(inner, path, depth + 1)


def _leaves(value: Any, rest: tuple[str, ...], depth: int) -> Iterator[Any]:
    if depth > _DEPTH_LIMIT or value is None:
        return
    if isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner, rest, depth + 1)
    elif not rest:
        yield value
    elif isinstance(value, Mapping) and rest[0] in value:
        yield from _leaves(value[rest[0]], rest[1:], depth + 1)


def _protocol_field(protocol: str, path: tuple[str, ...]) -> Getter:
    def get(scope: Scope) -> Sequence[Any]:
        record = scope.record
        if record.protocol != protocol:
            return ()
        whole = {} if record.dissection is None else record.dissection.fields
        if not scope.single:
            found = list(_lookup(whole, path))
            return found or [value for item in scope.items for value in _lookup(item.fields, path)]
        values = [value for item in scope.items for value in _lookup(item.fields, path)]
        if values:
            return values
        head = whole.get(path[0])
        if isinstance(head, (list, tuple)):
            # `chunks.seq` of a datagram is `seq` of one of its chunks.
            rest = path[1:]
            return (
                [value for item in scope.items for value in _lookup(item.fields, rest)]
                if rest
                else ()
            )
        # A field of the datagram's own header belongs to each of its messages.
        return list(_leaves(head, path[1:], 0))

    return get


def _message_field(path: tuple[str, ...]) -> Getter:
    """Return the getter of `msg.NAME`, where NAME is a field of the message. A flag that is false
    counts as absent.
    """

    def get(scope: Scope) -> Sequence[Any]:
        return [
            value
            for item in scope.items
            for value in _lookup(item.fields, path)
            if value is not False
        ]

    return get


@dataclass(slots=True)
class Names:
    """The names that exist, and their getters."""

    protocols: Mapping[str, Mapping[str, FieldInfo]]
    """Protocol -> its fields by path (without the protocol's name); an empty mapping accepts every
    path.
    """
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Names in other tools -> ours (`tw.chunk.seq` -> `msg.wire_seq`)."""
    values: Mapping[str, Callable[[], Iterable[str]]] = field(default_factory=dict)
    """Field -> function that returns all texts it can hold (`protocol`, `anomaly`)."""

    def resolve(self, name: str) -> Getter | None:
        """Return the getter of a name; None if there is no such name."""
        name = self.aliases.get(name, name)
        if name in _BUILTIN:
            return _BUILTIN[name][1]
        head, _, rest = name.partition(".")
        if head in self.protocols:
            if not rest:
                return lambda scope: (True,) if scope.record.protocol == head else ()
            return _protocol_field(head, tuple(rest.split("."))) if self._has(head, rest) else None
        if head == "msg" and rest and any(self._has(protocol, rest) for protocol in self.protocols):
            return _message_field(tuple(rest.split(".")))
        return None

    def _has(self, protocol: str, path: str) -> bool:
        known = self.protocols[protocol]
        if not known or path in known or "decoded" in path.split("."):
            return True  # what a user schema decodes has names that only the user knows
        return any(other.endswith("." + path) for other in known)

    def kinds(self, name: str) -> frozenset[str]:
        """Return the kinds of values that an existing name has; more than one where it means
        several fields, none where nothing is known.
        """
        name = self.aliases.get(name, name)
        if name in self.protocols:
            return frozenset({"presence"})
        return frozenset(info.kind for info in self._meant(name))

    def _meant(self, name: str) -> Iterator[FieldInfo]:
        """Yield the fields that an existing name, which is no alias, stands for."""
        if name in _BUILTIN:
            yield _BUILTIN[name][0]
            return
        head, _, path = name.partition(".")
        asked = self.protocols if head == "msg" else {head: self.protocols.get(head, {})}
        for known in asked.values():
            for other, info in known.items():
                if other == path or other.endswith("." + path):
                    yield info

    def is_number(self, name: str) -> bool:
        """Return whether all values of an existing name are numbers."""
        kinds = self.kinds(name)
        return bool(kinds) and kinds <= _NUMBERS

    def range(self, name: str) -> tuple[float, float]:
        """Return the smallest and the largest number that an existing name can hold."""
        name = self.aliases.get(name, name)
        if name in _RANGES:
            return _RANGES[name]
        meant = list(self._meant(name))
        if not meant or (name.startswith("msg.") and not all(self.protocols.values())):
            return -inf, inf
        return min(info.minimum for info in meant), max(info.maximum for info in meant)

    def texts(self, name: str) -> frozenset[str]:
        """Return all texts that an existing name can hold; empty = unknown."""
        name = self.aliases.get(name, name)
        known = self.values.get(name)
        return frozenset(_VALUES.get(name, ()) if known is None else known())

    def is_list(self, name: str) -> bool:
        """Return whether a message of any protocol may have a list with this name."""
        return any(
            not known or (name in known and known[name].kind == "list")
            for known in self.protocols.values()
        )

    def cost(self, name: str) -> int:
        """Return what is needed to evaluate a name: 0 the flow, 1 the tracker as well, 2 the
        decoded messages.
        """
        name = self.aliases.get(name, name)
        if name in _OF_TRACKER:
            return 1
        return 2 if name.startswith(_OF_MESSAGES) or ("." in name and name not in _BUILTIN) else 0

    def all(self) -> Iterator[FieldInfo]:
        """Yield all names: the common ones, then those of each protocol."""
        yield from BUILTIN_FIELDS
        for protocol, fields in sorted(self.protocols.items()):
            yield FieldInfo(protocol, "presence", f"decoded as {protocol}")
            for path, info in fields.items():
                yield replace(info, name=f"{protocol}.{path}")
