"""Recognises ENet: by its handshake at once, else by acknowledgements that fit what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netdissect.model.claims import Claim, Sample
from netdissect_enet.commands import ACK, CONNECT, VERIFY, Head, read_datagram
from netdissect_enet.rules import CRC, NOBODY, PLAIN

__all__ = ["recognise"]

_MTU = range(576, 4097)
_CHANNELS = range(1, 256)
_ENOUGH = 2
"""Acknowledgements that name channel, number and sent time of what went the other way."""


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow."""
    del transport, final  # proof may come with any datagram, and nothing else is enough
    return next(
        (claim for dialect in (PLAIN, CRC) if (claim := _as(dialect, sample)) is not None), None
    )


def _as(dialect: str, sample: Sequence[Sample]) -> Claim | None:
    sent: set[tuple[int, int, int, int | None]] = set()
    proofs = 0
    for end, _, payload in sample:
        read = read_datagram(payload, dialect)
        if read is None or (read[2] and not read[1]):
            if len(payload) < 2:  # noqa: PLR2004 - receivers ignore these
                continue
            return None
        head, commands, fault = read
        if fault:
            return None
        if _is_handshake(head, commands):
            client = end if commands[0][3] == CONNECT else 1 - end
            return _claim(dialect, 95, client, "handshake", f"{_word(commands)} of the handshake")
        for command in commands:
            if command[0]:
                sent.add((end, command[4], command[5], head.sent_time))
            elif command[3] == ACK and (1 - end, command[4], command[6], command[7]) in sent:
                proofs += 1
    if proofs < _ENOUGH:
        return None
    reason = f"{proofs} acknowledgements name channel, number and sent time of what was sent"
    return _claim(dialect, 90, None, "first_frame", reason)


def _word(commands: list[Any]) -> str:
    return "CONNECT" if commands[0][3] == CONNECT else "VERIFY_CONNECT"


def _is_handshake(head: Head, commands: list[Any]) -> bool:
    """Return whether a datagram begins with a command of the handshake that can be real."""
    if not commands or commands[0][3] not in {CONNECT, VERIFY}:
        return False
    wants, _, _, number, channel, seq, *body = commands[0]
    return (
        bool(wants) and channel == 0xFF and seq == 1  # noqa: PLR2004 - the peer itself
        and (head.peer == NOBODY) == (number == CONNECT)
        and body[3] in _MTU and body[5] in _CHANNELS
    )  # fmt: skip


def _claim(dialect: str, score: int, client: int | None, basis: str, reason: str) -> Claim:
    return Claim("enet", score, (dialect, dialect), client, basis, (reason,))
