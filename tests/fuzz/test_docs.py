"""The tutorial: its Python and its commands are run as they stand, but for the port, for how `python`
starts the server, and for how long `minimise` works on bytes; the slow form leaves that to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agreement import CAPTURES
from forkserver import python
from fuzzing import free_target
from netdissect.fuzz import minimise

TUTORIAL = CAPTURES.parent / "docs" / "fuzzing.md"
PORT = "7790"


LENGTHS = [True, pytest.param(False, marks=pytest.mark.slow)]


@pytest.mark.parametrize("short", LENGTHS)
def test_the_python_of_the_tutorial_runs(
    short: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if short:
        monkeypatch.setattr(minimise, "_OCTET_TRIALS", 15)
    code = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    monkeypatch.chdir(CAPTURES.parent)
    monkeypatch.setattr(sys, "executable", python())
    exec(code.replace(PORT, str(free_target().port)), {})  # noqa: S102
    assert re.fullmatch(r"\d+ -> 1 exit True\n", capsys.readouterr().out)


def commands() -> list[tuple[str, list[str]]]:
    """Return the commands of the tutorial with the lines that they are said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```text\n(\$ .*?)```", TUTORIAL.read_text(), re.DOTALL):
        lines = block.replace("\\\n", " ").splitlines()
        for line in lines:
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line != "...":
                found[-1][1].append(line)
    return found


def plain(line: str) -> str:
    """Return a line without its numbers and spaces, which differ from run to run."""
    return re.sub(r"\d+([.]\d+)?", "N", re.sub(r"\s+", " ", line.strip()))


@pytest.mark.parametrize("short", LENGTHS)
def test_the_commands_of_the_tutorial_do_what_it_says(short: bool, tmp_path: Path) -> None:
    (tmp_path / "captures").symlink_to(CAPTURES)
    port = str(free_target().port)
    scripts = f"{Path(python()).parent}:{Path(sys.executable).parent}"
    shell = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "NO_COLOR": "1"}
    statuses = []
    for whole, said in commands():
        command = whole + " --trials 40" * (short and " minimise " in whole)
        done = subprocess.run(
            ["/bin/sh", "-c", command.replace(PORT, port)], cwd=tmp_path, env=shell,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
        )  # fmt: skip
        printed = {plain(line) for line in done.stdout.splitlines()}
        assert [line for line in said if plain(line) not in printed] == [], done.stdout
        statuses.append(done.returncode)
    assert statuses == [7, 0, 7]
