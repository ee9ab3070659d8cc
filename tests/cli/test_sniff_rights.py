"""Root parses nothing: whoever opens the interface, somebody without rights reads what comes."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from livetraffic import BACKENDS, Pair, Sniff, needs_capture

pytestmark = [
    needs_capture,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up rights"),
]
SOME = [(number % 2, b"datagram %d" % number) for number in range(64)]
STARTED = b"capturing on lo"
ALONE = {"SUDO_UID": "", "SUDO_GID": ""}
NOBODY = str(pwd.getpwnam("nobody").pw_uid)
GROUP = str(pwd.getpwnam("nobody").pw_gid)


@pytest.fixture(autouse=True)
def _in_more_groups() -> Iterator[None]:
    """As root is on many systems: `disk`, for one."""
    before = os.getgroups()
    os.setgroups([0, 6])
    yield
    os.setgroups(before)


def status_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: text.split() for name, _, text in (line.partition(":") for line in lines)}


def family(pid: int) -> dict[str, dict[str, list[str]]]:
    """Return the status of a process and of all below it, by command."""
    found = {Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "): status_of(pid)}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found |= family(int(child))
    return found


def powerless(facts: dict[str, list[str]]) -> bool:
    return all(int(facts[kind][0], 16) == 0 for kind in ("CapPrm", "CapEff", "CapAmb", "CapInh"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_root_whom_nobody_called_parses_as_nobody(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "root.pcapng"
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "--all", "-w", str(file), env=ALONE
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send(SOME)
        assert b"127.0.0.1" in sniff.line()
        mine = status_of(sniff.process.pid)
        below = family(sniff.process.pid)
        status, _, said = sniff.ended(signal.SIGINT)
    assert (status, mine["Uid"]) == (0, [NOBODY] * 4), said
    assert mine["Gid"] == [GROUP] * 4
    assert set(mine["Groups"]) <= {GROUP}
    assert powerless(mine)
    assert "(nobody)" in said
    facts = file.stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (0, 0o600)
    assert facts.st_size > 60 * len(SOME)
    dissects = [facts for words, facts in below.items() if words.split()[0].endswith("/tshark")]
    assert len(dissects) == (backend == "tshark")
    for facts in dissects:
        assert facts["Uid"] == [NOBODY] * 4
        assert set(facts["Groups"]) <= {GROUP}
        assert powerless(facts)


@pytest.mark.parametrize("backend", [BACKENDS[0], "tshark"])
def test_the_next_file_of_a_ring_is_created_where_root_may(backend: str, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir(0o700)
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "-w", str(folder / "ring.pcapng"),
        "-b", "packets:5", "-a", "packets:20", env=ALONE,
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send(SOME[:20])
        status, _, said = sniff.ended()
    assert status == 0, said
    assert len(list(folder.iterdir())) == 4


def test_a_user_can_be_named() -> None:
    with Pair() as pair, Sniff("-f", pair.filter, "--all", "--user", "daemon", env=ALONE) as sniff:
        sniff.until(STARTED)
        pair.send(SOME)
        sniff.line()
        mine = status_of(sniff.process.pid)
        status, _, _ = sniff.ended(signal.SIGINT)
    row = pwd.getpwnam("daemon")
    assert status == 0
    assert (mine["Uid"], mine["Gid"]) == ([str(row.pw_uid)] * 4, [str(row.pw_gid)] * 4)
    assert set(map(int, mine["Groups"])) == {*os.getgrouplist("daemon", row.pw_gid)}


@pytest.mark.parametrize(
    ("name", "said"), [("nosuchuser", "no user 'nosuchuser'"), ("root", "must not be root")]
)
def test_nobody_and_root_cannot_be_named(name: str, said: str) -> None:
    with Sniff("--user", name) as sniff:
        status, _, told = sniff.ended()
    assert status == 2
    assert said in told


def as_root_for(user: int, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "netdissect", *words], capture_output=True, text=True, check=False,
        cwd=folder, env={**os.environ, "SUDO_UID": str(user), "SUDO_GID": str(user)},
    )  # fmt: skip


def test_what_the_caller_may_not_read_root_does_not_read_for_them(tmp_path: Path) -> None:
    schema = tmp_path / "secret.toml"
    schema.write_text("{}")
    schema.chmod(0o600)
    tmp_path.chmod(0o755)
    words = ["decode", "riptide", "0x02", "--schema", str(schema)]
    assert "Permission denied" not in as_root_for(0, words, Path("/")).stderr
    found = as_root_for(int(NOBODY), words, Path("/"))
    assert found.returncode == 2
    assert "Permission denied" in found.stderr


def test_settings_are_those_of_the_caller() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = folder / "netdissect.toml"
        settings.write_text("[output]\n")
        folder.chmod(0o755)
        for path in (folder, settings):
            shutil.chown(path, int(NOBODY), int(NOBODY))
        found = as_root_for(int(NOBODY), ["config", "show", "--origin"], folder)
        assert "belongs to another user" not in found.stdout + found.stderr
        found = as_root_for(0, ["config", "show", "--origin"], folder)
        assert "belongs to another user" in found.stdout + found.stderr
