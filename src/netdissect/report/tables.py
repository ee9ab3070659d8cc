"""The tables of a report: numbers, findings, messages, connections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from netdissect.model.annotations import CodeRow
from netdissect.model.packets import SIDES, Direction
from netdissect.model.reports import Anomaly, ConnectionReport, SpaceReport, UnitRecord
from netdissect.plot.history import took_ms
from netdissect.plot.markup import Child, Html, join, tag
from netdissect.render.connections import round_trips
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import (
    COPIES,
    arrow_of,
    counted,
    dialect_text,
    duration,
    percent,
    rtt_range,
    seconds,
    share,
)
from netdissect.report.subject import Subject

MAX_ROWS = 500
"""Connections that are listed; more make the page slow to open."""
_FRAMES = 6
"""Frames of a unit that are listed."""


def severity(label: str) -> Html:
    """Return a severity as a letter in a box."""
    return tag("b", SEVERITY_LETTERS[label], class_=f"sev {label}", title=label)


def tiles(subject: Subject, worst: str | None) -> Html:
    """Return the six numbers of a connection; `worst` is the id of its slowest unit's story."""
    report = subject.report
    spaces = _reliable(subject)
    units, acked = sum(space.units for space in spaces), sum(space.acked for space in spaces)
    names = " and ".join(sorted({space.space for space in spaces}))
    rows: list[tuple[str, str, Child]] = [
        ("Acknowledged", f"{acked:,}", f"of {units:,} {names} units" if units else "no such units"),
        ("Sent again", *_both(report.spaces, "retransmissions", "»")),
        ("Never acknowledged", *_unacked(report.spaces, spaces)),
        ("Never seen here", *_both(report.spaces, "never_seen", "○")),
        ("Round trip", *_round_trip(report)),
        ("Slowest", *_slowest(subject, worst)),
    ]
    return tag(
        "section",
        *(tag("dl", tag("dt", name), tag("dd", value, " ", tag("small", more)))
          for name, value, more in rows),
        class_="tiles",
        aria_label="Numbers",
    )  # fmt: skip


def _reliable(subject: Subject) -> list[SpaceReport]:
    """Return the spaces whose units are sent again until they are acknowledged; if there are none,
    those that are plotted instead.
    """
    history = subject.history
    if history is None:
        return []
    shown = {(track.direction, track.space) for way in Direction for track in history.shown(way)}
    return [space for space in subject.report.spaces if (space.direction, space.space) in shown]


def _unacked(spaces: Sequence[SpaceReport], reliable: Sequence[SpaceReport]) -> tuple[str, str]:
    """Return how many units that should have been acknowledged never were, and how many others were
    not.
    """
    value, more = _both(reliable, "unacked", "✗")
    others = sum(space.unacked for space in spaces if space not in reliable)
    if others:
        more += f"{'; ' if more else ''}{others:,} more by design"
    return value, more


def _both(spaces: Sequence[SpaceReport], name: str, sign: str) -> tuple[str, str]:
    """Return a number for both directions together, and for each of them."""
    ways = [
        sum(getattr(space, name) for space in spaces if space.direction == way) for way in Direction
    ]
    if not spaces:
        return "–", "no numbered units"
    if not any(ways):
        return "0", ""
    return f"{sum(ways):,}", f"{sign} " + ", ".join(
        f"{count:,} {arrow_of(way)}" for way, count in zip(Direction, ways, strict=True)
    )


def _round_trip(report: ConnectionReport) -> tuple[str, str]:
    best = round_trips(report)
    if best is None or best.p50 is None:
        return "–", "not to be seen from here"
    value, _, more = rtt_range(best.minimum, best.p50, best.maximum).partition(" (")
    return value, more.removesuffix(")")


def _slowest(subject: Subject, worst: str | None) -> tuple[str, Child]:
    slowest = subject.history.slowest()[:1] if subject.history is not None else []
    if not slowest:
        return "–", "no unit was acknowledged"
    unit = slowest[0]
    name: Child = f"{unit.space} {unit.seq}"
    story = subject.worst
    if worst is not None and story is not None and _name(story) == _name(unit):
        name = tag("a", name, href=f"#{worst}")
    taken = took_ms(unit)
    if taken is None and unit.outcome == "unknown":
        return "?", join(name, " has no acknowledgement here")
    if taken is None:
        return "✗", join(name, " was never acknowledged")
    return duration(taken), name


def _name(unit: UnitRecord) -> tuple[int, str, int]:
    return unit.direction, unit.space, unit.seq


def findings(
    report: ConnectionReport, found: Iterable[Anomaly], codes: Mapping[str, CodeRow], first_ns: int
) -> Html | None:
    """Return the findings of a connection as a table; None if there are none."""
    firsts: dict[str, Anomaly] = {}
    for one in found:
        known = firsts.get(one.code)
        if known is None or (one.frame or 0) < (known.frame or 0):
            firsts[one.code] = one
    rows = []
    for code, one in sorted(firsts.items(), key=lambda row: (-row[1].severity, row[0])):
        row = codes.get(code)
        times = max(report.codes.get(code, 0), one.repeats)
        where = _where(one, first_ns)
        meaning = row.title[0].upper() + row.title[1:] + "." if row else one.message
        way = "" if one.direction is None else SIDES[one.direction]
        rows.append(
            tag(
                "tr",
                tag(
                    "td", severity(one.severity.label), f" {one.severity.label}", data_l="severity"
                ),
                tag("td", tag("code", code), data_l="code"),
                tag("td", f"{times:,}", class_="n", data_l="times", data_v=times),
                tag("td", where, data_l="first", data_v=one.frame or 0),
                tag("td", way, data_l="side"),
                tag("td", meaning, class_="w", data_l="means"),
            )
        )
    if not rows:
        return None
    heads = (("Severity", ""), ("Code", ""), ("Times", "n"), ("First", ""), ("Side", ""),
             ("Meaning", ""))  # fmt: skip
    head = tag("tr", *(tag("th", name, class_=kind or None) for name, kind in heads))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="cards")


