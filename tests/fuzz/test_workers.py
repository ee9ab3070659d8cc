from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forkserver import python
from fuzzing import free_target
from netdissect.fuzz import fuzz_target
from netdissect.model.errors import NetdissectError

SERVER = "exec:{} -m netdissect.fuzz.servers riptide --port {{port}}"


def cases_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "cases.jsonl").read_text().splitlines() if line]


def content(row: dict[str, Any]) -> str:
    """Return what a case sends, and in which state, before live values are put in."""
    steps = [{name: step[name] for name in step if name != "sent"} for step in row["steps"]]
    return json.dumps([row["stage"], steps])


def test_workers_share_the_cases_and_what_they_find(tmp_path: Path) -> None:
    report = fuzz_target(
        "riptide", free_target(count=2), tmp_path / "run", cases=300, rate=0, workers=2,
        monitors=[SERVER.format(python())],
    )
    folders = [tmp_path / "run" / f"worker-{number}" for number in range(2)]
    shares = [[content(row) for row in cases_of(folder)] for folder in folders]
    assert report.cases == sum(map(len, shares)) == 300
    assert len({*shares[0], *shares[1]}) == 300
    ports = {json.loads((folder / "run.json").read_text())["target"] for folder in folders}
    assert len(ports) == 2
    written = json.loads((tmp_path / "run" / "report.json").read_text())
    assert written["cases"] == 300
    assert (tmp_path / "run" / "corpus").is_dir()
    assert not any((folder / "corpus").exists() for folder in folders)


def test_a_worker_that_cannot_run_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(NetdissectError, match=r"worker \d: .*accepts no riptide-2\.2 session"):
        fuzz_target(
            "riptide", free_target(count=2), tmp_path / "run", cases=100_000, workers=2, answer_seconds=0.1
        )
