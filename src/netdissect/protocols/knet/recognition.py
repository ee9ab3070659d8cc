"""Whether a flow is kNet, in which dialect, and which side is the client.

kNet has no magic number. The evidence is the structure and consistency of datagrams, the server's
first datagram, and PacketIDs that rise by one. Source: docs/protocols/knet.md section 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.knet import tcp
from netdissect.protocols.knet.datagrams import MAX_KNOWN, READERS, Reader
from netdissect.protocols.knet.deciding import by_fragments
from netdissect.wire.knet import (
    CONTROL_SIZES,
    CURRENT,
    DISCONNECT,
    DISCONNECT_ACK,
    HEADER_OCTETS,
    LEGACY,
    NULL_CONNECT,
    PACKET_ACK,
    PACKET_SPAN,
    PING_REPLY,
    PING_REQUEST,
    RELIABLE_BASE,
    UNDECIDED,
)
from netdissect.wire.varint import KNET_7_7_16

OPENING: Final = 84
OPENING_ANSWERED: Final = 96
CONVERSATION: Final = 66
ACKNOWLEDGED: Final = 80
UNANSWERED: Final = 62
NUMBERED: Final = 61
"""Scores of the evidence in section 13; see `model.claims.STRONG`."""

_DIALECTS: Final = (CURRENT, LEGACY)
_WEIGHTS: Final = {
    PING_REQUEST: 1, PING_REPLY: 1, PACKET_ACK: 3, DISCONNECT: 3, DISCONNECT_ACK: 3,
}  # fmt: skip
"""Weight of a well-formed control message: the longer it is, the less likely is coincidence."""
_RELIABLE_WEIGHT: Final = 1
"""Weight of a reliable datagram."""
_MIN_WEIGHT: Final = 4
"""Weight that proves a conversation."""
_MIN_DATAGRAMS: Final = 3
"""Consistent datagrams of a conversation: two are too often coincidence."""
_MAX_STEP: Final = 64
"""Largest step of a sender's PacketIDs from one captured datagram to the next."""
_SEQUENCE: Final = 8
"""Datagrams of a side for each sequence of PacketIDs beyond the first."""
_NUMBERS: Final = 1 << 16
"""Reliable numbers; after the last one, they begin again."""
_MAX_PING_STEP: Final = 8
"""The same for the numbers of its pings."""
_MIN_ATTEMPTS: Final = 3
"""Consecutive datagrams that prove an unanswered client."""
_MIN_CONTINUED: Final = 8
"""Datagrams whose reliable messages continue those of the one before, or that hold several
fragments of one message, as proof of one side.
"""
_MIN_CLOSE: Final = 48
"""Reliable datagrams with different numbers that lie close together, as proof."""
_MAX_WIDTH: Final = 1024
"""Largest distance between the PacketIDs that a sample holds of one side."""
_MAX_BACKLOG: Final = 8192
"""The same for its reliable numbers: what is not acknowledged is sent again for 15 s."""
_MAX_TURNS: Final = 8
"""Reliable datagrams of a side among which the one is searched that another continues."""
_ACK_WINDOW_NS: Final = 1_000_000_000
"""Time within which a PacketAck follows the datagram that it names."""
_Facts = tuple[int, bool, bool, int | None, int, list[tuple[str, bytes]], bool, str | None]
"""What a datagram says, as arguments of `_Datagram`."""


# No dataclass: mypyc does not compile the methods that it generates.
class _Datagram:
    """A datagram that is well formed and consistent."""

    __slots__ = ("base", "controls", "first", "fragment", "next", "number", "octets", "position",
                 "reliable", "side", "time_ns", "told")  # fmt: skip

    def __init__(
        self, position: int, side: int, time_ns: int, number: int,
        first: bool, reliable: bool,  # noqa: FBT001 - as in the attributes
        base: int | None, following: int, controls: list[tuple[str, bytes]],
        fragment: bool, told: str | None, octets: bytes,  # noqa: FBT001 - as in the attributes
    ) -> None:  # fmt: skip
        self.position = position
        """Index in the sample."""
        self.side = side
        self.time_ns = time_ns
        self.number = number
        """PacketID."""
        self.first = first
        """Whether a sender begins with this PacketID."""
        self.reliable = reliable
        self.base = base
        """Number of its first reliable message."""
        self.next = following
        """Number of the reliable message that follows its last one."""
        self.controls = controls
        """(name, payload) of its control messages."""
        self.fragment = fragment
        """Whether it holds a fragment that is reliable."""
        self.told = told
        """Dialect that its fragments tell."""
        self.octets = octets


