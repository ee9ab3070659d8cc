"""`scan` of kNet: one datagram or one TCP message to its events. Layout comes from the readers alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from netdissect.dissect.readers import knet as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet import learning
from netdissect.wire.knet import (
    CONTROLS,
    DIALECTS,
    DISCONNECT,
    DISCONNECT_ACK,
    FIRST_IDS,
    FLOW_CONTROL,
    LARGEST_SENT,
    LEGACY,
    NULL_CONNECT,
    PACKET_ACK,
    PING_REPLY,
    PING_REQUEST,
    Phase,
    Progress,
    acknowledged,
    message_type,
)
from netdissect.wire.varint import KNET_7_7_16, VarintError

__all__ = ["Reader", "brief", "reader", "scan", "scan_stream"]

_MESSAGE, _UNIT, _ACK, _PLAIN = int(Ev.MESSAGE), int(Ev.UNIT), int(Ev.ACK), int(Ev.PLAIN_UNIT)
_PROBE, _REPLY, _STATE, _NOTE = int(Ev.PROBE), int(Ev.REPLY), int(Ev.STATE), int(Ev.NOTE)
_RESTART, _HINTS, _COUNTER = int(Ev.RESTART), int(Ev.HINTS), int(Ev.COUNTER)
_IDENTITY, _PART, _RUN = int(Ev.IDENTITY), int(Ev.PART), int(Ev.RUN)

_READ_ID, _READ_ACK = KNET_7_7_16.read, read.read_KnetPacketAck
_OPEN = Phase.OPEN
_ACK_OCTETS = 8
_PING_OCTETS = 2
_FLOW_OCTETS = 3
_FEWEST = 2
"""Fragments of a transfer at least."""
_TYPES_KEPT = 4096
_SHOWN = 64
"""Octets of a connect datagram kept as identity."""

_PINGS: Final = {PING_REQUEST: _PROBE, PING_REPLY: _REPLY}
Values = tuple[Any, ...]


class Reader(NamedTuple):
    """What reading one dialect takes."""

    datagram: Callable[[bytes, int, int], Values | None]
    message: Callable[[bytes, int, int], Values | None]
    controls: Mapping[int, str]
    types: dict[int, str]
    """Message ID -> type, filled as IDs appear."""
    first_id: int
    legacy: bool
    dialect: str


@cache
def reader(dialect: str) -> Reader:
    """Return the readers and tables of a dialect."""
    legacy = dialect == LEGACY
    return Reader(
        read.read_Knet2010Datagram if legacy else read.read_KnetDatagram,
        read.read_Knet2010Message if legacy else read.read_KnetMessage,
        CONTROLS[dialect],
        dict(CONTROLS[dialect]),
        FIRST_IDS[dialect],
        legacy,
        dialect,
    )


_READERS: Final = {dialect: reader(dialect) for dialect in DIALECTS}


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    if hints.extra is None or hints.extra.phase != _OPEN:
        return _unsettled(payload, direction, hints)
    values = (how := _READERS[hints.dialects[direction]]).datagram(payload, 0, len(payload))
    if values is None:
        return _unreadable(payload, direction, hints)
    return _datagram(values, payload, direction, hints, how)


def brief(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram, those of consecutive reliable messages as one RUN.

    The commonest datagrams (whole messages, one-octet numbers, nothing odd) are read here by hand:
    the derived reader makes a call and a tuple per message, which costs more than all the rest. What
    it cannot take it leaves to `scan`. A test holds the two together on every datagram.
    """
    if hints.extra is None or hints.extra.phase != _OPEN:
        return scan(payload, direction, hints)
    size = len(payload)
    if not 5 <= size <= LARGEST_SENT:  # noqa: PLR2004 - a header and a message
        return scan(payload, direction, hints)
    how = _READERS.get(hints.dialects[direction]) or _READERS["knet-2.x"]
    head = payload[0]
    place = 3
    base = 0
    if head & 0x40:
        base = payload[3] | payload[4] << 8
        place = 5
    number = head & 0x3F | payload[1] << 6 | payload[2] << 14
    if base > 0x7FFF or (direction and number == how.first_id):  # noqa: PLR2004 - it goes on
        return scan(payload, direction, hints)
    found = _messages(payload, place, size, how)
    if found is None:
        return scan(payload, direction, hints)
    delta, types, events, asked = found
    if bool(types) != bool(head & 0x40):
        return scan(payload, direction, hints)
    if types:
        unit: Event = (_UNIT, None, "datagram", number, None, payload)
        events.append((_RUN, "reliable", base + delta, types))
    else:
        unit = (_PLAIN, None, "datagram", number, payload)
    if asked:
        events.append((_COUNTER, "in_order_requested", asked))
    return [unit, *events]


