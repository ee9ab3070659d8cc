from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.cli import cli

ROOT = console_docs.ROOT
LOSSY = str(ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
TWO = str(ROOT / "captures" / "eoudp" / "late_two_clients.pcap")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, ["plot", *words], prog_name="netdissect")


def test_the_ending_of_the_name_decides_what_is_written(tmp_path: Path) -> None:
    for ending, begins in {
        "svg": "<svg ",
        "html": "<!doctype html>",
        "csv": "kind,connection",
        "json": "[\n",
    }.items():
        path = tmp_path / f"acks.{ending}"
        result = invoke("acks", LOSSY, "-o", str(path))
        assert result.exit_code == 0, result.output
        assert result.output == ""
        assert path.read_text().startswith(begins)
    points = json.loads((tmp_path / "acks.json").read_text())
    with (tmp_path / "acks.csv").open() as file:
        table = list(csv.DictReader(file))
    lines = [json.loads(line) for line in invoke("acks", LOSSY, "--json").stdout.splitlines()]
    assert points == lines
    assert [row["frame"] for row in table] == [str(point["frame"]) for point in points]
    assert {point["schema"] for point in points} == {1}


def test_the_page_of_a_plot_may_run_its_own_script_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "rate.html"
    invoke("rate", LOSSY, "-o", str(path))
    page = path.read_text()
    assert "default-src &#x27;none&#x27;" in page
    assert "unsafe-" not in page
    assert "style=" not in page
    assert " on" not in {word[:3] for word in page.split("<script>")[0].split('"')}


def test_of_several_connections_one_is_named_and_others_can_be_compared() -> None:
    alone = invoke("acks", TWO, "--width", "80").stdout
    assert alone.rstrip().splitlines()[-1].strip() == "connection 1 of 2"
    both = invoke("acks", TWO, "1,2", "--width", "80").stdout
    assert "connection 1  Time until acknowledged" in both
    assert "connection 2  Time until acknowledged" in both


@pytest.mark.parametrize("ending", [".svg", ".html"])
def test_pictures_of_several_connections_name_each(tmp_path: Path, ending: str) -> None:
    picture = tmp_path / f"both{ending}"
    assert invoke("acks", TWO, "1,2", "-o", str(picture)).exit_code == 0
    text = picture.read_text()
    assert "connection 1  Time until acknowledged" in text
    assert "connection 2  Time until acknowledged" in text
    assert invoke("acks", TWO, "1", "-o", str(picture)).exit_code == 0
    assert "connection 1" not in picture.read_text()


def test_ascii_alone_where_it_is_asked_for() -> None:
    for kind in ("acks", "seq", "rate", "gaps"):
        result = invoke(kind, LOSSY, "--ascii", "--width", "80", "--height", "8")
        assert result.exit_code == 0
        assert result.stdout.isascii()


def test_a_rate_in_bytes_is_that_of_the_datagrams() -> None:
    rows = [
        json.loads(line) for line in invoke("rate", LOSSY, "--bytes", "--json").stdout.splitlines()
    ]
    client = sum(row["value"] for row in rows if row["series"] == "client → server")
    words = ["connections", LOSSY, "--json"]
    report = json.loads(CliRunner().invoke(cli, words).stdout.splitlines()[0])
    assert client == report["octets"]["c2s"]


def test_an_empty_capture_has_no_plot() -> None:
    result = invoke("acks", str(ROOT / "captures" / "eoudp" / "decoys.pcap"))
    assert (result.exit_code, result.stdout) == (0, "No connection of a known protocol.\n")


def test_a_moment_and_a_connection_are_chosen_as_in_other_views() -> None:
    by_span = invoke("acks", LOSSY, "1", "--from", "2.5s", "--to", "3.5s", "--json")
    around = invoke("acks", LOSSY, "--connection", "1", "--around", "3s", "--json")
    assert by_span.exit_code == around.exit_code == 0
    assert by_span.stdout == around.stdout != ""
