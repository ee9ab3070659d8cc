"""Every reader finds the same values in a dataset as the library that wrote it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as arrow
import pytest

import console_docs
from netdissect.cli.session import Choices
from netdissect.survey.dataset import Dataset
from netdissect.survey.sources import sources_of
from netdissect.survey.tables import TABLES
from netdissect.survey.work import Plan, survey_one

CAPTURES = console_docs.ROOT / "captures"
SAMPLE = (
    "riptide/udp_2.2.1_lossy_clientleg.pcap", "teeworlds/ddnet_loss_client_side.pcap",
    "knet/knet2010_clean.pcap", "eoudp/late_reject.pcap", "netplay/text_types.pcap",
    "knet/udp_any_interface.pcapng",
)  # fmt: skip
SPARK = """
import json, sys
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC").getOrCreate()
)
tables = {}
for path in sys.argv[1:]:
    frame = session.read.parquet(path)
    rows = [json.dumps(row.asDict(), default=str, sort_keys=True) for row in frame.collect()]
    tables[path] = rows
print(json.dumps(tables))
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fleet") / "out"
    bad = out.with_name("bad.pcap")
    bad.write_bytes(b"nothing")
    plan = Plan(str(out), Choices().options, 10**9, units=True)
    with Dataset(out).opened({}):
        for source in sources_of([*(str(CAPTURES / name) for name in SAMPLE), str(bad)]):
            survey_one(source, plan)
    return out


def plain(value: Any) -> Any:
    """Return a value of any reader as one of JSON."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or str(value) == "NaT":
        return None
    if hasattr(value, "isoformat"):
        return re.sub(r"(\+00:00|Z)$", "", value.isoformat().replace("T", " "))
    return value.item() if hasattr(value, "item") else value


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    made = ({name: plain(value) for name, value in row.items()} for row in rows)
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in made)


def written(fleet: Path, table: str) -> list[str]:
    place = arrow.dataset(fleet / table, partitioning=None if table == "captures" else "hive")
    return ordered(place.to_table().to_pylist())


@pytest.mark.parametrize("table", TABLES)
def test_duckdb_reads_it(table: str, fleet: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    place = f"{fleet}/{table}/**/*.parquet"
    with duckdb.connect(":memory:") as base:
        base.execute("SET timezone = 'UTC'")
        options = f"hive_partitioning = {table != 'captures'}"
        rows = base.sql(f"FROM read_parquet('{place}', {options})").to_arrow_table().to_pylist()
    got = [json.loads(row) for row in ordered(rows)]
    if table != "captures":
        hidden = "__HIVE_DEFAULT_PARTITION__"
        got = [{name: None if value == hidden else value for name, value in row.items()} for row in got]
    assert ordered(got) == written(fleet, table)


@pytest.mark.parametrize("table", TABLES)
def test_polars_reads_it(table: str, fleet: Path) -> None:
    polars = pytest.importorskip("polars")
    place = fleet / table / ("*.parquet" if table == "captures" else "*/*/*.parquet")
    frame = polars.scan_parquet(place, hive_partitioning=table != "captures").collect()
    assert ordered(frame.to_dicts()) == written(fleet, table)


@pytest.mark.parametrize("table", TABLES)
def test_pandas_reads_it(table: str, fleet: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(fleet / table, dtype_backend="pyarrow")
    assert ordered(frame.to_dict("records")) == written(fleet, table)


@pytest.mark.slow
def test_spark_reads_it(fleet: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    places = [str(fleet / table) for table in TABLES]
    done = subprocess.run(
        [sys.executable, "-c", SPARK, *places], capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    for table, place in zip(TABLES, places, strict=True):
        rows = [json.loads(row) for row in found[place]]
        assert ordered(rows) == written(fleet, table), table
