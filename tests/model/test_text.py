"""Text from packets is well-formed wherever it is written, and comes back whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

import netdissect
from netdissect.cli import cli
from netdissect.export.json import dump
from netdissect.export.table import cell
from netdissect.model.text import escape_surrogates, quoted, unescape_surrogates
from netdissect.survey.tables import TABLES, row_of

LONE = re.compile("[\ud800-\udfff]")
TEXT = st.text(
    alphabet=st.one_of(st.characters(codec=None), st.sampled_from("\\xud89af\udc80\ud800"))
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain\\n é 😀", "plain\\n é 😀"),
        ("a\udcffb", "a\\xffb"),
        ("\ud83d", "\\ud83d"),
        ("C:\\dir \udc80", "C:\\\\dir \\x80"),
        ("\\x80", "\\\\x80"),
        ("\\x7f \\u0041", "\\x7f \\u0041"),
    ],
)
def test_text_as_it_is_written(text: str, written: str) -> None:
    assert escape_surrogates(text) == written
    assert unescape_surrogates(written) == text


@given(TEXT)
@example("\\\\x80\udc80")
def test_any_text_comes_back(text: str) -> None:
    written = escape_surrogates(text)
    assert not LONE.search(written)
    assert unescape_surrogates(written) == text


def halves(value: Any) -> list[str]:
    """Return the texts of a value that no Unicode encoding can hold."""
    if isinstance(value, dict):
        return [found for item in (*value, *value.values()) for found in halves(item)]
    if isinstance(value, list):
        return [found for item in value for found in halves(item)]
    return [value] if isinstance(value, str) and LONE.search(value) else []


@given(st.dictionaries(TEXT, st.one_of(TEXT, st.lists(TEXT), st.frozensets(TEXT))))
def test_no_object_holds_half_a_pair(value: dict[str, Any]) -> None:
    assert halves(json.loads(dump(value))) == []


@given(TEXT)
def test_no_cell_and_no_column_holds_half_a_pair(text: str) -> None:
    assert not LONE.search(cell([text]))
    column = next(column for column in TABLES["captures"] if column.kind == "text")
    assert not LONE.search(row_of("captures", {column.name: text})[column.name])


@pytest.mark.parametrize(
    ("protocol", "message", "field", "octets"),
    [
        ("teeworlds", "sys.rcon_cmd", "command_", b"a\xff\\x80\xfe"),
        ("teeworlds", "sys.rcon_cmd", "command_", b"\\xff"),
        ("teeworlds", "sys.rcon_cmd", "command_", b"\\d"),
    ],
)
def test_encode_reads_back_what_decode_wrote(
    protocol: str, message: str, field: str, octets: bytes
) -> None:
    def run(*words: str, text: str | None = None) -> str:
        result = CliRunner().invoke(cli, list(words), input=text, prog_name="netdissect")
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    digits = run("encode", protocol, message, f"{field}={octets.hex()}", "--dialect", "0.7")
    line = run("decode", protocol, digits, "--json", "--dialect", "0.7")
    assert halves(json.loads(line)) == []
    assert run("encode", protocol, "-", text=line) == digits


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("it's\\", "'it's\\'"),
        (True, "true"),
        (3, "3"),
        (["a", 1.5], "['a', 1.5]"),
        ({"a": {"b": False}}, "{a = {b = false}}"),
    ],
)
def test_what_a_user_gave_is_named_as_it_was_written(value: Any, said: str) -> None:
    assert quoted(value) == said


def test_no_message_quotes_as_python_does() -> None:
    root = Path(netdissect.__file__).parent
    internal = {
        "__init__.py", "dissect/derive.py", "dissect/derive_fields.py", "layers/expr.py",
        "layers/netplay/text.py", "layers/reading.py", "model/dissection.py", "system/programs.py",
        "wire/bits.py",
    }  # fmt: skip
    found = {
        str(file.relative_to(root)) for file in root.rglob("*.py") if "!r}" in file.read_text()
    }
    assert found == internal
