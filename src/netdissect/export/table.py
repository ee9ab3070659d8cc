"""CSV and TSV: one row per message, one column per field, written so that readers get the same
values back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from netdissect.model.text import escape_surrogates

FORMATS = {"csv": ",", "tsv": "\t", "fields": "\t"}
"""Format -> separator. `fields` is `tsv` without the line of column names, as tshark prints it."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_rows(
    stream: IO[str],
    names: Sequence[str],
    rows: Iterable[Sequence[Sequence[Any]]],
    *,
    kind: str = "csv",
    guard: bool = False,
    clean: Callable[[str], str] | None = None,
) -> int:
    """Write rows; return how many.

    Args:
        stream: where to write.
        names: column names, the first line except of `fields`.
        rows: for each row the occurrences of each column; several are joined by `;`.
        kind: one of `FORMATS`.
        guard: put `'` before text that a spreadsheet would run as a formula (`--csv-safe`).
        clean: makes a text safe for a terminal; None = no terminal shows it.

    """
    separator = FORMATS[kind]
    special = frozenset(f'{separator}"\r\n')
    if kind != "fields":
        stream.write(separator.join(_quoted(name, special) for name in names) + "\n")
    written = 0
    for row in rows:
        found = [cell(values, guard=guard) for values in row]
        texts = [_quoted(text if clean is None else clean(text), special) for text in found]
        # A row of one empty cell must not look like an empty line.
        stream.write((separator.join(texts) or '""') + "\n")
        written += 1
    return written


def write_columns(
    stream: IO[str], names: Sequence[str], objects: Iterable[Mapping[str, Any]], kind: str = "csv"
) -> None:
    """Write the values of JSON objects under these names as rows; None is an empty cell."""
    cells = (
        [() if (value := found.get(name)) is None else (value,) for name in names]
        for found in objects
    )
    write_rows(stream, names, cells, kind=kind)


def _quoted(text: str, special: frozenset[str]) -> str:
    """Return a cell in the form of RFC 4180. The standard library does not quote a lone carriage
    return.
    """
    return '"' + text.replace('"', '""') + '"' if special & set(text) else text


def cell(values: Sequence[Any], *, guard: bool = False) -> str:
    """Return the text of a cell: several occurrences are joined by `;`."""
    text = ";".join(_text(value) for value in values)
    # -5 begins like a formula but is a number.
    numeric = all(isinstance(value, (int, float)) for value in values)
    if guard and not numeric and text.startswith(_FORMULA):
        return f"'{text}"
    return text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    return escape_surrogates(str(value)).replace("\0", "\\x00")  # NUL is no CSV
