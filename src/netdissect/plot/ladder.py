"""A sequence diagram as SVG: arrows between two lanes. Arrows of one capture are horizontal; those
of two joined captures descend from the time of sending to that of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from netdissect.model.packets import SIDES, Direction
from netdissect.plot.markup import Html, tag
from netdissect.plot.svg import alone
from netdissect.render.console import fit
from netdissect.render.ladder import SIGNS, SILENCE_MS, Row
from netdissect.render.units import Clock, duration

_LEFT, _MIDDLE, _RIGHT, _TOP = 118, 379, 640, 52
"""Coordinates of the left lane, the middle, the right lane, and the first row."""
_ROW, _STEP = 26, 22
"""Height of a row of one capture, and of one moment of two joined captures."""
_LABEL = 74
"""Characters of a label."""
_OUT = 10
"""Distance between a lane and the text beside it."""


def picture(drawn: Sequence[Row], name: str, show: Callable[[int], str]) -> Html:
    """Return rows as an `svg` element of a page.

    Args:
        drawn: rows in order of time.
        name: what it shows, for people who do not see it.
        show: formats a time in ns.

    """
    width, height, parts = _parts(drawn, SIDES, show)
    box = f"0 0 {width} {height}"
    return tag("svg", *parts, class_="ladder", viewBox=box, role="img", aria_label=name)


def document(drawn: Sequence[Row], ends: tuple[str, str], clock: Clock) -> str:
    """Return rows as a stand-alone SVG document; `ends` are the names of the lanes."""
    width, height, parts = _parts(drawn, ends, clock.show)
    return alone(width, height, *parts)


def _parts(
    drawn: Sequence[Row], ends: Sequence[str], show: Callable[[int], str]
) -> tuple[int, int, list[Html]]:
    """Return width and height of the picture, and its elements."""
    falls = any(row.names is not None for row in drawn)
    # With two captures, there are times on both sides.
    width = _RIGHT + (_LEFT if falls else _OUT + _LEFT // 2)
    parts: list[Html] = []
    top, last = _TOP, None
    # With two captures, each moment has a height of its own: the key of row n's sending is 2 n,
    # that of its arrival 2 n + 1.
    moments = [(row.time_ns, 2 * at) for at, row in enumerate(drawn)]
    moments += [(row.arrived_ns, 2 * at + 1) for at, row in enumerate(drawn) if row.arrived_ns]
    place = {key: _TOP + _STEP * at for at, (_, key) in enumerate(sorted(moments))}
    for at, row in enumerate(drawn):
        if falls:
            top, end = place[2 * at], place.get(2 * at + 1)
            parts += _row(row, show, top, end)
            continue
        if last is not None and (row.time_ns - last) / 1e6 >= SILENCE_MS:
            silence = f"silence of {duration((row.time_ns - last) / 1e6)}"
            parts.append(_text(silence, _MIDDLE, top, "tick", "middle"))
            top += _ROW
        last = row.time_ns
        parts += _row(row, show, top, None if row.mark == "lost" else top)
        top += _ROW
    height = _TOP + _STEP * len(place) if falls else top
    # Aligned with the edges of the picture: an address is wider than the space beside a lane.
    heads = [_text(ends[0], _OUT, 18, "lab", "start"),
             _text(ends[1], width - _OUT, 18, "lab", "end")]  # fmt: skip
    lines = [tag("line", class_="lane", x1=x, x2=x, y1=30, y2=height - 12)
             for x in (_LEFT, _RIGHT)]  # fmt: skip
    return width, height, [*lines, *heads, *parts]


def _row(row: Row, show: Callable[[int], str], start: int, end: int | None) -> Iterator[Html]:
    """Yield an arrow that begins at the height `start` and ends at `end` (None: it did not arrive),
    or a remark.
    """
    there = row.direction == Direction.C2S
    label = SIGNS.get(row.mark, "") + fit(row.label, _LABEL)
    if row.direction is None:
        yield _text(row.label, _MIDDLE, start + 4, "tick", "middle")
        return
    if row.names is None:
        yield _text(show(row.time_ns), _LEFT - _OUT, start + 4, "tick", "end")
        yield _text(label, _MIDDLE, start - 5, "mlab", "middle")
        if row.frame is not None:
            yield _text(f"#{row.frame}", _RIGHT + _OUT, start + 4, "tick", "start")
    else:
        left, right = (_LEFT - _OUT, "end"), (_RIGHT + _OUT, "start")
        (here, outside), (other, inside) = (left, right) if there else (right, left)
        near, far = row.names if there else row.names[::-1]
        if row.mark != "appeared":
            yield _text(f"{near} {show(row.time_ns)}", here, start + 4, "tick", outside)
        inner = here + (2 * _OUT if there else -2 * _OUT)
        yield _text(label, inner, start - 3, "mlab", inside)
        if end is not None:
            yield _text(f"{show(row.arrived_ns or 0)} {far}", other, end + 4, "tick", inside)
    first, last = (_LEFT, _RIGHT) if there else (_RIGHT, _LEFT)
    role = "bad" if row.mark == "lost" else "again" if row.mark in SIGNS else SIDES[not there]
    if end is not None:
        back = -8 if there else 8
        path = f"M{first} {start}L{last} {end}m{back} -4l{-back} 4l{back} 4"
        yield tag("path", class_=f"msg {role}{' dashed' if row.mark else ''}", d=path)
        return
    low = start if row.names is None else start + _STEP // 2
    cross = "m-5 -5l10 10m0 -10l-10 10" if row.mark == "lost" else ""
    yield tag("path", class_=f"msg {role}", d=f"M{first} {start}L{_MIDDLE} {low}{cross}")
    if not cross:
        yield _text("?", _MIDDLE + 8, low + 4, "tick", "middle")


def _text(text: str, x: int, y: int, name: str, anchor: str) -> Html:
    return tag("text", text, class_=name, x=x, y=y, text_anchor=anchor)
