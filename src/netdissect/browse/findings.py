"""Findings by kind, and the explanation of one of them."""

from __future__ import annotations

import textwrap
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netdissect.browse.pane import NARROW, Pane
from netdissect.model.annotations import CodeRow
from netdissect.model.reports import Anomaly
from netdissect.pipeline.index import Index
from netdissect.render.console import Line
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import Clock, arrow_of

_MIN_CODE_COLUMNS = 12


class Kind(NamedTuple):
    """All findings of one code."""

    row: CodeRow
    """The entry of the catalogue."""
    times: int
    first: int | None
    """Their first frame; None if no frame shows them."""
    example: Anomaly | None
    """One of them with its message; None if none was kept."""


class Findings(Pane):
    """Kinds of findings, worst first."""

    def __init__(self, codes: Mapping[str, CodeRow]) -> None:
        super().__init__()
        self.codes = codes
        self.kinds: list[Kind] = []
        self.walked: tuple[str, Sequence[int]] = "", ()
        """Code of those that `n` goes through in the packets, and their frames; "" = none."""

    def __len__(self) -> int:
        return len(self.kinds)

    def count(
        self, index: Index, anomalies: Sequence[Anomaly],
        connection: int | None, shown: Sequence[int] | None, *, filtered: bool,
    ) -> list[Kind]:  # fmt: skip
        """Return the kinds of findings. Slow if there are many, so it changes nothing and may be
        called in another thread.

        Args:
            index: knows the frames of each finding.
            anomalies: examples, and the findings that no frame shows.
            connection: count those of one connection; None = of all.
            shown: rows of the index to count findings on; None = all.
            filtered: leave out findings that no frame shows.

        """
        examples: dict[str, Anomaly] = {}
        frameless: Counter[str] = Counter()
        for found in anomalies:
            if connection is None or found.connection == connection:
                examples.setdefault(found.code, found)
                frameless[found.code] += found.frame is None and not filtered
        kinds: list[Kind] = []
        hits = dict(index.hits)
        for code in {*hits, *examples}:
            row = self.codes.get(code)
            if row is None:
                continue
            frames: Sequence[int] = hits.get(code, ())
            first = index.first_hits.get(code)
            if shown is not None:
                frames = [frame for frame in frames if contains_frame(index, shown, frame)]
                first = min(frames, default=None)
            example = examples.get(code)
            if not frames and not frameless[code] and (shown is not None or example is None):
                continue
            if not first and example is not None:
                first = example.frame
            kinds.append(Kind(row, max(len(frames) + frameless[code], 1), first, example))
        kinds.sort(key=lambda kind: (-kind.row.severity, -kind.times, kind.row.code))
        return kinds

    def take(self, kinds: list[Kind]) -> None:
        """Show these kinds; a cursor that the user has moved stays on its kind."""
        before = self.code()
        self.kinds = kinds
        for place, kind in enumerate(self.kinds):
            if self.held and kind.row.code == before:
                self.cursor = place

    def kind(self) -> Kind | None:
        """Return the kind under the cursor."""
        return self.kinds[self.cursor] if self.cursor < len(self.kinds) else None

    def code(self) -> str | None:
        """Return the code of the kind under the cursor."""
        kind = self.kind()
        return None if kind is None else kind.row.code

    def head(self, width: int) -> Sequence[Line]:
        """Return the heading."""
        code = f"   {'code':<{self._code_columns()}}"
        if width < NARROW:
            return [[(f"{code} {'first':>8}", "dim")]]
        return [[(f"{code} {'count':>7} {'first':>8}  what it says", "dim")]]

    def _code_columns(self) -> int:
        return max([_MIN_CODE_COLUMNS, *(len(kind.row.code) for kind in self.kinds)])

    def line(self, number: int, width: int) -> Line:
        """Return one kind."""
        row, times, first, example = self.kinds[number]
        label = row.severity.label
        return [
            (f"{SEVERITY_LETTERS[label]} ", label),
            (f"{row.code:<{self._code_columns()}} ", label),
            (f"{times:>7,} " if width >= NARROW else "", ""),
            (f"{'' if first is None else f'#{first}':>8}  ", "frame"),
            ((row.title if example is None else example.message) if width >= NARROW else "", ""),
        ]


def contains_frame(index: Index, rows: Sequence[int], frame: int) -> bool:
    """Return whether one of these rows, which are in order, belongs to a frame."""
    place = bisect_left(rows, frame, key=index.frames.__getitem__)
    return place < len(rows) and index.frames[rows[place]] == frame


def explained(kind: Kind, clock: Clock, width: int) -> list[Line]:
    """Return what a kind of findings means, and what this capture says about it."""
    row, example = kind.row, kind.example
    lines: list[Line] = []
    for head, text in (("What: ", row.meaning), ("Here: ", example.message if example else "")):
        rows = textwrap.wrap(head + text, max(20, width - 2), break_on_hyphens=False)
        lines += [[(f" {part}", "")] for part in rows if text]
    if example is not None:
        who = "no connection" if example.connection is None else f"connection {example.connection}"
        where: Line = [(f" {arrow_of(example.direction)} {who}", "dim")]
        if example.frame is not None:
            where.append((f"  #{example.frame}", "frame"))
            where.append((f" at {clock.show(example.time_ns)}", "time"))
        lines.append(where)
    return lines
