"""One capture becomes rows: the same facts as `--json`, exactly once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import console_docs
from faulty import faulty_capture
from netdissect.capture import PcapWriter, open_capture
from netdissect.cli import cli
from netdissect.cli.session import Choices
from netdissect.model.errors import UsageError
from netdissect.model.survey import Outcome
from netdissect.survey import dataset as folder
from netdissect.survey import work
from netdissect.survey.dataset import Dataset, Staged
from netdissect.survey.sources import join_rotated, sources_of
from netdissect.survey.tables import TABLES, day_of, row_of
from netdissect.survey.work import Plan, survey_one

CAPTURES = console_docs.ROOT / "captures"
LOSSY = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
FOREVER_NS = 999_999_999 * 10**9


def survey(out: Path, *captures: Path, span_ns: int = FOREVER_NS) -> list[Outcome]:
    plan = Plan(str(out), Choices().options, span_ns, units=True)
    with Dataset(out).opened({}):
        return [survey_one(source, plan) for source in sources_of(map(str, captures))]


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    files = sorted((out / table).rglob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def objects(*words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*words, "--json"], prog_name="netdissect")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "capture",
    [LOSSY, CAPTURES / "teeworlds" / "ddnet_loss_client_side.pcap"],
    ids=lambda path: path.stem,
)
def test_the_tables_hold_what_json_says(tmp_path: Path, capture: Path) -> None:
    (outcome,) = survey(tmp_path, capture)
    assert outcome.status == "done"
    key = {"capture": outcome.capture}
    whole = objects("connections", str(capture))
    for table, of in (
        ("connections", whole),
        ("findings", objects("anomalies", str(capture))),
        ("verdicts", [{"connection": item["connection"], **item["diagnosis"]} for item in whole]),
    ):
        wanted = [row_of(table, {**item, **key}) for item in of]
        assert wanted
        assert sorted(rows(tmp_path, table), key=str) == sorted(wanted, key=str)
    units = [item for item in objects("timeline", str(capture)) if "copies" in item]
    found = {
        (row["direction"], row["space"], row["seq"], row["first_frame"]): row
        for row in rows(tmp_path, "units")
    }
    assert len(found) == len(units)
    for unit in units:
        row = found[unit["direction"], unit["space"], unit["seq"], unit["copies"][0]["frame"]]
        assert row["copies"] == len(unit["copies"])
        assert row["outcome"] == unit["outcome"]
        assert row["rtt_ms"] == unit["rtt_ms"]
    ways = {row["direction"]: row for row in rows(tmp_path, "directions") if row["connection"] == 1}
    spaces = whole[0]["spaces"]
    for way, row in ways.items():
        assert row["datagrams"] == whole[0]["datagrams"][way]
        assert row["loss_share"] == whole[0]["diagnosis"]["loss"][way]["share"]
        mine = [space for space in spaces if space["direction"] == way]
        assert row["retransmissions"] == sum(space["retransmissions"] for space in mine)


def same_as_stats(tmp_path: Path, capture: Path) -> None:
    survey(tmp_path, capture)
    found = {row["direction"]: row for row in rows(tmp_path, "intervals")}
    spans = objects("stats", str(capture), "--interval", "999999999")
    for span in spans:
        row = found.pop(span["direction"], None)
        if row is None:
            assert not span["datagrams"] + span["copies"]
            continue
        columns = [column.name for column in TABLES["intervals"]]
        for name in columns[columns.index("span_ms") :]:
            assert row[name] == span[name], name
    assert not found


LATE = CAPTURES / "eoudp" / "late_resend_peer_client.pcap"
"""Copies that the next number makes retransmissions after the acknowledgement."""


@pytest.mark.parametrize("capture", [LOSSY, LATE], ids=lambda path: path.stem)
def test_intervals_are_those_of_stats(capture: Path, tmp_path: Path) -> None:
    same_as_stats(tmp_path, capture)


def test_a_second_run_skips_and_two_datasets_are_equal(tmp_path: Path) -> None:
    def octets(out: Path) -> dict[str, bytes]:
        return {
            str(file.relative_to(out)): file.read_bytes()
            for file in out.rglob("*")
            if file.is_file()
        }

    first, second = tmp_path / "one", tmp_path / "two"
    survey(first, LOSSY)
    before = octets(first)
    assert [outcome.status for outcome in survey(first, LOSSY)] == ["skipped"]
    survey(second, LOSSY)
    assert octets(first) == before == octets(second)
    assert not list(first.glob("_staging/*"))


def test_what_cannot_be_read_is_a_row_until_it_can(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "x.pcap"
    file.write_bytes(b"no capture at all")
    assert [outcome.status for outcome in survey(out, file)] == ["failed"]
    (row,) = rows(out, "captures")
    assert row["status"] == "failed"
    assert row["path"] == str(file)
    assert "not a capture file" in row["error"]
    survey(out, file)
    assert len(rows(out, "captures")) == 1
    shutil.copy(LOSSY, file)
    survey(out, file)
    assert [(row["status"], row["error"]) for row in rows(out, "captures")] == [("done", None)]


def test_a_capture_cut_short_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "x.pcap"
    file.write_bytes(LOSSY.read_bytes()[:5001])
    assert [outcome.status for outcome in survey(tmp_path / "out", file)] == ["cut-short"]
    (row,) = rows(tmp_path / "out", "captures")
    assert row["truncated_at"] is not None
    assert rows(tmp_path / "out", "connections")


def test_a_fault_that_only_the_second_reading_meets_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        half = LOSSY.stat().st_size // 2
        patch.setattr(work, "open_capture", lambda path: faulty_capture(path, half))
        with pytest.raises(OSError, match="Input/output error"):
            survey(tmp_path / "out", LOSSY)
    assert rows(tmp_path / "out", "intervals") == []
    assert [outcome.status for outcome in survey(tmp_path / "out", LOSSY)] == ["done"]


def test_what_a_killed_run_has_left_is_swept(tmp_path: Path) -> None:
    survey(tmp_path, LOSSY)
    (own,) = (tmp_path / "captures").glob("*.parquet")
    own.unlink()
    left = tmp_path / "_staging" / "half" / "x.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    with Dataset(tmp_path).opened({}):
        assert not list(tmp_path.rglob("*.parquet"))


def test_one_dataset_has_one_setting_and_one_writer(tmp_path: Path) -> None:
    with (
        Dataset(tmp_path).opened({"units": True}),
        pytest.raises(UsageError, match="another survey"),
        Dataset(tmp_path).opened({"units": True}),
    ):
        pass
    with pytest.raises(UsageError, match="another units"), Dataset(tmp_path).opened({}):
        pass
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="not empty"), Dataset(tmp_path / "full").opened({}):
        pass
    assert (tmp_path / "full" / "letter.txt").read_text() == "dear"


def test_days_and_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_DAYS", 2)
    monkeypatch.setattr(folder, "ROW_GROUP", 3)
    monkeypatch.setattr(folder, "MAX_LOOSE", 1)
    with Dataset(tmp_path).opened({}) as dataset, Staged(dataset, "k") as staged:
        for index in range(10):
            day = f"2026-01-{index % 4 + 1:02d}"
            staged.add("findings", {"frame": index}, day=day, protocol="a/b")
        staged.commit()
        assert staged.beyond_days == 4
    days = {file.parts[-3]: pq.ParquetFile(file) for file in tmp_path.rglob("k.parquet")}
    assert {name: file.metadata.num_rows for name, file in days.items()} == {
        "day=2026-01-01": 3,
        "day=2026-01-02": 3,
        "day=__HIVE_DEFAULT_PARTITION__": 4,
    }
    assert days["day=__HIVE_DEFAULT_PARTITION__"].metadata.num_row_groups == 2
    assert (tmp_path / "findings" / "day=2026-01-01" / "protocol=a%2Fb").is_dir()


def test_bytes_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_LOOSE", 4)
    monkeypatch.setattr(folder, "MAX_PACKED", 2000)
    with Dataset(tmp_path).opened({}) as dataset, Staged(dataset, "k") as staged:
        for index in range(40):
            name = "large" if index % 4 else "small"
            row = {"message": name * (40 if index % 4 else 1)}
            staged.add("findings", row, day="2026-01-01", protocol=name)
        staged.commit()
    found = {file.parts[-2]: pq.ParquetFile(file) for file in tmp_path.rglob("k.parquet")}
    groups = {name: file.metadata.num_row_groups for name, file in found.items()}
    assert groups["protocol=large"] > groups["protocol=small"]
    assert [file.metadata.num_rows for _, file in sorted(found.items())] == [30, 10]


def test_connections_that_are_over_are_forgotten_and_count_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = tmp_path / "again.pcap"
    with open_capture(CAPTURES / "riptide" / "udp_2.2.1_lossy_serverleg.pcap") as reader:
        frames = list(reader)
    with PcapWriter(str(again), frames[0][2]) as writer:
        for later in range(4):
            for _, time_ns, _, data, _ in frames:
                writer.write(time_ns + later * 400_000_000_000, data)
    survey(tmp_path / "kept", again, span_ns=10**10)
    left: list[int] = []

    class Watched(work.Spans):
        def _tidy(self, protocol: str, now_ns: int) -> None:
            super()._tidy(protocol, now_ns)
            left.append(len(self._placed[protocol]))

    monkeypatch.setattr(work, "MAX_OVER", 1)
    monkeypatch.setattr(work, "Spans", Watched)
    survey(tmp_path / "forgotten", again, span_ns=10**10)
    assert left
    assert max(left) < 4
    assert rows(tmp_path / "forgotten", "intervals") == rows(tmp_path / "kept", "intervals")


def test_small_files_are_written_at_little_cost_and_large_ones_compressed(tmp_path: Path) -> None:
    with Dataset(tmp_path).opened({}) as dataset, Staged(dataset, "k") as staged:
        staged.add("captures", {"path": "x"})
        for number in range(folder.FEW_ROWS):
            staged.add("findings", {"frame": number}, day="2026-01-01", protocol="a")
        staged.commit()
    few, many = (pq.ParquetFile(next((tmp_path / table).rglob("k.parquet"))) for table in ("captures", "findings"))
    columns = [file.metadata.row_group(0).column(1) for file in (few, many)]
    assert [column.compression for column in columns] == ["UNCOMPRESSED", "ZSTD"]
    assert [column.is_stats_set for column in columns] == [False, True]


def test_names_are_dictionary_coded_where_there_are_any(tmp_path: Path) -> None:
    survey(tmp_path, LOSSY)
    for path in tmp_path.rglob("*.parquet"):
        file = pq.ParquetFile(path)
        names = {each.name for each in TABLES[path.relative_to(tmp_path).parts[0]] if each.kind == "name"}
        group = file.metadata.row_group(0)
        for column in map(group.column, range(group.num_columns)):
            name = column.path_in_schema
            some = any(each.is_valid for each in file.read([name]).column(0))
            assert column.has_dictionary_page == (name in names and some), name


def test_columns_have_plain_types_units_and_a_schema(tmp_path: Path) -> None:
    survey(tmp_path, LOSSY)
    for table in TABLES:
        file = pq.ParquetFile(next((tmp_path / table).rglob("*.parquet")))
        assert file.schema_arrow.metadata[b"netdissect.schema"] == b"1"
        for number in range(len(file.schema)):
            column = file.schema.column(number)
            assert column.max_repetition_level == 0
            assert column.physical_type in {"INT64", "DOUBLE", "BOOLEAN", "BYTE_ARRAY"}
            assert "nanoseconds" not in str(column.logical_type)
        for column in TABLES[table]:
            field = file.schema_arrow.field(column.name)
            assert (field.metadata or {}).get(b"unit", b"") == column.unit.encode()
            if column.name.endswith("_ms"):
                assert column.unit == "ms"


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("message", "\udc80é", "\\x80é"),
        ("frame", 2**63, None),
        ("frame", -(2**63), -(2**63)),
        ("found_at", 2**70, None),
        ("evidence", {"a": b"\x01"}, '{"a":"01"}'),
        ("evidence", [1, 2], "[1,2]"),
        ("evidence", {}, None),
    ],
)
def test_hostile_values_have_a_place(column: str, value: Any, shown: Any) -> None:
    key = "time_ns" if column == "found_at" else column
    assert row_of("findings", {key: value})[column] == shown


def test_a_day_is_one_of_utc_or_none() -> None:
    assert day_of(0) == "1970-01-01"
    assert day_of(1_767_225_600_000_000_000 - 1) == "2025-12-31"
    assert day_of(-1) is day_of(None) is day_of(2**70) is None


@pytest.mark.slow
@pytest.mark.parametrize("capture", sorted(CAPTURES.rglob("*.pcap*")), ids=lambda path: path.stem)
def test_intervals_are_those_of_stats_in_every_capture(tmp_path: Path, capture: Path) -> None:
    if capture.suffix in {".pcap", ".pcapng"} and len(objects("info", str(capture))[0]["protocols"]) == 1:
        same_as_stats(tmp_path, capture)


def test_a_rotated_capture_of_which_a_file_is_cut_short_says_so(tmp_path: Path) -> None:
    """What was joined is whole; that the end of one file was missing would be lost."""
    for number, frames in enumerate(("1-300", "301-700"), 1):
        part = tmp_path / f"game_{number:05}_2026013112000{number}.pcap"
        words = ["slice", str(LOSSY), "--frames", frames, "-w", str(part)]
        assert CliRunner().invoke(cli, words, prog_name="netdissect").exit_code == 0
    part.write_bytes(part.read_bytes()[:-7])
    plan = Plan(str(tmp_path / "out"), Choices().options, FOREVER_NS)
    with Dataset(tmp_path / "out").opened({}):
        (outcome,) = [survey_one(source, plan) for source in join_rotated(sources_of([str(tmp_path)]))]
    assert outcome.status == "cut-short"
    (row,) = rows(tmp_path / "out", "captures")
    assert part.name in row["damage"]


@pytest.mark.parametrize("content", [b"", b"no capture"])
def test_a_file_of_a_rotated_capture_that_is_none_takes_no_other_along(
    content: bytes, tmp_path: Path
) -> None:
    """The newest one is empty until its first packets are written."""
    part = tmp_path / "game.pcap"
    part.write_bytes(LOSSY.read_bytes())
    none = tmp_path / "game.pcap1"
    none.write_bytes(content)
    plan = Plan(str(tmp_path / "out"), Choices().options, FOREVER_NS)
    with Dataset(tmp_path / "out").opened({}):
        (outcome,) = [survey_one(source, plan) for source in join_rotated(sources_of([str(tmp_path)]))]
        assert (outcome.status, outcome.connections) == ("cut-short", 1)
        part.write_bytes(content)
        (outcome,) = [survey_one(source, plan) for source in join_rotated(sources_of([str(tmp_path)]))]
    assert outcome.status == "failed"
    damage = [row["damage"] for row in rows(tmp_path / "out", "captures")]
    assert [text.partition(": ")[0] for text in damage if text] == [str(none)]


def test_a_connection_that_spans_rotated_files_is_one(tmp_path: Path) -> None:
    for number, frames in enumerate(("1-300", "301-700", "701-"), 1):
        part = tmp_path / f"game_{number:05}_2026013112000{number}.pcap"
        words = ["slice", str(LOSSY), "--frames", frames, "-w", str(part)]
        assert CliRunner().invoke(cli, words, prog_name="netdissect").exit_code == 0
    plan = Plan(str(tmp_path / "out"), Choices().options, FOREVER_NS)
    with Dataset(tmp_path / "out").opened({}):
        (outcome,) = [survey_one(source, plan) for source in join_rotated(sources_of([str(tmp_path)]))]
    assert outcome.status == "done"
    whole = objects("connections", str(LOSSY))
    (row,) = rows(tmp_path / "out", "connections")
    assert (row["first_frame"], row["last_frame"]) == (whole[0]["first_frame"], whole[0]["last_frame"])
    found = rows(tmp_path / "out", "directions")
    assert sum(each["datagrams"] for each in found) == sum(whole[0]["datagrams"].values())
