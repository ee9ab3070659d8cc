"""Captures on servers of other kinds than S3: real ones in this process, a survey as users start it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import console_docs
from twocaptures import named_copy

LOSSY = console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
NAMES = ("2026-01-31/a.pcap", "2026-02-01/b 1.pcap", "2026-02-01/notes.txt", "other/c.pcap")


def captures() -> Iterator[tuple[str, bytes]]:
    """Yield names and contents."""
    for name in NAMES:
        yield name, named_copy(LOSSY, name)


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "netdissect", "survey", *words]
    env = {**os.environ, "XDG_CONFIG_HOME": "/proc/nonexistent", **environ}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def check(url: str, shown: str, out: Path, **environ: str) -> None:
    """Survey a pattern, then all; `url` and what is `shown` behind its scheme end before the names."""
    first = run(f"{url}/2026-*/*.pcap", "--out", str(out), "--workers", "2", **environ)
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    assert "2 captures read, 0 already known, 0 failed" in first.stderr
    again = run(url, "--out", str(out), "--workers", "1", **environ)
    assert "1 capture read, 2 already known, 0 failed" in again.stderr
    rows = [row for file in (out / "captures").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    wanted = [f"{shown}/{name}" for name in NAMES if name.endswith(".pcap")]
    assert sorted((row["path"].partition("://")[2], row["error"]) for row in rows) == [
        (name, None) for name in wanted
    ]
    assert {row["connections"] for row in rows} == {1}
    for missing in (f"{url}/nowhere/x.pcap", f"{url}/*.nothing"):
        none = run(missing, "--out", str(out), **environ)
        assert none.returncode == 3
        assert "hush" not in none.stderr


@pytest.fixture
def sftp(tmp_path: Path) -> Iterator[int]:
    """The port of an SFTP server for one user."""
    asyncssh = pytest.importorskip("asyncssh", reason="pip install asyncssh paramiko")
    for name, octets in captures():
        file = tmp_path / "served" / "caps" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(octets)

    class Door(asyncssh.SSHServer):  # type: ignore[misc, name-defined]
        def begin_auth(self, _username: str) -> bool:
            return True

        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == ("me", "hush")

    def served(channel: Any) -> Any:
        return asyncssh.SFTPServer(channel, chroot=str(tmp_path / "served").encode())

    loop = asyncio.new_event_loop()
    started = asyncssh.create_server(
        Door, "127.0.0.1", 0,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")], sftp_factory=served,
    )  # fmt: skip
    server = loop.run_until_complete(started)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server.get_port()
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["ssh", "sftp"])
def test_a_folder_behind_ssh_is_surveyed_once(scheme: str, sftp: int, tmp_path: Path) -> None:
    pytest.importorskip("paramiko", reason="pip install asyncssh paramiko")
    place = f"127.0.0.1:{sftp}/caps"
    check(f"{scheme}://me:hush@{place}", place, tmp_path / "fleet")
    refused = run(f"{scheme}://me:wrong@{place}", "--out", str(tmp_path / "fleet"))
    assert refused.returncode == 3
    assert "wrong" not in refused.stderr


@pytest.fixture
def google() -> Iterator[str]:
    """The address of a server that answers as Google Cloud Storage does, with a bucket `games`."""
    emulator = pytest.importorskip(
        "gcp_storage_emulator.server", reason="pip install gcsfs gcp-storage-emulator"
    )
    from urllib.parse import urlencode
    from urllib.request import Request, urlopen

    server = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="games")
    server.start()
    url = f"http://127.0.0.1:{server._api._httpd.server_address[1]}"
    for name, octets in captures():
        query = urlencode({"uploadType": "media", "name": name})
        request = Request(f"{url}/upload/storage/v1/b/games/o?{query}", data=octets)  # noqa: S310 - loopback
        urlopen(request).close()  # noqa: S310 - loopback
    yield url
    server.stop()


@pytest.mark.slow
def test_a_bucket_of_google_is_surveyed_once(google: str, tmp_path: Path) -> None:
    pytest.importorskip("gcsfs", reason="pip install gcsfs gcp-storage-emulator")
    check("gs://games", "games", tmp_path / "fleet", STORAGE_EMULATOR_HOST=google)
