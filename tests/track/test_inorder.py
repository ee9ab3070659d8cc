"""A receiver that takes units in order only, and drops datagrams by their acknowledgement."""

from __future__ import annotations

import pytest

from netdissect.model.events import Ev
from netdissect.model.policy import AckRule
from netdissect.model.units import Placement
from netdissect.track import context
from netdissect.track.conclusion import conclude
from tracking import MS, connection, rule


def made(*, started=True, **changes):
    """Return a connection of one in-order space, and what it reports."""
    ordered = rule(ack=AckRule.CUMULATIVE, ack_bits=0, bits=10, in_order_receiver=True, **changes)
    link, found = connection(spaces=(ordered,))
    if started:
        link.datagram(0, 0, 0, b"x", [(Ev.STATE, "hello", None)])
    return link, found


def send(link, direction, at_ms, ack, *numbers):
    """Feed one datagram with an acknowledgement and units."""
    events = [(Ev.ACK, "things", ack, 0)]
    events += [(Ev.UNIT, "Thing", "things", number, False, None) for number in numbers]
    link.datagram(direction, at_ms, at_ms * MS, b"x", events)


@pytest.mark.parametrize(
    ("near", "told"), [((None, True), 2), ((False, True), 2), ((True, False), 0), ((None, None), 0)]
)
def test_what_a_receiver_throws_away_is_told_next_to_it_alone(near, told) -> None:
    for known_first in (True, False):
        link, found = made()
        if known_first:
            link.place(Placement(near))
        send(link, 0, 1, 0, 1)
        send(link, 0, 2, 0, 3, 4)
        if not known_first:
            for seemed in ((False, True), near):
                link.vantage.settle(seemed)
                link._spread_vantage()
        conclude(link, 3 * MS)
        assert link.findings.repeats.get("behind-gap", 0) == told
        assert [item.frame for item in found if item.code == "behind-gap"] == [2] * bool(told)


def test_bound_of_what_waits_for_the_place(monkeypatch) -> None:
    monkeypatch.setattr(context, "MAX_BESIDE", 2)
    link, _ = made()
    send(link, 0, 1, 0, 1)
    send(link, 0, 2, 0, 3, 4, 5)
    assert link.findings.limits() == {"MAX_BESIDE": 1}


def test_what_comes_behind_a_gap_is_thrown_away() -> None:
    link, found = made()
    link.place(Placement((None, True)))
    send(link, 0, 1, 0, 1)
    send(link, 0, 2, 0, 3, 4)
    send(link, 0, 3, 0, 2)
    send(link, 0, 4, 0, 3)
    space = link.lanes[0].spaces["things"]
    assert space.receiver() == {
        "accepted_in_order": 3, "old_duplicates": 0, "gap_rejected": 2,
        "packets_with_stale_ack_rejected": 0,
    }  # fmt: skip
    behind = [item for item in found if item.code == "behind-gap"]
    assert [item.message for item in behind] == ["things 3 discarded: 2 is missing"]
    assert link.findings.repeats["behind-gap"] == 2


def test_an_overtaken_acknowledgement_drops_the_datagram() -> None:
    link, found = made()
    link.place(Placement((None, True)))
    for number in (1, 2, 3):
        send(link, 1, number, 0, number)
    send(link, 0, 10, 3, 1)
    send(link, 0, 11, 2, 2)  # overtaken on its way: nothing of it counts
    send(link, 0, 12, 3, 2)
    send(link, 0, 13, 9, 3)  # acknowledges what was never sent
    receiver = link.lanes[0].spaces["things"].receiver()
    assert receiver["packets_with_stale_ack_rejected"] == 2
    assert receiver["accepted_in_order"] == 2
    (first,) = (item for item in found if item.code == "ack-out-of-window")
    assert (first.frame, first.direction) == (11, 0)
    assert first.evidence == {"space": "things", "ack": 2, "low": 3, "high": 3}
    assert link.findings.repeats["ack-out-of-window"] == 2


def test_a_capture_from_the_middle_shows_no_window_at_first() -> None:
    """What was acknowledged and sent before is not known."""
    link, _ = made(started=False)
    for at, (direction, ack, number) in enumerate(((0, 494, 7), (1, 7, 494), (0, 496, 8), (0, 490, 9))):
        send(link, direction, at, ack, number)
    receiver = link.lanes[0].spaces["things"].receiver()
    assert receiver["packets_with_stale_ack_rejected"] == 1
    assert receiver["accepted_in_order"] == 2


def test_a_mark_without_an_original_is_told() -> None:
    link, found = made()
    send(link, 0, 1, 0, 1)
    for number, labelled in ((1, True), (2, True), (2, True), (3, False)):
        event = (Ev.UNIT, "Thing", "things", number, labelled, None)
        link.datagram(0, 2, 2 * MS, b"x", [event])
    assert [item.message for item in found if item.code == "resend-of-unseen"] == [
        "things 2 is marked as a retransmission"
    ]
    assert link.findings.repeats["resend-of-unseen"] == 1


def test_the_window_wraps() -> None:
    link, found = made()
    for number in range(1, 1030):
        send(link, 1, number, 0, number & 1023)
        send(link, 0, number, number & 1023)
    receiver = link.lanes[0].spaces["things"].receiver()
    assert receiver["packets_with_stale_ack_rejected"] == 0
    assert not [item for item in found if item.code == "ack-out-of-window"]


def test_numbers_that_start_again_at_will_are_no_finding() -> None:
    for at_will in (True, False):
        link, found = made(restarts_at_will=at_will)
        send(link, 0, 1, 0, 1)
        send(link, 0, 2, 0, 2)
        link.datagram(0, 3, 3 * MS, b"x", [(Ev.RESTART, "things")])
        send(link, 0, 4, 0, 1)
        codes = {item.code for item in found}
        assert ("numbers-restart" in codes) is not at_will
