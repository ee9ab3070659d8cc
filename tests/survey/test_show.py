"""What a dataset answers, and the questions of docs/survey.md."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.cli import cli
from netdissect.cli.session import Choices
from netdissect.model.diagnosis import MEASURED
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.survey.dataset import Dataset
from netdissect.survey.show import opened
from netdissect.survey.sources import sources_of
from netdissect.survey.work import Plan, survey_one

RIPTIDE = console_docs.ROOT / "captures" / "riptide"
LOSSY = RIPTIDE / "udp_2.2.1_lossy_clientleg.pcap"
DARK = RIPTIDE / "udp_2.2.1_blackout_timeout_clientleg.pcap"
PAGE = (console_docs.ROOT / "docs" / "survey.md").read_text()
QUESTIONS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def made(out: Path, *captures: Path) -> Path:
    plan = Plan(str(out), Choices().options, 60 * 10**9)
    with Dataset(out).opened({}):
        for source in sources_of(map(str, captures)):
            survey_one(source, plan)
    return out


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    bad = folder / "bad\x1b[31m.pcap"
    bad.write_bytes(b"nothing")
    return made(folder / "it's", LOSSY, DARK, bad)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("quiet") / "out", DARK)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["survey", "show", *words], prog_name="netdissect")


def sections(*words: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in run(*words, "--json").stdout.splitlines():
        row = json.loads(line)
        found.setdefault(row["section"], []).append(row)
    return found


def diagnosed(capture: Path) -> dict[str, Any]:
    words = ["diagnose", str(capture), "--json"]
    (found,) = CliRunner().invoke(cli, words, prog_name="netdissect").stdout.splitlines()
    return json.loads(found)


def test_the_answers_are_those_of_diagnose(fleet: Path) -> None:
    found = sections(str(fleet))
    lossy = diagnosed(LOSSY)
    assert {row["status"]: row["captures"] for row in found["captures"]} == {"done": 2, "failed": 1}
    rows = {row["server"]: row for row in found["servers"]}
    row = rows[lossy["server"]]
    known = [part for part in lossy["loss"].values() if part["basis"] in ("observed", "told")]
    assert row["loss_share"] == pytest.approx(
        sum(part["lost"] for part in known) / sum(part["sent"] for part in known)
    )
    assert row["lag_p95_ms"] == max(part["p95_ms"] or 0 for part in lossy["lag"]["added"].values())
    dark = diagnosed(DARK)
    assert found["servers"][0]["server"] == max(
        (dark, lossy), key=lambda each: each["badness"]
    )["server"]
    assert rows[dark["server"]]["bad_share"] == 1.0
    assert {row["ending"] for row in found["endings"]} == {
        dark["ended"]["how"],
        lossy["ended"]["how"],
    }
    assert {row["link"] for row in found["links"]} == {
        f"{each['client'].rpartition(':')[0]} → {each['server']}" for each in (dark, lossy)
    }
    assert len(found["hours"]) >= 1
    assert found["failed"][0]["error"].endswith("not a capture file (starts with 6e 6f 74 68 69 6e 67)")


def test_text_of_captures_and_files_is_harmless(fleet: Path) -> None:
    shown = run(str(fleet), "--width", "200").stdout
    assert "Worst servers" in shown
    assert "bad" in shown
    assert "\x1b" not in shown


def test_what_cannot_be_told_is_a_dash_and_beyond_no_limit(quiet: Path) -> None:
    with opened(str(quiet)) as answers:
        assert answers.measures()["loss"] is None
    assert run(str(quiet), "--fail-on", "loss>0%").exit_code == 0
    assert run(str(quiet), "--fail-on", "bad>50%").exit_code == 7
    assert run(str(quiet), "--fail-on", "connections>0").exit_code == 7
    assert run(str(quiet), "--fail-on", "connections>1").exit_code == 0


def test_another_dataset_is_compared_with(fleet: Path, quiet: Path) -> None:
    found = sections(str(fleet), "--against", str(quiet))
    changes = {row["figure"]: row for row in found["changes"]}
    assert (changes["connections"]["then"], changes["connections"]["now"]) == (1, 2)
    assert changes["bad"]["change"] == -0.5
    (same,) = found["regressions"]
    assert same["server"] == diagnosed(DARK)["server"]
    assert same["bad_rise_share"] == 0
    words = (str(fleet), "--against", str(quiet), "--fail-on")
    assert run(*words, "connections.rise>0").exit_code == 7
    assert run(*words, "failed.rise>=1").exit_code == 7
    assert run(*words, "bad.rise>0%").exit_code == 0
    assert run(str(fleet), "--fail-on", "bad.rise>0%").exit_code == 2


def test_what_is_no_dataset_is_said(tmp_path: Path, quiet: Path) -> None:
    assert run(str(tmp_path)).exit_code == 3
    assert run().exit_code == 2
    assert run(str(quiet), str(quiet)).exit_code == 2
    settings = quiet / "_survey.json"
    whole = settings.read_text()
    settings.write_text('{"schema": 99}')
    try:
        with pytest.raises(CaptureFileError, match="schema"), opened(str(quiet)):
            pass
    finally:
        settings.write_text(whole)


def test_a_dataset_of_nothing_has_answers(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"nothing")
    result = run(str(made(tmp_path / "out", bad)))
    assert result.exit_code == 0
    assert "not a capture" in " ".join(result.stdout.split())


def test_rows_count_only_with_their_capture(tmp_path: Path) -> None:
    out = made(tmp_path / "out", LOSSY, DARK)
    with opened(str(out)) as answers:
        assert answers.measures()["connections"] == 2
    next((out / "captures").glob("*.parquet")).unlink()
    with opened(str(out)) as answers:
        assert answers.measures()["connections"] == 1


def test_the_questions_of_the_page_have_answers(fleet: Path) -> None:
    assert len(QUESTIONS) == 11
    with duckdb.connect(":memory:") as base:
        base.execute(QUESTIONS[0].replace("fleet/", f"{fleet}/".replace("'", "''")))
        for question in QUESTIONS[1:]:
            assert base.execute(question).fetchall(), question


def flat(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Return rows with the items of lists as values, and times as text without a zone."""
    found = []
    for row in rows:
        values: list[Any] = []
        for value in row:
            values += value if isinstance(value, list) else [value]
        found.append([str(each)[:19] if isinstance(each, datetime) else each for each in values])
    return sorted(found, key=repr)


