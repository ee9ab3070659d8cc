from __future__ import annotations

from netdissect.fuzz.trials import CALM_SECONDS, TRIAL_CASES, Trials


def test_there_is_neither_trial_nor_calm_before_a_failure() -> None:
    trials = Trials(0.0)
    trials.advance(1000.0, 5)
    assert not trials.trying
    assert not trials.calm


def test_a_trial_ends_after_enough_cases_and_comes_again_after_calm() -> None:
    trials = Trials(0.0)
    trials.failed(1.0, known=True)
    assert trials.trying
    trials.advance(2.0, TRIAL_CASES - 1)
    assert trials.trying
    trials.advance(2.0, 1)
    assert trials.calm
    trials.advance(2.0 + CALM_SECONDS - 0.1)
    assert trials.calm
    # Also if cases were sent meanwhile.
    trials.advance(2.0 + CALM_SECONDS, 1)
    assert trials.trying


def test_failures_that_are_not_avoided_bring_no_calm() -> None:
    trials = Trials(0.0)
    trials.failed(1.0, known=False)
    assert trials.trying
    trials.advance(100.0, TRIAL_CASES)
    assert not trials.trying
    assert not trials.calm


def test_trials_take_a_limited_share_of_the_run() -> None:
    """A target that fails all the time has calm, too."""
    trials, calm = Trials(0.0), 0
    for second in range(1, 1001):
        trials.advance(float(second), 1)
        calm += trials.calm
        if trials.trying or second % 20 == 0:
            trials.failed(float(second), known=True)
    assert 700 < calm < 800


def test_a_calm_in_which_hardly_anything_may_be_sent_gives_way_to_a_trial() -> None:
    trials = Trials(0.0)
    trials.failed(1.0, known=True)
    trials.advance(2.0, TRIAL_CASES)
    for _ in range(100):
        # A fair share.
        for _ in range(15):
            trials.hold_back()
        trials.advance(3.0, 1)
        assert trials.calm
    for _ in range(TRIAL_CASES):
        trials.advance(4.0)
        assert trials.calm
        for _ in range(20):
            trials.hold_back()
    trials.advance(5.0)
    assert trials.calm
    trials.hold_back()
    trials.advance(5.0)
    assert trials.trying
    # It is given its time, whatever earlier ones have taken.
    trials.failed(9.0, known=True)
    assert trials.trying
