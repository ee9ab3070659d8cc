"""Prints the summary of a survey as a series of small tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from netdissect.model.survey import Section
from netdissect.render.columns import Columns
from netdissect.render.console import Line, Screen
from netdissect.render.safe import safe
from netdissect.render.units import duration, percent

_TEXT_LIMIT = 100
"""Maximum number of characters in a cell."""
_SECOND = "%Y-%m-%d %H:%M:%S"
_DAY = "%Y-%m-%d"
"""Format of times if the table is too wide with `_SECOND`."""


def show_sections(screen: Screen, sections: Iterable[Section]) -> None:
    """Print tables below their titles; empty ones are left out."""
    for number, section in enumerate(section for section in sections if section.rows):
        if number:
            screen.text()
        screen.line((section.title, "title"))
        _table(screen, section)


def _table(screen: Screen, section: Section) -> None:
    heads = [_head(name) for name in section.columns]
    numbers = {
        head
        for head, column in zip(heads, zip(*section.rows, strict=True), strict=True)
        if all(value is None or isinstance(value, (int, float)) for value in column)
    }
    for days in (False, True):
        table = Columns(*heads, right=numbers)
        rows = [
            [_cell(section, row, at, days=days) for at in range(len(row))] for row in section.rows
        ]
        for row in rows:
            table.measure(row)
        if table.width <= screen.width:
            break
    screen.lines(table.head(), cut=True)
    screen.lines(map(table.row, rows), cut=True)


def _head(name: str) -> str:
    return name.removesuffix("_share").removesuffix("_ms").replace("_", " ")


def _cell(section: Section, row: Any, at: int, *, days: bool) -> Line:
    value = row[at]
    if value is None:
        return [("-", "dim")]
    if isinstance(value, datetime):
        return [(f"{value:{_DAY if days else _SECOND}}", "")]
    if isinstance(value, str):
        return [(safe(value, _TEXT_LIMIT), "name" if at == 0 else "")]
    return [(_number(section, row, at) if isinstance(value, float) else f"{value:,}", "")]


def _number(section: Section, row: Any, at: int) -> str:
    value, name = row[at], section.columns[at]
    kind = name + (str(row[0]) if section.columns[0] == "figure" else "")
    if "_ms" in kind or "lag" in kind:
        return duration(value)
    if "share" in kind or "loss" in kind or "bad" in kind:
        return percent(value)
    return f"{value:,.6g}"
