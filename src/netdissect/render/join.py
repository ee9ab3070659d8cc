"""Prints two joined captures: their clocks, then both directions of each conversation."""

from __future__ import annotations

from collections.abc import Iterator

from netdissect.model.joined import (
    ClockReport,
    JoinedConnection,
    JoinReport,
    ResendReport,
    StreamReport,
    WayReport,
)
from netdissect.render.console import Screen
from netdissect.render.safe import safe
from netdissect.render.units import (
    arrow_of,
    counted,
    direction_style,
    duration,
    octets,
    percent,
    rtt_range,
)

_SHOWN_BURSTS = 3
_HANG, _DEEP = 3, 7
"""Indentation of wrapped lines, in columns."""
_LIMITS = {
    "MAX_FLOWS": "packets were not compared: they belong to too many flows",
    "MAX_WAITING": "datagrams were settled early: too many were waiting at once",
    "MAX_JUMPS": "possible clock steps were ignored: there are too many",
    "MAX_WEIGHED": "identical datagrams were not weighed: too many within one delay",
    "MAX_SHARED": "datagrams were not compared with identical ones elsewhere: too many",
}
"""Limit -> what its excess, a number, means."""
KINDS = {
    "relayed": "relayed: different addresses or ports on the two sides",
    "routed": "routed: the same addresses on both sides",
    "proxied": "proxied: one stream in two TCP connections, whose segments cannot be compared",
    "same place": "captured twice at the same place",
}
"""`JoinedConnection.kind` -> phrase."""


def capture_letter(index: int) -> str:
    """Return the letter of a capture: A, B ..."""
    return chr(ord("A") + index)


def show_join(screen: Screen, report: JoinReport, letters: tuple[str, str] = ("A", "B")) -> None:
    """Print what two joined captures show; `letters` name the captures."""
    width = max(len(info.path) for info in report.captures)
    for letter, info in zip(letters, report.captures, strict=True):
        screen.line(
            (f"{letter}  ", "title"),
            (f"{safe(info.path):<{width}}", ""),
            (f"  {info.frames} frames", "dim"),
        )
    for line in clock_lines(report.clock, letters):
        screen.line((line, ""), hang=_HANG)
    screen.line((f"The captures overlap for {duration(report.overlap_ms)}.", ""))
    if report.same_place:
        text = "Both were taken at the same place: datagrams missing in one are not loss."
        screen.line((text, "note"), hang=_HANG)
    for count, letter in zip(report.apart, letters, strict=True):
        if count:
            text = f"{count} datagrams of {letter} belong to flows that the other does not have."
            screen.line((text, "dim"), hang=_HANG)
    for limit, what in _LIMITS.items():
        if limit in report.limits_hit:
            screen.line((f"{report.limits_hit[limit]} {what} ({limit}).", "note"), hang=_HANG)
    others = [f"{name} {n}" for name, n in report.limits_hit.items() if name not in _LIMITS]
    if others:
        screen.line((f"Limits reached: {', '.join(others)}.", "note"), hang=_HANG)
    for conversation in report.conversations:
        _conversation(screen, conversation, letters)


def clock_lines(clock: ClockReport, letters: tuple[str, str]) -> list[str]:
    """Return sentences about the offset, the drift and the steps of two clocks."""
    side = "ahead of" if clock.offset_ms >= 0 else "behind"
    found = [
        f"The clock of {letters[1]} is {_exact(abs(clock.offset_ms))} {side} that of {letters[0]}"
        + (
            ", without a bound: only one direction was captured, and its smallest delay is taken"
            " as 0."
            if clock.bound_ms is None
            else f" (±{_exact(clock.bound_ms)}; smallest delays {duration(clock.least_delay_ms[0])}"
            f" and {duration(clock.least_delay_ms[1])})."
        )
    ]
    drift = f"Drift {clock.drift_ppm:+.1f}" if clock.drift_ppm else "No drift found"
    found.append(
        f"{drift} (±{clock.drift_bound_ppm:.1f} ppm; from {clock.anchors} datagrams"
        + (f", {clock.contradicting} of which contradict)." if clock.contradicting else ").")
    )
    found += [
        f"The clock of {letters[capture]} was set by {_exact(span)} before frame {frame}."
        for capture, frame, span in clock.steps
    ]
    return found


def _exact(milliseconds: float) -> str:
    """Return a span with microsecond precision, in ms or s."""
    if abs(milliseconds) < 1000:  # noqa: PLR2004 - a second
        return f"{milliseconds:.3f} ms"
    return f"{milliseconds / 1000:,.6f} s"


