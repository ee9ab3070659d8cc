"""Which units an acknowledgement names, and what the first one of a unit means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.model.policy import AckRule, Exhausted, QualityRule, ResendRule
from netdissect.track.context import Heard
from tracking import MS, RESEND, space


def filled(count=40, **changes):
    made, anomalies = space(**changes)
    for number in range(1, count + 1):
        made.unit(number, None, b"x", "Thing", number, number * MS)
    return made, anomalies


@pytest.mark.parametrize(
    ("ack", "base", "bits", "named"),
    [
        (AckRule.EXACT, 10, 0xFFFF, {10}),
        (AckRule.BITS_BEFORE, 10, 0b101, {10, 9, 7}),
        (AckRule.BITS_BEFORE, 2, 0xFFFF, {2, 1}),  # bits for numbers that were never sent
        (AckRule.BITS_AFTER, 10, 0b101, {10, 11, 13}),
        (AckRule.CUMULATIVE, 4, 0, {1, 2, 3, 4}),
    ],
)
def test_rules(ack, base, bits, named) -> None:
    made, _ = filled(ack=ack)
    made.ack(base, bits, 99, 99 * MS)
    assert set(range(1, 41)) - set(made.store.outstanding.numbers()) == named
    assert made.ack_stats.acked == len(named)


@given(
    base=st.integers(0, 255),
    bits=st.integers(0, 0xFFFF),
    first=st.integers(0, 255),
    count=st.integers(1, 60),
    ack=st.sampled_from([AckRule.BITS_BEFORE, AckRule.BITS_AFTER, AckRule.CUMULATIVE]),
)
def test_rules_against_a_set_with_wraps(base, bits, first, count, ack) -> None:
    made, _ = space(bits=8, ack=ack)
    numbers = range(first, first + count)
    for number in numbers:
        made.unit(number % 256, None, b"x", "Thing", number, number * MS)
    made.ack(base, bits, 999, 999 * MS)
    last = first + count - 1
    ahead = (base - last) % 256
    target = last + (ahead if ahead <= 128 else ahead - 256)
    if ack is AckRule.CUMULATIVE:
        named = {n for n in numbers if n <= target} if target <= last else set()
    else:
        side = 1 if ack is AckRule.BITS_AFTER else -1
        named = {target} | {target + side * (1 + i) for i in range(16) if bits >> i & 1}
    assert set(numbers) - set(made.store.outstanding.numbers()) == named & set(numbers)


def test_a_first_transmission_gives_a_sample_and_a_repeated_one_none() -> None:
    made, _ = space()
    made.unit(1, None, b"x", "Thing", 1, 0)
    made.unit(2, None, b"x", "Thing", 2, MS)
    made.unit(2, None, b"x", "Thing", 3, 200 * MS)
    made.ack(1, 0, 4, 30 * MS)
    made.ack(2, 0, 5, 230 * MS)
    made.ack(2, 0, 6, 231 * MS)
    assert (made.ack_stats.rtt.samples, made.ack_stats.rtt.ambiguous) == (1, 1)
    assert made.ack_stats.rtt.summary().p50 == 30.0


def test_what_may_be_a_retransmission_gives_no_sample() -> None:
    """The capture begins in the middle: units from before it are sent again, some in reverse."""
    made, _ = space()
    made.context.started = False
    for at, number in enumerate((5, 6, 4, 7)):
        made.unit(number, None, b"x", "Thing", at, at * MS)
    made.ack(7, 0b111, 9, 10 * MS)
    assert (made.ack_stats.rtt.samples, made.ack_stats.rtt.ambiguous) == (2, 2)


def test_what_is_marked_as_a_retransmission_gives_no_sample() -> None:
    made, _ = space()
    made.unit(1, True, b"x", "Thing", 1, MS)
    made.unit(2, False, b"x", "Thing", 1, MS)
    made.ack(2, 0b1, 2, 10 * MS)
    assert (made.ack_stats.rtt.samples, made.ack_stats.rtt.ambiguous) == (1, 1)


def test_an_ack_after_the_last_attempt_timed_out_finds_the_unit_given_up() -> None:
    made, anomalies = space()
    for attempt in range(RESEND.attempts):
        made.unit(1, None, b"x", "Thing", attempt, attempt * 120 * MS)
    made.ack(1, 0, 9, 900 * MS)
    assert (made.ack_stats.acked, made.attempts.given_up, made.ack_stats.unacked) == (0, 1, 1)
    assert "attempts-exhausted" in [a.code for a in anomalies]


def test_an_ack_before_that_is_in_time() -> None:
    made, _ = space()
    for attempt in range(RESEND.attempts):
        made.unit(1, None, b"x", "Thing", attempt, attempt * 120 * MS)
    made.ack(1, 0, 9, 300 * MS)
    assert (made.ack_stats.acked, made.attempts.given_up) == (1, 0)


def test_more_copies_than_permitted_show_that_the_limit_is_off() -> None:
    made, _ = space()
    for attempt in range(RESEND.attempts + 4):
        made.unit(1, None, b"x", "Thing", attempt, attempt * 120 * MS)
    made.end_all(Heard(9_000 * MS, 0))
    assert (made.attempts.given_up, made.ack_stats.unacked) == (0, 1)


def test_acks_of_the_unsent_and_of_the_unseen_are_reported() -> None:
    made, anomalies = space()
    made.unit(1, None, b"x", "Thing", 1, 0)
    made.unit(4, None, b"x", "Thing", 2, MS)
    made.ack(9, 0, 3, 2 * MS)
    made.ack(4, 0b10, 4, 3 * MS)
    assert [(a.code, a.direction) for a in anomalies] == [
        ("ack-of-unsent", 1),
        ("ack-of-unseen", 1),
    ]
    assert anomalies[1].evidence["seq"] == 2


@pytest.mark.parametrize("started", [True, False])
def test_acks_before_any_unit(started) -> None:
    """Where the capture has the start, what is acknowledged there was never sent."""
    made, anomalies = space()
    made.context.started = started
    made.nack(0, 0xFF, 1, 0)  # what a side says that has heard nothing
    assert not anomalies
    made.ack(5, 0xFFFF, 1, 0)
    made.nack(5, 0xFF, 1, 0)
    assert [item.code for item in anomalies] == ["ack-of-unsent"] * started
    assert made.context.findings.repeats == ({"ack-of-unsent": 2} if started else {})
    assert made.acks.feedback is None


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ([(1, 0)], (1, 0, 0)),
        ([(1, 0), (4, 0b01)], (3, 1, 0)),
        ([(30, 0)], (1, 8, 21)),
        ([(5, 0b1111), (5, 0), (3, 0)], (5, 0, 0)),  # what is told is told
        ([(12, 0xFF)], (9, 0, 3)),
    ],
)
def test_feedback_tells_each_unit_once(heads, expected) -> None:
    made, _ = filled(ack_bits=8, resend=None)
    for at, (base, bits) in enumerate(heads):
        made.nack(base, bits, at, at * MS)
    counts = made.acks.feedback.counts()
    assert (counts["delivered"], counts["lost"], counts["assumed_lost"]) == expected
    report = made.report()
    assert (made.ack_stats.acked, report.extra["lost"]) == expected[:2]


def test_feedback_mid_stream_tells_nothing_of_before() -> None:
    made, _ = space(ack_bits=8, resend=None)
    made.context.started = False
    for number in (500, 501, 502):
        made.unit(number, None, b"x", "Thing", number, number * MS)
    made.nack(501, 0, 1, 0)
    assert made.acks.feedback.counts() == {"delivered": 1, "lost": 1, "assumed_lost": 0}


def test_loss_above_the_limit_closes() -> None:
    quality = QualityRule("loss", 8, 0.25, 4, "Poor", fixed_divisor=True)
    made, anomalies = filled(ack_bits=8, resend=None, quality=quality)
    for base in range(3, 40, 3):
        made.nack(base, 0, base, base * MS)
    assert "poor-quality" in [a.code for a in anomalies]
    told = made.acks.feedback.counts()
    made.acks.revert_after_close()
    assert made.acks.feedback.counts() != told
    assert made.ack_stats.quality.peak == 6  # the header that breaks the rule is taken whole


def test_attempts_above_the_limit_close() -> None:
    resend = ResendRule(initial_ms=10.0, attempts=9, exhausted=Exhausted.CLOSE)
    quality = QualityRule("attempts", 4, 2.0, 2, "Poor")
    made, anomalies = space(resend=resend, quality=quality)
    at = 0
    for number in range(1, 6):
        for _ in range(4):
            at += 50
            made.unit(number, None, b"x", "Thing", at, at * MS)
        made.ack(number, 0, at, at * MS + MS)
    assert [a.code for a in anomalies].count("poor-quality") == 1
    assert made.ack_stats.quality.broken_ns is not None
