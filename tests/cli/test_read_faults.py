"""What may go wrong while a capture is read or copied: what is there is shown, the status says so."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import console_docs
from livetraffic import BACKENDS, Pair, Sniff
from netdissect.capture import open_capture
from netdissect.cli import cli
from netdissect.system.programs import find

LOSSY = console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
FRAMES = 1073
NETDISSECT = (sys.executable, "-m", "netdissect")
LIMIT_SECONDS = 120


def run(*words: str | Path, **extra: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NETDISSECT, *map(str, words)], capture_output=True, text=True, check=False,
        timeout=LIMIT_SECONDS, **extra,
    )  # fmt: skip


def whole(path: Path) -> int:
    """Return how many frames a capture holds, all of them whole."""
    with open_capture(path) as reader:
        count = sum(map(len, reader.batches()))
        assert reader.damage is None, reader.damage
    return count


def long_copy(path: Path, times: int = 60) -> Path:
    """Write a capture of many reads; times go on."""
    octets = LOSSY.read_bytes()
    path.write_bytes(octets[:24] + octets[24:] * times)
    return path


# -- the file changes while it is read -------------------------------------------------------------


def test_a_capture_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    path = long_copy(tmp_path / "x.pcap")
    with open_capture(path) as reader:
        batches = reader.batches()
        count = len(next(batches))
        os.truncate(path, path.stat().st_size - 1_000_003)
        count += sum(map(len, batches))
        assert FRAMES < count < 60 * FRAMES
        assert reader.info.frames == count


@pytest.mark.parametrize("words", [["read"], ["info"], ["sniff", "-r"]], ids=lambda words: words[0])
def test_a_cut_capture_is_named_whoever_reads_it(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(LOSSY.read_bytes()[:5000])
    result = CliRunner().invoke(cli, [*words, str(path)], prog_name="netdissect")
    assert result.exit_code == 6
    assert f"{path} is cut short at offset 4929" in result.stderr


@pytest.mark.skipif(shutil.which("tshark") is None, reason="takes tshark")
@pytest.mark.parametrize("words", [["verify"], ["sniff", "--backend", "tshark", "-r"]])
@pytest.mark.parametrize(("damage", "status"), [("cut", 6), ("size", 6), ("text", 3), ("none", 3)])
def test_tshark_reads_a_damaged_capture_to_the_same_end(
    damage: str, status: int, words: list[str], tmp_path: Path
) -> None:
    path, octets = tmp_path / "x.pcap", LOSSY.read_bytes()
    if damage == "cut":
        path.write_bytes(octets[:3000])
    elif damage == "size":
        record = 24
        for _ in range(50):
            record += 16 + int.from_bytes(octets[record + 8 : record + 12], "little")
        path.write_bytes(octets[: record + 8] + b"\xff\xff\xff\xee" + octets[record + 12 :])
    elif damage == "text":
        path.write_text("no capture")
    ended = run(*words, path)
    assert ended.returncode == status, ended.stderr
    assert str(path) in ended.stderr


def test_a_capture_that_is_cut_to_nothing_while_it_is_read(tmp_path: Path) -> None:
    path = long_copy(tmp_path / "x.pcap")
    with open_capture(path) as reader:
        batches = reader.batches()
        count = len(next(batches))
        os.truncate(path, 0)
        assert count + sum(map(len, batches)) == reader.info.frames < 60 * FRAMES


def test_a_capture_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = long_copy(tmp_path / "x.pcap", 2)
    records = LOSSY.read_bytes()[24:]
    with open_capture(path) as reader:
        batches = reader.batches()
        count = len(next(batches))
        with path.open("ab") as file:
            file.write(records[:-5])
        count += sum(map(len, batches))
    assert 2 * FRAMES <= count <= 3 * FRAMES


def test_a_capture_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    path = long_copy(tmp_path / "x.pcap", 3)
    with open_capture(path) as reader:
        batches = reader.batches()
        count = len(next(batches))
        other = tmp_path / "other"
        other.write_bytes(b"nothing")
        other.replace(path)
        assert count + sum(map(len, batches)) == 3 * FRAMES
        assert reader.damage is None


@pytest.mark.parametrize("words", [["connections"], ["read", "-c", "5"]])
def test_commands_survive_a_file_that_changes_all_the_time(
    words: list[str], tmp_path: Path
) -> None:
    path = long_copy(tmp_path / "x.pcap", 8)
    octets, done = path.read_bytes(), threading.Event()

    def change() -> None:
        source = random.Random(1)
        while not done.wait(0.001):
            path.write_bytes(octets[: source.randrange(len(octets))])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        ended = run(words[0], path, *words[1:], "--json")
    finally:
        done.set()
        thread.join()
    assert ended.returncode in {0, 3, 6}, ended.stderr
    assert "unexpected" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert all(json.loads(line) for line in ended.stdout.splitlines())


REPLACES = """
import os, sys