def _conversation(screen: Screen, one: JoinedConnection, letters: tuple[str, str]) -> None:
    screen.line()
    screen.line(
        (f"{one.number}  ", "title"),
        (one.protocol or one.transport, "protocol"),
        (f"  {KINDS[one.kind]}", "dim"),
        hang=_HANG,
    )
    for capture, letter in enumerate(letters):
        numbers = ", ".join(f"c{number}" for number in one.connections[capture]) or "-"
        ends = "; ".join(
            f"{screen.name(client)} → {screen.name(server)}" for client, server in one.ends[capture]
        )
        screen.line((f"   {letter} {numbers}  ", "dim"), (ends, ""), hang=_DEEP)
    for direction, stream in enumerate(one.streams):
        _stream(screen, direction, stream)
    for direction, way in enumerate(one.ways):
        _way(screen, one, direction, way, letters)


def _title(one: JoinedConnection, direction: int, sender: int, letters: tuple[str, str]) -> str:
    """Return the heading of a direction: who sends to whom."""
    places = f"{letters[sender]} to {letters[1 - sender]}"
    if one.client is None:
        return places
    return f"{'server to client' if direction else 'client to server'}, {places}"


def _way(
    screen: Screen, one: JoinedConnection, direction: int, way: WayReport, letters: tuple[str, str]
) -> None:
    style = direction_style(direction)
    screen.line(
        (f"   {arrow_of(direction)} ", style),
        (_title(one, direction, way.sender, letters), style),
        hang=_DEEP,
    )
    for text in _figures(way, letters[1 - way.sender]):
        screen.line((f"     {text}", "note" if text.startswith(_LIMITED) else ""), hang=_DEEP)


_LIMITED = "rate-limited: "


def _figures(way: WayReport, other: str) -> Iterator[str]:
    """Yield what happened to the datagrams of a direction; `other` names the receiver's capture."""
    fates = [
        f"{count} {text}"
        for count, text in (
            (way.outside, f"while {other} was not capturing"),
            (way.unseen, f"delivered but not captured by {other}"),
            (way.doubtful, f"lost or not captured by {other}"),
        )
        if count
    ]
    delivered, lost = f"{way.delivered} delivered", f"{way.lost} lost ({percent(way.loss_share)})"
    yield f"{way.sent} sent: {', '.join([delivered, lost, *fates])}"
    more = [
        f"{count} {text}"
        for count, text in (
            (way.copies, "duplicated by the network"),
            (way.reordered, "out of order"),
            (way.appeared, "of unknown origin"),
            (way.ambiguous, "ambiguous (likeliest fate counted)"),
        )
        if count
    ]
    if more:
        yield ", ".join(more)
    if way.delay.samples:
        delay = rtt_range(way.delay.minimum, way.delay.p50, way.delay.maximum)
        jitter = duration(way.jitter_ms)
        yield f"one-way delay {delay}, p95 {duration(way.delay.p95)}, jitter {jitter}"
    if way.burst_count:
        shown = [
            f"{burst.datagrams} in frames {burst.first_frame} to {burst.last_frame}"
            f" ({duration((burst.end_ns - burst.start_ns) / 1e6)})"
            for burst in way.bursts[:_SHOWN_BURSTS]
        ]
        total = f"; {way.burst_count} bursts in total" if way.burst_count > len(shown) else ""
        yield f"burst loss: {', '.join(shown)}{total}"
    if way.ceiling is not None:
        yield f"{_LIMITED}{way.ceiling.text}"
    if any((way.resends.needed, way.resends.spurious, way.resends.unknown, way.resends.copied)):
        yield _resends(way.resends)


def _resends(resends: ResendReport) -> str:
    told = f"retransmissions: {resends.needed} needed, {resends.spurious} spurious"
    if resends.unknown:
        told += f", {resends.unknown} unknown"
    if resends.copied:
        told += f"; {counted(resends.copied, 'unit')} came again in the network's duplicates"
    return told


def _stream(screen: Screen, direction: int, stream: StreamReport) -> None:
    style = direction_style(direction)
    sent = stream.octets[stream.toward]
    arrived = stream.octets[1 - stream.toward]
    if stream.equal:
        says = f"{octets(sent)}, identical on both sides"
    elif stream.equal is None:
        says = f"{octets(sent)} and {octets(arrived)}; not comparable: a capture has a gap"
    else:
        says = f"{octets(sent)} and {octets(arrived)}, different from byte {stream.differs_at} on"
    screen.line((f"   {arrow_of(direction)} ", style), (says, style), hang=_DEEP)
    if stream.delay.samples:
        middle = rtt_range(stream.delay.minimum, stream.delay.p50, stream.delay.maximum)
        screen.line(
            (f"     a byte takes {middle}, p95 {duration(stream.delay.p95)}", ""), hang=_DEEP
        )
