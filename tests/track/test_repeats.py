"""Further copies of a unit: the sender's, the network's, and those that nobody can tell."""

from __future__ import annotations

import pytest

from netdissect.track import repeats as module
from tracking import MS, space


def send(made, wire, at_ms, content=b"x", labelled=None):
    made.unit(wire, labelled, content, "Thing", at_ms, at_ms * MS)


def finish(made, end_ms=10_000):
    made.end_all(end_ms * MS, 0)
    return made.report()


def holds(report):
    assert report.copies == report.units + report.retransmissions + report.duplicates
    assert report.units == report.acked + report.unacked + report.unknown


def test_a_repeat_is_a_retransmission_next_to_the_sender() -> None:
    made, _ = space()
    made.place(sender_near=True, receiver_near=False)
    send(made, 1, 0)
    send(made, 1, 2)
    assert (made.retransmissions, made.duplicates) == (1, 0)


def test_a_quick_repeat_is_a_duplicate_next_to_the_receiver() -> None:
    made, _ = space()
    made.place(sender_near=False, receiver_near=True)
    send(made, 1, 0)
    send(made, 1, 2)
    send(made, 1, 100)
    assert (made.retransmissions, made.duplicates) == (1, 1)
    assert finish(made).max_copies == 2


def test_doubtful_copies_are_judged_again_when_the_vantage_is_known() -> None:
    made, _ = space()
    send(made, 1, 0)
    send(made, 1, 2)
    assert (made.retransmissions, made.duplicates) == (0, 1)
    made.ack(1, 0, 3, 3 * MS)
    made.place(sender_near=True, receiver_near=True)
    assert (made.retransmissions, made.duplicates) == (1, 0)
    assert finish(made).max_copies == 2


def test_doubtful_copies_stay_duplicates_where_the_sender_is_far() -> None:
    made, _ = space()
    send(made, 1, 0)
    send(made, 1, 2)
    made.place(sender_near=False, receiver_near=True)
    assert (made.retransmissions, made.duplicates) == (0, 1)


def test_without_a_resend_rule_every_repeat_is_the_networks() -> None:
    made, _ = space(resend=None)
    made.place(sender_near=True, receiver_near=False)
    send(made, 1, 0)
    send(made, 1, 5_000)
    assert (made.retransmissions, made.duplicates) == (0, 1)


def test_over_tcp_every_repeat_is_the_senders() -> None:
    made, _ = space(resend=None)
    made.in_stream = True
    send(made, 1, 0)
    send(made, 1, 0)
    assert (made.retransmissions, made.duplicates) == (1, 0)


@pytest.mark.parametrize(
    ("labelled", "content", "gap_ms", "duplicate"),
    [
        (True, b"y", 1, False),  # the sender says so, and the datagram is another
        (True, b"x", 1, True),  # the marked copy itself was copied
        (True, b"x", 500, False),
        (False, b"x", 500, True),  # its sender marks what it sends again
    ],
)
def test_marked_copies(labelled, content, gap_ms, duplicate) -> None:
    made, _ = space()
    made.place(sender_near=False, receiver_near=True)
    send(made, 1, 0, labelled=False)
    send(made, 1, gap_ms, content, labelled)
    assert made.duplicates == duplicate


def test_deliberate_doubles_are_transmissions() -> None:
    made, _ = space(burst=2)
    for at in (0, 0, 1):
        send(made, 1, at)
    assert (made.retransmissions, made.duplicates) == (1, 1)


def test_the_same_number_with_other_content_is_reported() -> None:
    made, anomalies = space(remarks={"number-reused": "known defect"})
    send(made, 1, 0, b"one")
    send(made, 1, 500, b"two")
    (found,) = [a for a in anomalies if a.code == "number-reused"]
    assert "known defect" in found.message
    assert found.evidence == {"space": "things", "seq": 1}


def test_a_unit_resent_again_and_again_after_its_ack_is_reported_once() -> None:
    made, anomalies = space()
    send(made, 1, 0)
    made.ack(1, 0, 1, MS)
    for at in range(1, 8):
        send(made, 1, 200 * at)
    assert [a.code for a in anomalies].count("acked-yet-resent") == 1
    assert finish(made).retransmissions == 7


def test_bound_of_doubtful_copies() -> None:
    made, _ = space()
    for _ in range(module.MAX_DOUBTFUL + 10):
        send(made, 1, 1)
    assert made.findings.limits()["MAX_DOUBTFUL"] > 0


def test_copies_of_forgotten_units_are_counted_and_said() -> None:
    made, _ = space(memory=64)
    for number in range(1, 300):
        send(made, number, number)
        made.ack(number, 0, number, number * MS)
    send(made, 5, 400)
    assert made.findings.limits()["memory"] == 1
    report = finish(made)
    assert (report.units, report.retransmissions, report.duplicates) == (299, 0, 0)
    assert report.extra["forgotten"] == 1
    holds(report)


def test_what_turns_out_later_is_counted_whole_however_many_copies_there_are() -> None:
    made, _ = space()
    count = module.MAX_DOUBTFUL + 10
    for _ in range(count + 1):
        send(made, 1, 1)
    made.place(sender_near=True, receiver_near=False)
    assert (made.retransmissions, made.duplicates) == (count, 0)
    assert made.findings.repeats["retransmission"] == count
    made.place(sender_near=None, receiver_near=None)
    assert (made.retransmissions, made.duplicates) == (0, count)


def test_a_marked_resend_is_one_whatever_the_guard_is() -> None:
    """A sender that is asked again and again repeats equal datagrams long before its own timer."""
    made, _ = space(duplicate_window_ms=10.0)
    send(made, 1, 0, labelled=False)
    for at in (20, 60, 65):
        send(made, 1, at, b"again", labelled=True)
    assert (made.retransmissions, made.duplicates) == (2, 1)


def test_other_octets_are_never_a_network_copy() -> None:
    """A space whose units are never sent again: the number was used for something else."""
    made, anomalies = space(resend=None)
    send(made, 1, 0, b"one")
    send(made, 2, 1, b"two")
    send(made, 2, 2, b"other")
    report = finish(made)
    assert (report.units, report.duplicates, report.never_seen) == (3, 0, 0)
    assert [found.code for found in anomalies] == ["number-reused"]
    holds(report)
