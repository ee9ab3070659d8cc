from __future__ import annotations

import pytest

from netdissect.model.policy import TimeoutRule
from netdissect.track.findings import Findings
from netdissect.track.lane import Lane
from netdissect.track.timeouts import verdict
from tracking import MS, policy

RULE = TimeoutRule(5000.0, 1000.0, frozenset({"Ping"}))


def lanes(heard_ms, own_ms):
    made = [Lane(policy(), side, Findings(1, {}, None), None) for side in (0, 1)]
    if heard_ms is not None:
        made[0].count("Ping", heard_ms * MS, 4)
    made[1].last_ns = own_ms * MS
    return made


@pytest.mark.parametrize(
    ("heard", "own", "end", "near", "over", "fired"),
    [
        (1000, 2000, 8000, True, False, True),
        (1000, 2000, 8000, None, False, True),
        (1000, 2000, 8000, False, False, None),  # what it got cannot be seen from here
        (1000, 2000, 6500, True, False, None),  # the check may be to come
        (1000, 2000, 3000, True, False, None),
        (1000, 7500, 8000, True, False, False),  # it still talks
        (1000, 7500, 8000, False, False, False),
        (1000, 2000, 8000, True, True, False),  # the connection was over before
        (1000, 0, 8000, None, False, None),  # it never spoke
    ],
)
def test_verdicts(heard, own, end, near, over, fired) -> None:
    first, second = lanes(heard, own)
    found = verdict(1, RULE, heard=first, own=second, end_ns=end * MS, near=near, over=over)
    assert found.fired is fired
    assert (found.side, found.last_heard_frame) == ("server", 4)
    assert (found.due_ns, found.latest_ns) == (6000 * MS, 7000 * MS)


SHORTER = TimeoutRule(100_000.0, 500.0, None, shortest_ms=5000.0, alive_ms=1500.0)


@pytest.mark.parametrize(
    ("heard", "own", "end", "near", "fired"),
    [
        (1000, 10_500, 17_000, True, (10_500, 12_000)),  # configured to about 10 s
        (1000, 5000, 17_000, True, (6000, 6500)),  # not before the shortest timeout
        (1000, 10_500, 17_000, None, (10_500, 12_000)),
        (1000, 10_500, 17_000, False, None),
        (1000, 10_500, 16_000, True, None),  # it may only be late
        (1000, 4000, 17_000, True, None),  # it went for another reason
        (1000, 10_500, 102_000, True, (10_500, 12_000)),
        (1000, 100_700, 120_000, True, (100_700, 102_200)),  # the usual timeout
        (1000, 4000, 102_000, True, (101_000, 101_500)),  # by then in any case
    ],
)
def test_a_configured_timeout_shows_in_when_the_side_fell_silent(
    heard, own, end, near, fired
) -> None:
    first, second = lanes(heard, own)
    first.datagrams, first.last_ns, first.last_frame = 1, heard * MS, 4
    found = verdict(1, SHORTER, heard=first, own=second, end_ns=end * MS, near=near, over=False)
    assert found.fired is (True if fired else None)
    if fired:
        assert (found.due_ns, found.latest_ns) == (fired[0] * MS, fired[1] * MS)


@pytest.mark.parametrize(
    ("own", "near", "fired"),
    [(5500, True, True), (4100, True, True), (3900, True, False), (3900, None, None)],
)
def test_a_side_that_pings_until_it_gives_up(own, near, fired) -> None:
    pinging = TimeoutRule(5000.0, 1000.0, frozenset({"Ping"}), pings_ms=1000.0)
    first, second = lanes(1000, own)
    found = verdict(1, pinging, heard=first, own=second, end_ns=8000 * MS, near=near, over=False)
    assert found.fired is fired


def test_a_side_that_never_heard_anything_has_no_verdict() -> None:
    first, second = lanes(None, 5)
    assert verdict(1, RULE, heard=first, own=second, end_ns=MS, near=True, over=False) is None
