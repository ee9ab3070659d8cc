from __future__ import annotations

import io
import re

from hypothesis import given
from hypothesis import strategies as st

from netdissect.render.columns import Columns
from netdissect.render.console import Line, Screen, line_text

HEADS = ("#", "name", "bytes →", "found")
RIGHT = ("#", "bytes →")
ROWS: list[list[Line]] = [
    [
        [("1", "")],
        [("riptide-2.2", "protocol")],
        [("4.29 kB", "")],
        [("1E", "error"), (" 2W", "warn")],
    ],
    [[("20", "")], [("日本", "c2s")], [("-", "")], [("-", "dim")]],
    [[("3", "")], [("a\x1b[31mb", "")], [("0", "")], []],
]


def printed(rows: list[list[Line]], color: str = "never") -> list[str]:
    out = io.StringIO()
    screen = Screen(out, color=color)
    columns = Columns(*HEADS, right=RIGHT)
    for row in rows:
        columns.measure(row)
    for line in columns.head():
        screen.line(*line)
    for row in rows:
        screen.line(*columns.row(row))
    return out.getvalue().splitlines()


def rich(rows: list[list[Line]]) -> list[str]:
    out = io.StringIO()
    screen = Screen(out, color="never")
    table = screen.table(*HEADS, right=RIGHT)
    for row in rows:
        table.add_row(*map(line_text, row))
    screen.print(table)
    return [line.rstrip(" ") for line in out.getvalue().splitlines()]


def test_they_look_like_a_table_of_the_screen() -> None:
    assert printed(ROWS) == rich(ROWS)
    assert printed(ROWS)[:3] == [
        " #  name         bytes →  found",
        "───────────────────────────────",
        " 1  riptide-2.2  4.29 kB  1E 2W",
    ]
    assert printed([]) == ["#  name  bytes →  found", "─" * 23]


def test_colour_takes_no_room() -> None:
    painted = printed(ROWS, "always")
    assert [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip(" ") for line in painted] == printed(ROWS)
    assert "\x1b[1mriptide-2.2\x1b[0m" in painted[2]


WORDS = st.text("aé日\x07→ ", max_size=6).map(str.strip)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), max_size=5))
def test_any_rows_look_like_a_table_of_the_screen(rows: list[tuple[str, ...]]) -> None:
    cells: list[list[Line]] = [[[(word, "")] for word in row] for row in rows]
    assert printed(cells) == rich(cells)
    columns = Columns(*HEADS, right=RIGHT)
    for row in cells:
        columns.measure(row)
    lines = printed(cells)
    assert len(lines[1]) == columns.width
