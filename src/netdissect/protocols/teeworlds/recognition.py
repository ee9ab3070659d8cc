"""Tells whether a flow is Teeworlds, which dialect, and which side is the client.

A handshake settles it. Without one every packet is put to the strict test of every dialect, and two
packets that pass under the same single dialect settle it too.
*Source:* docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.teeworlds.strict import Accepted, accepts, connless
from netdissect.wire.teeworlds_forms import (
    ACCEPTED,
    CLOSE,
    D06,
    D065,
    D07,
    DDNET,
    TOKEN,
    padded,
)

__all__ = ["recognise"]

_DIALECTS: Final = (D07, DDNET, D06, D065)
REQUEST: Final = 85
ANSWERED: Final = 98
TWO_PACKETS: Final = 75
MORE_PACKETS: Final = 90
CONNLESS: Final = 80
ANSWERED_INFO: Final = 95
KNOCKS: Final = 62
"""Scores of the evidence; see `model.claims.STRONG`."""
_MORE: Final = 4
_PAIR: Final = 2
ANSWER: Final = 52
"""Too weak alone: one of the ports must be the protocol's own."""
_ANSWER_OCTETS: Final = 12

_FIRST: Final = (
    # length, start, dialect, what it is
    (520, bytes.fromhex("040000ffffffff05"), D07, "0.7 token request, 512 bytes"),
    (12, bytes.fromhex("10000001544b454effffffff"), DDNET, "0.6 connect with TKEN"),
    (516, bytes.fromhex("10000001"), D065, "0.6.5 connect with a client token"),
)
"""First packets that no other protocol sends. Source: table of first packets."""
_UNANSWERED: Final = {
    (title, side): Claim("teeworlds", REQUEST, (dialect, dialect), side, "handshake", (title,))
    for _, _, dialect, title in _FIRST for side in (0, 1)
}  # fmt: skip
"""Made once: a flood is nothing but first packets."""
_TOKENS_END: Final = 12
"""Where padding begins at the latest; a capture may have cut it."""
_TELLING_SIZES: Final = frozenset({_ANSWER_OCTETS, *(length for length, *_ in _FIRST)})
_PLAIN_CONNECT: Final = bytes.fromhex("10000001")


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, or None. Pure."""
    del transport
    if not sample:
        return None
    found = _handshake(sample, final=final) or _structure(sample) or _outside(sample)
    return found or (_answers(sample) if final else None)


def may_stand_alone(payload: bytes) -> bool:
    """Return whether one datagram may be a first packet, a token answer or connectionless."""
    if len(payload) not in _TELLING_SIZES:
        return connless(payload) is not None
    if any(payload.startswith(start) for _, start, *_ in _FIRST):
        return True
    return accepts(payload, D07) is not None or connless(payload) is not None


# -- handshakes -----------------------------------------------------------------------------------


def _handshake(sample: Sequence[Sample], *, final: bool) -> Claim | None:
    """Look for a first packet and what the other side answers."""
    side, _, first = sample[0]
    for length, start, dialect, title in _FIRST:
        if not first.startswith(start):
            continue
        whole = len(first) == length and accepts(first, dialect) is not None
        if whole or (len(first) < length and padded(first[_TOKENS_END:])):
            return _settled(sample, side, dialect, title)
    if first != _PLAIN_CONNECT:
        return None
    # Four bytes alone could be anything: the answer, or a patient repetition, settles it.
    answer = next((octets for who, _, octets in sample if who != side), None)
    if answer is not None:
        found = accepts(answer, D06)
        if found is not None and found.control in (ACCEPTED, CLOSE):
            reason = "0.6 connect, answered by the server"
            return Claim("teeworlds", ANSWERED, (D06, D06), side, "handshake", (reason,))
        return None
    if final and len(sample) >= _PAIR and all(octets == first for _, _, octets in sample):
        reason = f"{len(sample)} equal 0.6 connects without an answer"
        return Claim("teeworlds", KNOCKS, (D06, D06), side, "handshake", (reason,))
    return None


def _settled(sample: Sequence[Sample], side: int, dialect: str, title: str) -> Claim:
    """Return the claim of a known first packet, with the dialect that the answer settles."""
    answer = next((octets for who, _, octets in sample if who != side), None)
    if answer is None:
        return _UNANSWERED[title, side]
    reasons = [title]
    if accepts(answer, dialect):
        reasons.append("the answer is of the same dialect")
    elif dialect != D07 and accepts(answer, D06):
        reasons.append("the server declines the token: 0.6")
    else:
        return _UNANSWERED[title, side]
    return Claim("teeworlds", ANSWERED, (dialect, dialect), side, "handshake", tuple(reasons))


# -- packets in the middle ------------------------------------------------------------------------


def _structure(sample: Sequence[Sample]) -> Claim | None:
    """Count the packets that pass under exactly one dialect."""
    passed: dict[str, int] = dict.fromkeys(_DIALECTS, 0)
    clients: set[int] = set()
    failed = 0
    strong: dict[str, int] = dict.fromkeys(_DIALECTS, 0)
    for side, _, octets in sample:
        if connless(octets) is not None:
            continue
        found = {name: what for name in _DIALECTS if (what := accepts(octets, name)) is not None}
        if not found:
            failed += 1
            if failed * 4 > len(sample) - failed:
                return None  # whatever the others are
            continue
        if len(found) == 1:
            ((name, what),) = found.items()
            passed[name] += 1
            # Without chunks there is nothing to check; 12: header, token.
            strong[name] += octets[2] > 0 or len(octets) > 12  # noqa: PLR2004
            _roles(what, side, clients)
    dialect = max(passed, key=lambda name: passed[name])
    count = passed[dialect]
    others = sum(passed.values()) - count + failed
    if count < _PAIR or not strong[dialect] or others * 4 > count:
        return None
    client = next(iter(clients)) if len(clients) == 1 else None
    score = MORE_PACKETS if count >= _MORE else TWO_PACKETS
    return Claim(
        "teeworlds",
        score,
        (dialect, dialect),
        client,
        "protocol" if client is not None else "first_frame",
        (f"{count} packets that only {dialect} sends: chunks fill them, every id is known",),
    )


def _roles(what: Accepted, side: int, clients: set[int]) -> None:
    """Conclude who is the client from who sent a message of one side."""
    for sender in what.senders:
        clients.add(side if sender == 0 else 1 - side)


def _answers(sample: Sequence[Sample]) -> Claim | None:
    """Take a flow of nothing but 0.7 token answers: the request went to a broadcast address."""
    side = sample[0][0]
    for who, _, octets in sample:
        found = accepts(octets, D07)
        if who != side or found is None or found.control != TOKEN or len(octets) != _ANSWER_OCTETS:
            return None
    reason = "0.7 token answer, 12 bytes"
    return Claim("teeworlds", ANSWER, (D07, D07), 1 - side, "protocol", (reason,))


# -- connectionless -------------------------------------------------------------------------------


def _outside(sample: Sequence[Sample]) -> Claim | None:
    """Take a flow of connectionless messages alone: server info, master servers."""
    found = [(side, octets, connless(octets)) for side, _, octets in sample]
    known = [(side, what) for side, _, what in found if what is not None]
    if not known:
        return None
    dialect = known[0][1][0]
    # The tokens that 0.7 wants first travel in control packets.
    if any(what is None and accepts(octets, dialect) is None for _, octets, what in found):
        return None
    clients = {side if what[1] == 0 else 1 - side for side, what in known if what[1] is not None}
    client = next(iter(clients)) if len(clients) == 1 else None
    sides = {side for side, _ in known}
    title = known[0][1][2]
    return Claim(
        "teeworlds",
        ANSWERED_INFO if len(sides) > 1 else CONNLESS,
        (dialect, dialect),
        client,
        "protocol" if client is not None else "first_frame",
        (f"connectionless message {title.removeprefix('connless.')} with its 8 bytes",),
    )
