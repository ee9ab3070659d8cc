"""Who ended a connection, and how."""

from __future__ import annotations

from typing import Any

from netdissect.model.diagnosis import Ending
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport

__all__ = ["ending_of"]

UNREACHABLE = "port unreachable"


def ending_of(report: ConnectionReport) -> Ending:
    """Return who ended a connection, as far as the capture tells."""
    close = report.close or {}
    by, reason, frame = close.get("by"), close.get("reason"), close.get("frame")
    fired = [verdict for verdict in report.timeouts if verdict.fired]
    if report.state == "timed_out":
        return _timed_out(report, [verdict.side for verdict in fired], close)
    if report.state == "rejected" or report.handshake == "rejected":
        how = "unreachable" if reason == UNREACHABLE else "rejected"
        return Ending(by, how, report.reject_reason or reason, frame, report.ended_ns)
    if report.close is not None:
        return Ending(by, _closed(report, by, reason), reason, frame, report.ended_ns)
    if report.state == "silent":
        return Ending(None, "silent", None, None, report.last_time_ns)
    if report.state == "open":
        return Ending("nobody", "open", None, None, None)
    return _unopened(report)


def _closed(report: ConnectionReport, by: str | None, reason: str | None) -> str:
    """Return how a connection was closed that has somebody who did it."""
    if "silent-close" in report.codes:
        return "quality"
    if "refused-by-immediate-fin" in report.codes:
        return "rejected"
    if reason == UNREACHABLE:
        return "unreachable"
    if reason == "RST":
        return "reset"
    if by == "client" and report.handshake == "unanswered":
        return "gave-up"
    return "said"


def _timed_out(report: ConnectionReport, sides: list[str], close: dict[str, Any]) -> Ending:
    who = "both" if len(set(sides)) == len(SIDES) else (sides[0] if sides else close.get("by"))
    due = [verdict.due_ns for verdict in report.timeouts if verdict.fired and verdict.due_ns]
    when = min(due, default=report.last_time_ns)
    return Ending(who, "timed-out", close.get("reason"), close.get("frame"), when)


def _unopened(report: ConnectionReport) -> Ending:
    """Return how what never became open ended."""
    heard = [count > 0 for count in report.datagrams]
    if report.handshake == "unanswered" and not all(heard):
        return Ending("nobody", "never-answered", None, None, report.last_time_ns)
    if report.handshake == "not_seen" and not any(space.units for space in report.spaces):
        return Ending("nobody", "info-only", None, None, None)
    return Ending(None, "unknown", None, None, None)
