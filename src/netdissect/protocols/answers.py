"""Evidence for a protocol without a magic number: acknowledgements that name what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netdissect.model.claims import Hints, Sample
from netdissect.model.events import Ev
from netdissect.model.policy import AckRule, split_space_name
from netdissect.protocols.base import Protocol


def answers(protocol: Protocol, dialect: str, sample: Sequence[Sample]) -> int | None:
    """Return how many acknowledgements name a unit that was sent the other way before.

    None where `scan` finds anything wrong. In a space that is `STAMPED` the acknowledgement must
    also carry the stamp of the unit.
    """
    stamped = {
        rule.name for rule in protocol.policy(dialect).spaces if rule.ack is AckRule.STAMPED
    }
    hints = Hints((dialect, dialect))
    sent: set[tuple[Any, ...]] = set()
    found = 0
    for end, _, payload in sample:
        for event in protocol.scan(payload, end, hints):
            if event[0] == Ev.NOTE:
                return None
            if event[0] == Ev.UNIT:
                _, _, space, number, _, content = event
                stamp = content[0] if split_space_name(space)[0] in stamped else None
                sent.add((end, space, number, stamp))
            elif event[0] == Ev.ACK:
                _, space, number, bits = event
                stamp = bits if split_space_name(space)[0] in stamped else None
                found += (1 - end, space, number, stamp) in sent
    return found
