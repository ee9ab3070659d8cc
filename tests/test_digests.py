"""What the commands print of every capture is what they printed before, byte for byte.

A stored digest per capture and command. A change of results shows here first, and on purpose only:
`python -m pytest -m slow tests/test_digests.py --update-expected` stores them anew (see
`CONTRIBUTING.md`); the captures whose lines change belong in the message of the commit.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.cli import cli

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests" / "digests.json"
COMMANDS = ("connections", "read", "timeline", "anomalies")
NAMES = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "captures").rglob("*.pcap*") if path.is_file()
)
SMALL = 12_000
"""Bytes of a capture that is looked at in every run; the others are for `-m slow`."""


def digest(command: str, name: str) -> str:
    """Return the digest of exit status and output; `name` is relative to the working folder."""
    result = CliRunner(env={"NO_COLOR": "1"}).invoke(cli, [command, "--json", name])
    said = f"{result.exit_code}\n".encode() + result.stdout_bytes
    return blake2b(said, digest_size=6).hexdigest()


def digests(name: str) -> list[str]:
    return [digest(command, name) for command in COMMANDS]


def write(rows: dict[str, list[str]]) -> None:
    """Write one capture a line, so that changes of two people meet only where they are the same."""
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)  # Output names the capture as it was given.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def differences(names: list[str]) -> list[str]:
    stored = json.loads(STORED.read_text())
    return [
        f"{command} --json {name}"
        for name in names
        for command, now, before in zip(COMMANDS, digests(name), stored[name], strict=True)
        if now != before
    ]


def test_a_sample_of_the_captures_gives_what_it_gave() -> None:
    small = [name for name in NAMES if (ROOT / name).stat().st_size <= SMALL]
    assert not differences(small[::8])


def test_every_capture_has_its_digests() -> None:
    assert sorted(json.loads(STORED.read_text())) == NAMES


@pytest.mark.slow
def test_every_capture_gives_what_it_gave(update_expected: bool) -> None:
    if update_expected:
        write({name: digests(name) for name in NAMES})
    assert not differences(NAMES)
