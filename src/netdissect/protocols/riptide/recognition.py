"""Whether a flow is Riptide, in which dialect, and which side is the client.

Source: docs/protocols/riptide.md sections 1.2 and 10. Every packing is tried in both roles; the
hypothesis with the most evidence wins, a message that no release would send ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from re import compile as compile_
from typing import Any, Final

from netdissect.dissect.readers import riptide as read
from netdissect.model.claims import Claim, Sample
from netdissect.protocols.framing import Prefix, chain_start
from netdissect.wire.riptide import (
    BITS,
    BYTES_20,
    BYTES_21DEV,
    RELIABLE_CLASS,
    SIZE_LIMIT_20,
    SIZE_LIMIT_21,
    TYPES_20,
    TYPES_21,
    UNDECIDED,
    UNDECIDED_BYTES,
)

__all__ = ["PREFIXES", "recognise"]

_SECOND: Final = 1_000_000_000
_MAX_FRAME: Final = 65535  # lengths of 2.0 have 16 bits
_MAX_SEARCHED: Final = 8192
"""Stream bytes in which the first messages are looked for where the start is none."""
_THOROUGH: Final = 64
_EARLY: Final = (16, 32)
"""Pieces of stream at which the middle is searched: each time that so many have come, and early
enough that no weaker claim comes before.
"""
_MAX_SAMPLE_OCTETS: Final = 64 * 1024
"""Stream bytes looked at per direction."""

HANDSHAKE: Final = 90
WELCOME_ACKED: Final = 95
WELCOME_BACK: Final = 98
HEARTBEATS: Final = 75
MORE_HEARTBEATS: Final = 89
ACKED_THRICE: Final = 72
CHAINED: Final = 75
ALONE: Final = 64
REJECTED: Final = 60
REJECTED_THRICE: Final = 66
PENDING: Final = 60
KNOCKS: Final = 60
"""Scores of the evidence in section 10, in its order of strength; see `model.claims.STRONG`."""
LIKELY: Final = 20
"""Every message could be Riptide's, nothing proves it: enough where a user says that it is."""
_PAIRS_NEEDED: Final = 3
_CHAIN: Final = 8
_ACKS_IN_CHAIN: Final = 2
"""Messages, and different Acks among them, that a stream is known by."""
_ACKS_ALONE: Final = 5
"""Acks among twice as many messages where the other side is not heard."""
_TRIES: Final = 5
"""Connects of a client that nobody answers."""
_KICKED: Final = 4  # the one reason of Disconnect that a message may follow
_STEPS: Final = 3
_COUNTERS: Final = 2
"""Steps of each of so many counters that one side is known by where the other is not heard."""
_FAR: Final = 64
"""No loss makes a counter jump so far that it counts for Riptide's."""
_NIBBLE: Final = 16
"""Numbers that bit packing would read in whole bytes are multiples of this."""
_TELLING: Final = 2
"""Numbers from which on such a coincidence counts."""

_FIRST: Final = (1, 2)
"""Numbers of a Welcome: the first one, or the next where its sender counts others before it."""
_BEFORE_ACK: Final = frozenset({"Connect", "Welcome", "ClientConnected"})
"""What a server sends before its first Ack."""
_BEGINNING: Final = frozenset({"Connect", "Welcome", "Reject"})
"""What may follow the Disconnect of a side."""

_NUMBERED: Final = frozenset(
    {"Reliable", "Welcome", "ClientConnected", "ClientDisconnected", "Ack", "Notify", "Heartbeat"}
)
"""Types whose first value in bit packing is a number that counts up."""

_BYTES: Final = frozenset({BYTES_20, BYTES_21DEV})

_Reader = Callable[[bytes, int, int], tuple[Any, ...] | None]


def _readers(prefix: str, names: tuple[str, ...]) -> tuple[tuple[str, _Reader], ...]:
    return tuple((name, getattr(read, f"read_{prefix}{name}")) for name in names)


