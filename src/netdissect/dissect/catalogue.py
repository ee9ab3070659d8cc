"""The catalogue of findings: rows that all protocols share, and those of one protocol, by code."""

from __future__ import annotations

from collections.abc import Iterable

from netdissect.model.annotations import CodeRow, code_rows


class Catalogue(dict[str, CodeRow]):
    """Code -> row. A code without a row is a bug in netdissect, and raises KeyError."""

    def __init__(self, rows: Iterable[CodeRow] = ()) -> None:
        super().__init__({row.code: row for row in (*code_rows("common"), *rows)})
