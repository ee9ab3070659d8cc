from __future__ import annotations

import pytest

from netdissect.model.events import Ev
from netdissect.model.policy import AckRule, Policy, SpaceRule
from netdissect.protocols.answers import answers
from netdissect.protocols.base import DialectRow, Protocol

SPACES = (
    SpaceRule(name="plain", bits=8, ack=AckRule.EXACT),
    SpaceRule(name="stamped", bits=8, ack=AckRule.STAMPED, key="channel"),
)


class Told(Protocol):
    """Its payloads are the names of events."""

    name = "told"
    dialects = (DialectRow("told-1", "", ()),)
    transports = ("udp",)
    policies = {"told-1": Policy("told-1", SPACES)}

    def recognise(self, sample, transport, *, final):
        return None

    def scan(self, payload, direction, hints):
        return {
            b"plain": [(Ev.UNIT, "a", "plain", 7, None, None)],
            b"plain ack": [(Ev.ACK, "plain", 7, 0)],
            b"stamped": [(Ev.UNIT, "a", "stamped[3]", 7, None, (99, b""))],
            b"ack": [(Ev.ACK, "stamped[3]", 7, 99)],
            b"ack of another copy": [(Ev.ACK, "stamped[3]", 7, 98)],
            b"fault": [(Ev.NOTE, "truncated", None)],
        }[payload]


@pytest.mark.parametrize(("rows", "found"), [
    ([(0, b"plain"), (1, b"plain ack")], 1),
    ([(0, b"plain"), (0, b"plain ack")], 0),
    ([(1, b"plain ack"), (0, b"plain")], 0),
    ([(1, b"stamped"), (0, b"ack"), (0, b"ack of another copy")], 1),
    ([(0, b"plain"), (1, b"plain ack"), (0, b"fault")], None),
])  # fmt: skip
def test_what_names_what_went_the_other_way(rows: list[tuple[int, bytes]], found: int | None) -> None:
    assert answers(Told(), "told-1", [(end, 0, octets) for end, octets in rows]) == found
