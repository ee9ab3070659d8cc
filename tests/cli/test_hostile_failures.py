"""A failure folder that somebody attached to a bug report: nothing that it names is run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fuzzing import running
from netdissect.cli import cli

STEP = {"octets": "02", "type": "Connect\x1b[31m", "sent": "02", "stage": "connected"}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"NO_COLOR": "1"})


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def folder(tmp_path: Path, mark: Path) -> Path:
    found = tmp_path / "001-exit"
    found.mkdir()
    facts = {
        "kind": "exit", "protocol": "riptide", "dialect": "riptide-2.2", "transport": "udp",
        "target": "127.0.0.1:9", "monitors": [f"exec:/bin/touch {mark}", "log:\x1b]0;x\x07"],
    }  # fmt: skip
    (found / "failure.json").write_text(json.dumps(facts))
    (found / "steps.jsonl").write_text(json.dumps(STEP) + "\n")
    (found / "target.log").symlink_to(mark)
    return found


@pytest.mark.parametrize("command", ["replay", "minimise"])
def test_a_command_of_the_folder_is_shown_and_not_run(
    command: str, folder: Path, mark: Path
) -> None:
    with running("riptide") as (target, _server):
        result = run(command, str(folder), "--target", str(target))
    assert not mark.exists()
    assert result.exit_code == (0 if command == "replay" else 2), result.output
    assert f"not used without --trust-folder: exec:/bin/touch {mark}" in result.stderr
    assert "\x1b" not in result.output


def test_a_folder_that_is_trusted_says_what_it_runs(folder: Path, mark: Path) -> None:
    with running("riptide") as (target, _server):
        result = run("replay", str(folder), "--target", str(target), "--trust-folder")
    assert mark.is_file()
    assert f"monitor of the folder: exec:/bin/touch {mark}" in result.stderr
    assert result.exit_code in {0, 7}
    assert run("replay", str(folder), "--trust-folder", "--monitor", "pid:1").exit_code == 2


def test_what_a_target_prints_goes_nowhere_in_the_folder(folder: Path, mark: Path) -> None:
    """The folder holds a link by the name of the log."""
    with running("riptide") as (target, _server):
        words = ["--target", str(target), "--monitor", f"exec:{sys.executable} -c 'print(1)'"]
        run("replay", str(folder), *words)
    assert not mark.exists()
    assert (folder / "target.log").is_symlink()


def test_a_folder_does_not_say_which_host_is_attacked(folder: Path) -> None:
    facts = json.loads((folder / "failure.json").read_text())
    (folder / "failure.json").write_text(json.dumps({**facts, "target": "192.0.2.1:7777"}))
    assert run("replay", str(folder)).exit_code == 5
    result = run("replay", str(folder), "--i-own-this-host")
    assert (result.exit_code, "--target" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "facts",
    [
        {"protocol": []}, {"protocol": "os"}, {"dialect": {}}, {"transport": [1]}, {"target": 5},
        {"monitors": "exec:x"}, {"monitors": [["exec:x"]]}, {"kind": None},
    ],
)  # fmt: skip
def test_odd_facts_are_no_unexpected_failure(facts: dict[str, object], folder: Path) -> None:
    old = json.loads((folder / "failure.json").read_text())
    (folder / "failure.json").write_text(json.dumps({**old, **facts}))
    with running("riptide") as (target, _server):
        target_words = [] if "target" in facts else ["--target", str(target)]
        result = run("replay", str(folder), *target_words)
    assert result.exit_code in {0, 2}, result.output
    assert "unexpected" not in result.output


def test_a_state_that_the_protocol_does_not_have(folder: Path) -> None:
    (folder / "steps.jsonl").write_text(json.dumps({**STEP, "stage": "\x1b[2J"}) + "\n")
    with running("riptide") as (target, _server):
        result = run("replay", str(folder), "--target", str(target))
    assert result.exit_code == 2
    assert "has no state" in result.stderr


def test_nothing_is_left_in_the_folder_for_temporary_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr("tempfile.tempdir", os.fspath(own))
    with running("riptide") as (target, _server):
        run("replay", str(folder), "--target", str(target))
    assert list(own.iterdir()) == []