def _messages(
    payload: bytes, place: int, size: int, how: Reader
) -> tuple[int, list[str], list[Event], int] | None:
    """Return (first delta, types of the reliable ones, events of the others, in-order requested).

    None where a message is not of the commonest form.
    """
    types: list[str] = []
    events: list[Event] = []
    first = asked = 0
    names, controls = how.types, how.controls
    try:
        while place < size:
            flags = payload[place + 1]
            start = place + 2
            after = start + ((flags & 7) << 8 | payload[place])
            if flags & 0xC8:  # a fragment, or the unused bit
                return None
            if flags & 0x10:
                delta = payload[start]
                start += 1
                after += 1
                if not types:
                    first = delta
                if delta > 0x7F or delta != first + len(types):  # noqa: PLR2004 - it goes on
                    return None
                identifier = payload[start]
                if identifier in controls or identifier > 0x7F:  # noqa: PLR2004
                    return None
                types.append(names[identifier])
                asked += flags >> 5
            else:
                identifier = payload[start]
                if identifier > 0x7F:  # noqa: PLR2004 - it goes on
                    return None
                kind = names[identifier]
                events.append((_MESSAGE, kind))
                if identifier not in controls:
                    asked += flags >> 5
                elif not _plain_control(kind, payload, start, after, events):
                    return None
            if after <= start:
                return None
            place = after
    except (IndexError, KeyError):
        return None
    return (first, types, events, asked) if place == size else None


def _plain_control(
    kind: str, payload: bytes, start: int, after: int, events: list[Event]
) -> bool:
    """Add what a control message of the usual form means; False for any other."""
    if kind == PACKET_ACK:
        base = payload[start + 1] | payload[start + 2] << 8 | payload[start + 3] << 16
        if after - start != _ACK_OCTETS or base >> 22:
            return False
        bits = int.from_bytes(payload[start + 4 : after], "little")
        events.append((_ACK, "datagram", base, bits))
        return True
    if kind not in _PINGS or after - start != _PING_OCTETS:
        return False
    events.append((_PINGS[kind], "ping", payload[start + 1]))
    return True


def _datagram(
    values: Values, payload: bytes, direction: int, hints: Hints, how: Reader
) -> list[Event]:
    """Return the events of a datagram from the values of its reader."""
    _, reliable, low, high, base, messages, _ = values
    number = high << 6 | low
    events: list[Event] = [
        (_UNIT, None, "datagram", number, None, payload)
        if reliable
        else (_PLAIN, None, "datagram", number, payload)
    ]
    append = events.append
    types = how.types
    parts: list[Event] | None = None
    odd = not messages
    asked = reliables = 0
    for message in messages:
        start, fragment, in_order, is_reliable, unused, delta, count, transfer, _, content, _ = message
        odd = odd or unused
        if fragment or start:
            if how.legacy and not is_reliable and not start:
                odd = True
            else:
                parts = parts or []
                kind = _part(message, base, how, parts)
                if is_reliable:
                    reliables += 1
                    append((_UNIT, kind, "reliable", (base or 0) + delta, None, content))
                else:
                    append((_MESSAGE, kind))
                odd = odd or not is_reliable or not transfer or (start and count < _FEWEST)
                continue
        identifier = content[0]
        if identifier > 0x7F:  # noqa: PLR2004 - the number goes on
            identifier = _READ_ID(content, 0, len(content))[0]
        kind = types.get(identifier) or _type(identifier, how)
        if is_reliable:
            reliables += 1
            append((_UNIT, kind, "reliable", (base or 0) + delta, None, content))
        elif identifier not in how.controls:
            append((_MESSAGE, kind))
        if identifier in how.controls:
            if not is_reliable:
                append((_MESSAGE, kind))
            known = (number, (base or 0) + delta if is_reliable else None)
            _control(kind, content, known, direction, hints, events)
        elif in_order:
            asked += 1
    if asked:
        append((_COUNTER, "in_order_requested", asked))
    if number == how.first_id and direction:
        _opening(events)
    if odd or (reliables > 0) != (reliable > 0) or len(payload) > LARGEST_SENT:
        _oddities(values, payload, how, events)
    if parts:
        events += parts
    return events