def test_polars_answers_the_questions_of_the_page_alike(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("polars")
    folder = tmp_path_factory.mktemp("fleet")
    bad = folder / "bad.pcap"
    bad.write_bytes(b"nothing")
    teeworlds = console_docs.ROOT / "captures" / "teeworlds" / "ddnet_loss_client_side.pcap"
    fleet = made(folder / "out", LOSSY, DARK, teeworlds, bad)
    (page,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(page.replace("fleet/", f"{fleet}/"), names)  # noqa: S102 - our own page
    assert "loss" in capsys.readouterr().out
    with duckdb.connect(":memory:") as base:
        base.execute(QUESTIONS[0].replace("fleet/", f"{fleet}/"))
        for question, other in zip(QUESTIONS[1:], names["questions"], strict=True):
            asked, found = flat(base.execute(question).fetchall()), flat(other.collect().rows())
            assert len(asked) == len(found) > 0
            for one, two in zip(asked, found, strict=True):
                assert one == pytest.approx(two), question


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = CliRunner().invoke(cli, ["survey", "x.pcap", "--out", "y"], prog_name="netdissect")
    assert result.exit_code == 2
    assert "pip install 'netdissect[survey]'" in result.output
    assert len(result.output.splitlines()) == 1


def test_one_capture_may_have_several_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "netdissect.survey.run.survey", lambda *_, workers, **__: asked.append(workers) or []
    )
    words = ["survey", str(LOSSY), "--out", str(tmp_path / "out"), "--workers", "2"]
    CliRunner().invoke(cli, words, prog_name="netdissect")
    assert asked == [2]


@pytest.mark.parametrize(
    ("out", "said"),
    [([], "--out DATASET"), (["--out", "s3://games/fleet"], "a folder of this machine"),
     (["--out", "file:///fleet"], "a folder of this machine")],
)  # fmt: skip
def test_a_run_wants_a_place(out: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["survey", str(LOSSY), *out], prog_name="netdissect")
    assert result.exit_code == 2
    assert said in result.output
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "[1]", '{"schema": 1e999}', '{"schema": []}', " " * 70_000, None]
)
def test_settings_that_somebody_made_up_are_no_dataset(content: str | None, tmp_path: Path) -> None:
    settings = tmp_path / "_survey.json"
    if content is None:
        os.mkfifo(settings)
    else:
        settings.write_text(content)
    found = run(str(tmp_path))
    assert (found.exit_code, found.stdout) == (3, "")
    assert "no dataset of a survey" in found.stderr
    with pytest.raises(UsageError, match=r"damaged|another"), Dataset(tmp_path).opened({}):
        pass


@pytest.mark.parametrize("place", ["findings", "findings/day=2026-01-01", "_staging", "_survey.json"])
def test_nothing_is_removed_or_written_through_a_link(place: str, tmp_path: Path) -> None:
    """Of a dataset that a stranger gave, to which somebody adds."""
    mine, link = tmp_path / "mine", tmp_path / "dataset" / place
    kept = mine / "x" / "y" / "z" / "kept.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    made(tmp_path / "dataset", DARK)
    if link.is_dir():
        shutil.rmtree(link)
    target = link.rename(mine / "settings") if link.exists() else mine
    link.symlink_to(target)
    with pytest.raises(UsageError, match="a link"), Dataset(tmp_path / "dataset").opened({}):
        pass
    shown = run(str(tmp_path / "dataset"))
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert kept.read_text() == "kept"


def test_a_lower_limit_of_the_loss_is_not_summed_up(tmp_path: Path) -> None:
    """Of the server's datagrams at least 5.9% were lost; of the client's, nothing is known."""
    out = made(tmp_path / "out", console_docs.ROOT / "captures" / "eoudp" / "mid_lossy_client.pcap")
    (server,) = sections(str(out))["servers"]
    assert server["loss_share"] is None
    assert all(f"IN {MEASURED}" in question for question in QUESTIONS if "loss_basis" in question)
