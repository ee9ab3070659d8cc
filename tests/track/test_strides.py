"""Numbers at equal steps: a longer step shows what did not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.model.policy import AckRule
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import iter_timeline
from netdissect.track.findings import Findings
from netdissect.track.space import MAX_MISSING
from netdissect.track.strides import StridedSpace
from tracking import MS, rule

CAPTURES = Path(__file__).resolve().parents[2] / "captures/teeworlds"


def strided(reach=100):
    ticks = rule(
        bits=32, ack=AckRule.EXACT, ack_bits=0, resend=None, first_seq=None, consecutive=False,
        stride_reach=reach,
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
    assert len(space.missing) <= MAX_MISSING


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
            lacking |= set(range(record.data["first_seq"], record.data["last_seq"] + 1, 2))
    return seen, lacking - seen


@pytest.mark.parametrize("name", ["ddnet", "ddnet_sixup", "tw064", "tw065", "tw07"])
def test_lost_ticks_are_those_that_only_the_other_leg_has(name) -> None:
    """Where server and client sides were captured: what the relay dropped, and what the server,
    being late, left out itself.
    """
    client, lacking = ticks_of(CAPTURES / f"{name}_loss_client_side.pcap")
    server, left_out = ticks_of(CAPTURES / f"{name}_loss_server_side.pcap")
    lost = server - client
    assert len(lost) > 20
    assert lacking == lost | left_out
