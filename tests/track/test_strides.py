"""Numbers at equal steps: a longer step shows what did not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.model.policy import AckRule
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, iter_timeline
from netdissect.track.findings import Findings
from netdissect.track.numbers import MAX_LEAPS, MAX_MISSING
from netdissect.track.strides import StridedSpace
from tracking import MS, rule

CAPTURES = Path(__file__).resolve().parents[2] / "captures/teeworlds"


def strided(reach=100, **changes):
    ticks = rule(
        bits=32, ack=AckRule.EXACT, ack_bits=0, resend=None, first_seq=None, consecutive=False,
        reach=128, stride_reach=reach, **changes,
    )  # fmt: skip
    return StridedSpace(ticks, 1, Findings(1, {}, None), None)


def feed(space, *ticks, acked=True):
    for tick in ticks:
        space.unit(tick, None, None, "Snap", tick, tick * MS)
        if acked:
            space.ack(tick, 0, tick, tick * MS + 1)


def test_what_a_longer_step_leaves_out_never_came() -> None:
    space = strided()
    feed(space, 100, 110, 112, 114, 120, 122)
    assert space.report().never_seen == 2  # 116 and 118; ten between the first two is the start
    feed(space, 118)
    assert (space.report().never_seen, space.report().out_of_order) == (1, 1)
    feed(space, 123)
    feed(space, 125)
    assert space.report().never_seen == 2  # the step is one by now


def test_without_an_acknowledgement_the_step_is_not_known() -> None:
    space = strided()
    feed(space, 10, 12, 14, 20, 26, acked=False)
    assert space.report().never_seen == 0
    feed(space, 28, 30, 34)
    assert space.report().never_seen == 1
    # The sender goes over to longer steps when it is not answered.
    feed(space, *range(36, 140, 2), acked=False)
    feed(space, 190, 240, 290, acked=False)
    feed(space, 340, 342, 346)
    assert space.report().never_seen == 2


def test_a_step_beyond_reach_or_off_the_stride_tells_nothing() -> None:
    space = strided()
    feed(space, 2, 4, 6, 8, 108, 110, 115, 117, 217, 2217)
    assert space.report().never_seen == 0 + 49 + 49
    for number in range(10_000, 2_000_000, 90):
        feed(space, number, number + 2)
    assert space.numbers.missing.size <= MAX_MISSING


def test_a_restart_forgets_the_step() -> None:
    space = strided()
    feed(space, 2, 4, 6)
    space.restart()
    feed(space, 1, 11, 21)
    assert space.report().never_seen == 0


def ticks_of(path):
    """Return the ticks of all snapshots of a capture, and those that it says never came."""
    seen, lacking = set(), set()
    for record in iter_timeline(path):
        if isinstance(record, UnitRecord):
            if record.space == "snapshot":
                seen.add(record.seq)
        elif record.event == "gap" and record.data["space"] == "snapshot":
            data = record.data
            lacking |= set(range(data["first_seq"], data["last_seq"] + 1, data["step"]))
    return seen, lacking - seen


@pytest.mark.parametrize("name", ["ddnet", "ddnet_sixup", "tw064", "tw065", "tw07"])
def test_lost_ticks_are_those_that_only_the_other_leg_has(name) -> None:
    """Where server and client sides were captured: what the relay dropped, and what the server,
    being late, left out itself.
    """
    client, lacking = ticks_of(CAPTURES / f"{name}_loss_client_side.pcap")
    server, _ = ticks_of(CAPTURES / f"{name}_loss_server_side.pcap")
    lost = server - client
    assert len(lost) > 20
    assert lacking <= lost  # of others, nothing tells whether they were lost or skipped
    assert len(lacking) > 5


@pytest.mark.parametrize("name", ["ddnet_sixup_loss", "tw064_loss", "tw07_blackout"])
def test_next_to_the_server_no_snapshot_is_missing(name) -> None:
    """What a server that is late or not answered leaves out was never sent."""
    (report, *_) = analyze(CAPTURES / f"{name}_server_side.pcap").connections
    (snapshots,) = [space for space in report.spaces if space.space == "snapshot"]
    assert snapshots.never_seen == 0 or report.vantage == "unknown"


def slow(*ticks):
    """Return how many are missing beside a client whose acknowledgements may not come through."""
    space = strided(150, slow_step=50)
    feed(space, 196, 198, 200, 202, *ticks)
    return space.report().never_seen


def test_a_sender_that_goes_over_to_slow_steps_has_left_nothing_out_by_loss() -> None:
    assert slow(250, 300, 350, 352, 354) == 0
    assert slow(300, 400) == 0
    assert slow(250, 276, 278) == 0  # answered again after the first of them
    assert slow(246, 250, 254, 256) == 23  # one before and one behind is no slow step
    assert slow(250, 252) == 23  # it has not gone over to them
    assert slow(250) == 0  # nobody knows yet
    assert slow(206, 208) == 1
    assert slow(250, 300, 224) == 0
    assert slow(250, 224, 252) == 22


def clocked(*steps, begin=100):
    """Return the space after snapshots of a server with a tick of 20 ms: (tick, ms of the server's
    clock since which an input waited for it, or None).
    """
    space = strided(tick_ms=20)
    feed(space, *range(begin, begin + 10, 2))
    for tick, since_ms in steps:
        if since_ms:
            # An input for a later tick, which came so much too early.
            space.clocked(tick + 5, (tick + 5) * 20 - since_ms, tick)
            space.clocked(tick + 7, (tick + 7) * 20 - since_ms - 9, tick)
        feed(space, tick)
    return space


def figures(space):
    report = space.report()
    return report.never_seen, report.extra.get("lost_or_skipped", 0)


def test_what_waited_for_a_number_shows_which_numbers_were_skipped_before_it() -> None:
    assert figures(clocked((110, None), (114, 2230))) == (0, 0)  # read in tick 111: not sent with 112
    assert figures(clocked((110, None), (114, 2250))) == (1, 0)  # in tick 112, and not sent with it
    assert figures(clocked((110, None), (114, 2270))) == (0, 1)  # in tick 113: 112 may not have been
    assert figures(clocked((110, None), (114, 2241))) == (0, 1)  # just when 112 was due
    assert figures(clocked((110, None), (114, None))) == (0, 1)
    assert figures(clocked((110, None), (118, 2290))) == (1, 1)  # 114 was sent, 116 not; 112?


def test_a_number_that_comes_late_was_neither_lost_nor_skipped() -> None:
    space = clocked((110, None), (114, 2250), (118, None))
    assert figures(space) == (1, 1)
    feed(space, 116)
    assert figures(space) == (1, 0)
    feed(space, 112)
    assert figures(space) == (0, 0)


def test_next_to_the_sender_nothing_is_missing() -> None:
    space = strided()
    feed(space, 100, 110, 112, 114, 120, 122)
    assert space.report().never_seen == 2
    space.repeats.set_vantage(sender_near=True, receiver_near=False)
    assert space.report().never_seen == 0


def slow_fed(space, *ticks):
    """Feed numbers that come 20 ms apart each."""
    for tick in ticks:
        space.unit(tick, None, None, "Snap", tick, tick * 20 * MS)
        space.ack(tick, 0, tick, tick * 20 * MS + 1)


@pytest.mark.parametrize("clock", [{}, {"tick_ms": 20}])
def test_a_pause_in_which_many_numbers_were_left_out_is_no_rest(clock: dict[str, int]) -> None:
    """Whether they were lost, or skipped by a sender that was busy: it should have been heard."""
    space = strided(**clock)
    slow_fed(space, *range(100, 200, 2), *range(270, 290, 2))
    paused = 198 * 20 * MS, 270 * 20 * MS
    assert space.numbers.ran_on(*paused)
    # Something else came just before the pause, and after most of it.
    assert space.numbers.ran_on(200 * 20 * MS, paused[1])
    assert not space.numbers.ran_on(260 * 20 * MS, paused[1])
    assert not space.numbers.ran_on(100 * 20 * MS, 150 * 20 * MS)
    slow_fed(space, *range(290, 400, 2), 440, 442)
    assert not space.numbers.ran_on(398 * 20 * MS, 440 * 20 * MS)  # 0.8 s
    for number in range(1000, 30_000, 100):
        slow_fed(space, number, number + 2, number + 80)
    assert len(space.numbers.pauses) == MAX_LEAPS


def test_a_sender_that_went_over_to_longer_steps_left_nothing_out_in_a_pause() -> None:
    space = strided(slow_step=50)
    slow_fed(space, *range(100, 200, 2))
    for tick in (250, 300, 350):
        space.unit(tick, None, None, "Snap", tick, tick * 20 * MS)
    assert space.numbers.pauses == ()


def test_numbers_that_begin_anew_unsaid_are_no_copies() -> None:
    """Ticks of the next map, where the capture lacks what says so; one old tick alone is nothing."""
    space = strided(restarts_at_will=True)
    feed(space, *range(100, 600, 2))
    feed(space, 300, 600, 602)
    assert (space.report().duplicates, space.context.findings.repeats) == (0, {"sequence-jump": 1})
    feed(space, *range(210, 260, 2))
    assert (space.report().duplicates, space.report().units) == (0, 250 + 3 + 25)
    assert space.context.findings.repeats["numbers-restart"] == 1


@pytest.mark.parametrize("forged", [(), (5000,), (5000, 5002), (5000, 5001, 5005), (90_000, 90_002)])
def test_forged_ticks_leave_the_step_as_it_is(forged: tuple[int, ...]) -> None:
    space = strided()
    feed(space, 100, 102, 104, 106)
    feed(space, *forged, acked=False)
    feed(space, 108, 112, 114)
    assert (space.report().never_seen, space.stride) == (1, 2)  # 110