path, other = sys.argv.pop(1), sys.argv.pop(1)
openings = []

def replace(event, values):
    if event == "subprocess.Popen" or event == "open" and values[0] == path:
        openings.append(event)
        if len(openings) == 2:
            os.replace(other, path)

sys.addaudithook(replace)
from netdissect.cli import main
main()
"""
"""A command whose capture is replaced just before it is opened again, by it or another program."""


TWICE = {
    "slice": ["--connection", "1", "-w", "part.pcap"], "anonymise": ["-o", "public.pcap"],
    "export": ["--pcapng-notes", "noted.pcapng"], "read": ["--json"], "timeline": ["--json"],
    "stats": [], "diagnose": [], "follow": ["1"], "ladder": ["1"], "report": ["-o", "x.html"],
    "anomalies": ["--content"], "show": ["8000"], "plot": [], "join": ["second.pcap"],
    "diff": ["second.pcap"],
    "merge": ["second.pcap", "-w", "both.pcap"], "info": [], "connections": [], "verify": [],
}  # fmt: skip
"""Commands that read a capture, most of them twice."""
SOME = {"slice", "anonymise", "read"}
"""Those that are asked on every change."""


@pytest.mark.parametrize("other", ["fifo", "capture"])
@pytest.mark.parametrize(
    "name", [each if each in SOME else pytest.param(each, marks=pytest.mark.slow) for each in TWICE]
)
def test_a_capture_that_is_replaced_between_two_readings(
    name: str, other: str, tmp_path: Path
) -> None:
    path = long_copy(tmp_path / "x.pcap", 8)
    (tmp_path / "second.pcap").write_bytes(LOSSY.read_bytes())
    replacement = tmp_path / "other"
    if other == "fifo":
        os.mkfifo(replacement)
    else:
        shutil.copy(path, replacement)
    first = ["rtt"] if name == "plot" else []
    ended = subprocess.run(
        [sys.executable, "-c", REPLACES, path, replacement, name, *first, path, *TWICE[name]],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=LIMIT_SECONDS / 6,
    )  # fmt: skip
    status, out, said = ended.returncode, ended.stdout, ended.stderr
    assert "Traceback" not in said
    assert "unexpected" not in said
    # 0: it was read from what was open. 2: `join` knows by then that the two do not belong together.
    assert status in {0, 2, 3, 7}, said
    if name in {"slice", "anonymise"}:
        assert status == 3, said
    if status == 3:
        assert "has been replaced by another file" in said + out


GROWS = """
import os, sys

path, records = sys.argv.pop(1), open(sys.argv.pop(1), "rb").read()
openings = []

def grow(event, values):
    if event == "open" and values[0] == path:
        openings.append(event)
        if len(openings) > 1:
            descriptor = os.open(os.fsencode(path), os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, records)
            os.close(descriptor)

