from __future__ import annotations

import re

import pytest

from agreement import CAPTURES
from fuzzing import free_target

TUTORIAL = CAPTURES.parent / "docs" / "fuzzing.md"


def test_the_python_of_the_tutorial_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    monkeypatch.chdir(CAPTURES.parent)
    exec(code.replace("7790", str(free_target().port)), {})  # noqa: S102
    assert re.fullmatch(r"\d+ -> 1 exit True\n", capsys.readouterr().out)
