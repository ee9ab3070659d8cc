"""Idle timers: when a side last heard its peer, when its timeout was due, and whether it fired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.packets import SIDES
from netdissect.model.policy import TimeoutRule
from netdissect.model.reports import TimeoutVerdict
from netdissect.track.lane import Lane

_MS: Final = 1_000_000
GONE_FOR_GOOD: Final = 4
"""A side has stopped for good if it is silent for this many times its longest pause."""
GONE_PERIODS: Final = 2
"""A side had stopped before its timeout if it was silent for this many times the interval of its
pings.
"""
ANNOUNCE_SLACK_NS: Final = 250_000_000
"""A timeout may be announced this much before it seems due, in ns: a side that measures by its
peer's time stamps counts from before their arrival.
"""


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
    """Return what the idle timer of one side did, as far as the capture shows.

    Args:
        side: 0 client, 1 server: whose timer.
        rule: its rule.
        heard: the direction that it receives.
        own: the direction that it sends.
        end_ns: end of the capture.
        near: True if the capture was taken next to this side, which then received all of it.
        over: whether the connection has ended on the wire before.

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
        # It would have announced the timeout; next to it, the capture would have that.
        fired = False if near else None
    elif near is False or end_ns < latest or not own.last_ns:
        # A far side may not have received what was captured; before `latest` the timeout may not
        # have fired yet; a side that never sent anything may not exist.
        fired = None
    elif rule.pings_ms is not None and own.last_ns < due - int(GONE_PERIODS * rule.pings_ms * _MS):
        # It had stopped before its timeout was due: it crashed, or closed for another reason.
        fired = False if near else None
    else:
        fired = True
    return TimeoutVerdict(SIDES[side], last_ns, frame, due, latest, fired)


def _configured(
    rule: TimeoutRule, heard_ns: int, sent_ns: int, end_ns: int
) -> tuple[int, int] | None:
    """Return (earliest, latest) time at which a side gave its peer up by a configurable timeout;
    None if it did not.

    It did if it stopped sending, although it should have gone on, after it had not heard its peer
    for at least the shortest timeout that can be configured.
    """
    if rule.shortest_ms is None or rule.alive_ms is None:
        return None
    alive_ns = int(rule.alive_ms * _MS)
    earliest, latest = heard_ns + int(rule.shortest_ms * _MS), sent_ns + alive_ns
    # It went on sending beyond the shortest timeout, or the capture ends too soon to tell.
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
    """Return the timeout that a side announces; None if its peer was not silent for long enough,
    since a side may send the same message for other reasons.

    `stamps` is side -> (newest time stamp that it stated in ms, its time in ns).
    """
    sign = heard.last_of(rule.refreshed_by)
    if sign is None:
        return None
    last_ns, frame = sign
    due = last_ns + int(rule.idle_ms * _MS)
    own, other = stamps[side], stamps[1 - side]
    silent_ms = 0.0
    if (
        rule.by_clock
        and own is not None
        and other is not None
        # What the peer has sent since that stamp may not have reached this side in time.
        and (other[1] == heard.last_ns or now_ns - other[1] <= ANNOUNCE_SLACK_NS)
    ):
        silent_ms = own[0] - other[0]
    if silent_ms >= rule.idle_ms:
        due = min(due, now_ns)
    elif now_ns < due - ANNOUNCE_SLACK_NS:
        return None
    return TimeoutVerdict(
        SIDES[side], last_ns, frame, due, due + int(rule.check_ms * _MS), fired=True
    )