sys.addaudithook(grow)
from netdissect.cli import main
main()
"""
"""A command whose capture has grown whenever it is opened again."""


@pytest.mark.parametrize("more", [[], ["--keep-others"]])
def test_what_came_after_an_anonymised_copy_was_planned_is_not_in_it(
    more: list[str], tmp_path: Path
) -> None:
    path, records = tmp_path / "x.pcap", tmp_path / "records"
    path.write_bytes(LOSSY.read_bytes())
    records.write_bytes(LOSSY.read_bytes()[24:])
    ended = subprocess.run(
        [sys.executable, "-c", GROWS, path, records, "anonymise", path, "-o", "public.pcap", *more],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert ended.returncode == 6, ended.stderr
    assert "further ones, which an earlier reading did not find, are left out" in ended.stderr
    assert whole(tmp_path / "public.pcap") == 2 * FRAMES


# -- the system refuses ----------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="takes Linux")
def test_a_file_that_cannot_be_read_is_named() -> None:
    ended = run("read", "/proc/self/mem")  # reading at 0 is EIO
    assert ended.returncode == 3
    assert "/proc/self/mem: Input/output error" in ended.stderr


@pytest.mark.parametrize(
    "files", [4, 8, *(pytest.param(each, marks=pytest.mark.slow) for each in (5, 6, 7, 9, 10, 12))]
)
@pytest.mark.parametrize("words", [["connections"], ["slice", "-w", "x.pcap"]])
def test_out_of_file_descriptors(words: list[str], files: int, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    ended = run(words[0], LOSSY, *words[1:], preexec_fn=limit, cwd=tmp_path)
    if "Fatal Python error" in ended.stderr or "netdissect" not in ended.stderr + ended.stdout:
        assert ended.returncode != 0 or ended.stdout or (tmp_path / "x.pcap").exists()
        return  # Python itself did not get as far as this program
    assert ended.returncode in {0, 1, 2, 3}, ended.stderr
    assert ended.returncode == 0 or "Too many open files" in ended.stderr
    assert "Traceback" not in ended.stderr


OTHERS = {
    "anomalies": [LOSSY], "anonymise": [LOSSY, "-o", "out.pcap"], "completion": ["bash"], "config": ["show"],
    "decode": ["riptide", "02"], "diagnose": [LOSSY], "diff": [LOSSY, LOSSY], "doctor": [],
    "encode": ["riptide", "Connect"], "explain": [], "export": [LOSSY, "--pcapng-notes", "x.pcapng"],
    "fields": [], "follow": [LOSSY, "1"], "info": [LOSSY], "join": [LOSSY, LOSSY], "ladder": [LOSSY, "1"],
    "man": ["read"], "merge": [LOSSY, LOSSY, "-w", "x.pcap"], "new-protocol": ["mine", "folder"],
    "plot": ["rtt", LOSSY], "protocols": [], "read": [LOSSY], "report": [LOSSY, "-o", "x.html"], "schema": [],
    "send": ["riptide", "Heartbeat", "--no-session", "--target", "127.0.0.1:9"], "show": [LOSSY, "5"],
    "sniff": ["-r", LOSSY], "stats": [LOSSY], "survey": [LOSSY, "--out", "set", "--workers", "1"],
    "timeline": [LOSSY], "verify": [LOSSY], "--help": [],
    "fuzz": ["riptide", "--target", "127.0.0.1:9", "--out", "run"],
}  # fmt: skip
"""A run of each other command."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_no_command_has_a_traceback_without_descriptors(name: str, tmp_path: Path) -> None:
    for files in (4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24, 32, 40):
        ended = run(
            name, *OTHERS[name], cwd=tmp_path,
            preexec_fn=lambda limit=files: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        )  # fmt: skip
        assert "Fatal Python error" in ended.stderr or "Traceback" not in ended.stderr, files
        assert "unexpected failure" not in ended.stderr, (files, ended.stderr)


