"""Idle timers: when a side last heard of its peer, when it was due to give up, whether it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.packets import SIDES
from netdissect.model.policy import TimeoutRule
from netdissect.model.reports import TimeoutVerdict
from netdissect.track.lane import Lane

__all__ = ["ANNOUNCE_SLACK_NS", "announced", "verdict"]

_MS: Final = 1_000_000
GONE_FOR_GOOD: Final = 4
"""A side that was quiet for so many times its longest pause will not speak again."""
GONE_PERIODS: Final = 2
"""A side that was quiet for so many times the spacing of its pings was gone already."""
ANNOUNCE_SLACK_NS: Final = 250_000_000
"""A side that goes by its peer's time stamps counts from before their arrival."""


def verdict(
    side: int,
    rule: TimeoutRule,
    *,
    heard: Lane,
    own: Lane,
    end_ns: int,
    near: bool | None,
    over: bool,
) -> TimeoutVerdict | None:
    """Return what the idle timer of one side did, as far as the capture tells.

    Args:
        side: 0 client, 1 server: whose timer.
        rule: its rule.
        heard: what its peer sent.
        own: what it sent itself.
        end_ns: end of the capture.
        near: True where this side is next to the capture: what was captured is what it got.
        over: the connection has ended on the wire before.

    """
    sign = heard.last_of(rule.refreshed_by)
    if sign is None:
        return None
    last_ns, frame = sign
    due = last_ns + int(rule.idle_ms * _MS)
    latest = due + int(rule.check_ms * _MS)
    if not over and near is not False:
        own_due = _configured(rule, last_ns, own.last_ns, end_ns)
        if own_due is not None:
            return TimeoutVerdict(SIDES[side], last_ns, frame, *own_due, fired=True)
    fired: bool | None
    if over or own.last_ns > latest:
        fired = False
    elif rule.announces is not None:
        # It would have said so, where that could be seen.
        fired = False if near else None
    elif near is False or end_ns < latest or not own.last_ns:
        # A far side may not have got what was captured; before `latest` it was not yet due; one
        # that never spoke may never have been there.
        fired = None
    elif rule.pings_ms is not None and own.last_ns < due - int(GONE_PERIODS * rule.pings_ms * _MS):
        # It was gone before its timer was due: crashed, or closed for another reason.
        fired = False if near else None
    else:
        fired = True
    return TimeoutVerdict(SIDES[side], last_ns, frame, due, latest, fired)


def _configured(
    rule: TimeoutRule, heard_ns: int, sent_ns: int, end_ns: int
) -> tuple[int, int] | None:
    """Return when a side gave its peer up by the timeout that it is configured to, earliest and
    latest; None where it did not.

    It stopped sending, though it was to, when it had not been heard of its peer for as long as the
    shortest timeout lasts.
    """
    if rule.shortest_ms is None or rule.alive_ms is None:
        return None
    alive_ns = int(rule.alive_ms * _MS)
    earliest, latest = heard_ns + int(rule.shortest_ms * _MS), sent_ns + alive_ns
    if latest < earliest or (end_ns - sent_ns) // GONE_FOR_GOOD < alive_ns:
        return None
    return max(earliest, sent_ns), latest


def announced(
    side: int,
    rule: TimeoutRule,
    heard: Lane,
    now_ns: int,
    stamps: Sequence[tuple[float, int] | None],
) -> TimeoutVerdict | None:
    """Return the timeout that a side announces, None where its peer was not silent for so long.

    A side may send the same message for other reasons, and for other peers. `stamps`: side -> the
    last one that it stated, milliseconds, and when.
    """
    sign = heard.last_of(rule.refreshed_by)
    if sign is None:
        return None
    last_ns, frame = sign
    due = last_ns + int(rule.idle_ms * _MS)
    own, other = stamps[side], stamps[1 - side]
    silent_ms = 0.0
    if rule.by_clock and own is not None and other is not None and other[1] == heard.last_ns:
        silent_ms = own[0] - other[0]
    if silent_ms >= rule.idle_ms:
        due = min(due, now_ns)
    elif now_ns < due - ANNOUNCE_SLACK_NS:
        return None
    return TimeoutVerdict(
        SIDES[side], last_ns, frame, due, due + int(rule.check_ms * _MS), fired=True
    )
