"""Acknowledgements that say which copy they answer, and spaces that come into being as seen."""

from __future__ import annotations

import pytest

from netdissect.export import json
from netdissect.model.events import Ev
from netdissect.model.policy import AckRule, ResendRule
from netdissect.track import lane as lanes
from netdissect.track import stamped as module
from netdissect.track.conclusion import conclude
from netdissect.track.findings import Findings
from netdissect.track.recorder import Recorder
from netdissect.track.stamped import MAX_STAMPED, StampedSpace
from tracking import MS, connection, policy, rule

DOUBLING = ResendRule(initial_ms=500.0, rtt_factor=1.0, rtt_variances=4.0, backoff=2.0)


def stamped(recorder=None):
    made = rule(ack=AckRule.STAMPED, ack_bits=0, resend=DOUBLING)
    return StampedSpace(made, 0, Findings(1, {}, None), recorder)


def send(space, number, stamp, ms, octets=b"x"):
    space.unit(number, None, (stamp, octets), "data", ms, ms * MS)


def test_a_round_trip_is_that_of_the_copy_which_is_answered() -> None:
    recorder = Recorder()
    space = stamped(recorder.of(1))
    send(space, 1, 100, 0)
    send(space, 1, 600, 500)
    space.ack(1, 100, 9, 520 * MS)
    report = space.report()
    assert (report.acked, report.retransmissions, report.rtt.ambiguous) == (1, 1, 0)
    assert report.rtt.maximum == 520
    (record,) = recorder.rest()
    assert (record.rtt_ms, record.rtt_ambiguous) == (520, False)


def test_the_same_stamp_is_a_copy_of_the_network_however_late() -> None:
    space = stamped()
    send(space, 1, 100, 0)
    send(space, 1, 600, 500)
    send(space, 1, 100, 900)
    send(space, 1, 600, 901)
    space.ack(1, 600, 9, 950 * MS)
    send(space, 1, 600, 1400)
    send(space, 1, 1600, 1500)
    report = space.report()
    assert (report.copies, report.retransmissions, report.duplicates) == (6, 2, 3)
    assert report.rtt.maximum == 450


def test_a_copy_that_was_not_seen_gives_no_round_trip() -> None:
    space = stamped()
    send(space, 1, 100, 0)
    space.ack(1, 600, 9, 700 * MS)
    assert (space.report().acked, space.report().rtt.ambiguous) == (1, 1)
    space.ack(5, 1, 9, 700 * MS)
    assert space.context.findings.repeats["ack-of-unsent"] == 1


def test_each_copy_waits_twice_as_long() -> None:
    recorder = Recorder()
    space = stamped(recorder.of(1))
    for copy, ms in enumerate((0, 500, 1500, 3500)):
        send(space, 1, copy, ms)
        assert space.store.outstanding.find(1).due_ns == (ms + 500 * 2**copy) * MS
    space.context.retime(40.0, 10.0)
    send(space, 2, 9, 4000)
    assert space.store.outstanding.find(2).due_ns == (4000 + 80) * MS


def test_stamps_are_bounded() -> None:
    space = stamped()
    for number in range(MAX_STAMPED + 100):
        send(space, number, number & 0xFFFF, number)
        space.ack(number, number & 0xFFFF, 1, number * MS)
    assert len(space.stamps) <= MAX_STAMPED
    for copy in range(1000):
        send(space, MAX_STAMPED + 99, copy, copy)
    assert len(space.stamps[MAX_STAMPED + 99]) < 100


# -- spaces by key -----------------------------------------------------------------------------------



@pytest.fixture
def channels():
    made = rule(name="reliable", key="channel", ack=AckRule.EXACT, ack_bits=0)
    return connection(spaces=(made,))


def unit(channel, number, payload=b"x"):
    return (Ev.UNIT, "data", f"reliable[{channel}]", number, None, payload)


def test_each_key_has_numbers_of_its_own(channels) -> None:
    made, _ = channels
    made.datagram(0, 1, 1 * MS, b"", [unit(0, 1), unit(7, 1)])
    made.datagram(0, 2, 2 * MS, b"", [unit(0, 2), unit(7, 5)])
    made.datagram(1, 3, 3 * MS, b"", [(Ev.ACK, "reliable[7]", 5, 0), (Ev.ACK, "reliable[9]", 5, 0)])
    report = conclude(made, 9000 * MS)
    figures = [(row.space, row.units, row.acked, row.never_seen) for row in report.spaces]
    assert figures == [("reliable[0]", 2, 0, 0), ("reliable[7]", 2, 1, 3)]
    rows = json.connection(report)["spaces"]
    assert [(row["space"], row["key"]) for row in rows] == [("reliable[0]", 0), ("reliable[7]", 7)]


def test_a_space_of_no_template_is_a_fault(channels) -> None:
    made, _ = channels
    for event in ((*unit(0, 1)[:2], "other[1]", 1, None, b""), (Ev.ACK, "other", 1, 0)):
        with pytest.raises(KeyError):
            made.datagram(0, 1, MS, b"", [event])
    plain, _ = connection()
    with pytest.raises(KeyError):
        plain.datagram(0, 1, MS, b"", [(Ev.UNIT, "data", "things[1]", 1, None, b"")])


def test_spaces_are_bounded(channels, monkeypatch) -> None:
    monkeypatch.setattr(lanes, "MAX_SPACES", 10)
    made, _ = channels
    for number in range(50):
        made.datagram(0, number, number * MS, b"", [unit(number, 1)])
    report = conclude(made, 9000 * MS)
    assert len(report.spaces) == 9
    assert report.limits_hit == {"MAX_SPACES": 41}
    assert sum(report.messages[0].values()) == 50


def test_a_new_space_knows_what_its_template_knows(channels) -> None:
    made, _ = channels
    made.datagram(0, 1, 1 * MS, b"", [(Ev.STATE, "ask", None), unit(0, 1)])
    made.datagram(1, 2, 2 * MS, b"", [(Ev.ACK, "reliable[0]", 1, 0)])
    made.datagram(0, 3, 3 * MS, b"", [unit(1, 1)])
    first, second = (made.lanes[0].spaces[f"reliable[{key}]"] for key in (0, 1))
    assert second.peer_seen
    assert second.context.started == first.context.started
    assert second.context.sender_near == first.context.sender_near
    made.learn(made.hints)
    made.lanes[0].adopt(policy(spaces=(rule(name="reliable", key="channel", memory=512,
                                            ack=AckRule.EXACT, ack_bits=0),)))  # fmt: skip
    assert (second.rule.name, second.rule.memory) == ("reliable[1]", 512)


def test_stamps_that_are_forgotten_are_told(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_STAMPED", 10)
    waiting = stamped()
    for number in range(1, 13):
        send(waiting, number, number, number)
    assert waiting.context.findings.limits() == {"MAX_STAMPED": 2}
    settled = stamped()
    for number in range(1, 13):
        send(settled, number, number, number)
        settled.ack(number, number, number, number * MS)
    assert not settled.context.findings.limits()
    send(settled, 1, 1, 20)
    assert settled.context.findings.limits() == {"MAX_STAMPED": 1}


def test_copies_beyond_those_of_which_stamps_are_kept_are_told() -> None:
    made = stamped()
    for stamp in range(module.MAX_STAMPS + 3):
        send(made, 1, stamp, 500 * stamp)
    assert made.context.findings.limits() == {"MAX_STAMPS": 3}