class _Side:
    """The datagrams of one side, read in one dialect."""

    __slots__ = ("datagrams", "odd", "reader", "signs")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.datagrams: list[_Datagram] = []
        self.odd: list[tuple[int, int, bytes]] = []
        """(position, side, bytes) of the datagrams that are malformed or inconsistent."""
        self.signs = 0
        """Control messages and fragments that no other dialect numbers in this way."""


class _Both:
    """The datagrams of both sides, each read in its own dialect."""

    __slots__ = ("datagrams", "doubtful", "odd", "readers")

    def __init__(
        self, readers: tuple[Reader, Reader], datagrams: list[_Datagram],
        odd: list[tuple[int, int, bytes]], doubtful: list[bool],
    ) -> None:  # fmt: skip
        self.readers, self.datagrams, self.odd = readers, datagrams, odd
        self.doubtful = doubtful
        """By side: whether both dialects fit it equally well, and nothing else tells."""

    def dialect(self, side: int) -> str:
        """Return the name of a side's dialect; that of the other side as long as it is silent."""
        if self.silent(side):
            side = 1 - side
        return UNDECIDED if self.doubtful[side] else self.readers[side].dialect

    def silent(self, side: int) -> bool:
        """Return whether there is no message of a side."""
        return all(one.side != side for one in self.datagrams)


