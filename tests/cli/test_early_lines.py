"""`read` prints its first lines before it has looked at the whole file, and prints the same."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.cli import cli, session
from netdissect.pipeline import Pipeline
from netdissect.pipeline.collector import rare_collections

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
CLEAN = str(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap")
LOSSY = str(CAPTURES / "riptide" / "udp_2.2.1_poorconnection_loss_clientleg.pcap")


def _read(*words: str) -> str:
    result = CliRunner().invoke(cli, ["read", *words], prog_name="netdissect")
    assert result.exit_code == 0, result.output
    return result.output


def _pipelines() -> int:
    return sum(isinstance(each, Pipeline) for each in gc.get_objects())


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


def test_nothing_stays_of_the_passes_over_the_first_lines(monkeypatch):
    monkeypatch.setattr(session, "LONG_OCTETS", 0)
    gc.collect()
    before = _pipelines()
    with rare_collections(), session.Session(CLEAN, session.Choices()) as opened:
        for _ in opened.records(early=True):
            pass
        assert _pipelines() - before < 4
