"""Coverage-guided fuzzing of all that reads what strangers wrote, and what it once found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import guided

SCRIPT = Path(guided.__file__)
SOURCE = SCRIPT.parents[2] / "src"
SECONDS = float(os.environ.get("NETDISSECT_FUZZ_SECONDS", "900"))
"""Time of `pytest -m fuzz` for all targets together."""
LIMIT_MIB, LIMIT_SECONDS = 2048, 20


@pytest.mark.parametrize(
    ("target", "file"),
    list(guided.kept()),
    ids=lambda part: part.name if isinstance(part, Path) else part,
)
def test_kept_inputs(target: str, file: Path) -> None:
    octets = file.read_bytes()
    assert len(octets) <= guided.MAX_OCTETS
    assert repr(guided.TARGETS[target](octets)) == repr(guided.TARGETS[target](octets))


def test_every_target_has_inputs_that_reach_something() -> None:
    assert {target for target, _ in guided.kept()} == set(guided.TARGETS)
    assert '"connection":1' in guided.scan((guided.CORPUS / "scan" / "knet").read_bytes())[0]
    assert any(guided.filters(b"frame.number > 1"))


def digests(folder: Path, **environment: str) -> tuple[bool, dict[str, str]]:
    words = [sys.executable, str(SCRIPT), "--digest", str(folder)]
    ended = subprocess.run(
        words, capture_output=True, check=True, cwd="/", env={**os.environ, **environment}
    )
    hot, found = json.loads(ended.stdout)
    return not hot.endswith(".py"), found


def disputed(folder: Path) -> list[str] | None:
    """Return the inputs on which the installed package and its source beside the tests disagree;
    None where the package is not compiled: the source is not.
    """
    compiled, here = digests(folder, PYTHONPATH="")
    if not compiled:
        return None
    source_compiled, there = digests(folder, PYTHONPATH=str(SOURCE))
    assert not source_compiled
    assert here.keys() == there.keys()
    return [name for name, digest in here.items() if there[name] != digest]


def test_compiled_and_interpreted_agree_on_every_kept_input() -> None:
    found = disputed(guided.CORPUS)
    if found is None:
        pytest.skip("the package that is installed is not compiled")
    assert found == []


@pytest.mark.fuzz
@pytest.mark.parametrize("target", guided.TARGETS)
def test_new_inputs(target: str, tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("needs atheris: pip install '.[fuzz]' (CPython 3.11 to 3.13 on Linux)")
    share = max(1, round(SECONDS / len(guided.TARGETS)))
    found = guided.CORPUS / target / "found"
    new = tmp_path / "new" / target
    new.mkdir(parents=True)
    ended = subprocess.run(
        [
            sys.executable, str(SCRIPT), target, f"-max_total_time={share}",
            f"-rss_limit_mb={LIMIT_MIB}", f"-timeout={LIMIT_SECONDS}", "-verbosity=0",
            f"-artifact_prefix={tmp_path}/", str(new), str(guided.CORPUS / target),
        ],
        capture_output=True, text=True, errors="replace", check=False,
        # Of compiled modules coverage sees nothing.
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    left = [file for file in tmp_path.iterdir() if file.is_file()]
    left += [tmp_path / "new" / name for name in disputed(tmp_path / "new") or ()]
    found.mkdir(parents=True, exist_ok=True)
    for file in left:  # the next run empties `tmp_path`
        shutil.copy(file, found / file.name)
    told = f"kept in {found}: {left}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    assert ended.returncode == 0, told
    assert left == [], told