def may_stand_alone(payload: bytes) -> bool:
    """Return whether a datagram may be a server's first, the only one that proves a flow alone.

    It has PacketID 0 or 1 and holds pings 1 and 2.
    """
    if len(payload) < HEADER_OCTETS or payload[0] & 0x3F > 1 or payload[1] or payload[2]:
        return False
    return b"\x01" in payload[HEADER_OCTETS:] and b"\x02" in payload[HEADER_OCTETS:]


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, or None. Pure."""
    if transport == "tcp":
        return tcp.recognise(sample, final=final)
    found = _dialects(sample)
    claim = None if found is None else _judge(found, len(sample), final=final)
    if found is None or claim is None:
        return None
    if claim.client is not None:
        _set_attempt(claim, found, final=final)
    return claim


def _dialects(sample: Sequence[Sample]) -> _Both | None:
    """Return the sample with each side read in its best dialect; None if nothing can be read."""
    usual, legacy = (READERS[name] for name in _DIALECTS)
    chosen = [_side(sample, side, usual) for side in (0, 1)]
    doubtful = [False, False]
    for side, found in enumerate(chosen):
        if found.odd or not found.signs:
            second = _side(sample, side, legacy)
            doubtful[side] = _fit(second) == _fit(found)
            if _fit(second) > _fit(found):
                chosen[side] = second
    for side, other in ((0, 1), (1, 0)):
        # Message 1 is a ping of 2.x, or of 2010 the reply to a ping that 2.x does not send.
        if doubtful[side] and not doubtful[other] and chosen[other].reader is usual:
            controls = [name for one in chosen[side].datagrams for name, _ in one.controls]
            doubtful[side] = PING_REQUEST not in controls
    datagrams = sorted(chosen[0].datagrams + chosen[1].datagrams, key=lambda one: one.position)
    if not datagrams:
        return None
    odd = sorted(chosen[0].odd + chosen[1].odd)
    readers = chosen[0].reader, chosen[1].reader
    return _Both(readers, datagrams, odd, doubtful)


def _side(sample: Sequence[Sample], side: int, reader: Reader) -> _Side:
    """Return one side of the sample, read in one dialect."""
    result = _Side(reader)
    for position, (sender, time_ns, octets) in enumerate(sample):
        if sender != side:
            continue
        found = _read(octets, reader, position, side, time_ns)
        if found is None:
            result.odd.append((position, side, octets))
            continue
        result.datagrams.append(found)
        # ID 1 is the ping of 2.x and the reply of 2010, so only the other one tells the dialect.
        sign = PING_REQUEST if reader.legacy else PING_REPLY
        result.signs += sum(name in (sign, PACKET_ACK) for name, _ in found.controls)
        result.signs += found.told == reader.dialect
    if reader.legacy:
        result.signs += _numberless(result.datagrams)
    return result


def _numberless(datagrams: list[_Datagram]) -> int:
    """Return how many datagrams of a side hold fragments with reliable number 0, although whole
    messages have far other ones: only 2010 leaves its fragments without numbers of their own.
    """
    numbers = [one.base or 0 for one in datagrams if one.reliable and not one.fragment]
    if not numbers or any((base + _MAX_STEP) % _NUMBERS <= 2 * _MAX_STEP for base in numbers):
        return 0
    return sum(one.fragment and not one.base for one in datagrams)


def _fit(side: _Side) -> tuple[int, int]:
    """Return a measure of how well a dialect fits a side."""
    return len(side.datagrams), side.signs


def _set_attempt(claim: Claim, found: _Both, *, final: bool) -> None:
    """Set `Claim.attempt` if the first datagram is the client's connect datagram.

    What a client sends before the server has spoken is one, even if it parses as messages.
    Section 5.1.
    """
    if any(place == 0 and side == claim.client for place, side, _ in found.odd):
        claim.attempt = True
        return
    mine = [one for one in found.datagrams if one.side == claim.client]
    if not mine or mine[0].position:
        return
    first = mine[0].octets
    claim.attempt = any(one.first and one.octets != first for one in mine[1:])
    if claim.attempt:
        return
    speaks = any(one.side != claim.client and one.first for one in found.datagrams)
    # The PacketID of the client's next datagram tells: it continues from this one, or restarts.
    claim.waits = speaks and len(mine) == 1 and not final


def _read(
    octets: bytes, reader: Reader, position: int, side: int, time_ns: int
) -> _Datagram | None:
    """Return a datagram if it is well formed and consistent, else None."""
    known = _known_facts if len(octets) <= MAX_KNOWN else _facts
    facts = known(octets, reader)
    if facts is None:
        return None
    number, first, reliable, base, following, controls, fragment, told = facts
    return _Datagram(
        position, side, time_ns, number, first, reliable, base, following, controls, fragment,
        told, octets,
    )  # fmt: skip


def _facts(octets: bytes, reader: Reader) -> _Facts | None:
    """Return what `_Datagram` holds of a datagram; None unless it is well formed and consistent."""
    values = reader.whole(octets)
    if values is None or not values[5]:
        return None
    in_order, reliable, low, high, base, messages, _ = values
    deltas = [message[5] for message in messages if message[3]]
    if bool(deltas) != bool(reliable) or (deltas and 0 not in deltas):
        return None
    if not reader.legacy and any(message[2] for message in messages) != bool(in_order):
        return None
    controls: list[tuple[str, bytes]] = []
    for message in messages:
        control = _control(message, reader)
        if control is None:
            return None
        if control:
            controls.append(control)
    number = high << 6 | low
    first = number == reader.first_id or not (reader.legacy or number)
    following = (base or 0) + (max(deltas) + 1 if deltas else 0)
    fragment = any(message[3] and (message[0] or message[1]) for message in messages)
    told = by_fragments(messages) if fragment else None
    return number, first, bool(reliable), base, following, controls, fragment, told


# `recognise` sees the same datagrams again in each larger sample.
_known_facts: Final = lru_cache(maxsize=256)(_facts)


def _control(message: tuple[Any, ...], reader: Reader) -> tuple[str, bytes] | tuple[()] | None:
    """Return (name, payload) of a control message, () for others, None for an impossible one."""
    start, fragment, _, is_reliable, unused, _, count, transfer, index, content, _ = message
    if unused:
        return None
    if start or (fragment and not (reader.legacy and not is_reliable)):
        whole = is_reliable and transfer and fragment and (not start or count)
        return () if whole and (start or index) else None
    message_id, after = KNET_7_7_16.read(content, 0, len(content))
    name = reader.controls.get(message_id)
    if name is None:
        return ()
    payload = content[after:]
    size = CONTROL_SIZES.get(name)
    if size is not None and len(payload) != size:
        return None
    if name == PACKET_ACK and payload[2] & 0xC0:
        return None
    return name, payload


def _judge(found: _Both, size: int, *, final: bool) -> Claim | None:
    """Return the claim that a sample of `size` datagrams supports."""
    score, client, roles = 0, None, "protocol"
    reasons: list[str] = []
    for rule in (_opening, _acknowledged, _conversation):
        rule_score, reason, who = rule(found, size)
        if rule_score:
            score = max(score, rule_score)
            reasons.append(reason)
            client = who if client is None else client
    if not score and final:
        score, reason, client = _unanswered(found, size)
        if not score:
            score, reason = _numbered(found, size)
        reasons.append(reason)
        roles = "first_frame"
    if not score:
        return None
    if any(position == 0 and side == client for position, side, _ in found.odd):
        roles = "handshake"
    if client is None:
        # Both sides send the same kinds of messages. The ports may tell the client.
        roles = "first_frame"
    return Claim(
        protocol="knet",
        score=score,
        dialects=(found.dialect(0), found.dialect(1)),
        client=client,
        roles_from=roles,
        reasons=tuple(reasons),
        doubtful=(found.silent(0), found.silent(1)),
    )


def _opening(found: _Both, size: int) -> tuple[int, str, int | None]:
    """Look for a server's first datagram, with pings 1 and 2, and for the answers to both."""
    del size
    for one in found.datagrams:
        pings = [payload for name, payload in one.controls if name == PING_REQUEST]
        if not one.first or pings[:2] != [b"\x01", b"\x02"]:
            continue
        client = 1 - one.side
        answers = {
            payload
            for other in found.datagrams
            if other.side == client
            for name, payload in other.controls
            if name == PING_REPLY
        }
        answered = answers >= {b"\x01", b"\x02"}
        if not answered and not one.number and not found.readers[one.side].legacy:
            continue  # In 2010 these would be a client's replies to pings 1 and 2.
        found.doubtful[one.side] = False  # only one dialect begins so
        if answered:
            return OPENING_ANSWERED, "the server's pings 1 and 2 are answered", client
        return OPENING, f"PacketID {one.number} holds pings 1 and 2", client
    return 0, "", None


