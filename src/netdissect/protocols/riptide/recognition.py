"""Whether a flow is Riptide, in which dialect, and which side is the client.

Each hypothesis (a packing, and which side is the client) reads the sample up to the first message
that no release would send. The hypothesis with the strongest evidence wins.
Source: docs/protocols/riptide.md sections 1.2 and 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.riptide.framing import PREFIXES, messages_of
from netdissect.protocols.riptide.strict import Message, read_message
from netdissect.wire.riptide import (
    BITS,
    BYTES_20,
    BYTES_21DEV,
    RELIABLE_CLASS,
    UNDECIDED,
    UNDECIDED_BYTES,
)

HANDSHAKE: Final = 90
WELCOME_ACKED: Final = 95
WELCOME_BACK: Final = 98
HEARTBEATS: Final = 75
MORE_HEARTBEATS: Final = 89
THREE_ACKS: Final = 72
CHAIN: Final = 75
ONE_SIDE: Final = 64
REJECTED: Final = 60
THREE_REJECTS: Final = 66
PENDING: Final = 60
UNANSWERED: Final = 60
"""Scores of the evidence in section 10; see `model.claims.STRONG`."""
POSSIBLE: Final = 20
"""Score where every message is possible but nothing proves it: enough for a decode-as rule."""

_SECOND_NS: Final = 1_000_000_000
_SEARCH_EVERY: Final = 64
"""A stream is searched each time that the sample has grown by this number of pieces."""
_EARLY_SEARCHES: Final = (16, 32)
"""Sample sizes at which it is searched too, so that no weaker claim comes first."""
_MIN_ACKED: Final = 3
"""Acknowledged reliable messages that prove a flow."""
_MIN_CHAIN: Final = 8
"""Consecutive messages of a stream that prove it."""
_MIN_CHAIN_ACKS: Final = 2
"""Different Acks that must be among them."""
_MIN_ONE_SIDE_ACKS: Final = 5
"""Acks that must be among twice as many messages where only one side was captured."""
_CONNECT_ATTEMPTS: Final = 5
"""Connects that a client sends before it gives up."""
_MIN_STEPS: Final = 3
"""Times that a counter must advance by one to prove a flow of which one side was captured."""
_MIN_COUNTERS: Final = 2
"""Counters that must do so."""
_MAX_STEP: Final = 64
"""Largest step of a counter that loss can explain."""
_REORDERED: Final = 4
"""Places that a network may move a datagram by. What comes again sooner may be a copy of it."""
_MIN_RESENT: Final = 3
"""Resends among many reliable messages whose ids lie close together, before byte packing is no
coincidence: other protocols begin with a type and a counter, too.
"""
_MAX_WIDTH: Final = 512
"""Largest distance of the sequence ids that a sample holds of one side from its first one."""
_NIBBLE: Final = 16
"""Number fields of whole bytes read as multiples of this in bit packing."""
_MIN_MULTIPLES: Final = 2
"""Different numbers that are all such multiples before this is no coincidence."""
_FIRST_SEQUENCES: Final = (1, 2)
"""Sequence ids of a Welcome and its Ack: 2 where the sender's ClientConnected comes first."""
_BEFORE_ACK: Final = frozenset({"Connect", "Welcome", "ClientConnected"})
"""Types that a server sends before its first Ack."""
_AFTER_DISCONNECT: Final = frozenset({"Connect", "Welcome", "Reject"})
"""Types that a side may send after its Disconnect."""

_NUMBERED: Final = frozenset(
    {"Reliable", "Welcome", "ClientConnected", "ClientDisconnected", "Ack", "Notify", "Heartbeat"}
)
"""Types whose first value in bit packing is a number that counts up."""
_COUNTERS: Final = {
    "Reliable": "Reliable", "Welcome": "Reliable", "ClientConnected": "Reliable",
    "ClientDisconnected": "Reliable", "Ack": "Ack", "AckExtra": "Ack", "Notify": "Notify",
    "Heartbeat": "Heartbeat",
}  # fmt: skip
"""Type -> counter of its sender that it carries."""

_BYTES: Final = frozenset({BYTES_20, BYTES_21DEV})

