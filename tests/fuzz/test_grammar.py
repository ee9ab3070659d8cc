from __future__ import annotations

from pathlib import Path

import pytest

from agreement import CAPTURES
from netdissect.dissect.engine import Request, dissect
from netdissect.dissect.schema import parse_schema
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.drivers.riptide import RiptideDriver
from netdissect.fuzz.generator import Generator
from netdissect.fuzz.grammar import Value, load_words, schema_grammar
from netdissect.fuzz.seeds import seeds_from_capture
from netdissect.model.errors import UsageError

CLEAN = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"
SCHEMA = parse_schema(
    {
        "protocol": "riptide",
        "messages": {
            "1003": {
                "name": "Move",
                "fields": [["speed", "byte"], ["turn", "byte"], ["rest", "bytes"]],
            }
        },
    }
)


def test_words_are_read_as_afl_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text('# comment\n\nmagic="\\x00A\\\\B\\"\\n"\n"plain"\n"plain"\n')
    assert load_words([path]) == [b'\0A\\B"\n', b"plain"]


@pytest.mark.parametrize("line", ["plain", 'a="b', "=", '"a" b'])
def test_a_line_that_is_no_word_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "words"
    path.write_text(f'"ok"\n{line}\n')
    with pytest.raises(UsageError, match="words, line 2: write name="):
        load_words([path])


@pytest.mark.parametrize(("msb", "expected"), [(False, 0b1111_0100), (True, 0b0100_1111)])
def test_a_value_is_changed_in_its_bits_alone(msb: bool, expected: int) -> None:
    value = Value("x", 4, 4, msb)
    octets = b"\x44\x00"
    changed = {value.mutated(octets, Chance(n))[0] for n in range(60)}
    assert bytes([expected, 0]) in changed
    assert all((each[0] & (0xF0 if msb else 0x0F)) == (0x40 if msb else 0x04) for each in changed)
    assert {each[1:] for each in changed} == {b"\0"}


def test_values_of_a_schema_are_mutated_and_nothing_else() -> None:
    seeds = seeds_from_capture("riptide", "riptide-2.2", CLEAN).seeds
    grammar = schema_grammar("riptide", "riptide-2.2", "udp", SCHEMA)
    generator = Generator(seeds, RiptideDriver.traits, 1, grammar=grammar)
    assert generator.described > 0
    cases = [generator.case(number) for number in range(600)]
    mine = [each for each in cases if each.mutation.startswith("schema:speed ")]
    assert len(mine) > 10
    seen = set()
    for each in mine:
        if "octets" in each.mutation:
            continue
        tree = dissect("riptide", each.steps[0].octets, Request("riptide-2.2", schema=SCHEMA))
        decoded = tree.messages[0].fields["decoded"]
        assert tree.messages[0].fields["message_id"] == 1003
        assert decoded["turn"] == 0
        seen.add(decoded["speed"])
    assert {0, 1, 127, 128, 254, 255} <= seen


def test_words_are_put_into_messages() -> None:
    seeds = seeds_from_capture("riptide", "riptide-2.2", CLEAN).seeds
    generator = Generator(seeds, RiptideDriver.traits, 1, words=[b"MAGIC"])
    cases = [generator.case(number) for number in range(300)]
    mine = [each for each in cases if each.mutation.startswith("dictionary:")]
    assert len(mine) > 10
    assert all(b"MAGIC" in each.steps[0].octets for each in mine)


def test_words_that_would_be_cut_or_left_out_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words"
    words.write_text(f'"fine"\nlong="{"a" * 1025}"\n')
    with pytest.raises(UsageError, match="words, line 2: a word has 1,024 bytes at most"):
        load_words([words])
    monkeypatch.setattr("netdissect.fuzz.grammar.MAX_WORDS", 2)
    words.write_text('"a"\n"b"\n"a"\n')
    assert load_words([words]) == [b"a", b"b"]
    words.write_text('"a"\n"b"\n"c"\n')
    with pytest.raises(UsageError, match="more than 2 words"):
        load_words([words])