def _acknowledged(found: _Both, size: int) -> tuple[int, str, int | None]:
    """Look for PacketAcks that name reliable datagrams of the other side soon after their time."""
    if not _mostly_consistent(found, size):
        return 0, "", None
    sent = {(one.side, one.number): one.time_ns for one in found.datagrams if one.reliable}
    named = 0
    for one in found.datagrams:
        for name, payload in one.controls:
            if name == PACKET_ACK:
                at = sent.get((1 - one.side, int.from_bytes(payload[:3], "little")))
                named += at is not None and 0 <= one.time_ns - at < _ACK_WINDOW_NS
    if named and _rising(found.datagrams):
        return ACKNOWLEDGED, f"{named} PacketAcks name datagrams of the other side", None
    return 0, "", None


def _mostly_consistent(found: _Both, size: int) -> bool:
    """Return whether two thirds of the sample are consistent: a single ack may be coincidence."""
    # A bare header neither proves nor contradicts anything: its messages have become out of date.
    bare = sum(len(one[2]) == HEADER_OCTETS and one[2][0] < RELIABLE_BASE for one in found.odd)
    return 3 * len(found.datagrams) >= 2 * (size - bare)


def _conversation(found: _Both, size: int) -> tuple[int, str, int | None]:
    """Weigh consistent datagrams with control messages, and PacketIDs and pings in small steps."""
    datagrams = found.datagrams
    controls = sum(bool(one.controls) for one in datagrams)
    if len(datagrams) < _MIN_DATAGRAMS or not controls:
        return 0, "", None
    # A connect datagram is no message datagram, and comes first or has eight zero bytes.
    odd = [one for one in found.odd if one[2] != NULL_CONNECT and one[0] > 0]
    weight = sum(
        _RELIABLE_WEIGHT * one.reliable + sum(_WEIGHTS.get(name, 0) for name, _ in one.controls)
        for one in datagrams
    )
    if weight < _MIN_WEIGHT or not _advances(datagrams) or 4 * len(odd) > size:
        return 0, "", None
    if not _rising(datagrams) or not _pings_rise(datagrams):
        return 0, "", None
    reason = f"{len(datagrams)} consistent datagrams, {controls} with control messages"
    return CONVERSATION, reason, None


def _pings_rise(datagrams: list[_Datagram]) -> bool:
    """Return whether the pings of each side are numbered in small steps."""
    last: list[int | None] = [None, None]
    for one in datagrams:
        for name, payload in one.controls:
            if name != PING_REQUEST:
                continue
            before, number = last[one.side], payload[0]
            step = 0 if before is None else (number - before) % 256
            if _MAX_PING_STEP < step < 256 - _MAX_PING_STEP:
                return False
            last[one.side] = number
    return True


