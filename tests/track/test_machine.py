"""The runner on every (state, input, side) of a table."""

from __future__ import annotations

import itertools

import pytest

from netdissect.track.machine import StateRunner
from tracking import MACHINE

INPUTS = ("hello", "welcome", "refuse", "bye", "never heard of")


@pytest.mark.parametrize(
    ("state", "name", "side"), list(itertools.product(MACHINE.states, INPUTS, (0, 1)))
)
def test_every_pair(state, name, side) -> None:
    runner = StateRunner(MACHINE)
    runner.state = state
    target = MACHINE.transitions.get((state, name, side))
    assert runner.step(name, "why", side, 7) == (target if target != state else None)
    assert runner.state == (target or state)
    if target is None:
        assert runner.close is None
        return
    word = MACHINE.states[target]
    assert runner.word == word
    assert runner.handshake == MACHINE.handshake.get(target, "not_seen")
    assert runner.reject_reason == ("why" if word == "rejected" else None)
    ended = {"by": ("client", "server")[side], "reason": "why", "frame": 7}
    assert runner.close == (ended if word in ("closed", "rejected") else None)
    assert runner.over == (word in ("closed", "rejected"))


def test_without_a_table_nothing_moves() -> None:
    runner = StateRunner(None)
    assert runner.step("hello", None, 0, 1) is None
    assert (runner.word, runner.handshake, runner.over) == ("unknown", "not_seen", False)