def _type(identifier: int, how: Reader) -> str:
    """Return the type of a message ID and remember it."""
    name = message_type(identifier, how.dialect)
    if len(how.types) < _TYPES_KEPT:
        how.types[identifier] = name
    return name


def _part(message: Values, base: int | None, how: Reader, parts: list[Event]) -> str:
    """Note a fragment for the assembler; return the type under which it counts."""
    start, _, _, is_reliable, _, delta, count, transfer, index, content, _ = message
    number = (base or 0) + delta if is_reliable else None
    if not start or count >= _FEWEST:
        parts.append((_PART, transfer, None if start else index, count, number, content))
    if not start:
        return "fragment"
    identifier = _READ_ID(content, 0, len(content))[0]
    return f"{_type(identifier, how)}(first fragment)"


# -- control messages --------------------------------------------------------------------------------


def _control(
    kind: str, content: bytes, numbers: tuple[int, int | None], direction: int, hints: Hints,
    events: list[Event],
) -> None:  # fmt: skip
    """Add what a control message means; `numbers`: PacketID and reliable number."""
    size = len(content)
    if kind == PACKET_ACK:
        values = _READ_ACK(content, 0, size)
        if values is None or values[3] != size:
            events.append((_NOTE, "knet-control-size", f"PacketAck of {size} octets"))
            return
        _, base, bits, _ = values
        if base >> 22:
            events.append((_NOTE, "knet-ack-bits", f"PacketAck of {base:#x}"))
            events += [(_ACK, "datagram", named, 0) for named in acknowledged(base, bits)]
        else:
            events.append((_ACK, "datagram", base, bits))
    elif kind in (PING_REQUEST, PING_REPLY):
        identifier_end = _READ_ID(content, 0, size)[1]
        if size - identifier_end != _PING_OCTETS - 1:
            events.append((_NOTE, "knet-control-size", f"{kind} of {size} octets"))
            return
        events.append((_PROBE if kind == PING_REQUEST else _REPLY, "ping", content[-1]))
    elif kind == FLOW_CONTROL:
        if size != _FLOW_OCTETS and hints.dialects[direction] != "knet-urho3d":
            events.append((_NOTE, "knet-control-size", f"FlowControlRequest of {size} octets"))
    else:
        _end(kind, size, numbers, direction, hints, events)


def _end(
    kind: str, size: int, numbers: tuple[int, int | None], direction: int, hints: Hints,
    events: list[Event],
) -> None:  # fmt: skip
    """Add what Disconnect and DisconnectAck mean."""
    if size > 4:  # noqa: PLR2004 - the message ID alone
        events.append((_NOTE, "knet-disconnect-payload", f"{kind} of {size} octets"))
    progress: Progress = hints.extra or Progress()
    if kind == DISCONNECT:
        learnt = progress._replace(phase=Phase.DISCONNECTING, closing=(direction, *numbers))
        events.append((_STATE, "disconnect", DISCONNECT))
    else:
        closing = progress.closing
        if closing is None or closing[0] == direction:
            events.append((_NOTE, "knet-disconnect-ack-alone", "DisconnectAck without Disconnect"))
        elif closing[2] is not None:
            # Section 5.4: no PacketAck ever names the datagram of a Disconnect.
            events.append((_ACK, "reliable", closing[2], 0))
        learnt = progress._replace(phase=Phase.CLOSED)
        events.append((_STATE, "disconnect-ack", DISCONNECT_ACK))
    if learnt != progress:
        events.append((_HINTS, Hints(hints.dialects, learnt)))


def _opening(events: list[Event]) -> None:
    """Say that the server may begin anew where its first datagram asks ping 1. Section 5.6."""
    if any(event[0] == _PROBE and event[2] == 1 for event in events):
        events.insert(0, (_RESTART, "datagram"))


# -- what is odd -------------------------------------------------------------------------------------


def _oddities(values: Values, payload: bytes, how: Reader, events: list[Event]) -> None:
    """Add a note for everything that no known sender does."""
    _, reliable, _, _, _, messages, _ = values
    notes: dict[str, str] = {}
    if not messages:
        notes["knet-no-messages"] = "a header and no messages"
    elif any(message[3] for message in messages) != bool(reliable):
        notes["knet-flag-mismatch"] = "the Reliable flag is not the OR of the messages' bits"
    for start, fragment, _, is_reliable, unused, _, count, transfer, _, _, _ in messages:
        if start and count < _FEWEST:
            notes["knet-fragment-count"] = f"FragmentCount {count}"
        if unused:
            notes["knet-unused-bit"] = "bit 11 is set"
        if how.legacy and fragment and not is_reliable and not start:
            notes["knet-stray-fragment-bit"] = "left-over Fragment bit"
        elif (fragment or start) and not is_reliable:
            notes["knet-unreliable-fragment"] = "a fragment that is not reliable"
        if transfer == 0:
            notes["knet-transfer-zero"] = "transfer 0"
    if len(payload) > LARGEST_SENT:
        notes["knet-oversize"] = f"{len(payload)} octets"
    events += [(_NOTE, code, text) for code, text in notes.items()]