def _rising(datagrams: list[_Datagram]) -> bool:
    """Return whether the PacketIDs of each side change in small steps, in one sequence or a few.

    A server with several connection objects for a client has as many sequences. Section 5.6.
    """
    sequences: tuple[list[int], list[int]] = [], []
    counts = [0, 0]
    for found in datagrams:
        newest = sequences[found.side]
        counts[found.side] += 1
        for place, before in enumerate(newest):
            step = (found.number - before) % PACKET_SPAN
            if step <= _MAX_STEP:
                newest[place] = found.number
                break
            if step >= PACKET_SPAN - _MAX_STEP:
                break  # It was reordered.
        else:
            newest.append(found.number)
    return all(
        len(newest) <= 1 + count // _SEQUENCE
        for newest, count in zip(sequences, counts, strict=True)
    )


def _advances(datagrams: list[_Datagram]) -> int:
    """Return how often a side's PacketID is a little higher than its previous one."""
    last: list[int | None] = [None, None]
    count = 0
    for found in datagrams:
        before = last[found.side]
        count += before is not None and 0 < (found.number - before) % PACKET_SPAN <= _MAX_STEP
        last[found.side] = found.number
    return count


def _unanswered(found: _Both, size: int) -> tuple[int, str, int | None]:
    """Look for an unanswered client: a connect datagram, then all PacketIDs from the first on."""
    datagrams = found.datagrams
    sender = datagrams[0].side
    numbers = [one.number for one in datagrams]
    first = found.readers[sender].first_id
    is_alone = all(one.side == sender for one in datagrams)
    if not is_alone or len(numbers) < _MIN_ATTEMPTS or numbers != list(
        range(first, first + len(numbers))
    ):
        return 0, "", None
    reliable = [one.base for one in datagrams if one.reliable]
    others = [one for one in found.odd if one[1] != sender or one[0] > 0]
    if others or not reliable or reliable[0] != 0 or size - len(datagrams) > 1:
        return 0, "", None
    found.doubtful[sender] = False
    return UNANSWERED, f"{len(numbers)} datagrams numbered from the first PacketID on", sender


def _numbered(found: _Both, size: int) -> tuple[int, str]:
    """Look for datagrams whose reliable messages continue those of the datagram before, or for many
    numbers that lie close together, where the network has let few through or changed their order.

    Needs no control messages, so it can prove a flow with only messages of an application.
    """
    if not _mostly_consistent(found, size):
        return 0, ""
    many = _close_numbers(found.datagrams)
    if many >= _MIN_CLOSE:
        return NUMBERED, f"{many} different numbers of reliable messages that lie close together"
    if not _rising(found.datagrams):
        return 0, ""
    split = sum(one.told is not None for one in found.datagrams)
    if split >= _MIN_CONTINUED:
        return NUMBERED, f"{split} datagrams with several fragments of one message"
    recent: tuple[list[_Datagram], list[_Datagram]] = [], []
    goes_on: dict[tuple[int, int | None], bool] = {}
    for one in filter(lambda each: each.reliable, found.datagrams):
        # New messages and those sent again take turns, and the network changes the order.
        before = recent[one.side][-_MAX_TURNS:]
        follows = any(one.base == each.next or one.next == each.base for each in before)
        if before:
            goes_on[one.side, one.base] = follows or goes_on.get((one.side, one.base), False)
        recent[one.side].append(one)
    times = sum(goes_on.values())
    if times < _MIN_CONTINUED or times < 2 * (len(goes_on) - times):
        return 0, ""
    return NUMBERED, f"{times} datagrams whose reliable messages go on from those before"


def _close_numbers(datagrams: list[_Datagram]) -> int:
    """Return how many reliable datagrams of both sides have a number of their own; 0 if the numbers
    or PacketIDs of a side do not lie close together.
    """
    count = 0
    for side in (0, 1):
        mine = [one for one in datagrams if one.side == side]
        # Fragments of 2010 have number 0.
        bases = {one.base or 0 for one in mine if one.reliable and (one.base or not one.fragment)}
        count += len(bases)
        numbers = {one.number for one in mine}
        near = _is_close(numbers, _MAX_WIDTH, PACKET_SPAN)
        if not near or not _is_close(bases, _MAX_BACKLOG, _NUMBERS):
            return 0
    return count


def _is_close(numbers: set[int], width: int, span: int) -> bool:
    """Return whether all numbers lie within `width`; after `span` of them they begin again."""
    first = next(iter(numbers), 0)
    return all((number - first + width) % span <= 2 * width for number in numbers)
