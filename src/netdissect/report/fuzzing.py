"""The page of a fuzzing run, and a diagram of the states that it reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from netdissect.plot.markup import Html, join, tag
from netdissect.plot.svg import alone
from netdissect.report.page import page

_WIDTH, _MARGIN, _BOX, _GAP, _NEAR = 1200, 16, 190, 130, 30
_LINE, _HEAD, _TOP = 16, 46, 120
_TYPES_SHOWN = 40
"""Types listed in a box; the others are counted."""
_CAUSES_SHOWN = 3
_STYLE = (
    ".box{fill:none;stroke:var(--dim)}.name{fill:var(--text);font-weight:600;font-size:15px}.never{opacity:.6}"
    ".arc{fill:none;stroke:var(--client);stroke-width:1.5}.tick{font-size:12px}"
)


def run_page(facts: Mapping[str, Any], heading: str) -> str:
    """Return the page of a run.

    Args:
        facts: contents of `report.json`.
        heading: protocol and target.

    """
    failures = facts["failures"]
    kinds = "1 kind" if len(failures) == 1 else f"{len(failures)} kinds"
    verdict = f"{kinds} of failure" if failures else "no failure found"
    parts = [
        tag("h1", heading),
        tag("p", verdict, class_=f"answer {'bad' if failures else 'good'}"),
        tag("p", _account(facts), class_="lead"),
        tag("p", facts["ended"], class_="dim"),
    ]
    if failures:
        rows = [
            (each["key"], each["signature"], each["detail"], each["count"], each["case"],
             each["folder"])
            for each in failures
        ]  # fmt: skip
        parts += [
            tag("h2", "Failures"),
            _table(("Key", "Kind", "Seen", "Times", "Up to case", "Folder"), rows),
        ]
    if facts["masked"]:
        parts += [tag("h2", "Skipped"), _table(("Kind", "Times"), facts["masked"].items())]
    if facts["held_back"]:
        held = ((row["key"], row["facts"], row["cases"]) for row in facts["held_back"])
        parts += [
            tag("h2", "Held back"),
            _table(("Expected failure", "What the cases have in common", "Cases"), held),
        ]
    parts += [tag("h2", "States"), tag("div", _states(facts)[0], class_="scroll", tabindex="0")]
    coverage = [
        (row["type"], row["state"], row["sent"], row["mutated"], row["received"])
        for row in facts["coverage"]
    ]
    head = ("Type", "State", "Sent unchanged", "Mutated", "Received")
    parts += [tag("h2", "Types and states"), _table(head, coverage)]
    parts += [
        tag("h2", "Mutations"), _table(("Mutation", "Cases"), facts["mutations"].items())
    ]  # fmt: skip
    return page(f"netdissect: {heading}", tag("main", *parts), css=_STYLE)


def _account(facts: Mapping[str, Any]) -> str:
    recent = facts["cases"] - facts["earlier"]
    rate = recent / facts["seconds"] if facts["seconds"] else 0.0
    text = (
        f"{facts['cases']:,} cases and {facts['datagrams']:,} messages in {facts['sessions']:,} "
        f"sessions and {facts['seconds']:.1f} s ({rate:.0f} cases/s)"
    )
    control = facts["accepted"]["control"]
    if control["share"] is not None:
        text += f"; {control['share']:.1%} of {control['expected']:,} unchanged messages accepted"
    text += f"; {facts['corpus']:,} cases brought something new"
    return text + ("" if not facts["edges"] else f", {facts['edges']:,} edges of code") + "."


def _table(head: tuple[str, ...], rows: Any) -> Html:
    body = [
        tag("tr", *(
            tag("td", f"{cell:,}" if isinstance(cell, int) else cell,
                class_="n" if isinstance(cell, int) else None)
            for cell in row
        ))
        for row in rows
    ]  # fmt: skip
    titles = tag("thead", tag("tr", *(tag("th", name) for name in head)))
    return tag("div", tag("table", titles, tag("tbody", *body)), class_="scroll", tabindex="0")


def states_document(facts: Mapping[str, Any]) -> str:
    """Return the diagram of the states as a stand-alone SVG document."""
    drawn, width, height = _states(facts)
    return alone(width, height, drawn, css=_STYLE)


def _states(facts: Mapping[str, Any]) -> tuple[Html, int, int]:
    """Return the diagram, its width and its height: a box per state with the types sent in it, an
    arc per change of state with the messages that caused it.
    """
    types: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in facts["coverage"]:
        types[row["state"]].append(row)
    moves: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in facts["moves"]:
        moves[row["from"], row["to"]].append(row)
        for state in (row["from"], row["to"]):
            types.setdefault(state, [])
    names = sorted(types, key=lambda name: name == "closed")
    fits = (_WIDTH - 2 * _MARGIN - _BOX) // max(1, len(names) - 1)
    step = max(_BOX + _NEAR, min(_BOX + _GAP, fits))
    width = max(_WIDTH, 2 * _MARGIN + _BOX + step * (len(names) - 1))
    left = {name: _MARGIN + step * index for index, name in enumerate(names)}
    longest = max((min(len(rows), _TYPES_SHOWN + 1) for rows in types.values()), default=0)
    below = _TOP + _HEAD + _LINE * longest + 10
    parts: list[Html] = [tag("title", "States of the sessions, and what was sent in them")]
    for name in names:
        parts += _box(name, left[name], below, types[name])
    deepest = 0
    for index, ((before, after), rows) in enumerate(sorted(moves.items())):
        arc, depth = _arc(left[before], left[after], below, rows, index)
        parts += arc
        deepest = max(deepest, depth)
    height = below + deepest + _MARGIN
    drawn = tag(
        "svg", *parts, class_="plot", viewBox=f"0 0 {width} {height}", width=width, height=height,
        role="img",
    )  # fmt: skip
    return drawn, width, height


def _box(name: str, x: int, end: int, rows: list[Mapping[str, Any]]) -> list[Html]:
    reached = [row for row in rows if row["sent"] or row["mutated"] or row["received"]]
    mutated = sum(bool(row["mutated"]) for row in rows)
    parts = [
        tag("rect", class_="box", x=x, y=_TOP, width=_BOX, height=end - _TOP, rx=4),
        tag("text", name, class_="name", x=x + 10, y=_TOP + 20),
        tag("text", f"{mutated} of {len(rows)} types mutated" if rows else "nothing sent",
            class_="tick", x=x + 10, y=_TOP + 37),
    ]  # fmt: skip
    shown = sorted(rows, key=lambda row: (row not in reached, row["type"]))[:_TYPES_SHOWN]
    y = _TOP + _HEAD + 6
    for row in shown:
        counts = f"{row['sent']}/{row['mutated']}/{row['received']}"
        fits = row["type"] if len(row["type"]) <= 18 else f"{row['type'][:17]}…"  # noqa: PLR2004
        kind = "tick" if row in reached else "tick never"
        parts += [
            tag("text", fits, class_=kind, x=x + 10, y=y),
            tag("text", counts if row in reached else "never", class_=kind, x=x + _BOX - 8, y=y,
                text_anchor="end"),
        ]  # fmt: skip
        y += _LINE
    if len(rows) > len(shown):
        more = f"and {len(rows) - len(shown)} more"
        parts.append(tag("text", more, class_="tick never", x=x + 10, y=y))
    return parts


def _arc(
    start: int, end: int, below: int, rows: list[Mapping[str, Any]], index: int
) -> tuple[list[Html], int]:
    """Return an arc, and how far it extends below the boxes. Arcs to the right are above the boxes,
    arcs to the left below.
    """
    rows = sorted(rows, key=lambda row: -row["count"])
    causes = [f"{row['message'] or 'ours'} {row['count']}" for row in rows[:_CAUSES_SHOWN]]
    causes += [f"and {len(rows) - _CAUSES_SHOWN} more"] if len(rows) > _CAUSES_SHOWN else []
    shift = 24 * (index % 4)
    a, b = start + _BOX // 2 + shift - 36, end + _BOX // 2 + shift - 36
    if end > start:
        edge, high = _TOP, _TOP - 20 - 22 * (index % 4)
        arrow = f"M{a} {edge}Q{(a + b) // 2} {2 * high - edge} {b} {edge}l-9-3m9 3l-1-9"
    else:
        edge, high = below, below + 24 + 26 * (index % 4)
        arrow = f"M{a} {edge}Q{(a + b) // 2} {2 * high - edge} {b} {edge}l9 3m-9-3l1 9"
    label = tag("text", ", ".join(causes), class_="tick", x=(a + b) // 2, y=high - 3,
                text_anchor="middle")  # fmt: skip
    return [tag("path", class_="arc", d=arrow), join(label)], max(0, high - below)
