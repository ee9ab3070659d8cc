"""What a command leaves out, or must not do, it says; and what it says is right."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.cli import cli
from netdissect.cli.settings import load
from netdissect.model.errors import UsageError
from netdissect.model.files import parse_toml
from netdissect.render.console import cells
from twocaptures import rewritten, snapped

CAPTURES = console_docs.ROOT / "captures" / "riptide"
CLIENT = CAPTURES / "udp_2.2.1_lossy_clientleg.pcap"
SERVER = CAPTURES / "udp_2.2.1_lossy_serverleg.pcap"
TCP = CAPTURES / "tcp_2.0.0_big.pcap"
NETPLAY = CAPTURES.parent / "netplay" / "bin1_coalesced__client_leg.pcap"


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)), prog_name="netdissect")


@pytest.mark.parametrize("capture", [TCP, CLIENT])
def test_relative_times_of_a_table_count_from_the_first_frame(capture: Path) -> None:
    words = ("-T", "csv", "-e", "frame.number", "-e", "frame.time_relative", "-c", 5)
    found = run("read", capture, "-Y", "frame.time_relative > 1", *words)
    rows = list(csv.DictReader(found.stdout.splitlines()))
    assert len(rows) == 5
    assert all(float(row["frame.time_relative"]) > 1 for row in rows)
    lines = run("read", capture, "-Y", "frame.time_relative > 1", "-c", 5, "--messages").stdout
    shown = [float(line.split()[1]) for line in lines.splitlines()]
    assert [float(row["frame.time_relative"]) for row in rows] == pytest.approx(shown, abs=1e-6)


def test_more_connections_than_a_picture_holds_are_refused() -> None:
    words = [word for number in range(1, 10) for word in ("--connection", number)]
    result = run("plot", "acks", CLIENT, *words)
    assert result.exit_code == 2
    assert "at most 8 connections fit in one plot" in result.stderr


@pytest.mark.parametrize("words", [("ladder", "1", "--svg"), ("join", SERVER, "-w")])
def test_what_is_read_is_not_written_over(words: tuple[object, ...], tmp_path: Path) -> None:
    capture = tmp_path / "game.pcap"
    shutil.copyfile(CLIENT, capture)
    command, *rest = words
    result = run(command, capture, *rest, capture)
    assert capture.read_bytes() == CLIENT.read_bytes()
    assert result.exit_code == 2
    assert "is also an input: write to another file" in result.stderr


def test_a_connection_without_a_whole_message_is_not_drawn(tmp_path: Path) -> None:
    """The snap length of the capture cuts every segment, so that only their numbers are known."""
    file = tmp_path / "short.pcap"
    rewritten(NETPLAY, file, snapped(70))
    result = run("ladder", file, "-d", "tcp.port==25122,netplay-bin1")
    assert result.exit_code == 2
    assert "no whole message of it; `timeline FILE 1` shows what else is known" in result.stderr


@pytest.mark.parametrize(
    "words",
    [("join",), ("ladder",), ("timeline",), ("stats",), ("diagnose",), ("report", "-o", os.devnull)],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("cut", [0, 1], ids=["first", "second"])
def test_of_two_captures_one_that_is_cut_short_is_told(
    words: tuple[str, ...], cut: int, tmp_path: Path
) -> None:
    pair, short = [CLIENT, SERVER], tmp_path / "cut.pcap"
    short.write_bytes(pair[cut].read_bytes()[:-7])
    pair[cut] = short
    result = run(*words, *pair)
    assert result.stderr.count(f"{short} is cut short at offset") == 1
    assert result.exit_code == 6
    assert "cut short" not in run(*words, *pair, "-q").stderr


def test_a_qlog_of_a_capture_that_is_cut_short_is_told(tmp_path: Path) -> None:
    short = tmp_path / "cut.pcap"
    short.write_bytes(CLIENT.read_bytes()[:-7])
    result = run("export", short, "--qlog", tmp_path / "game.sqlog")
    assert f"{short} is cut short at offset" in result.stderr
    assert result.exit_code == 6


def test_units_beyond_what_is_sorted_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    every = run("timeline", CLIENT, "--sort", "copies", "--json")
    assert every.stderr == ""
    units = len(every.stdout.splitlines())
    monkeypatch.setattr("netdissect.cli.timeline.MAX_SORTED", units - 3)
    for more in ((), ("--json",)):
        result = run("timeline", CLIENT, "--sort", "copies", *more)
        assert "3 units are missing: there are more than can be sorted (MAX_SORTED)" in result.stderr
    assert run("timeline", CLIENT, "--sort", "copies", "-c", 2).stderr == ""


def test_answers_that_are_not_shown_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    many = SimpleNamespace(sent=b"\0", answers=(b"\0",) * 300, refused=False)
    monkeypatch.setattr("netdissect.fuzz.exchange.exchange", lambda *_args, **_extra: many)
    words = ("send", "riptide", "Heartbeat", "--target", "127.0.0.1:9", "--json")
    result = run(*words)
    assert len(result.stdout.splitlines()) == 257
    assert "44 more answers are not shown" in result.stderr


def test_the_caret_stands_under_the_fault_behind_wide_characters() -> None:
    lines = run(
        "read", CLIENT, "-Y", 'msg.type == "日本語" and frame.numbr == 4'
    ).stderr.splitlines()
    at = lines[1].index("frame.numbr")
    assert cells(lines[1][:at]) == lines[2].index("^")
    assert lines[2].count("^") == len("frame.numbr")


HUGE = "0x" + "f" * 5000


@pytest.mark.parametrize(
    "text", [f"x = {HUGE}", f"[a]\nx = [1, {{ y = -{HUGE} }}]", f"x = {1 << 200:#x}"]
)
def test_numbers_of_toml_are_those_of_a_machine(text: str) -> None:
    with pytest.raises(ValueError, match="a number has too many digits"):
        parse_toml(text.replace("-0x", "0x"))


def test_a_huge_number_in_the_settings_is_a_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netdissect").mkdir()
    (tmp_path / "netdissect" / "config.toml").write_text(f"[decode]\ninflate_limit = {HUGE}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = run("read", CLIENT, "-c", "1")
    assert result.exit_code == 2, result.stderr
    assert "a number has too many digits" in result.stderr


def test_a_schema_that_is_a_link_to_itself_is_a_fault_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "netdissect.toml").write_text('[decode]\nschemas = ["loop.json"]\n')
    with pytest.raises(UsageError, match=r"loop\.json"):
        load()
    assert run("read", CLIENT, "-c", "1").exit_code == 2


def test_the_manual_knows_all_that_ends_with_7() -> None:
    text = run("man", "diff").stdout
    for word in ("verify", "diff", "fuzz", "replay"):
        assert word in text.partition(".B 7")[2].partition(".SH")[0]


@pytest.mark.parametrize("key", [b"\xff" * 15 + b"\n", b" " + b"\xfe" * 15])
def test_a_key_of_random_bytes_may_end_in_any_of_them(key: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(key)
    words = ("anonymise", CLIENT, "-o", tmp_path / "out.pcap", "--key-file", tmp_path / "key")
    assert run(*words).exit_code == 0
    for text in (b"0123456789abcdef" * 2, b"0123456789abcdef" * 2 + b"\n"):
        (tmp_path / "key").write_bytes(text)
        assert run(*words).exit_code == 0
        (tmp_path / "other").write_bytes(text.strip())
        other = (*words[:3], tmp_path / "again.pcap", "--key-file", tmp_path / "other")
        assert run(*other).exit_code == 0
        assert (tmp_path / "again.pcap").read_bytes() == (tmp_path / "out.pcap").read_bytes()
    (tmp_path / "key").write_bytes(b"0123456789abcde\n")
    assert "the key has 15 bytes" in run(*words).stderr
