from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import console_docs
from netdissect.capture import open_capture
from netdissect.cli import progress
from netdissect.cli.progress import Progress
from netdissect.cli.session import Session

LOSSY = console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_nothing_is_drawn_in_the_first_second(clock: list[float]) -> None:
    stream = Terminal()
    shown = Progress(stream=stream)
    clock[0] += 0.9
    shown.step(5, 10)
    assert stream.getvalue() == ""
    clock[0] += 0.2
    shown.step(5_000_000, 10_000_000)
    assert "50% of 10 MB" in stream.getvalue()
    shown.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_it_is_drawn_five_times_a_second_at_most(clock: list[float]) -> None:
    stream = Terminal()
    shown = Progress(stream=stream)
    clock[0] += 2
    for _ in range(10):
        shown.step(1_000_000, None)
    assert stream.getvalue().count("1 MB read") == 1


def test_it_says_how_long_the_rest_takes(clock: list[float]) -> None:
    stream = Terminal()
    shown = Progress(stream=stream)
    clock[0] += 2
    shown.step(10_000_000, 40_000_000)
    assert stream.getvalue().endswith("25% of 40 MB, 6 s left\x1b[K")
    clock[0] += 298
    shown.step(20_000_000, 40_000_000)
    assert stream.getvalue().endswith("50% of 40 MB, 5 min 00 s left\x1b[K")


def test_lines_and_progress_do_not_meet(
    clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    with Session(str(LOSSY), streams=True) as session:
        assert not session.progress.enabled
    with (tmp_path / "lines").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with Session(str(LOSSY), streams=True) as session:
            assert session.progress.enabled
        with Session(str(LOSSY), streams=True, quiet=True) as session:
            assert not session.progress.enabled


def test_a_stream_that_is_no_terminal_gets_nothing(clock: list[float]) -> None:
    stream = io.StringIO()
    shown = Progress(stream=stream)
    clock[0] += 5
    with open_capture(str(LOSSY)) as reader:
        assert sum(1 for _ in shown.watch(reader)) == 1073
    shown.clear()
    assert stream.getvalue() == ""


def test_a_reader_reports_while_it_is_read(clock: list[float]) -> None:
    stream = Terminal()
    shown = Progress(stream=stream)
    frames = 0
    with open_capture(str(LOSSY)) as reader:
        for _ in shown.watch(reader):
            frames += 1
            clock[0] += 1
    assert frames == 1073
    assert "100%" in stream.getvalue()


def test_quiet_draws_nothing(clock: list[float]) -> None:
    stream = Terminal()
    shown = Progress(enabled=False, stream=stream)
    clock[0] += 5
    with open_capture(str(LOSSY)) as reader:
        list(shown.watch(reader))
    assert stream.getvalue() == ""


def test_the_line_is_gone_before_a_picture_or_a_timeline_is_printed(clock: list[float]) -> None:
    from netdissect.cli.plot_data import collect_plot_data

    stream = Terminal()
    with Session(str(LOSSY)) as session:
        session.progress.stream, session.progress.enabled = stream, True
        session.progress.watch(session.reader)
        clock[0] += 5
        collect_plot_data(session)
        assert "% of" in stream.getvalue()
        assert stream.getvalue().endswith("\r\x1b[K")


def test_the_line_is_gone_before_an_answer_is_printed(clock: list[float]) -> None:
    stream = Terminal()
    with Session(str(LOSSY)) as session:
        session.progress.stream, session.progress.enabled = stream, True
        session.progress.watch(session.reader)
        clock[0] += 5
        session.analysis()
        assert "% of " in stream.getvalue()
        assert stream.getvalue().endswith("\r\x1b[K")


def test_a_first_look_at_the_whole_file_is_shown(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Session(str(LOSSY), streams=True) as session:
        clock[0] += 2
        monkeypatch.setattr(progress, "_AFTER_SECONDS", 0.0)
        options = session.with_first_look(session.choices.options())
    assert options.near is not None
    assert "% of 85.6 kB, 0 s left" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_file_that_grows_is_never_read_by_more_than_all_of_it() -> None:
    assert Progress._line(6_000_000, 5_000_000).endswith("] 100% of 5 MB")
