"""The verdict on a connection in words, from its report."""

from __future__ import annotations

from collections.abc import Iterator

from netdissect.model.reports import ConnectionReport, TimeoutVerdict
from netdissect.render.safe import safe
from netdissect.render.units import duration
from netdissect.report.subject import Verdict

__all__ = ["verdict_of"]

_OTHER = {"client": "server", "server": "client"}
_SEVERITIES = ("error", "warn", "note")


def verdict_of(report: ConnectionReport) -> Verdict:
    """Return what happened to a connection: how it ended, and what was sent again."""
    line, first = _end(report)
    severity = next((name for name in _SEVERITIES if report.anomalies.get(name)), "chat")
    more = [sentence for sentence in (_again(report), _missing(report)) if sentence]
    return Verdict(line, (first, *more), _basis(report), severity)


def _end(report: ConnectionReport) -> tuple[str, str]:
    """Return the line of a list and the heading."""
    fired = [timer for timer in report.timeouts if timer.fired]
    if fired:
        return _timed_out(fired)
    if report.state == "timed_out":
        side = (report.close or {}).get("by")
        who = f"The {side} gave up" if side else "One side gave up"
        return "Timed out", f"{who}: nothing came from the other for too long."
    if report.close and report.handshake != "rejected":
        return _closed(report)
    if report.handshake == "rejected":
        reason = safe(report.reject_reason or "no reason given", 80)
        return f"Rejected: {reason}", f"The server refused the connection: {reason}."
    return _ENDS.get(
        "unanswered" if report.handshake == "unanswered" else report.state,
        (f"State: {report.state}", "How it ended cannot be told from this capture."),
    )


_ENDS = {
    "unanswered": ("No answer", "The client asked and got no answer in this capture."),
    "open": ("Open when the capture ends", "The capture ends while both sides still talk."),
    "silent": ("Silent", "It ends in a silence, and no timer that the capture shows judged it."),
}


def _timed_out(fired: list[TimeoutVerdict]) -> tuple[str, str]:
    timer = fired[0]
    silence = _silence(timer)
    if len(fired) > 1:
        return f"Timed out at both ends{silence}", "Both sides gave up: neither heard the other."
    return (
        f"Timed out: nothing heard by the {timer.side}{silence}",
        f"The {timer.side} gave up: nothing came from the {_OTHER[timer.side]}{silence}.",
    )


def _silence(timer: TimeoutVerdict) -> str:
    if timer.last_heard_ns is None or timer.due_ns is None:
        return ""
    return f" for {duration((timer.due_ns - timer.last_heard_ns) / 1e6)}"


def _closed(report: ConnectionReport) -> tuple[str, str]:
    close = report.close or {}
    by, reason = close.get("by"), safe(str(close.get("reason") or ""), 80)
    frame = f" in frame #{close['frame']}" if close.get("frame") else ""
    said = f" “{reason}”" if reason else ""
    if by == "client":
        return f"Left: {reason or 'closed'}", f"The client left{frame}{_saying(said)}."
    if by == "server":
        return (
            f"Closed by the server: {reason or 'no reason given'}",
            f"The server closed the connection{frame}{_saying(said)}.",
        )
    return f"Closed: {reason or 'by an unknown side'}", f"The connection was closed{frame}{said}."


def _saying(said: str) -> str:
    return f" and said{said}" if said else ""


def _again(report: ConnectionReport) -> str:
    again = sum(space.retransmissions for space in report.spaces)
    units = sum(space.units for space in report.spaces if space.retransmissions)
    if not again:
        return "Nothing was sent again."
    return f"{again:,} copies were sent again for {units:,} units of the same kind."


def _missing(report: ConnectionReport) -> str:
    parts = []
    for space in report.spaces:
        told = space.extra.get("lost")
        if isinstance(told, int) and told:
            side = ("client", "server")[space.direction]
            parts.append(f"{told:,} of the {side}’s {space.units:,} {space.space} units")
    return f"{' and '.join(parts)} were reported lost." if parts else ""


def _basis(report: ConnectionReport) -> str:
    where = {
        "client": "seen at the client",
        "server": "seen at the server",
        "middle": "seen between the two sides",
    }.get(report.vantage, "where the capture was taken is unknown")
    return " · ".join(_rests(report, where))


def _rests(report: ConnectionReport, where: str) -> Iterator[str]:
    yield "acknowledged is what the peer declared"
    yield "sent again is told from numbers and timers"
    yield where
    if not report.complete:
        yield "the capture does not hold the whole connection"
