"""`docs/scapy.md`: its examples run as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from agreement import CAPTURES

ROOT = CAPTURES.parent
SCRIPTS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scapy.md").read_text(), re.DOTALL)
PRINTED = (
    r"(?s)###\[ Riptide Reliable \]###.*\n[0-9a-f]+\n",
    r"7777\n",
    r"IP / UDP .*Riptide Reliable\n",
    r"TwDdnet / .* \(or teeworlds-0\.6, .*\)\n\('teeworlds-ddnet-0\.6', .*\)\n",
    r"\d+ repeats \d+ unit \('reliable', \d+\) of connection 1\n",
    r"Riptide Welcome\n",
)


def test_every_example_is_checked() -> None:
    assert len(SCRIPTS) == len(PRINTED)


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_an_example_runs_as_it_is_printed(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPTS[number]], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTED[number], done.stdout), done.stdout
