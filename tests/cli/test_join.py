"""`join`, and the views that take a second capture."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.capture import open_capture
from netdissect.cli import cli
from netdissect.cli.session import Session
from netdissect.join import Fate, join
from netdissect.model.packets import SIDES
from netdissect.pipeline import Options

CAPTURES = console_docs.ROOT / "captures"
CLIENT = str(CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
SERVER = str(CAPTURES / "riptide" / "udp_2.2.1_lossy_serverleg.pcap")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="netdissect")


def objects(*words: str) -> list[dict[str, Any]]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_join_prints_loss_delay_and_the_bound_of_the_clock() -> None:
    text = run("join", CLIENT, SERVER, "--width", "120").stdout
    assert "560 sent: 508 delivered, 52 lost (9.3%)" in text
    assert "The clock of B is 0.030 ms ahead of that of A (±19.882 ms; smallest" in text
    assert "client to server, A to B" in text
    assert "retransmissions: " in text


def test_join_tells_duplicated_datagrams_from_the_units_in_them() -> None:
    pair = [str(CAPTURES / "teeworlds" / f"tw07_loss_{side}_side.pcap") for side in SIDES]
    text = " ".join(run("join", *pair).stdout.split())
    assert "5 duplicated by the network, 5 out of order" in text
    assert "2 spurious; 21 units came again in the network's duplicates" in text


def test_join_counts_the_part_that_is_asked_for(tmp_path: Path) -> None:
    part = objects("join", CLIENT, SERVER, "--datagrams", "--connection", "1", "--to", "3s")
    (one,) = (item for item in part if item["kind"] == "conversation")
    rows = [item for item in part if item["kind"] == "datagram" and item["capture"] == 0]
    assert 0 < sum(way["sent"] for way in one["ways"]) < 400
    assert sum(row["fate"] in {"delivered", "lost"} for row in rows) == one["ways"][0]["sent"]
    for words in (["join", CLIENT, SERVER], ["report", CLIENT, "-o", str(tmp_path / "r.html")]):
        result = run(*words, "--connection", "9")
        assert result.exit_code == 2
        assert "there is no connection 9: the capture has only 1" in result.stderr
        assert run(*words, "--connection", "1", "--around", "3s").exit_code == 0


@pytest.mark.parametrize("view", ["join", "timeline", "diagnose", "stats", "ladder"])
def test_a_part_beyond_the_end_of_both_is_refused(view: str) -> None:
    result = run(view, CLIENT, SERVER, "--from", "999s")
    assert result.exit_code == 2
    assert "--from: the capture ends after" in result.stderr
    assert run(view, CLIENT, SERVER, "--from", "1s").exit_code == 0


def test_join_as_json_names_every_datagram() -> None:
    captures, conversation, *datagrams = objects("join", CLIENT, SERVER, "--datagrams")
    assert captures["clock"]["bound_ms"] > abs(captures["clock"]["offset_ms"])
    assert conversation["ways"][0]["direction"] == "c2s"
    sent = [d for d in datagrams if d["fate"] == "lost" and d["capture"] == 0]
    assert len(sent) == conversation["ways"][0]["lost"]
    arrived = [d for d in datagrams if d["fate"] == "arrived" and d["capture"] == 1]
    assert len(arrived) == conversation["ways"][0]["delivered"]


def test_a_proxied_stream_is_said_to_be_one() -> None:
    legs = [
        str(CAPTURES / "netplay" / f"bin1_coalesced__{side}_leg.pcap")
        for side in ("client", "server")
    ]
    text = run("join", *legs).stdout
    assert "proxied: one stream in two TCP connections" in text
    assert "identical on both sides" in text


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ([CLIENT], 2, "Give two captures"),
        ([CLIENT, "-"], 2, "read more than once"),
        ([CLIENT, str(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap")], 2, "do not belong together"),
        ([CLIENT, "nowhere.pcap"], 3, "nowhere.pcap"),
        ([CLIENT, SERVER, "--datagrams"], 2, "--json"),
    ],
)
def test_what_cannot_be_joined(words: list[str], status: int, why: str) -> None:
    result = run("join", *words)
    assert result.exit_code == status
    assert why in result.stderr


def test_a_capture_cut_short_is_joined_and_said(tmp_path: Path) -> None:
    short = tmp_path / "short.pcap"
    short.write_bytes(Path(SERVER).read_bytes()[:-7])
    assert run("join", CLIENT, str(short)).exit_code == 6


def test_joined_captures_in_one_file(tmp_path: Path) -> None:
    target = tmp_path / "joined.pcapng"
    assert run("join", CLIENT, SERVER, "-w", str(target)).exit_code == 0
    with open_capture(target) as reader:
        frames = sum(1 for _ in reader)
        names = reader.info.interfaces
    assert frames == 1073 + 1066
    assert names == [Path(CLIENT).name, Path(SERVER).name]


@pytest.mark.parametrize(
    "words",
    [["--from", "3s", "--to", "4s"], ["--around", "3.5s"], ["--around", "#300"]],
)
def test_views_of_two_captures_show_the_span_that_is_asked_for(words: list[str]) -> None:
    low, high = (2.9, 4.1) if "#300" not in words else (3.0, 4.5)
    whole = run("timeline", CLIENT, SERVER, "--json").stdout.splitlines()
    start = min(
        copy["time_ns"]
        for line in whole
        if '"copies"' in line
        for copy in json.loads(line)["copies"]
    )
    units = [
        json.loads(line)
        for line in run("timeline", CLIENT, SERVER, *words, "--json").stdout.splitlines()
    ]
    assert 0 < len(units) < len(whole)
    for unit in units:
        moments = [copy["time_ns"] for copy in unit.get("copies", ())] or [unit["time_ns"]]
        assert any(low - 1.5 < (moment - start) / 1e9 < high for moment in moments)
    rows = [
        json.loads(line)
        for line in run("ladder", CLIENT, SERVER, *words, "--json").stdout.splitlines()
    ]
    assert rows
    assert max(row["time_ns"] for row in rows) - min(row["time_ns"] for row in rows) < 1.2e9
    spans = [
        json.loads(line)
        for line in run("stats", CLIENT, SERVER, *words, "--json").stdout.splitlines()
    ]
    every = [
        json.loads(line) for line in run("stats", CLIENT, SERVER, "--json").stdout.splitlines()
    ]
    assert 0 < sum(row["datagrams"] for row in spans) < sum(row["datagrams"] for row in every) / 5
    assert 0 < sum(row["lost"] or 0 for row in spans) < sum(row["lost"] or 0 for row in every) / 5
    (answer,) = run("diagnose", CLIENT, SERVER, *words, "--json").stdout.splitlines()
    assert json.loads(answer)["connection"] == 1


def test_a_connection_of_two_captures_is_chosen_by_an_option_too() -> None:
    for command in ("timeline", "ladder", "stats"):
        assert run(command, CLIENT, SERVER, "--connection", "1", "--json").stdout
    assert "no connection 7" in run("ladder", CLIENT, SERVER, "--connection", "7").stderr


@pytest.mark.parametrize("command", ["timeline", "ladder", "stats"])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([CLIENT, "-"], "read more than once"),
        ([CLIENT, SERVER, "-Y", "riptide"], "-Y works on one capture"),
        ([CLIENT, SERVER, "7"], "no connection 7"),
        ([CLIENT, str(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap")], "do not belong together"),
    ],
)
def test_views_refuse_what_two_captures_cannot_show(
    command: str, words: list[str], why: str
) -> None:
    result = run(command, *words)
    assert result.exit_code == 2
    assert why in result.stderr


def test_diagnose_of_two_captures_keeps_what_one_of_them_shows() -> None:
    """It said that no problem was seen, although an ICMP error was."""
    pair = [str(CAPTURES / "knet" / f"udp_malformed_to_client.{side}.pcap") for side in SIDES]
    alone = {each["connection"]: each for each in objects("diagnose", pair[0])}
    both = {each["connection"]: each for each in objects("diagnose", *pair)}
    assert "nothing listens on the port any more" in alone[14]["cause"]["text"]
    assert alone[14]["cause"]["text"].startswith(both[14]["cause"]["text"])
    assert not both[14]["cause"]["calm"]


def test_diagnose_of_two_captures_judges_by_both() -> None:
    """A loss that only the second capture shows left the order and what was ruled out as before."""
    pair = [str(CAPTURES / "eoudp" / f"rfc02_lossy_{side}.pcap") for side in SIDES]
    (alone,), (both,) = objects("diagnose", pair[0]), objects("diagnose", *pair)
    assert alone["cause"]["what"] != both["cause"]["what"] == "loss"
    assert both["badness"] > alone["badness"]
    pair = [str(CAPTURES / "eoudp" / f"late_lossy_{side}.pcap") for side in SIDES]
    (both,) = objects("diagnose", *pair)
    assert "loss from client to server: 4.3% of 138, from both captures" in both["ruled_out"]


def test_diagnose_of_two_captures_says_whose_silence_it_was() -> None:
    pair = [
        str(CAPTURES / "teeworlds" / f"tw07_oneway_s2c_{side}_side.pcap")
        for side in ("client", "server")
    ]
    (found,) = objects("diagnose", *pair)
    assert found["loss"]["s2c"]["basis"] == "joined"
    assert found["loss"]["s2c"]["lost"] == 90
    assert found["cause"]["confidence"] == "certain"
    assert found["cause"]["direction"] == "s2c"
    before, inside = found["around"]["before"], found["around"]["inside"]
    assert (before["s2c"]["lost"], inside["s2c"]["lost"]) == (0, inside["s2c"]["sent"])
    assert inside["s2c"]["lost"] > 80
    assert (before["c2s"]["lost"], inside["c2s"]["lost"]) == (0, 0)
    assert inside["c2s"]["sent"] > 0
    text = " ".join(run("diagnose", *pair, "--width", "110").stdout.split())
    assert "The network lost everything that the server" in text
    assert run("diagnose", *pair, "--fail-on", "loss>20%").exit_code == 7
    lossy = " ".join(run("diagnose", CLIENT, SERVER, "--width", "110").stdout.split())
    assert "The network lost 9.3% of what the client sent" in lossy


@pytest.mark.parametrize(
    "name", ["knet/tcp_rst.{}.pcap", "netplay/bin1_coalesced__{}_leg.pcap"]
)
def test_a_stream_that_a_proxy_passes_on_is_shown_as_one_capture_has_it(name: str) -> None:
    """It was "no connection of a known protocol", although both captures hold one."""
    pair = [str(CAPTURES / name.format(side)) for side in SIDES]
    (alone,), (both,) = objects("diagnose", pair[0]), objects("diagnose", *pair)
    assert {key: both[key] for key in ("verdict", "cause", "loss")} == {
        key: alone[key] for key in ("verdict", "cause", "loss")
    }
    for view in ("diagnose", "timeline"):
        assert both["client"] in run(view, *pair, "--width", "120").stdout
    # Segments are the proxy's own on either side: they have no fates.
    for view in ("ladder", "stats"):
        result = run(view, *pair)
        assert result.exit_code == 2
        assert "whose segments cannot be compared" in result.stderr


def test_stats_of_two_captures_count_what_was_lost() -> None:
    rows = objects("stats", CLIENT, SERVER, "--interval", "3s")
    with join(CLIENT, SERVER) as found:
        for index, way in enumerate(("c2s", "s2c")):
            mine = [row for row in rows if row["direction"] == way]
            assert (
                sum(row["lost"] or 0 for row in mine)
                == found.report.conversations[0].ways[index].lost
            )
            assert (
                sum(row["datagrams"] for row in mine)
                == found.report.conversations[0].ways[index].sent
            )
    assert all(row["observed"] for row in rows)
    assert rows[0]["delay_ms"] == pytest.approx(27, abs=2)
    assert "lost: datagrams, from both captures" in run("stats", CLIENT, SERVER, "1").stdout


def test_timeline_of_two_captures_has_the_fate_of_each_copy() -> None:
    units = [item for item in objects("timeline", CLIENT, SERVER, "1") if "copies" in item]
    single = [item for item in objects("timeline", CLIENT, "1") if "copies" in item]
    of_client = [unit for unit in units if unit["direction"] == "c2s"]
    assert len(of_client) == sum(unit["direction"] == "c2s" for unit in single)
    copies = [copy for unit in of_client for copy in unit["copies"]]
    with join(CLIENT, SERVER) as found:
        for copy in copies:
            row = found.fate(0, copy["frame"])
            assert copy["fate"] == row.fate.label
            assert copy["basis"] == ("inferred" if row.ambiguous else "observed")
    assert {copy["fate"] for copy in copies} == {"delivered", "lost"}
    never = [unit for unit in of_client if unit["space"] == "notify" and not unit["acked_frame"]]
    assert {unit["arrived"] for unit in never} == {True, False}
    text = run("timeline", CLIENT, SERVER, "1", "--width", "120").stdout
    assert "lost on the way" in text
    assert re.search(r"[^AB]#[1-9]", text.partition("outcome\n")[2]) is None
    assert "share retransmitted or lost on the way, observed" in text


def test_units_of_the_server_stand_by_the_clock_of_the_client() -> None:
    units = [item for item in objects("timeline", CLIENT, SERVER) if "copies" in item]
    assert {unit["capture"] for unit in units} == {0, 1}
    times = [unit["copies"][0]["time_ns"] for unit in units]
    assert times == sorted(times)


def test_ladder_of_two_captures_falls_from_sending_to_arrival(tmp_path: Path) -> None:
    rows = objects("ladder", CLIENT, SERVER, "--to", "4s")
    with join(CLIENT, SERVER) as found:
        for row in rows:
            names = row["frames"]
            if row["mark"] == "lost":
                assert row["arrived_ns"] is None
                sent = next(name for name in names if name)
                fate = found.fate("AB".index(sent[0]), int(sent[2:]))
                assert fate.fate is Fate.LOST
            elif row["arrived_ns"] is not None:
                assert row["arrived_ns"] >= row["time_ns"]
                assert all(names)
    assert {"lost", "resend", "duplicate"} <= {row["mark"] for row in rows}
    text = run("ladder", CLIENT, SERVER, "--to", "4s", "--width", "120").stdout
    assert "╳" in text
    assert "⎺" in text
    picture = tmp_path / "ladder.svg"
    assert run("ladder", CLIENT, SERVER, "--to", "4s", "--svg", str(picture)).exit_code == 0
    assert 'class="msg bad"' in picture.read_text()
    assert "-x" in run("ladder", CLIENT, SERVER, "--to", "4s", "--mermaid").stdout


def test_what_is_said_of_two_captures_is_broken_between_words() -> None:
    for width in (40, 80):
        lines = run("join", CLIENT, SERVER, "--width", str(width)).stdout.splitlines()
        assert all(len(line) <= width for line in lines if "/" not in line)
        assert len(lines) > 20


@pytest.mark.parametrize("command", ["timeline", "ladder", "stats"])
def test_two_captures_share_a_bound_and_are_read_for_the_wanted_connection_alone(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Both are analysed at the same time, and hold records of their units: a quarter each."""
    used: list[Options] = []

    def noted(self: Session, options: Options, most: int | None = None) -> Options:
        used.append(usual(self, options, most))
        return used[-1]

    usual = Session.with_first_look
    monkeypatch.setattr(Session, "with_first_look", noted)
    assert run(command, CLIENT, SERVER, "--connection", "1").exit_code == 0
    assert {each.together for each in used} == {4}
    assert {each.only for each in used} == {frozenset({1})}
