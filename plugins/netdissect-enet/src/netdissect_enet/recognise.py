"""Recognises ENet by its handshake, or by acknowledgements that match what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.answers import answers
from netdissect.protocols.base import Protocol
from netdissect_enet.commands import Head, read_datagram
from netdissect_enet.rules import CONNECT, CRC, NAMES, NOBODY, PEER, PLAIN, VERIFY

_MTU = range(576, 4097)
_CHANNELS = range(1, 256)
"""Limits in a handshake. *Source:* ENet `protocol.h`."""
_ENOUGH = 2
"""Number of matching acknowledgements (channel, number and sent time) that prove the protocol."""


def claimed(enet: Protocol, sample: Sequence[Sample]) -> Claim | None:
    """Return the claim on a flow."""
    for dialect in (PLAIN, CRC):
        both = (dialect, dialect)
        for end, _, payload in sample:
            head, commands, fault = read_datagram(payload, dialect) or (None, [], "")
            if fault:
                break
            if head is not None and _is_handshake(head, commands):
                name = NAMES[commands[0][3]]
                client = end if commands[0][3] == CONNECT else 1 - end
                return Claim("enet", 95, both, client, "handshake", (f"{name} of the handshake",))
        proofs = answers(enet, dialect, sample) or 0
        if proofs >= _ENOUGH:
            what = "acknowledgements name channel, number and sent time of what was sent"
            return Claim("enet", 90, both, None, "first_frame", (f"{proofs} {what}",))
    return None


def _is_handshake(head: Head, commands: list[Any]) -> bool:
    """Return whether a datagram begins with a plausible command of the handshake."""
    if not commands or commands[0][3] not in {CONNECT, VERIFY}:
        return False
    requests_ack, _, _, number, channel, seq, *body = commands[0]
    return (
        bool(requests_ack) and channel == PEER and seq == 1
        and (head.peer == NOBODY) == (number == CONNECT)
        and body[3] in _MTU and body[5] in _CHANNELS
    )  # fmt: skip