def _broken(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a malformed datagram: what comes before the fault counts."""
    if not payload:
        note: Event = (_NOTE, "knet-empty-datagram", "no octets")
        return [note, (_STATE, "empty", None), *_deafened(direction, hints)]
    how = _READERS[hints.dialects[direction]]
    size = len(payload)
    header = None
    for end in (3, 5, 7):
        if end <= size:
            header = header or how.datagram(payload, 0, end)
    if header is None:
        return _headless(payload, direction)
    place, messages = header[-1], []
    # A reliable header that took no message may have read one into its end: begin behind the base.
    while (message := how.message(payload, place, size)) is not None:
        messages.append(message)
        place = message[-1]
    values = (*header[:5], messages, place)
    events = _datagram(values, payload, direction, hints, how)
    kept = [event for event in events if event[:2] != (_NOTE, "knet-no-messages")]
    kept.append((_NOTE, _fault(payload[place:]), f"malformed at octet {place}"))
    if not any(event[0] == _HINTS for event in kept):
        kept += _deafened(direction, hints)
    return kept


def _deafened(direction: int, hints: Hints) -> list[Event]:
    """Return the hints after what makes a client read nothing more. Sections 5.6 and 12."""
    progress = hints.extra
    if not direction or progress is None or progress.phase not in _LIVE:
        return []
    return [(_HINTS, Hints(hints.dialects, progress._replace(phase=Phase.DEAF)))]


def _headless(payload: bytes, direction: int) -> list[Event]:
    """Return the events of a datagram whose header is cut."""
    del direction
    if len(payload) < 3:  # noqa: PLR2004 - the header
        return [(_NOTE, "knet-header", f"{len(payload)} octets")]
    values = read.read_KnetDatagram(bytes([payload[0] & 0xBF]) + payload[1:3], 0, 3)
    number = values[3] << 6 | values[2]
    return [
        (_UNIT, None, "datagram", number, None, payload),
        (_NOTE, "knet-no-base", "ReliableBase is missing"),
    ]


def _fault(rest: bytes) -> str:
    """Return the code of what is wrong with the message at the start of `rest`."""
    if len(rest) < 2:  # noqa: PLR2004 - the message header
        return "truncated"
    length = (rest[1] & 7) << 8 | rest[0]
    if length == 0:
        return "knet-zero-content"
    return "length-beyond-end" if length + 2 > len(rest) else "truncated"


# -- phases ------------------------------------------------------------------------------------------


def _unreadable(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of what is no message datagram, on a connection that is open."""
    if direction or not payload:
        return _broken(payload, direction, hints)
    progress: Progress = hints.extra
    learnt = Hints(hints.dialects, progress._replace(phase=Phase.KNOCKING))
    if payload == NULL_CONNECT:
        note: list[Event] = [(_NOTE, "knet-connect-again", "eight zero octets")]
    else:
        note = _broken(payload, direction, hints)
    return [(_RESTART, "?"), *note, (_HINTS, learnt)]


def _unsettled(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram while the position in the connection matters."""
    progress: Progress = hints.extra or Progress()
    how = _READERS[hints.dialects[direction]]
    values = how.datagram(payload, 0, len(payload)) if payload else None
    return _PHASES[progress.phase](values, payload, direction, Hints(hints.dialects, progress))


def _events(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    if values is None:
        return _broken(payload, direction, hints)
    how = _READERS[hints.dialects[direction]]
    return _datagram(values, payload, direction, hints, how)


def _with(events: list[Event], hints: Hints, **changes: Any) -> list[Event]:
    """Add the hints with some changes, unless a Disconnect in the same datagram has set others."""
    if any(event[0] == _HINTS for event in events):
        return events
    parts = [event for event in events if event[0] == _PART]
    kept = [event for event in events if event[0] != _PART]
    return [*kept, (_HINTS, Hints(hints.dialects, hints.extra._replace(**changes))), *parts]


def _first_id(values: Values) -> int:
    return int(values[3] << 6 | values[2])


def _start(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take the first datagram of a connection. Section 5.1."""
    if direction:
        return [
            (_STATE, "speaks", None),
            *_with(_events(values, payload, direction, hints), hints, phase=Phase.LEARNING),
        ]
    first = _READERS[hints.dialects[0]].first_id
    if values is None:
        if not payload:
            return _broken(payload, direction, hints)
        events: list[Event] = [(_STATE, "connect", None)]
        if payload != NULL_CONNECT:
            events.append((_IDENTITY, "connect_payload", payload[:_SHOWN].hex()))
        return _with(events, hints, phase=Phase.PENDING)
    events = _events(values, payload, direction, hints)
    if _first_id(values) == first:
        # The connect datagram was lost: this one is the attempt. Section 5.1.
        return [(_STATE, "connect", None), *_with(events, hints, phase=Phase.PENDING)]
    return [(_STATE, "speaks", None), *_with(events, hints, phase=Phase.LEARNING)]


def _pending(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram before the server has answered. Sections 5.1 and 5.6."""
    if not direction:
        if payload == NULL_CONNECT:
            return []
        events = _events(values, payload, direction, hints)
        early = (_NOTE, "knet-early-data", "the server has not answered yet")
        parts = [event for event in events if event[0] == _PART]
        return [*(event for event in events if event[0] != _PART), early, *parts]
    events = [event for event in _events(values, payload, direction, hints) if event[0] != _RESTART]
    return [(_STATE, "accept", None), *_with(events, hints, phase=Phase.LEARNING)]


def _learning(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram and look whose application messages it carries."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    if any(event[0] == _HINTS for event in events):
        return events
    learnt = learning.learn(values, direction, hints)
    if learnt is hints:
        return events
    parts = [event for event in events if event[0] == _PART]
    kept = [event for event in events if event[0] != _PART]
    return [*kept, (_HINTS, learnt), *parts]


def _knocking(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after one that may have been a new client's first. Section 5.6."""
    if direction:
        return _events(values, payload, direction, hints)
    if values is None:
        return _unreadable(payload, direction, hints)
    if _first_id(values) == _READERS[hints.dialects[0]].first_id:
        return [(_RESTART, "*")]
    back = Phase.OPEN if hints.extra.closing is None else Phase.DISCONNECTING
    return _with(_events(values, payload, direction, hints), hints, phase=back)


def _deaf(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after the client has stopped to read: acknowledgements change nothing."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    return [event for event in events if event[0] not in _ANSWERS] if direction else events


def _closing(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after a Disconnect."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    side, number, _ = hints.extra.closing or (1 - direction, None, None)
    if side == direction and _first_id(values) != number:
        events.insert(-1 if events[-1][0] == _PART else len(events), (
            _NOTE, "knet-after-disconnect", "its sender has sent a Disconnect",
        ))  # fmt: skip
    return events


def _closed(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after the end. Section 5.6: it makes a new connection object."""
    if not direction and payload and values is None:
        return [(_RESTART, "*")]
    return _closing(values, payload, direction, hints)


_PHASES: Final = {
    Phase.START: _start,
    Phase.PENDING: _pending,
    Phase.LEARNING: _learning,
    Phase.OPEN: _events,
    Phase.KNOCKING: _knocking,
    Phase.DISCONNECTING: _closing,
    Phase.CLOSED: _closed,
    Phase.DEAF: _deaf,
}
_LIVE: Final = (Phase.LEARNING, Phase.OPEN, Phase.KNOCKING)
_ANSWERS: Final = (_ACK, _REPLY)


# -- TCP -----------------------------------------------------------------------------------------------


def scan_stream(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one TCP message out of its framing."""
    if not payload:
        return []
    try:
        identifier, _ = _READ_ID(payload, 0, len(payload))
    except VarintError:
        return [(_NOTE, "truncated", "message ID is cut short")]
    how = _READERS[hints.dialects[direction]]
    kind = how.types.get(identifier) or _type(identifier, how)
    events: list[Event] = [(_MESSAGE, kind)]
    if kind in (PING_REQUEST, PING_REPLY):
        _control(kind, payload, (0, None), direction, hints, events)
    elif kind == FLOW_CONTROL and len(payload) != _FLOW_OCTETS:
        events.append((_NOTE, "knet-control-size", f"FlowControlRequest of {len(payload)} octets"))
    if hints.extra is None or hints.extra.phase == Phase.START:
        events.append((_STATE, "speaks", None))
        events.append((_HINTS, Hints(hints.dialects, Progress(Phase.OPEN))))
    return events
