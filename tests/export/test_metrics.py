"""Figures of a running capture, as Prometheus reads them."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import console_docs
from livetraffic import needs_capture
from netdissect import analyze
from netdissect.cli import cli
from netdissect.pipeline.server_totals import MAX_SERVERS, OTHER, ServerTotals
from ports import free_port

parser = pytest.importorskip("prometheus_client.openmetrics.parser")
LOSSY = console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture
def running() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve the figures of a capture that comes through a pipe, and does not end."""
    words = [sys.executable, "-m", "netdissect", "sniff", "-r", "-", "--metrics", "127.0.0.1:0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(LOSSY.read_bytes())
        process.stdin.flush()
        said = process.stderr.readline().decode()
        found = re.search(r"http://\S+", said)
        assert found is not None, said
        yield found[0], process
        process.stdin.close()
        assert process.wait(30) == 0


def scraped(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    request = urllib.request.Request(url, headers=OPENMETRICS)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        assert "openmetrics" in answer.headers["Content-Type"]
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_what_prometheus_scrapes_is_what_the_analysis_says(running: tuple[str, subprocess.Popen[bytes]]) -> None:
    reports = list(analyze(LOSSY).connections)
    wanted = sum(sum(report.datagrams) for report in reports)
    until = time.monotonic() + 30
    while True:
        found = scraped(running[0])
        seen = sum(found.get("netdissect_datagrams_total", {}).values())
        if seen == wanted or time.monotonic() > until:
            break
        time.sleep(0.2)
    assert seen == wanted
    again = sum(space.retransmissions for report in reports for space in report.spaces)
    assert sum(found["netdissect_retransmissions_total"].values()) == again > 0
    assert {labels[-1] for labels in found["netdissect_units_total"]} == {report.server for report in reports}
    assert sum(found["netdissect_connections_begun_total"].values()) == len(reports)
    assert all(0 < value < 10 for value in found["netdissect_round_trip_seconds"].values())


@pytest.mark.slow
@needs_capture
def test_nothing_is_missed_while_many_datagrams_pass_and_somebody_scrapes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = console_docs.ROOT / "bench" / "live.py"
    spec = importlib.util.spec_from_file_location("live_bench", place)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = bench  # its dataclass looks there
    spec.loader.exec_module(bench)
    assert bench.metrics(20_000, 3)
    said = capsys.readouterr().out
    assert "60,000 datagrams" in said
    assert int(said.split(" series")[0].split()[-1]) > 10


def answered(server: str, path: str, **words: str) -> Any:
    """Return what Prometheus answers; None as long as it does not."""
    url = f"http://{server}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except (OSError, http.client.HTTPException):
        return None


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
def test_prometheus_answers_every_question_of_the_dashboard(
    running: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    target = running[0].removeprefix("http://").removesuffix("/metrics")
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: netdissect, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    server = f"127.0.0.1:{free_port()}"
    words = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address={server}"]
    page = json.loads((console_docs.ROOT / "docs" / "grafana.json").read_text())
    questions = {
        each["expr"].replace("$server", ".*") for panel in page["panels"] for each in panel["targets"]
    }
    until = time.monotonic() + 60
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            while questions and time.monotonic() < until:
                time.sleep(0.5)
                questions = {
                    each for each in questions
                    if not (answered(server, "query", query=each) or {}).get("result")
                }  # fmt: skip
            (variable,) = (each for each in page["templating"]["list"] if each["type"] == "query")
            metric, label = variable["query"]["query"][len("label_values(") : -1].split(", ")
            servers = answered(server, f"label/{label}/values", **{"match[]": metric})
        finally:
            process.terminate()
    assert not questions
    assert servers == [report.server for report in analyze(LOSSY).connections]


def test_servers_beyond_the_limit_are_counted_as_other() -> None:
    report = next(iter(analyze(LOSSY).connections))
    totals = ServerTotals()
    for number in range(MAX_SERVERS + 5):
        totals.ended(replace(report, server=f"10.0.0.{number}:1"))
    rows = totals.now([])
    assert len(rows) == MAX_SERVERS + 1
    assert totals.servers == MAX_SERVERS
    other = next(row for row in rows if row.server == OTHER)
    assert other.begun == 5
    assert other.datagrams == [5 * count for count in report.datagrams]


def test_what_comes_late_takes_nothing_back() -> None:
    report = next(iter(analyze(LOSSY).connections))
    totals = ServerTotals()
    totals.ended(replace(report, spaces=[replace(report.spaces[0], never_seen=7)]))
    assert totals.now([])[0].lost == 7
    totals._ended[report.server, report.protocol].lost = 5
    assert totals.now([])[0].lost == 7


@pytest.mark.parametrize("address", ["9464x", "host", "127.0.0.1:99999", "127.0.0.1:\u00b2"])
def test_an_address_that_is_none_says_what_to_write(address: str) -> None:
    result = CliRunner().invoke(cli, ["sniff", "-r", str(LOSSY), "--metrics", address])
    assert result.exit_code == 2
    assert "127.0.0.1:9464" in result.stderr


def test_the_dashboard_asks_for_metrics_that_exist(running: tuple[str, subprocess.Popen[bytes]]) -> None:
    page = json.loads((console_docs.ROOT / "docs" / "grafana.json").read_text())
    time.sleep(2)
    known = set(scraped(running[0]))
    asked = {
        name
        for panel in page["panels"]
        for target in panel["targets"]
        for name in re.findall(r"netdissect_\w+", target["expr"])
    }
    assert asked
    assert asked <= known
