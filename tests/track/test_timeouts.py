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
    ],
)
def test_verdicts(heard, own, end, near, over, fired) -> None:
    first, second = lanes(heard, own)
    found = verdict(1, RULE, heard=first, own=second, end_ns=end * MS, near=near, over=over)
    assert found.fired is fired
    assert (found.side, found.last_heard_frame) == ("server", 4)
    assert (found.due_ns, found.latest_ns) == (6000 * MS, 7000 * MS)


def test_a_side_that_never_heard_anything_has_no_verdict() -> None:
    first, second = lanes(None, 5)
    assert verdict(1, RULE, heard=first, own=second, end_ns=MS, near=True, over=False) is None