class _Evidence:
    """The evidence for one hypothesis."""

    __slots__ = ("reasons", "score")

    def __init__(self) -> None:
        self.score = 0
        """Score of the strongest piece."""
        self.reasons: list[str] = []

    def add(self, score: int, reason: str) -> None:
        self.score = max(self.score, score)
        self.reasons.append(reason)


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the best claim on a flow, or None. Pure."""
    if not final and len({side for side, _, _ in sample}) == 1:
        return None  # Until the flow ends, every proof needs both sides.
    best: Claim | None = None
    best_weight = (0, 0)
    is_ambiguous = False
    for packing, claim, readable in _hypotheses(sample, transport, final=final):
        weight = claim.score, readable
        if best is None or weight > best_weight:
            best, best_weight, is_ambiguous = claim, weight, False
        elif weight < best_weight:
            continue
        elif claim.dialects == best.dialects:
            # Either side could be the client: a heartbeat or an ending may still tell. A stream
            # does not wait, because a weaker claim could take it first.
            best = replace(best, client=None, waits=transport == "udp" and not final)
        elif {packing, best.dialects[0]} == _BYTES:
            is_ambiguous = True
    if best is not None and is_ambiguous:
        # No type has come yet that the two byte packings number differently.
        return replace(best, waits=not final, dialects=(UNDECIDED_BYTES, UNDECIDED_BYTES))
    return best


def _hypotheses(
    sample: Sequence[Sample], transport: str, *, final: bool
) -> Iterator[tuple[str, Claim, int]]:
    """Yield (packing, claim, messages that it can read) of each hypothesis that makes a claim."""
    search = final or len(sample) in _EARLY_SEARCHES or not len(sample) % _SEARCH_EVERY
    for packing in (UNDECIDED, BYTES_20, BYTES_21DEV):
        framed: Sequence[Sample] = sample
        if transport == "tcp":
            framed = messages_of(sample, PREFIXES[packing], search=search)
        if not framed:
            continue
        for client in (0, 1):
            messages = _messages(framed, packing, client)
            if not messages:
                continue
            claim = _judge(framed, messages, packing, client, transport, final=final)
            if claim is not None:
                yield packing, claim, len(messages)


def _judge(
    sample: Sequence[Sample], messages: list[Message], packing: str, client: int, transport: str,
    *, final: bool,
) -> Claim | None:  # fmt: skip
    """Return the claim that a hypothesis supports, given the messages that it can read."""
    evidence = _Evidence()
    _handshake(messages, client, evidence)
    if final and len({side for side, _, _ in sample}) == 1:
        _half_handshake(messages, client, evidence)
    if messages and len(messages) == len(sample):
        if packing == UNDECIDED and _is_byte_packed(messages):
            return None
        _heartbeats(messages, client, evidence)
        _acks(messages, evidence)
        _refusal(messages, client, evidence, final=final)
        if transport == "tcp":
            _chain(messages, evidence)
        if final:
            _unanswered(messages, client, evidence)
            _one_side(messages, evidence)
        if not evidence.score and (final or (transport == "tcp" and packing == UNDECIDED)):
            _close_ids(messages, packing, evidence)
            _close_acks(messages, evidence)
        if final and not evidence.score:
            evidence.add(POSSIBLE, "every message could be one of Riptide's")
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


def _messages(sample: Sequence[Sample], packing: str, client: int) -> list[Message]:
    """Return the messages up to the first one that is impossible for a packing and these roles."""
    found: list[Message] = []
    disconnects: list[bytes] = [b"", b""]
    for side, time_ns, octets in sample:
        message = read_message(octets, packing, side, time_ns, from_client=side == client)
        if message is None:
            break
        last = disconnects[side]
        is_copy = octets == last
        # A side that has disconnected is silent, so that the hypothesis fails here.
        if last and packing in _BYTES and not is_copy and message.type not in _AFTER_DISCONNECT:
            break
        disconnects[side] = octets if message.type == "Disconnect" else b""
        found.append(message)
    return found


def _handshake(messages: list[Message], client: int, evidence: _Evidence) -> None:
    """Weigh a handshake: Connect, Welcome with sequence id 1, its Ack, the same Welcome back.

    What the server sends after its Welcome may overtake it. Then only the Welcome back proves that
    it is one.
    """
    if not messages or messages[0].type != "Connect" or messages[0].side != client:
        return
    welcome = next((m for m in messages if m.type == "Welcome" and m.side != client), None)
    if welcome is None or welcome.values[1] != 1 or not welcome.values[2]:
        return
    before = messages[: messages.index(welcome)]
    overtaking = [each for each in before if each.type not in ("Connect", "Welcome")]
    if any(each.side == client for each in overtaking):
        return
    if overtaking and not any(
        each.octets == welcome.octets for each in messages if each.side == client
    ):
        return
    evidence.add(HANDSHAKE, "Connect answered by a Welcome with sequence id 1")
    for message in messages:
        if message.side != client:
            continue
        if message.type == "Ack" and message.values[1] == 1:
            evidence.add(WELCOME_ACKED, "the client acknowledges sequence id 1")
        if message.type == "Welcome" and message.octets == welcome.octets:
            evidence.add(WELCOME_BACK, "the client sends the same Welcome back")


def _heartbeats(messages: list[Message], client: int, evidence: _Evidence) -> None:
    """Weigh heartbeats with consecutive ids, a second apart, each answered with its id."""
    sent_ns: dict[int, int] = {}
    answered: list[tuple[int, int]] = []
    for message in messages:
        if message.type != "Heartbeat":
            continue
        ping = message.values[1]
        if message.side == client:
            sent_ns.setdefault(ping, message.time_ns)
        elif ping in sent_ns and (not answered or answered[-1][0] != ping):
            answered.append((ping, sent_ns[ping]))
    steps = sum(
        (b[0] - a[0]) & 255 == 1 and 0.7 * _SECOND_NS < b[1] - a[1] < 1.5 * _SECOND_NS
        for a, b in pairwise(answered)
    )
    if steps:
        score = HEARTBEATS if steps == 1 else MORE_HEARTBEATS
        evidence.add(score, f"{steps + 1} heartbeats a second apart, answered with their ids")


def _acks(messages: list[Message], evidence: _Evidence) -> None:
    """Weigh reliable messages that are each followed by an Ack of the other side."""
    sent: tuple[set[int], set[int]] = (set(), set())
    acked: tuple[set[int], set[int]] = (set(), set())
    for message in messages:
        if message.type in RELIABLE_CLASS:
            sent[message.side].add(message.values[1])
        elif message.type in ("Ack", "AckExtra"):
            other = 1 - message.side
            sequence = _acked(message)
            if sequence in sent[other]:
                acked[other].add(sequence)
    count = len(acked[0]) + len(acked[1])
    if count >= _MIN_ACKED:
        evidence.add(THREE_ACKS, f"{count} reliable messages acknowledged by their sequence ids")
    elif count and count + _notify_steps(messages) > _MIN_ACKED:
        evidence.add(THREE_ACKS, "reliable messages acknowledged, and Notify ids that count up")


def _chain(messages: list[Message], evidence: _Evidence) -> None:
    """Weigh consecutive frames of a stream that all hold a message, Acks among them."""
    sides = {message.side for message in messages}
    acks = [each.octets for each in messages if each.type in ("Ack", "AckExtra")]
    one_side = (
        len(sides) == 1 and len(messages) >= 2 * _MIN_CHAIN and len(acks) >= _MIN_ONE_SIDE_ACKS
    )
    if len(sides) > 1 and len(set(acks)) >= _MIN_CHAIN_ACKS and len(messages) >= _MIN_CHAIN:
        evidence.add(CHAIN, f"{len(messages)} frames in a row hold one message each")
    elif one_side and {"Reliable", "Ack"} <= set(_steps(messages)):
        evidence.add(ONE_SIDE, f"{len(messages)} frames of one side hold one message each")
    elif len(messages) >= 2 * _MIN_CHAIN and (again := _sent_again(messages)) >= _MIN_CHAIN:
        # A side whose peer stands still repeats what is not acknowledged, and sends little else.
        evidence.add(ONE_SIDE, f"{again} reliable messages come again with the same bytes")


def _sent_again(messages: list[Message], apart: int = 1) -> int:
    """Return how many reliable messages come again, the given number of messages later or more; 0
    if any has other bytes then.
    """
    first: dict[tuple[int, int], tuple[int, bytes]] = {}
    again: set[tuple[int, int]] = set()
    for place, message in enumerate(messages):
        if message.type == "Reliable":
            key = message.side, message.values[1]
            before, octets = first.setdefault(key, (place, message.octets))
            if octets != message.octets:
                return 0
            if place - before >= apart:
                again.add(key)
    return len(again)


def _close_ids(messages: list[Message], packing: str, evidence: _Evidence) -> None:
    """Weigh sequence ids that lie close together, each with one content: many, or sent again.

    In bit packing their low half counts in the byte of the type, which the counters of other
    protocols do not. In byte packing some have to come again, or many after far higher ones, as
    what waits for its answer does.
    """
    known = _reliable(messages)
    if known is None:
        return
    most = max(known, key=len)
    counts = len({number % _NIBBLE for number in most}) >= min(len(most), _NIBBLE // 2)
    again = _sent_again(messages)
    late = packing == UNDECIDED or _sent_again(messages, 2 * _REORDERED) >= _MIN_RESENT
    late = late or _backward(messages) >= _MIN_CHAIN
    many = len(most) >= 2 * _MIN_CHAIN
    if all(map(_is_close, known)) and counts and late and (many or again >= _MIN_CHAIN):
        text = f"{len(most)} reliable messages whose sequence ids lie close together"
        evidence.add(ONE_SIDE, text)


def _backward(messages: list[Message]) -> int:
    """Return how often a sequence id is lower than the one before it by more than reordering."""
    newest: dict[int, int] = {}
    count = 0
    for message in messages:
        if message.type == "Reliable":
            number = message.values[1]
            step = (newest.get(message.side, number) - number) % (1 << 16)
            count += _REORDERED < step <= _MAX_WIDTH
            newest[message.side] = number
    return count


def _close_acks(messages: list[Message], evidence: _Evidence) -> None:
    """Weigh Acks that name ids close to those of the other side, where those which they name were
    sent before the sample began.
    """
    known = _reliable(messages)
    if known is None:
        return
    for side, ids in enumerate(known):
        named = {
            _acked(each): b""
            for each in messages
            if each.type in ("Ack", "AckExtra") and each.side != side
        }
        if len(ids) >= _MIN_ACKED and len(named) >= _MIN_CHAIN and _is_close({**ids, **named}):
            text = f"{len(named)} Acks whose numbers lie close to the other side's sequence ids"
            evidence.add(ONE_SIDE, text)


def _reliable(messages: list[Message]) -> tuple[dict[int, bytes], dict[int, bytes]] | None:
    """Return {sequence id: content} of both sides; None if an id has two contents."""
    known: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}
    for message in messages:
        if message.type == "Reliable":
            octets = known[message.side].setdefault(message.values[1], message.octets)
            if octets != message.octets:
                return None
    return known


def _is_close(ids: dict[int, bytes]) -> bool:
    """Return whether all sequence ids lie close to the first one."""
    return all(
        (number - next(iter(ids)) + _MAX_WIDTH) % (1 << 16) <= 2 * _MAX_WIDTH for number in ids
    )


def _is_byte_packed(messages: list[Message]) -> bool:
    """Return whether messages read in bit packing are byte-packed: all numbers are multiples of 16.

    The type of a byte-packed message is a whole byte of at most 10. Its high half, which is zero,
    reads in bit packing as the low half of the number.
    """
    numbers = {message.values[1] for message in messages if message.type in _NUMBERED}
    return len(numbers) >= _MIN_MULTIPLES and not any(number % _NIBBLE for number in numbers)


def _notify_steps(messages: list[Message]) -> int:
    """Return how often the ids of consecutive Notify messages of a side differ by one."""
    steps = 0
    for side in (0, 1):
        ids = [m.values[3] for m in messages if m.type == "Notify" and m.side == side]
        steps += sum((b - a) & 0xFFFF == 1 for a, b in pairwise(ids))
    return steps


def _acked(message: Message) -> int:
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


def _refusal(messages: list[Message], client: int, evidence: _Evidence, *, final: bool) -> None:
    """Weigh a Connect that the server refuses with Rejects, or echoes and leaves pending."""
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
            evidence.add(THREE_REJECTS, "Connect refused by three equal Rejects")
        elif echoes or (final and len(messages[0].octets) == 1):
            evidence.add(REJECTED, "Connect refused by a Reject")
    elif final:
        evidence.add(PENDING, "Connect echoed with one byte, which means pending")


def _unanswered(messages: list[Message], client: int, evidence: _Evidence) -> None:
    """Weigh equal Connects a second apart that nobody answers.

    Three are enough for a bare Connect. Many protocols repeat a longer first datagram, so one with
    data must come as often as Riptide sends it.
    """
    if not messages or any(each.type != "Connect" or each.side != client for each in messages):
        return
    gaps = [b.time_ns - a.time_ns for a, b in pairwise(messages)]
    needed = 3 if len(messages[0].octets) == 1 else _CONNECT_ATTEMPTS
    if len({each.octets for each in messages}) == 1 and len(messages) >= needed and all(
        0.8 * _SECOND_NS < gap < 1.3 * _SECOND_NS for gap in gaps
    ):
        evidence.add(UNANSWERED, f"{len(messages)} equal Connects a second apart, unanswered")


def _half_handshake(messages: list[Message], client: int, evidence: _Evidence) -> None:
    """Weigh a handshake of which one side was captured.

    A client sends a Connect, then an Ack and the Welcome back; a server sends a Welcome, then the
    Ack of the Welcome that comes back.
    """
    types = [message.type for message in messages]
    if "Welcome" not in types or "Ack" not in types:
        return
    first_ack = types.index("Ack")
    welcome, ack = messages[types.index("Welcome")], messages[first_ack]
    numbers = {welcome.values[1], ack.values[1]}
    if not numbers <= set(_FIRST_SEQUENCES) or not welcome.values[2]:
        return
    if messages[0].side == client:
        if types[0] == "Connect":
            evidence.add(HANDSHAKE, "Connect, then the answers to a Welcome")
    elif "Welcome" in types[:first_ack] and set(types[:first_ack]) <= _BEFORE_ACK:
        evidence.add(HANDSHAKE, "a Welcome, then the Ack of the one that comes back")


def _one_side(messages: list[Message], evidence: _Evidence) -> None:
    """Weigh several counters that count up, where only one side was captured."""
    side = messages[0].side
    if any(message.side != side for message in messages):
        return
    steps = _steps(messages)
    if sum(count >= _MIN_STEPS for count in steps.values()) >= _MIN_COUNTERS:
        text = f"one side alone, whose numbers count up: {', '.join(sorted(steps))}"
        evidence.add(ONE_SIDE, text)


def _steps(messages: list[Message]) -> dict[str, int]:
    """Return how often each counter of a sender advanced by one; nothing where one jumps."""
    newest: dict[str, tuple[int, int]] = {}
    steps: dict[str, int] = {}
    for message in messages:
        counter = _COUNTERS.get(message.type)
        if counter is None:
            continue
        number, modulus = message.values[3 if counter == "Notify" else 1], 1 << 16
        if counter == "Heartbeat":
            modulus = 1 << 8
        before, before_ns = newest.get(counter, (number, 0))
        step = (number - before) % modulus
        if _MAX_STEP < step < modulus - _MAX_STEP:
            return {}
        if 0 < step <= _MAX_STEP:
            gap_ns = message.time_ns - before_ns
            in_time = counter != "Heartbeat" or 0.7 * _SECOND_NS < gap_ns < 1.5 * _SECOND_NS
            steps[counter] = steps.get(counter, 0) + (step == 1 and in_time)
        # Not one that was overtaken: the newest number stays.
        if step < modulus - _MAX_STEP:
            newest[counter] = number, message.time_ns
    return steps


def _dialects(messages: list[Message], packing: str) -> tuple[str, str]:
    """Return the dialect of each side. In bit packing the size of an Ack tells it."""
    if packing != UNDECIDED:
        return packing, packing
    found = [UNDECIDED, UNDECIDED]
    for message in messages:
        if message.type != "Ack" or found[message.side] != UNDECIDED:
            continue
        if not message.values[3]:
            found[message.side] = BITS[1] if len(message.octets) == 5 else BITS[0]  # noqa: PLR2004 - an Ack of 2.2 without a named id
    return found[0], found[1]
