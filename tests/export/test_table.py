from __future__ import annotations

import csv
import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile
from netdissect.export.table import cell, write_rows
from netdissect.model.text import escape_surrogates
from netdissect.render.safe import safe


def read_back(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def as_written(text: str) -> str:
    return escape_surrogates(text).replace("\0", "\\x00")


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_ten_thousand_hostile_strings_come_back(kind: str) -> None:
    source = random.Random(3)
    pool = [text[:200] for text in hostile.HOSTILE]
    texts = ["".join(source.choices(pool, k=source.randint(1, 3))) for _ in range(10_000)]
    stream = io.StringIO(newline="")
    assert write_rows(stream, ["a", "b"], ([[text], [1]] for text in texts), kind=kind) == 10_000
    rows = read_back(stream.getvalue(), {"csv": ",", "tsv": "\t"}[kind])
    assert rows[0] == ["a", "b"]
    assert [row[0] for row in rows[1:]] == [as_written(text) for text in texts]
    stream.getvalue().encode("utf-8")


@given(st.lists(st.text(alphabet=st.characters(codec=None)), min_size=1, max_size=4))
def test_any_row_comes_back(texts: list[str]) -> None:
    stream = io.StringIO(newline="")
    write_rows(stream, [str(index) for index in range(len(texts))], [[[text] for text in texts]])
    assert read_back(stream.getvalue())[1] == [as_written(text) for text in texts]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""),
        ([1], "1"),
        ([True], "true"),
        ([b"\x01\xff"], "01ff"),
        ([1.5], "1.5"),
        ([float("nan")], "NaN"),
        ([float("inf")], "inf"),
        (["a", "b"], "a;b"),
        ([-5], "-5"),
    ],
)
def test_cells(values: list[object], text: str) -> None:
    assert cell(values) == text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\tx"])
def test_formulas_are_defused_on_request(text: str) -> None:
    assert cell([text]) == text
    assert cell([text], guard=True) == f"'{text}"


def test_negative_numbers_stay_numbers() -> None:
    assert cell([-5], guard=True) == "-5"


def test_on_a_terminal_control_characters_are_escaped() -> None:
    out = io.StringIO()
    rows = [[[text]] for text in hostile.HOSTILE]
    write_rows(out, ["name"], rows, clean=safe)
    assert all(hostile.is_safe(line) for line in out.getvalue().split("\n"))
