from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.model.policy import QualityRule
from netdissect.track.feedback import Feedback, Quality
from tracking import MS, space


@given(
    values=st.lists(st.integers(0, 9), max_size=150),
    window=st.integers(1, 9),
    limit=st.sampled_from([0.05, 0.5, 2.0, 5.0]),
    run=st.integers(1, 6),
    fixed=st.booleans(),
)
def test_against_a_plain_count(values, window, limit, run, fixed) -> None:
    made = Quality(QualityRule("attempts", window, limit, run, "Poor", fixed_divisor=fixed))
    above = peak = 0
    broken = None
    for at, value in enumerate(values):
        last = values[max(0, at + 1 - window) : at + 1]
        mean = sum(last) / (window if fixed else len(last))
        above = above + 1 if mean > limit + 1e-12 else 0
        peak = max(peak, above)
        first = above >= run and broken is None
        if first:
            broken = at
        assert made.add_outcome(value, at) is first
    assert (made.peak, made.broken_ns) == (peak, broken)


@pytest.mark.parametrize("marked", [True, False])
def test_figures_return_to_the_mark(marked) -> None:
    made = Feedback(0)
    made.delivered, made.lost = 5, 2
    if marked:
        made.mark()
    made.delivered, made.lost, made.assumed_lost = 9, 9, 9
    made.revert()
    assert made.delivered == (5 if marked else 9)
    assert made.assumed_lost == (0 if marked else 9)


def test_the_header_that_breaks_the_rule_is_taken_whole() -> None:
    """Its sender finds out in the middle of it, and reads it to its end all the same."""
    made, anomalies = space(
        ack_bits=8, resend=None, quality=QualityRule("loss", 4, 0.3, 2, "Poor", fixed_divisor=True)
    )
    for number in range(1, 9):
        made.unit(number, None, bytes([number]), "Thing", number, number * MS)
    made.nack(6, 0b00000, 20, 20 * MS)  # 1 to 5 are lost, the rule breaks with 3
    made.nack(8, 0b0, 21, 21 * MS)
    made.acks.revert_after_close()
    told = made.report().extra
    assert [item.code for item in anomalies] == ["poor-quality"]
    assert (told["delivered"], told["lost"]) == (1, 5)
    assert told["poor_quality_run"] == 5
