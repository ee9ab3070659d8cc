"""A new plug-in is the example under another name."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.cli import cli
from netdissect.model.errors import UsageError
from netdissect.scaffold import new_protocol

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "netdissect-tiny"


def test_a_new_protocol_is_the_example_under_its_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["new-protocol", "mygame", str(tmp_path / "made")])
    assert result.exit_code == 0, result.output
    made = {str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*.*")}
    assert made >= {
        "pyproject.toml", "tests/test_mygame.py", "src/netdissect_mygame/__init__.py",
        "src/netdissect_mygame/layers.py", "src/netdissect_mygame/driver.py",
    }  # fmt: skip
    for path in (tmp_path / "made").rglob("*.*"):
        text = path.read_text()
        assert "tiny" not in text.lower()
        if path.suffix == ".py":
            compile(text, str(path), "exec")
    assert "class MygameData" in (tmp_path / "made/src/netdissect_mygame/layers.py").read_text()


@pytest.mark.parametrize("name", ["Mine", "a", "my-game", "1st", "../x", "class", "riptide", "tiny"])
def test_names_that_will_not_do(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        new_protocol(name, tmp_path / "made", ["riptide"])
    assert not (tmp_path / "made").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    for folder in (tmp_path, tmp_path / "mine"):
        with pytest.raises(UsageError, match="already"):
            new_protocol("mygame", folder)
    assert (tmp_path / "mine").read_text() == "kept"


def test_the_example_stays_small() -> None:
    source = EXAMPLE / "src" / "netdissect_tiny"
    lines = [
        line
        for name in ("__init__.py", "layers.py")
        for line in (source / name).read_text().splitlines()
        if line.strip()
    ]
    assert len(lines) <= 130
