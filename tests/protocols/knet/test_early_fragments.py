"""Fragments that come before the first one of their transfer."""

from __future__ import annotations

import time

import pytest

from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.inspector import TransferInspector
from netdissect.protocols.knet.receiver import SHARED
from netdissect.protocols.knet.transfers import MAX_EARLY, Transfers


@pytest.mark.parametrize("base", [20_000, -1, None])
def test_a_first_fragment_looks_only_at_early_ones_of_its_own(base: int | None) -> None:
    """A datagram holds hundreds of them: thousands that wait would take a second each time."""
    transfers = Transfers()
    for place in range(MAX_EARLY + 100):
        transfers.feed(0, place, 0, [(Ev.PART, 7, 1 + place % 50, 99, 10_000 + 3 * place, b"xy")])
    began = time.process_time()
    for place in range(2000):
        number = base if base is None or base < 0 else base + 5 * place
        transfers.feed(0, place, 0, [(Ev.PART, 8, None, 5, number, b"%d" % place)])
    assert time.process_time() - began < 0.4
    sender = transfers._senders[0]
    assert sender is not None
    newest = 10_000 + 3 * (MAX_EARLY + 99)
    assert (7, newest) in sender.early
    transfers.feed(0, 9000, 0, [(Ev.PART, 7, None, 99, newest - 46, b"a")])
    assert (7, newest) not in sender.early
    assert len(sender.early) == sum(map(len, sender.waiting[7].values())) < MAX_EARLY


def test_what_was_scanned_as_2010_is_not_followed_in_another_dialect() -> None:
    """Which a datagram is of may be known only after it was scanned."""
    known: Event = (Ev.PART, None, None, 0, SHARED, b"")
    assert not TransferInspector().follow(b"", "knet-2.x", 0, [known])
    fragment: Event = (Ev.PART, 7, None, 2, 300, b"\x40abc")
    assert TransferInspector().follow(b"", "knet-2.x", 0, [fragment])
    assert not TransferInspector().follow(b"", "knet-2010", 0, [fragment])
