"""Every line that a command prints with --json is valid by the schema that is shipped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

import jsonshapes
from agreement import CAPTURES
from fuzzing import free_target, running, server_command
from netdissect import verify
from netdissect.cli import COMMANDS, cli
from netdissect.export.schema import described_commands, output_schema
from netdissect.lookup import hot_path
from netdissect.model.facts import Difference
from netdissect.plot.charts import KINDS

SHIPPED = Path(jsonshapes.__file__).parents[2] / "src/netdissect/data/output.schema.json"
CLEAN = str(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap")
SIDES = [
    str(CAPTURES / "riptide" / f"udp_2.2.1_lossy_{side}leg.pcap") for side in ("client", "server")
]
EVERY = {
    "eoudp": ("late_malformed.pcap", "late_lossy_client.pcap"),
    "knet": ("udp_malformed_to_server.server.pcap", "tcp_malformed_zero_length.server.pcap"),
    "netplay": ("bin1_malformed.pcap", "text_lossy__client_side.pcap"),
    "riptide": ("udp_2.2.1_malformed.pcap", "tcp_2.2.1_full.pcap"),
    "teeworlds": ("ddnet_kicked.pcap", "tw07_reconnect.pcap"),
}
FILES = [str(CAPTURES / name / file) for name, files in EVERY.items() for file in files]
OF_A_CAPTURE: list[list[str]] = [
    ["anomalies"],
    ["connections"],
    ["diagnose"],
    ["info"],
    ["follow", "1", "-c", "60"],
    ["ladder", "1", "-c", "60"],
    ["read", "-c", "60"],
    ["read", "-c", "60", "--all", "-Y", "not frame.number == 1"],
    ["sniff", "-c", "60"],
    ["show", "5"],
    ["stats"],
    ["timeline", "-c", "200"],
    *(["plot", kind] for kind in KINDS),
]
"""Commands that read one capture; of `sniff` it is that of `-r`."""
OF_NONE: list[list[str]] = [
    ["config", "show"],
    ["decode", "riptide", "170150809606"],
    ["decode", "riptide", "ff"],
    ["doctor"],
    ["encode", "riptide", "Connect"],
    ["explain"],
    ["fields"],
    ["protocols"],
    ["sniff", "-D"],
    ["diff", *SIDES],
    ["diff", SIDES[0], "5", "9"],
    ["join", *SIDES, "--datagrams"],
    ["ladder", *SIDES, "1", "--from", "1.8s", "--to", "1.9s"],
    ["stats", *SIDES],
    ["timeline", *SIDES, "1", "-c", "300"],
]
ELSEWHERE = {"fuzz", "minimise", "replay", "send", "survey", "verify"}
"""Commands that need a target, a dataset or another program: they have tests of their own."""


@cache
def validator(command: str) -> Draft202012Validator:
    return Draft202012Validator(output_schema(command))


def ran(*words: str) -> tuple[int, str, str]:
    """Run a command; `sniff` in a process of its own, which gives its rights up."""
    if words[0] == "sniff":
        command = [sys.executable, "-m", "netdissect", *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout, ended.stderr
    result = CliRunner().invoke(cli, list(words), prog_name="netdissect")
    return result.exit_code, result.stdout, result.stderr


def checked(
    *words: str, some: bool = True, ends: tuple[int, ...] = (0, 6, 7)
) -> list[dict[str, Any]]:
    """Return what a command prints, each line valid by its schema."""
    status, out, said = ran(*words, "--json")
    assert status in ends, said
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows or not some, said
    for row in rows:
        fault = best_match(validator(words[0]).iter_errors(row))
        assert fault is None, (
            f"{words}: {fault.json_path}: {fault.message[-300:]}: {str(row)[:300]}"
        )
    return rows


def with_json() -> Iterator[str]:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        inner = command.commands.values() if isinstance(command, click.Group) else [command]
        if any("--json" in option.opts for each in inner for option in each.params):
            yield name


def test_every_command_with_json_has_a_schema_and_is_checked() -> None:
    named = {words[0] for words in (*OF_A_CAPTURE, *OF_NONE)} | ELSEWHERE
    assert set(with_json()) == set(described_commands()) == named


@pytest.mark.skipif(hot_path() == "compiled", reason="reads the source of what is compiled here")
def test_the_shipped_file_is_current_and_a_schema(update_expected: bool) -> None:
    document = jsonshapes.document()
    Draft202012Validator.check_schema(document)
    text = json.dumps(document, indent=1) + "\n"
    if update_expected:
        SHIPPED.write_text(text)
    assert SHIPPED.read_text() == text


@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file).stem)
def test_lines_about_a_capture(file: str) -> None:
    found = 0
    for command, *rest in OF_A_CAPTURE:
        source = ["-r", file] if command == "sniff" else [file]
        words = ["plot", *rest, file] if command == "plot" else [command, *source, *rest]
        # 2: no such frame, nothing of that kind to draw.
        found += len(checked(*words, some=False, ends=(0, 2, 6, 7)))
    assert found > 100


@pytest.mark.parametrize("words", OF_NONE, ids=" ".join)
def test_lines_about_something_else(words: list[str]) -> None:
    checked(*words)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", EVERY)
def test_lines_about_all_captures(protocol: str) -> None:
    for file in sorted(set((CAPTURES / protocol).glob("*.pcap*"))):
        for words in (["connections"], ["anomalies"], ["diagnose"], ["info"], ["stats"]):
            checked(*words, str(file), some=False)
        for words in (["read"], ["timeline"], ["ladder"]):
            checked(*words, str(file), "-c", "400", some=False)


def test_lines_of_the_fuzzer(tmp_path: Path) -> None:
    target = free_target()
    monitor = ["--monitor", server_command("riptide", target, "length")]
    (report,) = checked(
        "fuzz", "riptide", "--target", str(target), "--seeds", CLEAN, "--seed", "4",
        "--cases", "5000", "--rate", "0", "--failures", "1", "--answer", "0.5",
        "--out", str(tmp_path / "run"), *monitor,
    )  # fmt: skip
    (failure,) = report["failures"]
    (small,) = checked("minimise", failure["folder"], "--answer", "0.5", "--trials", "30", *monitor)
    assert small["steps"]
    checked("replay", small["folder"], *monitor)
    with running("riptide") as (server, _):
        rows = checked(
            "send", "riptide", "Reliable", "message_id=3", "--target", str(server), "--wait", "0.3"
        )
    assert len(rows) > 1


def test_lines_of_a_survey(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    from netdissect.cli.session import Choices
    from netdissect.survey.dataset import Dataset
    from netdissect.survey.sources import sources_of
    from netdissect.survey.work import Plan, survey_one

    (tmp_path / "broken.pcap").write_bytes(b"nothing")
    for name, files in {"one": SIDES[:1], "two": [*SIDES, str(tmp_path / "broken.pcap")]}.items():
        plan = Plan(str(tmp_path / name), Choices().options, 60 * 10**9)
        with Dataset(tmp_path / name).opened({}):
            for source in sources_of(files):
                survey_one(source, plan)
    rows = checked("survey", "show", str(tmp_path / "two"), "--against", str(tmp_path / "one"))
    assert {"captures", "failed", "changes", "distributions"} <= {row["section"] for row in rows}


def test_lines_of_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Difference(3, "src", "a", "b"), Difference(4, "seq", 7, None, "tshark takes it so")]
    made = SimpleNamespace(compared=2, facts={}, differences=found)
    monkeypatch.setattr(verify, "compare", lambda *_, **__: made)
    assert len(checked("verify", CLEAN)) == 2


@pytest.mark.parametrize(
    ("command", "spoil"),
    [
        ("connections", lambda row: row.update(strange=1)),
        ("connections", lambda row: row["spaces"][0].update(strange=1)),
        ("connections", lambda row: row["spaces"][0]["rtt_ms"].pop("p50")),
        ("connections", lambda row: row["diagnosis"]["cause"].update(direction="up")),
        ("timeline", lambda row: row.update(time_ns="1")),
        ("read", lambda row: row["reliability"].update(rtt_ms="1")),
    ],
)
def test_what_differs_is_not_valid(command: str, spoil: Any) -> None:
    row = checked(command, SIDES[0], "-Y", "msg.reliable")[0] if command == "read" else None
    row = row or checked(command, SIDES[0])[0]
    spoil(row)
    assert not validator(command).is_valid(row)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["schema", *words], prog_name="netdissect")


def test_the_command_prints_what_is_shipped() -> None:
    assert json.loads(run().stdout) == json.loads(SHIPPED.read_text())
    one = json.loads(run("explain").stdout)
    assert list(one["$defs"]) == ["explain"]
    assert "$schema" in one


@pytest.mark.parametrize(
    ("word", "said"),
    [("conections", "did you mean 'connections'"), ("man", "no command 'man' has --json")],
)
def test_the_command_names_what_there_is(word: str, said: str) -> None:
    result = run(word)
    assert result.exit_code == 2
    assert said in result.stderr


def test_any_line_is_valid_by_the_whole() -> None:
    whole = Draft202012Validator(output_schema())
    for row in (
        *checked("protocols"),
        *checked("info", CLEAN),
        *checked("decode", "riptide", "02"),
    ):
        assert whole.is_valid(row)