@pytest.mark.skipif(find("tshark") is None, reason="takes tshark")
@pytest.mark.parametrize("files", [7, 9])
def test_a_program_for_which_no_descriptor_is_left(files: int, tmp_path: Path) -> None:
    """With 9 it is a temporary file that is lacking."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    ended = run("verify", LOSSY, preexec_fn=limit, cwd=tmp_path)
    assert ended.returncode == 3
    assert "Too many open files" in ended.stderr


def _mounts() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    words = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm"]  # noqa: S108
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _mounts(), reason="takes root and unshare")
@pytest.mark.parametrize("words", [["connections"], ["sniff", "-w", "out.pcapng"]])
def test_a_full_dev_shm(words: list[str], tmp_path: Path) -> None:
    path = long_copy(tmp_path / "x.pcap", 2)
    script = 'mount -t tmpfs -o size=4k none /dev/shm && dd if=/dev/zero of=/dev/shm/x 2>&-; "$@"'
    source = ["-r", str(path)] if words[0] == "sniff" else [str(path)]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *NETDISSECT, words[0], *source, *words[1:]],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    assert "unexpected" not in ended.stderr
    assert ended.returncode in {0, 1}, ended.stderr
    if words[0] == "sniff" and ended.returncode == 0:
        assert whole(tmp_path / "out.pcapng") == 2 * FRAMES


@pytest.mark.skipif(not _mounts(), reason="takes root and unshare")
def test_a_full_dev_shm_ends_a_survey(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=4k none /dev/shm && dd if=/dev/zero of=/dev/shm/x 2>&-; "$@"'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *NETDISSECT, "survey", str(LOSSY), "--out", "fleet"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert ended.stderr.startswith("netdissect: /dev/shm"), ended.stderr
    assert ended.stderr.endswith("No space left on device: Dask's workers did not start\n")
    assert ended.returncode == 3


@pytest.mark.skipif(not _mounts(), reason="takes root and unshare")
@pytest.mark.parametrize("words", [["slice"], ["sniff", "-r"]])
def test_a_full_disk_keeps_what_was_written(words: list[str], tmp_path: Path) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy.pcap"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=64k none {disk}; "$@"; s=$?; cp {disk}/x.pcap {copy}; exit $s'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *NETDISSECT, *words, str(LOSSY),
         "-w", str(disk / "x.pcap")],
        capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert ended.returncode == 3, ended.stderr
    assert "No space left on device" in ended.stderr
    assert 100 < whole(copy) < FRAMES


WHOLE = {
    "report": ["report", str(LOSSY), "-o"], "qlog": ["export", str(LOSSY), "--qlog"],
    "lua": ["export", "lua", "all", "-o"], "ladder": ["ladder", str(LOSSY), "1", "--svg"],
}  # fmt: skip
"""Commands whose files are worth nothing before they are whole."""


@pytest.mark.skipif(not _mounts(), reason="takes root and unshare")
@pytest.mark.parametrize("name", WHOLE)
def test_a_full_disk_leaves_the_file_that_was_there(name: str, tmp_path: Path) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    script = (
        f'mount -t tmpfs -o size=16k none {disk}; echo before > {disk}/x; "$@"; s=$?;'
        f" cp -r {disk} {copy}; exit $s"
    )
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *NETDISSECT, *WHOLE[name], str(disk / "x")],
        capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    said = f"netdissect: {disk}/x: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (3, said)
    assert {each.name: each.read_text() for each in copy.iterdir()} == {"x": "before\n"}


def test_a_file_keeps_its_mode_and_what_points_to_it(tmp_path: Path) -> None:
    path, link, twin = (tmp_path / name for name in ("x.html", "link", "twin"))
    path.write_text("before")
    path.chmod(0o640)
    link.symlink_to(path)
    assert run("report", LOSSY, "-o", link).returncode == 0
    assert (path.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)
    assert path.read_text().startswith("<!doctype html>")
    twin.hardlink_to(path)
    assert run("ladder", LOSSY, "1", "--svg", twin).returncode == 0
    assert path.read_text() == twin.read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "twin", "x.html"]


def test_a_device_is_written_to(tmp_path: Path) -> None:
    for path in ("/dev/stdout", "-"):
        shown = run("ladder", LOSSY, "1", "--svg", path, cwd=tmp_path)
        assert (shown.returncode, shown.stdout[:4]) == (0, "<svg"), shown.stderr
    ended = run("report", LOSSY, "-o", "/dev/full")
    assert (ended.returncode, ended.stderr[:22]) == (3, "netdissect: /dev/full:")
    assert run("report", LOSSY, "-o", tmp_path / "no" / "x.html").returncode == 3


# -- the process is ended --------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["slice"], ["sniff", "-r"]])
@pytest.mark.parametrize("runs", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_killed_copy_is_valid_up_to_its_end(words: list[str], runs: int, tmp_path: Path) -> None:
    """At random moments: there is no file yet, or one that ends with a whole record."""
    path, source = long_copy(tmp_path / "x.pcap", 40), random.Random(runs)
    for number in range(runs):
        out = tmp_path / f"{number}.pcapng"
        with subprocess.Popen(
            [*NETDISSECT, *words, str(path), "-w", str(out)], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            if number % 2:
                time.sleep(source.uniform(0, 1.5))
            else:  # as soon as something is written
                end = time.monotonic() + LIMIT_SECONDS
                while process.poll() is None and time.monotonic() < end:
                    if out.exists() and out.stat().st_size > 1000:
                        break
                    time.sleep(0.001)
            process.kill()
        if out.exists() and out.stat().st_size:
            with open_capture(out) as reader:
                kept = sum(map(len, reader.batches()))
                at = reader.info.truncated_at
            # A record may be on its way to the disk; everything before it is there.
            assert at is None or kept, reader.damage


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_capture_that_is_killed_at_any_moment(backend: str, tmp_path: Path) -> None:
    """Under traffic: what was shown is in the file."""
    source = random.Random(backend)
    for number in range(12):
        path = tmp_path / f"{number}.pcapng"
        with Pair() as pair, Sniff(
            "--backend", backend, "-f", pair.filter, "-w", str(path), "--all"
        ) as sniff:  # fmt: skip
            sniff.until(b"capturing on ")
            pair.send([(way % 2, b"datagram %d" % way) for way in range(200)])
            shown = source.randrange(60)
            for _ in range(shown):
                sniff.line()
            time.sleep(source.uniform(0, 0.05))
            status, _, _ = sniff.ended(signal.SIGKILL)
        assert status == -signal.SIGKILL
        with open_capture(path) as reader:
            assert sum(map(len, reader.batches())) >= shown
