"""Who ended a connection, how, and how sure that is."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import Any, Final

from netdissect.model.diagnosis import Ending
from netdissect.model.packets import PORT_UNREACHABLE, SIDES
from netdissect.model.reports import ConnectionReport, EndHint

_BROADCAST: Final = IPv4Address("255.255.255.255")
_STATED: Final = frozenset({"said", "rejected", "unreachable", "reset", "gave-up"})
"""`Ending.how` of endings that a packet states."""
_REFUSED_BY_FIN: Final = "refused-by-immediate-fin"


def ending_of(report: ConnectionReport) -> Ending:
    """Return who ended a connection and how, as far as the capture shows."""
    by, how, reason, frame, time_ns = _ending(report)
    if by is None:
        confidence = "cannot tell"
    else:
        # Only the answer to a goodbye was captured, or what may be none, or only the direction of
        # whoever gave up, or an end that usually is a refusal, or the acceptance may be missing; or
        # who is the client is a guess.
        unseen = report.end_hint is not None and report.end_hint.kind in ("answered", "notice")
        one_way = how == "gave-up" and not all(report.datagrams)
        usually = how == "rejected" and (report.misses_frames or _REFUSED_BY_FIN in report.codes)
        guessed = report.roles_from == "first_frame"
        stated = how in _STATED and not (unseen or one_way or usually or guessed)
        at_side = how == "never-answered" and report.vantage in SIDES and not was_answered(report)
        confidence = "certain" if stated or at_side else "likely"
    return Ending(by, how, reason, frame, time_ns, confidence)


_End = tuple[str | None, str, str | None, int | None, int | None]
"""(by, how, reason, frame, time): the fields of `Ending`."""


def _ending(report: ConnectionReport) -> _End:
    close = report.close or {}
    by, reason, frame = close.get("by"), close.get("reason"), close.get("frame")
    sign = report.end_hint
    if sign is not None and sign.kind == "renewed" and not _before(report, sign):
        return _dropped(report, sign)
    fired = [verdict for verdict in report.timeouts if verdict.fired]
    if report.state == "timed_out":
        return _timed_out(report, [verdict.side for verdict in fired], close)
    if report.state == "rejected" or report.handshake == "rejected":
        how = "unreachable" if reason == PORT_UNREACHABLE else "rejected"
        return by, how, report.reject_reason or reason, frame, report.ended_ns
    if report.close is not None:
        return by, _closed(report, by, reason), reason, frame, report.ended_ns
    return _without_close(report, sign)


def _without_close(report: ConnectionReport, sign: EndHint | None) -> _End:
    """Return the ending of a connection that nobody is known to have closed."""
    to_the_end = {span.direction for span in report.quiet if span.to_ns is None}
    if sign is not None and sign.kind == "superseded" and 1 - sign.direction not in to_the_end:
        # Its peer was present, so a side that connects again has given up this connection.
        return SIDES[sign.direction], "silent", None, sign.frame, sign.time_ns
    if sign is not None and sign.kind == "notice":
        return SIDES[sign.direction], "said", sign.reason, sign.frame, sign.time_ns
    if report.state == "silent":
        return None, "silent", None, None, report.last_time_ns
    if sign is not None or (report.state == "open" and to_the_end):
        return None, "unknown", None, None if sign is None else sign.frame, None
    if report.state == "open":
        return None if _goodbye_may_be_lost(report) else "nobody", "open", None, None, None
    return _unopened(report)


def _goodbye_may_be_lost(report: ConnectionReport) -> bool:
    """Return whether packets of the far side are lost before they are captured, or not captured at
    all.
    """
    if report.misses_frames and not all(report.datagrams):
        return True
    far = {"client": 1, "server": 0}.get(report.vantage)
    return any(
        space.retransmissions or space.never_seen
        for space in report.spaces
        if space.direction == far
    )


def _before(report: ConnectionReport, sign: EndHint) -> bool:
    """Return whether the connection was closed before a sign of another ending."""
    return report.close is not None and (report.ended_ns or 0) < sign.time_ns


def _dropped(report: ConnectionReport, sign: EndHint) -> _End:
    """Return the ending by a side that dropped the connection, perhaps by its timer."""
    side = SIDES[sign.direction]
    idle_ns = [
        verdict.due_ns - verdict.last_heard_ns
        for verdict in report.timeouts
        if verdict.side == side and verdict.due_ns and verdict.last_heard_ns
    ]
    silent_ns = [
        min(span.to_ns or sign.time_ns, sign.time_ns) - span.from_ns
        for span in report.quiet
        if span.direction != sign.direction
    ]
    by_timer = bool(idle_ns) and max(silent_ns, default=0) >= idle_ns[0]
    return side, "timed-out" if by_timer else "dropped", None, sign.frame, sign.time_ns


def _closed(report: ConnectionReport, by: str | None, reason: str | None) -> str:
    """Return how a connection was closed whose close was captured."""
    if "silent-close" in report.codes:
        return "quality"
    if _REFUSED_BY_FIN in report.codes:
        return "rejected"
    if reason == PORT_UNREACHABLE:
        return "unreachable"
    if reason == "RST":
        return "reset"
    served = any(space.units for space in report.spaces if space.direction == 1)
    if by == "client" and report.handshake == "unanswered" and not (served or report.misses_frames):
        return "gave-up"
    return "said"  # to a server that had answered, even if the answer is not in the capture


def _timed_out(report: ConnectionReport, sides: list[str], close: dict[str, Any]) -> _End:
    who = "both" if len(set(sides)) == len(SIDES) else (sides[0] if sides else close.get("by"))
    due = [verdict.due_ns for verdict in report.timeouts if verdict.fired and verdict.due_ns]
    when = min(due, default=report.last_time_ns)
    return who, "timed-out", close.get("reason"), close.get("frame"), when


def _unopened(report: ConnectionReport) -> _End:
    """Return the ending of a connection that was never established."""
    unanswered = report.handshake == "unanswered" and not report.datagrams[1]
    if unanswered and not _is_group(report.server):
        return "nobody", "never-answered", None, None, report.last_time_ns
    info_only = report.handshake == "not_seen" and not any(space.units for space in report.spaces)
    if unanswered or (info_only and any(report.datagrams)):
        return "nobody", "info-only", None, None, None
    return None, "unknown", None, None, None


def was_answered(report: ConnectionReport) -> bool:
    """Return whether the host of the server answered a client that never acknowledged this."""
    return report.handshake == "unanswered" and report.identity.get("syn_to_synack_ms") is not None


def _is_group(address: str) -> bool:
    """Return whether an address is multicast or broadcast, which discover servers, not connect."""
    host = ip_address(address.rpartition(":")[0].strip("[]"))
    return host.is_multicast or host == _BROADCAST
