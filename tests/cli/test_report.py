from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gallery
from netdissect.cli import cli


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


def invoke(*words: str, **more: object) -> Result:
    return CliRunner().invoke(cli, ["report", *words], prog_name="netdissect", **more)  # type: ignore[arg-type]


def test_the_file_that_was_written_is_named_with_its_size(tmp_path: Path) -> None:
    result = invoke(gallery.path(gallery.LOSSY))
    assert result.exit_code == 0
    written = tmp_path / "report.html"
    assert result.stdout == f"report.html  {written.stat().st_size / 1000:,.0f} kB\n"


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    result = invoke(gallery.path(gallery.LOSSY), "-o", "-")
    assert result.exit_code == 0
    assert result.stdout.startswith("<!doctype html>")
    assert result.stdout.endswith("</html>\n")
    assert not list(tmp_path.iterdir())


def test_a_capture_that_is_cut_short_has_a_report_that_says_so(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(gallery.path(gallery.LOSSY)).read_bytes()[:-7])
    result = invoke(str(cut), "-o", "cut.html")
    assert result.exit_code == 6
    assert "The file is cut short at offset" in (tmp_path / "cut.html").read_text()


def test_standard_input_is_enough(tmp_path: Path) -> None:
    octets = Path(gallery.path(gallery.LOSSY)).read_bytes()
    result = invoke("-", "-o", "pipe.html", input=octets)
    assert result.exit_code == 0, result.output
    assert "Why reliable 17 took 257 ms" in (tmp_path / "pipe.html").read_text()


def test_a_folder_that_is_not_there_is_a_missing_file() -> None:
    result = invoke(gallery.path(gallery.LOSSY), "-o", "nowhere/report.html")
    assert result.exit_code == 3, result.output
    assert "nowhere" in result.output


def test_help_does_not_import_the_report() -> None:
    for name in [name for name in sys.modules if name.startswith("netdissect.report")]:
        del sys.modules[name]
    assert invoke("--help").exit_code == 0
    assert not any(name.startswith("netdissect.report") for name in sys.modules)


@pytest.mark.parametrize("name", ["eoudp/late_three_clients", "netplay/mixed_dialects_and_noise"])
def test_only_what_is_told_is_tracked_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass tracks the connections that are told alone, and finds the same of them."""
    from netdissect.cli.plot_data import collect_plot_data
    from netdissect.cli.session import Choices, Session

    path = gallery.path(f"{name}.pcap")
    told, tracked = [], []
    made = Session.collect
    monkeypatch.setattr(
        Session,
        "collect",
        lambda self, reports, hit: (tracked.append(len(reports)), made(self, reports, hit)),
    )
    for narrow in (True, False):
        with Session(path, Choices(), quiet=True) as session:
            session.first_look()
            found = collect_plot_data(session, [2], remember=True, narrow=narrow)
            history = found.gallery.histories[2]
            units = [unit.seq for unit in history.slowest()]
            # What the place rests on is known beforehand where everything is tracked again.
            report = replace(history.report, vantage_basis="")
            told.append((units, report, found.other_datagrams, sorted(found.scenes)))
            assert len(session.reports) == tracked[-1] or narrow
    assert told[0] == told[1]
    assert tracked[0] < tracked[1]
