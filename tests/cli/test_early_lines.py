"""`read` prints its first lines before it has looked at the whole file, and prints the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.cli import cli, session

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
CLEAN = str(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap")
LOSSY = str(CAPTURES / "riptide" / "udp_2.2.1_poorconnection_loss_clientleg.pcap")


def _read(*words: str) -> str:
    result = CliRunner().invoke(cli, ["read", *words], prog_name="netdissect")
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    "words",
    [[], ["--json"], ["-Y", "msg.type == Connect"], ["-Y", "msg.resend"], ["-c", "5"],
     ["-T", "csv", "-e", "frame.time_relative", "-e", "conn.vantage"]],
    ids=" ".join,
)  # fmt: skip
def test_lines_that_leave_early_change_nothing(words, monkeypatch):
    late = _read(LOSSY, *words)
    monkeypatch.setattr(session, "LONG_OCTETS", 0)
    assert _read(LOSSY, *words) == late


def test_the_first_lines_are_there_before_the_whole_file_was_looked_at(monkeypatch):
    monkeypatch.setattr(session, "LONG_OCTETS", 0)

    def looked(*_: object, **__: object) -> None:
        raise AssertionError("looked at")

    monkeypatch.setattr(session.Session, "with_first_look", looked)
    assert len(_read(CLEAN, "-c", "3").splitlines()) == 3
