"""Captures in a bucket: a real S3 server in this process, a survey as users start it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import console_docs
from twocaptures import named_copy

moto = pytest.importorskip("moto.server", reason="pip install 'moto[server]' s3fs")
pytest.importorskip("s3fs", reason="pip install 'moto[server]' s3fs")

LOSSY = console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    import boto3

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    store = boto3.client("s3", endpoint_url=url)
    store.create_bucket(Bucket="games")
    for name in ("2026-01-31/a.pcap", "2026-02-01/b.pcap", "2026-02-01/notes.txt", "other/c.pcap"):
        store.put_object(Bucket="games", Key=name, Body=named_copy(LOSSY, name))
    yield {**os.environ, **KEYS, "AWS_ENDPOINT_URL": url, "XDG_CONFIG_HOME": "/proc/nonexistent"}
    server.stop()


def run(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "netdissect", "survey", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_bucket_is_surveyed_once(bucket: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    first = run(bucket, "s3://games/2026-*/*.pcap", "--out", str(out), "--workers", "2")
    assert (first.returncode, first.stdout) == (0, "")
    assert "2 captures read, 0 already known, 0 failed" in first.stderr
    again = run(bucket, "s3://games", "--out", str(out), "--workers", "1", "--summary")
    assert "1 capture read, 2 already known, 0 failed" in again.stderr
    assert "Worst servers" in again.stdout
    rows = [
        row
        for file in (out / "captures").glob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert sorted((row["path"], row["connections"]) for row in rows) == [
        ("s3://games/2026-01-31/a.pcap", 1),
        ("s3://games/2026-02-01/b.pcap", 1),
        ("s3://games/other/c.pcap", 1),
    ]
    assert not any(row["error"] for row in rows)
    missing = run(bucket, "s3://nowhere/*.pcap", "--out", str(out))
    assert missing.returncode == 3
    assert "hush" not in missing.stderr