def _where(found: Anomaly, first_ns: int) -> str:
    """Return where a finding is: its frame and its time, or its first and last frame."""
    time_ns = found.time_ns
    frames = found.evidence.get("frames")
    text = "" if found.frame is None else f"#{found.frame}"
    if found.frame is None and isinstance(frames, (list, tuple)) and frames:
        text, time_ns = f"#{frames[0]} to #{frames[-1]}", found.evidence.get("from_ns")
    if isinstance(time_ns, int):
        text += f" at {seconds(time_ns - first_ns)[:-3]} s"
    return text


def messages(units: Sequence[UnitRecord], first_ns: int) -> Html:
    """Return units as a table that can be sorted."""
    heads = (("Sent", ""), ("Way", ""), ("Unit", ""), ("Type", ""), ("Copies", "n"), ("Took", "n"),
             ("Outcome", ""))  # fmt: skip
    head = tag("thead", tag("tr", *map(_sortable, heads), tag("th", "Frames")))
    body = tag("tbody", *(_unit(unit, first_ns) for unit in units))
    return tag("table", head, body, class_="cards sorts")


def _sortable(head: tuple[str, str]) -> Html:
    """Return the heading of a column by which the script can sort."""
    name, kind = head
    order = "descending" if name == "Took" else "none"
    button = tag("button", name, type="button", disabled=True)
    return tag("th", button, class_=kind or None, aria_sort=order)


def _unit(unit: UnitRecord, first_ns: int) -> Html:
    first = unit.copies[0]
    sent = (first.time_ns - first_ns) / 1e9
    way = f"client {arrow_of(0)}" if unit.direction == Direction.C2S else f"server {arrow_of(1)}"
    kinds = {copy.kind for copy in unit.copies}
    signs = "".join(f"{sign} " for kind, (sign, *_) in COPIES.items() if kind in kinds)
    taken = took_ms(unit)
    took = "–" if taken is None else ("~" if unit.rtt_ambiguous else "") + duration(taken)
    frames = [f"#{copy.frame}" for copy in unit.copies[:_FRAMES]]
    if len(unit.copies) > _FRAMES:
        frames.append(f"… {len(unit.copies) - _FRAMES} more")
    return tag(
        "tr",
        tag(
            "td", tag("span", f"{sent:.3f}", class_="n"), " s", data_l="sent", data_v=f"{sent:.6f}"
        ),
        tag("td", way, data_l="way"),
        tag("td", f"{unit.space} {unit.seq}", data_l="unit"),
        tag("td", unit.type or "", data_l="type"),
        tag(
            "td", f"{signs}{len(unit.copies)}", class_="n", data_l="copies", data_v=len(unit.copies)
        ),
        tag("td", took, class_="n", data_l="took", data_v="" if taken is None else f"{taken:.4f}"),
        tag("td", _outcome(unit), data_l="outcome"),
        tag("td", ", ".join(frames), class_="f", data_l="frames"),
    )


def _outcome(unit: UnitRecord) -> Html:
    if unit.outcome == "acked":
        return join(tag("span", "✓", class_="good"), f" acknowledged in #{unit.acked_frame}")
    if unit.extra.get("reported") == "lost":
        return join(tag("span", "✗", class_="bad"), " reported lost")
    if unit.outcome == "unknown":
        return join("? unknown")
    word = " given up" if unit.outcome == "given_up" else " never acknowledged"
    return join(tag("span", "✗", class_="bad"), word)


def overview(subjects: Sequence[Subject], total: int, first_ns: int) -> Iterator[Html]:
    """Yield the table of connections, worst first, and a note about those that are not in it."""
    rows = []
    for subject in subjects:
        report = subject.report
        number = report.connection
        name: Child = f"{number}"
        if subject.history is not None:
            name = tag("a", f"{number}", href=f"#c{number}")
        copies = sum(space.copies for space in report.spaces)
        again = sum(space.retransmissions for space in report.spaces)
        resent = f"{again:,}" + (f" ({percent(share(again, copies))})" if again else "")
        lasted = (report.last_time_ns - report.first_time_ns) / 1e6
        since = report.first_time_ns - first_ns
        way = f"{report.client} → {report.server}"
        box = severity(subject.severity)
        cells = [
            tag("td", box, " ", name, data_l="connection", data_v=number),
            tag("td", subject.diagnosis.verdict, class_="w", data_l="verdict"),
            tag("td", dialect_text(report.dialects), data_l="protocol"),
            tag("td", way, class_="w ends", data_l="between"),
            tag("td", f"{seconds(since)[:-3]} s", class_="n", data_l="from", data_v=since),
            tag("td", duration(lasted), class_="n", data_l="lasted", data_v=f"{lasted:.3f}"),
            tag("td", resent, class_="n w", data_l="retransmitted", data_v=again),
        ]
        rows.append(tag("tr", *cells))
    heads = (("Connection", ""), ("Verdict", ""), ("Protocol", ""), ("Client → server", ""),
             ("From", "n"), ("Lasted", "n"), ("Sent again", "n"))  # fmt: skip
    yield tag(
        "table",
        tag("thead", tag("tr", *map(_sortable, heads))),
        tag("tbody", *rows),
        class_="cards sorts",
    )
    if total > len(subjects):
        left = total - len(subjects)
        yield tag("p", f"Not listed here: {counted(left, 'connection')} more.", class_="dim")
