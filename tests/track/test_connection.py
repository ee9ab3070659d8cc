"""Events in, conclusions out: one connection of a protocol that does not exist."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdissect.lookup import hot_path
from netdissect.model.bounds import LOST_BY
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.model.policy import AckRule, ResendRule
from netdissect.track import bounds, silence
from netdissect.track import connection as module
from netdissect.track import recorder as recording
from netdissect.track.conclusion import conclude
from netdissect.track.lane import MAX_COUNTERS
from netdissect.track.probes import MAX_OPEN_PROBES
from netdissect.track.recorder import Recorder
from tracking import MACHINE, MS, connection, policy, rule


def feed(made, rows):
    """Feed (direction, ms, *events) rows; frames count from 1."""
    for frame, (direction, at_ms, *events) in enumerate(rows, 1):
        made.datagram(direction, frame, int(at_ms * MS), b"data", events)


HELLO = (Ev.MESSAGE, "Hello"), (Ev.STATE, "hello", None)
WELCOME = (Ev.MESSAGE, "Welcome"), (Ev.STATE, "welcome", None)


def test_messages_units_and_acks() -> None:
    made, _ = connection()
    feed(
        made,
        [
            (0, 0, *HELLO),
            (1, 30, *WELCOME),
            (0, 40, (Ev.UNIT, "Thing", "things", 1, None, b"a"), (Ev.MESSAGE, "Extra")),
            (1, 70, (Ev.MESSAGE, "Ack"), (Ev.ACK, "things", 1, 0)),
            (0, 80, (Ev.UNIT, None, "things", 2, None, b"b")),
            (1, 400, (Ev.MESSAGE, "Ack")),
        ],
    )
    report = conclude(made, 5_000 * MS)
    assert report.messages == ({"Extra": 1, "Hello": 1, "Thing": 1}, {"Ack": 2, "Welcome": 1})
    assert report.datagrams == (3, 3)
    assert report.octets == (12, 12)
    (space,) = report.spaces
    assert (space.units, space.acked, space.unacked) == (2, 1, 1)
    assert space.rtt.p50 == 30.0
    assert (report.first_frame, report.last_frame) == (1, 6)
    assert (report.handshake, report.state, report.state_name) == ("accepted", "open", "up")
    assert report.complete


def test_a_start_in_the_middle_is_not_complete() -> None:
    made, anomalies = connection()
    feed(made, [(0, 0, (Ev.UNIT, "Thing", "things", 900, None, b"a")), (1, 9, (Ev.MESSAGE, "X"))])
    report = conclude(made, 5_000 * MS)
    assert not report.complete
    assert report.handshake == "not_seen"
    assert not [a for a in anomalies if a.code == "first-number-skipped"]


def unacked(*after, end_ms=60_000):
    """Return how many of two units are unacknowledged for certain."""
    made, _ = connection()
    first = (0, 0, *HELLO), (1, 30, *WELCOME), (0, 40, (Ev.UNIT, "Thing", "things", 1, None, b"a"))
    feed(made, [*first, (0, 900, (Ev.UNIT, "Thing", "things", 2, None, b"b")), *after])
    return conclude(made, end_ms * MS).spaces[0].unacked


def test_an_acknowledgement_is_missed_only_while_the_other_side_is_heard() -> None:
    assert unacked() == 0
    assert unacked(end_ms=90_000) == 0  # however long others go on
    assert unacked((1, 950, (Ev.MESSAGE, "Ack"))) == 1
    assert unacked((1, 1500, (Ev.MESSAGE, "Ack"))) == 2


def test_a_sender_that_has_ended_waits_for_nothing() -> None:
    assert unacked((0, 910, (Ev.STATE, "bye", "Done"))) == 2
    assert unacked((1, 910, (Ev.STATE, "bye", "Done"))) == 1


def test_the_first_number_missing_from_the_start() -> None:
    made, anomalies = connection()
    feed(made, [(0, 0, *HELLO, (Ev.UNIT, "Thing", "things", 2, None, b"a")), (1, 30, *WELCOME)])
    conclude(made, 5_000 * MS)
    (found,) = [a for a in anomalies if a.code == "first-number-skipped"]
    assert "1 was never sent" in found.message


def test_one_side_alone_leaves_everything_unknown() -> None:
    made, _ = connection()
    feed(made, [(0, n, (Ev.UNIT, "Thing", "things", n, None, b"a")) for n in range(1, 5)])
    report = conclude(made, 60_000 * MS)
    assert (report.spaces[0].unknown, report.spaces[0].unacked) == (4, 0)
    assert not report.complete


def test_closes_and_rejects() -> None:
    made, _ = connection()
    feed(made, [(0, 0, *HELLO), (1, 5, *WELCOME), (1, 50, (Ev.STATE, "bye", "Kicked"))])
    report = conclude(made, 90_000 * MS)
    assert report.close == {"by": "server", "reason": "Kicked", "frame": 3}
    assert report.state == "closed"
    assert all(verdict.fired is False for verdict in report.timeouts)
    made, _ = connection()
    feed(made, [(0, 0, *HELLO), (1, 5, (Ev.STATE, "refuse", "Full"))])
    report = conclude(made, 90_000 * MS)
    assert (report.state, report.handshake, report.reject_reason) == (
        "rejected",
        "rejected",
        "Full",
    )


def test_probes_measure_and_rule_the_timer() -> None:
    made, _ = connection()
    feed(
        made,
        [
            (0, 0, (Ev.PROBE, "ping", 1)),
            (1, 40, (Ev.REPLY, "ping", 1)),
            (0, 50, (Ev.PROBE, "ping", 2), (Ev.RTT, 100)),
        ],
    )
    # The client measured 40 ms itself; the server was told 100.
    assert made.lanes[0].trip.mean_ms == 40.0
    assert made.lanes[1].trip.mean_ms == 100.0
    assert made.lanes[0].spaces["things"].context.delay_ns == 80 * MS
    assert made.lanes[1].spaces["things"].context.delay_ns == 200 * MS
    report = conclude(made, 100 * MS)
    probe = report.probes[0]
    assert (probe.sent, probe.answered, probe.rtt.p50, probe.declared.p50) == (2, 1, 40.0, 100.0)


def test_identity_counters_notes_and_their_bounds() -> None:
    made, anomalies = connection()
    rows = [(0, n, (Ev.IDENTITY, f"key-{n}", n), (Ev.COUNTER, "parts", 2)) for n in range(200)]
    feed(made, [*rows, (1, 300, (Ev.NOTE, "sequence-jump", "text"), (Ev.RESEND_REQUEST, "things"))])
    report = conclude(made, 400 * MS)
    assert len(report.identity) == module.MAX_IDENTITY
    assert report.limits_hit == {"MAX_IDENTITY": 200 - module.MAX_IDENTITY}
    assert report.counters == ({"parts": 400}, {"resend_requests": 1})
    assert (anomalies[0].message, anomalies[0].direction) == ("text", 1)
    assert report.anomalies["warn"] == 1


def test_hints_replace_what_the_decoder_knows() -> None:
    made, _ = connection()
    feed(made, [(0, 0, (Ev.HINTS, Hints(("toy", "toy-2"), extra=5)))])
    assert made.hints.extra == 5
    assert conclude(made, MS).dialects == ("toy", "toy-2")


def test_numbers_of_one_space_begin_anew() -> None:
    made, _ = connection()
    rows = [(0, n, (Ev.UNIT, "Thing", "things", n, None, b"a")) for n in (1, 2, 3)]
    rows += [(0, 10, (Ev.RESTART, "things"), (Ev.UNIT, "Thing", "things", 1, None, b"z"))]
    feed(made, rows)
    (space,) = conclude(made, 100 * MS).spaces
    assert (space.units, space.retransmissions, space.last_seq) == (4, 0, 65537)


def test_the_timer_fires_next_to_the_side_that_hears_nothing() -> None:
    made, anomalies = connection()
    rows = [(0, 0, *HELLO), (1, 0.1, *WELCOME)]
    for n in range(4):
        rows += [(0, 100 * n + 1, (Ev.MESSAGE, "Ping"), (Ev.PROBE, "ping", n))]
        rows += [(1, 100 * n + 1.1, (Ev.MESSAGE, "Ping"), (Ev.REPLY, "ping", n))]
    feed(made, rows)
    report = conclude(made, 30_000 * MS)
    assert report.state == "timed_out"
    client, server = report.timeouts
    assert (client.fired, server.fired) == (True, True)
    assert client.last_heard_frame == 10
    assert client.due_ns == int(301.1 * MS) + 5_000 * MS
    assert client.latest_ns == client.due_ns + 1_000 * MS
    assert [a.code for a in anomalies if a.code == "timeout"] == ["timeout"]


@pytest.mark.parametrize(("end_ms", "state"), [(1_000, "open"), (4_000, "unknown")])
def test_before_the_timer_is_due_nothing_is_known(end_ms, state) -> None:
    made, _ = connection()
    feed(made, [(0, 0, *HELLO), (1, 0.1, *WELCOME), (1, 1, (Ev.MESSAGE, "Ping"))])
    report = conclude(made, end_ms * MS)
    assert (report.state, report.timeouts[0].fired) == (state, None)


def test_a_side_that_goes_on_talking_has_not_given_up() -> None:
    made, _ = connection()
    rows = [(0, 0, *HELLO), (1, 1, *WELCOME), (1, 2, (Ev.MESSAGE, "Ping"))]
    feed(made, [*rows, (0, 9_000, (Ev.MESSAGE, "Ping"))])
    assert conclude(made, 30_000 * MS).timeouts[0].fired is False


def test_a_sender_that_closes_after_its_last_attempt() -> None:
    from netdissect.model.policy import Exhausted

    resend = ResendRule(
        100.0, guard_ms=1.0, attempts=3, exhausted=Exhausted.CLOSE, exhausted_reason="Poor"
    )
    made, anomalies = connection(spaces=(rule(resend=resend),))
    rows = [(0, 0, *HELLO), (1, 1, *WELCOME)]
    rows += [(1, 100 * n, (Ev.UNIT, "Thing", "things", 1, None, b"a")) for n in (1, 2, 3)]
    feed(made, [*rows, (0, 2_000, (Ev.MESSAGE, "Ping"))])
    report = conclude(made, 3_000 * MS)
    assert report.close == {"by": "server", "reason": "Poor", "frame": 5}
    assert report.state == "closed"
    assert "silent-close" in [a.code for a in anomalies]


def test_the_end_of_its_stream_shows_that_a_sender_closed_after_its_last_attempt() -> None:
    """Its kernel sends what was written before, and its timer is only known about."""
    from netdissect.model.policy import Exhausted

    resend = ResendRule(
        100.0, guard_ms=1.0, attempts=3, exhausted=Exhausted.CLOSE, exhausted_reason="Poor"
    )
    machine = replace(MACHINE, transitions=MACHINE.transitions | {("up", "fin", 1): "down"})
    made, anomalies = connection(transport="tcp", spaces=(rule(resend=resend),), machine=machine)
    rows = [(0, 0, *HELLO), (1, 1, *WELCOME)]
    rows += [(1, 100 * n, (Ev.UNIT, "Thing", "things", 1, None, b"a")) for n in (1, 2, 3)]
    feed(made, [*rows, (1, 310, (Ev.MESSAGE, "Ping"))])
    made.transport_end(1, 7, 320 * MS, reset=False)
    report = conclude(made, 3_000 * MS)
    assert report.close == {"by": "server", "reason": "Poor", "frame": 7}
    assert "silent-close" in [a.code for a in anomalies]


@pytest.mark.parametrize(("octets", "quiet"), [(10, [("silence", 0, 1_000 * MS)]), (0, [])])
def test_a_stream_that_comes_again_was_silent(octets: int, quiet: list[object]) -> None:
    """Bytes that its sender only repeats were sent before: it waited for an answer."""
    made, _ = connection(transport="tcp", alive_ms=(500.0, None))
    feed(made, [(0, 0, *HELLO), (1, 1, *WELCOME)])
    for frame in range(3, 13):
        made.segment(0, frame, 100 * (frame - 2) * MS, 10)
    made.segment(0, 13, 5_000 * MS, octets)
    spans = conclude(made, 5_100 * MS).quiet
    assert [(span.kind, span.direction, span.from_ns) for span in spans] == quiet


def test_icmp_is_evidence() -> None:
    made, anomalies = connection()
    feed(made, [(0, 0, *HELLO)])
    made.icmp_unreachable(0, 2, MS, "port unreachable")
    report = conclude(made, 9_000 * MS)
    assert report.complete
    assert (report.last_frame, report.handshake) == (2, "unanswered")
    assert anomalies[0].code == "port-unreachable"


def test_retransmission_records_tell_when_they_were_due() -> None:
    recorder = Recorder()
    made, _ = connection(recorder.of(1))
    feed(
        made,
        [
            (0, 0, (Ev.UNIT, "Thing", "things", 1, None, b"a")),
            (0, 120, (Ev.UNIT, "Thing", "things", 1, None, b"a")),
            (1, 150, (Ev.ACK, "things", 1, 0)),
        ],
    )
    conclude(made, 1_000 * MS)
    (unit,) = list(recorder.rest())
    first, second = unit.copies
    assert (first.kind, first.due_ns, first.attempts_left) == ("original", None, 2)
    assert (second.kind, second.due_ns, second.attempts_left) == ("retransmission", 100 * MS, 1)
    assert (unit.outcome, unit.acked_frame, unit.rtt_ms, unit.rtt_ambiguous) == (
        "acked",
        3,
        None,
        True,
    )


def test_spaces_without_acks_in_a_policy() -> None:
    made, _ = connection(spaces=(rule(ack=AckRule.NONE, resend=None),))
    feed(made, [(0, n, (Ev.UNIT, "Tick", "things", n, None, b"a")) for n in range(1, 9)])
    assert conclude(made, 100 * MS).spaces[0].unknown == 8


def test_the_policy_is_asked_for_each_direction() -> None:
    assert policy().spaces[0].name == "things"


def test_spans_of_silence_beyond_the_bound_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "MAX_SPANS", 3)
    made, anomalies = connection(alive_ms=(None, 500.0))
    events = [(Ev.STATE, "begin", None), (Ev.STATE, "established", None)]
    for number in range(8):
        made.datagram(0, 2 * number + 1, 9000 * number * MS, b"", events if not number else [])
        made.datagram(1, 2 * number + 2, 9000 * number * MS, b"", [])
    made.lifetime.open_ns = 1
    for number in range(8, 14):
        made.datagram(1, 2 * number + 2, 9000 * number * MS, b"", [])
    report = conclude(made, 9000 * 13 * MS)
    assert len(report.quiet) == 3
    assert report.limits_hit == {"MAX_SPANS": 3}
    text = next(found.message for found in anomalies if found.code == "limit-hit")
    assert text == "bound MAX_SPANS was reached 3 times: further spans of silence are not listed"


def test_pauses_that_may_be_a_silence_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "MAX_SPANS", 3)
    made, _ = connection()
    for number in range(9):
        made.datagram(0, number + 1, 60_000 * number * MS, b"", [])
    assert len(made.silence._pauses) == 3


def test_times_that_a_side_states_are_summed_up() -> None:
    made, _ = connection()
    for number, value in enumerate((-5, 1, 2, 30)):
        made.datagram(1, number + 1, number * MS, b"x", [(Ev.TIMING, "left", value)])
    made.datagram(0, 9, 9 * MS, b"x", [(Ev.TIMING, "right", 0.25)])
    report = conclude(made, 10 * MS)
    left = report.timings[1]["left"]
    assert (left.samples, left.minimum, left.p50, left.maximum) == (4, -5.0, 1.0, 30.0)
    assert report.timings[0]["right"].maximum == 0.25
    for number in range(2000):
        made.lanes[0].timing((Ev.TIMING, f"name {number}", 1), 9)
    assert len(made.lanes[0].timings) == MAX_COUNTERS


def test_a_bound_says_where_it_was_reached_and_what_is_unknown_from_there_on() -> None:
    made, anomalies = connection()
    for number in range(MAX_OPEN_PROBES + 5):
        made.datagram(0, number + 1, 2000 * number * MS, b"", [(Ev.PROBE, "ping", number % 256)])
    report = conclude(made, 10_000_000 * MS)
    assert report.limits_hit == {"MAX_OPEN_PROBES": 5}
    (found,) = [each for each in anomalies if each.code == "limit-hit"]
    assert (found.frame, found.time_ns) == (MAX_OPEN_PROBES + 1, 2000 * MAX_OPEN_PROBES * MS)
    assert found.concluded_ns == 10_000_000 * MS
    assert "answers to the oldest probes" in found.message


@pytest.mark.skipif(hot_path() == "compiled", reason="reads the source")
def test_every_bound_that_is_counted_says_what_it_makes_unknown() -> None:
    source = "".join(path.read_text() for path in Path(bounds.__file__).parent.glob("*.py"))
    named = set(re.findall(r'hit\("(\w+)"', source))
    assert len(named) > 15
    assert named == set(LOST_BY)


def test_what_was_sent_at_once_is_one_question() -> None:
    """One datagram would have answered all of them, and that may have been lost."""
    made, _ = connection(spaces=(rule(resend=None),), alive_ms=(100.0, 100.0))
    made.lifetime.open_ns = 1
    for frame, at_ms in enumerate(range(0, 6000, 100), 1):
        burst = [(Ev.UNIT, "Thing", "things", n, None, b"a") for n in range(20)]
        made.datagram(0, frame, at_ms * MS, b"", burst if at_ms == 1000 else [])
        made.datagram(1, frame, (at_ms + 20) * MS, b"", [])
    assert conclude(made, 6000 * MS).quiet == []


def test_who_gave_its_peer_up_is_not_silent_afterwards() -> None:
    made, _ = connection(alive_ms=(500.0, 500.0))
    feed(made, [(0, 0, *HELLO, (Ev.MESSAGE, "Ping")), (1, 30, *WELCOME)])
    made.lifetime.open_ns = 1
    for number in range(56):
        made.datagram(1, 10 + number, (100 + 100 * number) * MS, b"", [])
    report = conclude(made, 60_000 * MS)
    assert [verdict.side for verdict in report.timeouts if verdict.fired] == ["server"]
    assert [(span.kind, span.direction) for span in report.quiet] == [("silence", 0)]


def test_records_that_leave_too_early_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_PENDING", 3)
    recorder = Recorder()
    scribe = recorder.of(1)
    made, anomalies = connection(scribe)
    scribe.findings = made.findings
    for number in range(5):
        made.datagram(
            0, number + 1, number * MS, b"", [(Ev.UNIT, "T", "things", number, None, b"a")]
        )
        list(recorder.ready(number * MS))
    report = conclude(made, 100 * MS)
    assert report.limits_hit == {"MAX_PENDING": 2}
    (found,) = [each for each in anomalies if each.code == "limit-hit"]
    assert (found.frame, found.evidence["space"]) == (4, "things")
    assert "not listed with it" in found.message
    made.release()
    assert not recorder.scribes


def questions(step: int) -> list[tuple[str, int]]:
    """Return the quiet spans of a connection whose server asks for 6 s and gets one answer a
    second; the numbers of the answers go up by `step`.
    """
    made, _ = connection(spaces=(rule(resend=None, ack=AckRule.EXACT),))
    rows = [(0, 0, *HELLO), (1, 30, *WELCOME)]
    for number in range(60):
        rows.append((1, 100 + 100 * number, (Ev.UNIT, "Q", "things", number, None, b"q")))
        answer = (Ev.UNIT, "A", "things", 1 + number // 10 * step, None, b"a")
        if number % 10 == 9:
            acked = [(Ev.ACK, "things", number, 0)] if number in {9, 59} else []
            rows.append((0, 130 + 100 * number, answer, *acked))
    feed(made, rows)
    return [(span.kind, span.direction) for span in conclude(made, 6_200 * MS).quiet]


def test_answers_that_are_mostly_lost_on_their_way_show_no_broken_way_there() -> None:
    """Nine of ten numbers of the client are missing, and its answers with them."""
    assert ("one-way", 1) in questions(step=1)
    assert ("one-way", 1) not in questions(step=10)


def few_questions(*lost: int, talks: bool = True, **changes: Any) -> list[tuple[str, int]]:
    """Return the quiet spans of a connection whose server asks once a second, and is answered the
    first and the last time only. The client sends a number every 200 ms; those in `lost` are not in the capture.
    """
    made, _ = connection(spaces=(rule(resend=None, ack=AckRule.EXACT, **changes),))
    rows = [(0, 0, *HELLO), (1, 30, *WELCOME)]
    for number in range(30):
        at_ms = 100 + 200 * number
        if number % 5 == 0:
            rows.append((1, at_ms, (Ev.UNIT, "Q", "things", number // 5, None, b"q")))
        if number not in lost:
            acked = [(Ev.ACK, "things", number // 5, 0)] if number in {0, 29} else []
            unit = (Ev.UNIT, "A", "things", number, None, b"a")
            rows.append((0, at_ms + 50, unit if talks else (Ev.MESSAGE, "A"), *acked))
            rows.append((1, at_ms + 60, (Ev.ACK, "things", number, 0)))
    feed(made, rows)
    spans = conclude(made, 6_200 * MS).quiet
    for span in spans:  # each begins with a question
        assert span.from_frame is not None
        _, at_ms, event = rows[span.from_frame - 1]
        assert (at_ms, *event[:2]) == (span.from_ns // MS, Ev.UNIT, "Q")
    return [(span.kind, span.direction) for span in spans]


def test_lost_answers_to_a_few_questions_show_no_broken_way() -> None:
    assert few_questions() == [("one-way", 1)]
    assert few_questions(5, 15, 21) == [("one-way", 1)]
    assert few_questions(5, 10, 15, 20) == []


def test_who_sends_no_units_that_could_acknowledge_is_not_asked() -> None:
    assert few_questions(acked_by_units=True) == [("one-way", 1)]
    assert few_questions(talks=False) == [("one-way", 1)]
    assert few_questions(talks=False, acked_by_units=True) == []


def stuck(*, requests: int, copies: int) -> list[tuple[str, int, int, int | None]]:
    """Return the quiet spans of a connection whose server sends a unit once a second until the
    client acknowledges the last copy. The client speaks all the time and, in the first seconds, it
    asks for the unit.
    """
    made, _ = connection()
    rows = [(0, 0, *HELLO), (1, 30, *WELCOME)]
    for number in range(1, 4):
        rows.append((1, 100 * number, (Ev.UNIT, "Q", "things", number, None, b"q")))
        rows.append((0, 100 * number + 40, (Ev.ACK, "things", number, 0)))
    for second in range(copies):
        rows.append((1, 1000 + 1000 * second, (Ev.UNIT, "Q", "things", 4, second > 0, b"q")))
        for at_ms in range(1100, 2000, 200):
            asks = [(Ev.RESEND_REQUEST, "things")] if second < requests else []
            rows.append((0, at_ms + 1000 * second, (Ev.MESSAGE, "Thing"), *asks))
    rows.append((0, 1000 * copies + 990, (Ev.ACK, "things", 4, 0)))
    feed(made, rows)
    return [
        (span.kind, span.direction, span.from_ns // MS, span.to_ns)
        for span in conclude(made, 8_000 * MS).quiet
    ]


def test_a_receiver_that_asks_for_what_it_misses_was_reached() -> None:
    assert stuck(requests=6, copies=6) == []
    assert stuck(requests=2, copies=6) == [("one-way", 1, 3000, 6_000 * MS)]


def test_a_unit_of_which_only_the_last_copy_is_answered_shows_a_broken_way() -> None:
    """Two copies without an answer are usual where much is lost."""
    assert stuck(requests=0, copies=5) == [("one-way", 1, 1000, 5_000 * MS)]
    assert stuck(requests=0, copies=3) == []


@pytest.mark.parametrize(("lost", "word"), [(5, "server"), (1000, "unknown")])
def test_units_that_nobody_got_crossed_a_network_before_the_capture(lost: int, word: str) -> None:
    """The client answers within 9 ms, as a slow program does; numbers of it are missing."""
    made, _ = connection(spaces=(rule(ack=AckRule.EXACT),))
    rows = [(0, 0, *HELLO), (1, 1, *WELCOME)]
    for number in range(1, 60):
        at_ms = 100 * number
        if number % lost:
            rows.append((0, at_ms, (Ev.UNIT, "Thing", "things", number, None, b"a")))
            rows.append((1, at_ms + 0.1, (Ev.ACK, "things", number, 0)))
        rows.append((1, at_ms + 20, (Ev.UNIT, "Thing", "things", number, None, b"b")))
        rows.append((0, at_ms + 29, (Ev.ACK, "things", number, 0)))
    feed(made, rows)
    report = conclude(made, 6_000 * MS)
    assert report.vantage == word
    assert ("11 units of the client did not come" in report.vantage_basis) == (word == "server")


def begging(*after):
    """Return the quiet spans of a client that asks to begin five times, each time answered."""
    made, _ = connection()
    rows = [row for at in range(0, 2500, 500) for row in ((0, at, *HELLO), (1, at + 1, *WELCOME))]
    feed(made, [*rows, *after])
    return [(span.kind, span.direction, span.to_ns) for span in conclude(made, 9_000 * MS).quiet]


def test_who_asks_to_begin_again_and_again_does_not_hear_the_answers() -> None:
    """The client sent nothing else, and the server was answered nothing."""
    assert begging() == [("one-way", 1, None)]
    spoken = [(0, at, (Ev.MESSAGE, "Thing")) for at in range(2600, 4600, 500)]
    assert ("one-way", 1, None) not in begging(*spoken)


@pytest.mark.parametrize(
    ("pace_ms", "quiet"),
    [(20, [("silence", 0)]), (140, [("silence", 0)]), (160, []), (400, [])],
)
def test_who_speaks_often_is_missed_sooner(pace_ms: int, quiet: list[tuple[str, int]]) -> None:
    """Frozen for 3.5 s, a client that sends 50 times a second is not called silent for want of a
    timer that runs out later.
    """
    made, _ = connection(alive_ms=(1500.0, None))
    made.lifetime.open_ns = 1
    times = [at for at in range(0, 60_000, pace_ms) if not 30_000 < at < 33_500]
    feed(made, [(0, at, (Ev.MESSAGE, "Thing")) for at in times])
    report = conclude(made, 60_000 * MS)
    assert [(span.kind, span.direction) for span in report.quiet] == quiet


@pytest.mark.parametrize(("skipped", "quiet"), [(0, []), (40, [("silence", 0, "numbers")])])
def test_a_pause_that_numbers_are_missing_after_was_none(skipped: int, quiet: list) -> None:
    made, _ = connection(spaces=(rule(resend=None),))
    rows = []
    for number in range(60):
        late = number >= 30
        unit = (Ev.UNIT, "Thing", "things", 1 + number + late * skipped, None, b"a")
        rows.append((0, 100 * number + 1900 * late, unit))
        rows.append((1, 100 * number + 1900 * late + 1, (Ev.ACK, "things", unit[3], 0)))
    feed(made, rows)
    spans = conclude(made, 8_000 * MS).quiet
    assert [(span.kind, span.direction, span.basis) for span in spans] == quiet


def test_many_questions_at_the_end_need_no_second_of_silence() -> None:
    """A client that gives up after 15 copies in 0.7 s, since the server is gone, is the last to be
    heard: there it ended with nothing bad.
    """
    made, _ = connection()
    rows = [(0, 0, *HELLO), (1, 30, *WELCOME)]
    for number in range(40):
        rows.append((0, 100 + 40 * number, (Ev.UNIT, "Q", "things", number, None, b"q")))
        if number < 20:
            rows.append((1, 130 + 40 * number, (Ev.ACK, "things", number, 0)))
    feed(made, rows)
    report = conclude(made, rows[-1][1] * MS)
    assert [(span.kind, span.direction) for span in report.quiet] == [("silence", 1)]
