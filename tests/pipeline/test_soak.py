"""bench/soak.py: memory does not grow while connections come and go."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def curve(*words: str) -> tuple[list[list[float]], str]:
    """Return the rows that the script prints, and what it says at the end."""
    run = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "soak.py"), *words],
        capture_output=True, text=True, check=True, timeout=3600,
    )  # fmt: skip
    head, *rows, end = run.stdout.splitlines()
    assert head.split() == ["hours", "datagrams", "connections", "open", "memory", "MB"]
    return [[float(cell.replace(",", "")) for cell in row.split()] for row in rows], end


def test_the_curve_of_a_few_minutes() -> None:
    rows, _ = curve("--hours", "0.2", "--rate", "20")
    assert [row[0] for row in rows] == pytest.approx([0.0, 0.17], abs=0.01)
    assert rows[1][1] > 3_000
    assert rows[1][2] > rows[1][3] > 0


@pytest.mark.slow
def test_memory_does_not_grow_after_the_first_hour() -> None:
    # At the rate that is promised: at a fifth of it, tables fill only in the second hour.
    _, end = curve("--hours", "2.5", "--rate", "500")
    found = re.match(r"grown by (-?[0-9.]+) MB", end)
    assert found is not None
    assert float(found[1]) < 5
