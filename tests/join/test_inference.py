"""What one capture alone concludes is held against what two show, and never falls."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
HEAD = "| Protocol | Capture at | Conclusion |"


def referee() -> ModuleType:
    spec = importlib.util.spec_from_file_location("inference", ROOT / "bench" / "inference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["inference"] = module
    spec.loader.exec_module(module)
    return module


def rows(lines: list[str]) -> dict[tuple[str, str, str], tuple[float, float]]:
    found = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        shares = [float("nan") if cell == "-" else float(cell) for cell in cells[3:5]]
        found[cells[0], cells[1], cells[2]] = (shares[0], shares[1])
    return found


def test_no_figure_of_the_table_has_fallen(update_expected: bool) -> None:
    module = referee()
    now = module.table(module.score_all())
    text = PAGE.read_text()
    start = text.index(HEAD)
    end = text.index("\n\n", start)
    if update_expected:
        PAGE.write_text(text[:start] + "\n".join(now) + text[end:])
        return
    shown = text[start:end].splitlines()
    told, current = rows(shown[2:]), rows(now[2:])
    assert set(told) == set(current)
    for key, shares in told.items():
        for was, share in zip(shares, current[key], strict=True):
            assert not share < was - 0.002, f"{key}: {was} fell to {share}"
    assert shown == now, "the counts have changed: run with --update-expected"