_READERS: Final = {
    UNDECIDED: _readers("Riptide", TYPES_21),
    BYTES_20: _readers("Riptide20", TYPES_20),
    BYTES_21DEV: _readers("Riptide21dev", TYPES_21),
}
"""Packing -> (type name, reader) by type number."""


class _Evidence:
    """What one hypothesis has collected."""

    __slots__ = ("reasons", "score")

    def __init__(self) -> None:
        self.score = 0
        self.reasons: list[str] = []

    def add(self, score: int, reason: str) -> None:
        self.score = max(self.score, score)
        self.reasons.append(reason)


class _Message:
    """One message under a packing: who, when, its type name and the values of its reader."""

    __slots__ = ("octets", "side", "time_ns", "type", "values")

    def __init__(
        self, side: int, time_ns: int, type_: str, values: tuple[Any, ...], octets: bytes
    ) -> None:
        self.side = side
        self.time_ns = time_ns
        self.type = type_
        self.values = values
        self.octets = octets


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the best claim on a flow, or None. Pure."""
    if not final and len({side for side, _, _ in sample}) == 1:
        return None  # All that convinces early needs both sides.
    best: Claim | None = None
    most = (0, 0)
    doubt = False
    for packing, claim, read_whole in _hypotheses(sample, transport, final=final):
        weight = claim.score, read_whole
        if best is None or weight > most:
            best, most, doubt = claim, weight, False
        elif weight < most:
            continue
        elif claim.dialects == best.dialects:
            # As likely the other way round: a heartbeat or an end may still show who is who.
            # Of a stream a weaker claim could come before.
            best = replace(best, client=None, waits=transport == "udp" and not final)
        elif {packing, best.dialects[0]} == _BYTES:
            doubt = True
    if best is not None and doubt:
        # Nothing that the two number differently has come.
        return replace(best, waits=not final, dialects=(UNDECIDED_BYTES, UNDECIDED_BYTES))
    return best


def _hypotheses(
    sample: Sequence[Sample], transport: str, *, final: bool
) -> Iterator[tuple[str, Claim, int]]:
    """Yield what each packing makes of a flow in both roles: the packing, the claim, and how many
    messages it can read.
    """
    thorough = final or len(sample) in _EARLY or not len(sample) % _THOROUGH
    for packing in (UNDECIDED, BYTES_20, BYTES_21DEV):
        framed = list(sample)
        if transport == "tcp":
            framed = _frames(sample, PREFIXES[packing], thorough=thorough)
        if not framed:
            continue
        for client in (0, 1):
            messages = _messages(framed, packing, client)
            claim = _judge(framed, messages, packing, client, transport, final=final)
            if claim is not None:
                yield packing, claim, len(messages)


def _frames(sample: Sequence[Sample], prefix: Prefix, *, thorough: bool) -> list[Sample]:
    """Return the length-prefixed messages of both streams, in the order in which they were whole;
    nothing where a stream has none at its start, or where `thorough` in its middle.
    """
    streams = (bytearray(), bytearray())
    ends: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for side, time_ns, octets in sample:
        streams[side].extend(octets[: _MAX_SAMPLE_OCTETS - len(streams[side])])
        ends[side].append((len(streams[side]), time_ns))
    framed: list[Sample] = []
    for side, stream in enumerate(streams):
        messages = _cut(bytes(stream), prefix, thorough=thorough)
        if stream and not messages:
            return []
        arrivals = iter(ends[side])
        end, time_ns = 0, 0
        for start, stop in messages:
            while end < stop:
                end, time_ns = next(arrivals)
            framed.append((side, time_ns, bytes(stream[start:stop])))
    return sorted(framed, key=itemgetter(1))


def _cut(stream: bytes, prefix: Prefix, *, thorough: bool) -> list[tuple[int, int]]:
    """Return where the messages of a stream begin and end."""
    found = _messages_from(stream, 0, prefix)
    if found or not thorough:
        return found
    first = chain_start(stream[:_MAX_SEARCHED], prefix)
    return [] if first is None else _messages_from(stream, first, prefix)


def _messages_from(stream: bytes, place: int, prefix: Prefix) -> list[tuple[int, int]]:
    """Return where the messages from a place on begin and end; nothing where one is impossible."""
    found: list[tuple[int, int]] = []
    while place + prefix.width <= len(stream):
        start = place + prefix.width
        place = start + prefix.length(stream, place)
        if not start < place <= start + _MAX_FRAME:
            return []
        if place <= len(stream):
            if not prefix.fits(stream[start:place]):
                return []
            found.append((start, place))
    return found


def _judge(
    sample: Sequence[Sample], messages: list[_Message], packing: str, client: int, transport: str,
    *, final: bool,
) -> Claim | None:  # fmt: skip
    evidence = _Evidence()
    _handshake(messages, client, evidence)
    if final and len({side for side, _, _ in sample}) == 1:
        _half_handshake(messages, client, evidence)
    if messages and len(messages) == len(sample):
        if packing == UNDECIDED and _shifted(messages):
            return None
        _heartbeats(messages, client, evidence)
        _acks(messages, evidence)
        _refusal(messages, client, evidence, final=final)
        if transport == "tcp":
            _chain(messages, evidence)
        if final:
            _knocks(messages, client, evidence)
            _heard_alone(messages, evidence)
            if not evidence.score:
                evidence.add(LIKELY, "every message could be one of Riptide's")
    if not evidence.score:
        return None
    first, second = _dialects(messages, packing)
    return Claim(
        protocol="riptide",
        score=evidence.score,
        dialects=(first, second),
        client=client,
        roles_from="handshake" if messages[0].type == "Connect" else "protocol",
        reasons=tuple(evidence.reasons),
    )


def _messages(sample: Sequence[Sample], packing: str, client: int) -> list[_Message]:
    """Return the messages up to the first one that this packing and role cannot have sent."""
    found: list[_Message] = []
    gone: list[bytes] = [b"", b""]
    for side, time_ns, octets in sample:
        message = _message(octets, packing, side, time_ns, from_client=side == client)
        if message is None:
            break
        left = gone[side]
        if left and packing in _BYTES and octets != left and message.type not in _BEGINNING:
            break
        gone[side] = octets if message.type == "Disconnect" else b""
        found.append(message)
    return found


def _possible(packing: str) -> Callable[[bytes], bool]:
    """Return what tells whether bytes could be a message of a packing, from either side."""

    def fits(octets: bytes) -> bool:
        return any(
            _message(octets, packing, 0, 0, from_client=side) is not None for side in (False, True)
        )

    return fits


def _message(
    octets: bytes, packing: str, side: int, time_ns: int, *, from_client: bool
) -> _Message | None:
    """Read one message; None where a veto of section 10 applies."""
    if not octets:
        return None
    readers = _READERS[packing]
    number = octets[0] & 15 if packing == UNDECIDED else octets[0]
    if number >= len(readers):
        return None
    type_, reader = readers[number]
    size = len(octets)
    values = reader(octets, 0, size)
    if values is None or not _plausible(type_, values, octets, packing, from_client=from_client):
        return None
    return _Message(side, time_ns, type_, values, octets)


def _plausible(  # noqa: PLR0911 - one line per message type
    type_: str, values: tuple[Any, ...], octets: bytes, packing: str, *, from_client: bool
) -> bool:
    """Return False for a size, a padding or a direction that no release sends."""
    size = len(octets)
    padded = packing == UNDECIDED
    if type_ in ("Ack", "AckExtra"):
        if packing == BYTES_20:
            return size == (7 if type_ == "AckExtra" else 5)
        used = 53 if size == 7 else 37  # noqa: PLR2004 - with and without the named id
        return size in (5, 7) and not (padded and octets[-1] >> (used & 7))
    if type_ == "Heartbeat":
        return size == (4 if from_client else 2) and not (padded and octets[-1] >> 4)
    if type_ == "Welcome":
        return size == 5 and not (padded and octets[-1] >> 4)  # noqa: PLR2004 - whole message
    if type_ in ("ClientConnected", "ClientDisconnected"):
        return size == 5 and not from_client  # noqa: PLR2004 - whole message
    if type_ == "Reject":
        custom = 5 if packing == BYTES_20 else 4
        plain = size == 2 and not (padded and octets[1] >> 4)  # noqa: PLR2004 - type and reason
        return not from_client and (values[1] == custom or (plain and values[1] < custom))
    if type_ == "Disconnect":
        # Data follows one reason only.
        return size == 1 if from_client else size == 2 or (size > 2 and values[1] == _KICKED)  # noqa: PLR2004 - type and reason
    if type_ == "Connect":
        return from_client or size == 1
    return size >= 3  # noqa: PLR2004 - type and number, or type and message id


def _handshake(messages: list[_Message], client: int, evidence: _Evidence) -> None:
    """Connect, Welcome with sequence 1, its Ack, the same Welcome back."""
    if not messages or messages[0].type != "Connect" or messages[0].side != client:
        return
    welcome = next((m for m in messages if m.type == "Welcome" and m.side != client), None)
    if welcome is None or welcome.values[1] != 1 or not welcome.values[2]:
        return
    before = messages[: messages.index(welcome)]
    if any(message.type not in ("Connect", "Welcome") for message in before):
        return
    evidence.add(HANDSHAKE, "Connect answered by a Welcome with sequence id 1")
    for message in messages:
        if message.side != client:
            continue
        if message.type == "Ack" and message.values[1] == 1:
            evidence.add(WELCOME_ACKED, "the client acknowledges sequence id 1")
        if message.type == "Welcome" and message.octets == welcome.octets:
            evidence.add(WELCOME_BACK, "the client sends the same Welcome back")


def _heartbeats(messages: list[_Message], client: int, evidence: _Evidence) -> None:
    """Two or more heartbeats with rising ids, a second apart, each answered with its id."""
    asked: dict[int, int] = {}
    answered: list[tuple[int, int]] = []
    for message in messages:
        if message.type != "Heartbeat":
            continue
        ping = message.values[1]
        if message.side == client:
            asked.setdefault(ping, message.time_ns)
        elif ping in asked and (not answered or answered[-1][0] != ping):
            answered.append((ping, asked[ping]))
    runs = sum(
        (b[0] - a[0]) & 255 == 1 and 0.7 * _SECOND < b[1] - a[1] < 1.5 * _SECOND
        for a, b in pairwise(answered)
    )
    if runs:
        score = HEARTBEATS if runs == 1 else MORE_HEARTBEATS
        evidence.add(score, f"{runs + 1} heartbeats a second apart, answered with their ids")


def _acks(messages: list[_Message], evidence: _Evidence) -> None:
    """Reliable messages, each followed by an Ack of the other side that names it."""
    waiting: tuple[set[int], set[int]] = (set(), set())
    named: tuple[set[int], set[int]] = (set(), set())
    for message in messages:
        if message.type in RELIABLE_CLASS:
            waiting[message.side].add(message.values[1])
        elif message.type in ("Ack", "AckExtra"):
            other = 1 - message.side
            acked = _acked(message)
            if acked in waiting[other]:
                named[other].add(acked)
    count = len(named[0]) + len(named[1])
    if count >= _PAIRS_NEEDED:
        evidence.add(ACKED_THRICE, f"{count} reliable messages acknowledged by their sequence ids")
    elif count and count + _notify_steps(messages) > _PAIRS_NEEDED:
        evidence.add(ACKED_THRICE, "reliable messages acknowledged, and Notify ids that count up")


def _chain(messages: list[_Message], evidence: _Evidence) -> None:
    """Frames in a row on both streams that all hold a message, Acks of exact size among them."""
    sides = {message.side for message in messages}
    acks = [each.octets for each in messages if each.type in ("Ack", "AckExtra")]
    alone = len(sides) == 1 and len(messages) >= 2 * _CHAIN and len(acks) >= _ACKS_ALONE
    if len(sides) > 1 and len(set(acks)) >= _ACKS_IN_CHAIN and len(messages) >= _CHAIN:
        evidence.add(CHAINED, f"{len(messages)} frames in a row hold one message each")
    elif alone and {"Reliable", "Ack"} <= set(_steps(messages)):
        evidence.add(ALONE, f"{len(messages)} frames of one side hold one message each")


def _shifted(messages: list[_Message]) -> bool:
    """Return whether whole bytes are read as bits here: all numbers are multiples of 16.

    A first byte of 10 or less is a type of byte packing; in bit packing its high half is the low
    half of the number.
    """
    numbers = {message.values[1] for message in messages if message.type in _NUMBERED}
    return len(numbers) >= _TELLING and not any(number % _NIBBLE for number in numbers)


def _notify_steps(messages: list[_Message]) -> int:
    """Return how often a Notify carries the id after that of the one before from its side."""
    steps = 0
    for side in (0, 1):
        ids = [m.values[3] for m in messages if m.type == "Notify" and m.side == side]
        steps += sum((b - a) & 0xFFFF == 1 for a, b in pairwise(ids))
    return steps


def _acked(message: _Message) -> int:
    """Return the sequence id that an Ack names."""
    values = message.values
    if message.type == "AckExtra":
        return int(values[3])
    size = len(message.octets)
    if len(values) == 6:  # noqa: PLR2004 - bit packing: newest, bits, flag, named, end
        return int(values[4] if values[3] and values[4] is not None else values[1])
    if len(values) == 5 and size == 7 and values[3] is not None:  # noqa: PLR2004 - 2.1dev
        return int(values[3])
    return int(values[1])


def _refusal(messages: list[_Message], client: int, evidence: _Evidence, *, final: bool) -> None:
    """Connect, perhaps its echo, and Reject; or Connect and its echo and nothing more."""
    if messages[0].type != "Connect" or messages[0].side != client:
        return
    answers = [message for message in messages if message.side != client]
    if any(message.type != "Connect" for message in messages if message.side == client):
        return
    echoes = [message for message in answers if message.type == "Connect"]
    rejects = [message for message in answers if message.type == "Reject"]
    if not answers or len(echoes) + len(rejects) != len(answers):
        return
    if rejects:
        copies = len({message.octets for message in rejects}) == 1 and len(rejects)
        if copies == 3:  # noqa: PLR2004 - 2.1 and later send it three times
            evidence.add(REJECTED_THRICE, "Connect refused by three equal Rejects")
        elif echoes or (final and len(messages[0].octets) == 1):
            evidence.add(REJECTED, "Connect refused by a Reject")
    elif final:
        evidence.add(PENDING, "Connect echoed with one byte, which means pending")


def _knocks(messages: list[_Message], client: int, evidence: _Evidence) -> None:
    """Equal Connects a second apart, unanswered: with data, as many protocols ask, all five."""
    if not messages or any(each.type != "Connect" or each.side != client for each in messages):
        return
    gaps = [b.time_ns - a.time_ns for a, b in pairwise(messages)]
    needed = 3 if len(messages[0].octets) == 1 else _TRIES
    if len({each.octets for each in messages}) == 1 and len(messages) >= needed and all(
        0.8 * _SECOND < gap < 1.3 * _SECOND for gap in gaps
    ):
        evidence.add(KNOCKS, f"{len(messages)} equal Connects a second apart, unanswered")


def _half_handshake(messages: list[_Message], client: int, evidence: _Evidence) -> None:
    """Take what one side alone sends of a handshake: a client Connect, then an Ack and the Welcome
    back; a server a Welcome, then the Ack of the one that comes back.
    """
    types = [message.type for message in messages]
    if "Welcome" not in types or "Ack" not in types:
        return
    first_ack = types.index("Ack")
    welcome, ack = messages[types.index("Welcome")], messages[first_ack]
    if welcome.values[1] not in _FIRST or ack.values[1] not in _FIRST or not welcome.values[2]:
        return
    if messages[0].side == client:
        if types[0] == "Connect":
            evidence.add(HANDSHAKE, "Connect, then the answers to a Welcome")
    elif "Welcome" in types[:first_ack] and set(types[:first_ack]) <= _BEFORE_ACK:
        evidence.add(HANDSHAKE, "a Welcome, then the Ack of the one that comes back")


def _heard_alone(messages: list[_Message], evidence: _Evidence) -> None:
    """One side only: several kinds of numbers that count up."""
    side = messages[0].side
    if any(message.side != side for message in messages):
        return
    steps = _steps(messages)
    if sum(count >= _STEPS for count in steps.values()) >= _COUNTERS:
        evidence.add(ALONE, f"one side alone, whose numbers count up: {', '.join(sorted(steps))}")


def _steps(messages: list[_Message]) -> dict[str, int]:
    """Return how often each counter of a sender went on by one; nothing where one jumps."""
    newest: dict[str, tuple[int, int]] = {}
    steps: dict[str, int] = {}
    for message in messages:
        kind = _COUNTING.get(message.type)
        if kind is None:
            continue
        number, wrap = message.values[3 if kind == "Notify" else 1], 1 << 16
        if kind == "Heartbeat":
            wrap = 1 << 8
        before, since_ns = newest.get(kind, (number, 0))
        step = (number - before) % wrap
        if _FAR < step < wrap - _FAR:
            return {}
        if 0 < step <= _FAR:
            gap_ns = message.time_ns - since_ns
            timed = kind != "Heartbeat" or 0.7 * _SECOND < gap_ns < 1.5 * _SECOND
            steps[kind] = steps.get(kind, 0) + (step == 1 and timed)
        if step < wrap - _FAR:
            newest[kind] = number, message.time_ns
    return steps


_COUNTING: Final = {
    "Reliable": "Reliable", "Welcome": "Reliable", "ClientConnected": "Reliable",
    "ClientDisconnected": "Reliable", "Ack": "Ack", "AckExtra": "Ack", "Notify": "Notify",
    "Heartbeat": "Heartbeat",
}  # fmt: skip
"""Type -> the counter of its sender that it carries."""


def _dialects(messages: list[_Message], packing: str) -> tuple[str, str]:
    """Return the dialect of each side; for bit packing as far as the length of acks tells."""
    if packing != UNDECIDED:
        return packing, packing
    found = [UNDECIDED, UNDECIDED]
    for message in messages:
        if message.type != "Ack" or found[message.side] != UNDECIDED:
            continue
        if not message.values[3]:
            found[message.side] = BITS[1] if len(message.octets) == 5 else BITS[0]  # noqa: PLR2004 - 2.1 always has room for an id
    return found[0], found[1]


PREFIXES: Final = {
    UNDECIDED: Prefix(
        4, SIZE_LIMIT_21, 3, _possible(UNDECIDED), compile_(rb"(?s)(?=.[\0-\4]\0\0)"),
        is_signed=True,
    ),
    BYTES_20: Prefix(
        2, SIZE_LIMIT_20, 4, _possible(BYTES_20), compile_(rb"(?s)(?=.[\0-\4][\0-\n])")
    ),
    BYTES_21DEV: Prefix(
        4, SIZE_LIMIT_21, 3, _possible(BYTES_21DEV), compile_(rb"(?s)(?=.[\0-\4]\0\0[\0-\n])"),
        is_signed=True,
    ),
}  # fmt: skip
"""Packing -> how its messages stand in a stream. Source: section 5."""
