"""The clock between two captures, fitted by what both saw."""

from __future__ import annotations

import random

import pytest

from netdissect.join.clock import Anchor, find_steps, fit

MS = 1_000_000

OFFSET_NS = 1_000_000_000_000_000_000
"""As far apart as clocks can be of which one was never set."""


def seen(count: int, false: int, drift: float = 0.0) -> list[Anchor]:
    """Return what both captures saw, delays of 10 ms and more each way, and some that seem to
    arrive before they were sent.
    """
    chance = random.Random(16)
    found = []
    for number in range(count):
        toward = 1 if number % 2 else -1
        delay = -30_000_000 if number % 7 == 3 and number // 7 < false else 10_000_000
        a_ns = number * 10_000_000
        b_ns = a_ns + OFFSET_NS + round(a_ns * drift) + toward * (delay + chance.randrange(5_000_000))
        found.append(Anchor(number, a_ns, number, b_ns, number % 2, number % 2, toward))
    return found


@pytest.mark.parametrize("drift", [0.0, 200e-6])
@pytest.mark.parametrize("false", [0, 1, 9, 32])
def test_what_contradicts_the_clock_is_left_out(false: int, drift: float) -> None:
    piece = fit(seen(3000, false, drift), resolution_ns=0)
    assert piece is not None
    assert (piece.anchors, piece.contradicting) == (3000 - false, false)
    middle_ns = 2999 * 5_000_000
    assert abs(piece.offset(middle_ns) - OFFSET_NS - middle_ns * drift) <= piece.bound_ns
    assert abs(piece.drift - drift) <= piece.drift_bound + 1e-9


@pytest.mark.parametrize(("count", "false"), [(3000, 33), (1000, 21), (5, 1)])
def test_what_contradicts_too_often_has_no_clock(count: int, false: int) -> None:
    assert fit(seen(count, false), resolution_ns=0) is None


def spoken(step_ms: int = 0, at: int = 60) -> tuple[list[Anchor], list[tuple[int, int]]]:
    """Return anchors of two directions, 300 ms of round trip apart, that take turns of ten; before
    anchor `at`, the clock of B is set forward. The jumps of B are those of its own clock.
    """
    anchors, jumps, newest = [], [], 0
    for number in range(120):
        way = number // 10 % 2
        sent = number * 250 * MS
        arrived = sent + (150 if number % 2 else 155) * MS
        a, b = (arrived, sent) if way else (sent, arrived)
        b += step_ms * MS * (number >= at)
        if b - newest >= 200 * MS or b < newest:
            jumps.append((number + 1, b - newest))
        newest = b
        anchors.append(Anchor(number + 1, a, number + 1, b, way, way, 0))
    return anchors, jumps[1:]


def test_directions_that_take_turns_are_no_steps_of_a_clock() -> None:
    anchors, jumps = spoken()
    assert find_steps(anchors, ([], jumps)) == []


@pytest.mark.parametrize("at", [60, 65])
@pytest.mark.parametrize("step_ms", [-9000, -1500, 1000, 9000])
def test_a_step_shows_in_both_directions(step_ms: int, at: int) -> None:
    anchors, jumps = spoken(step_ms, at)
    found = find_steps(anchors, ([], jumps))
    assert [(capture, abs(frame - at - 1) <= 2) for capture, frame, _ in found] == [(1, True)]
