"""What the system may refuse on a file that is open: its status, and what is left of its output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import console_docs
from netdissect.capture import CaptureError, open_capture

LOSSY = console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
SOURCE = console_docs.ROOT / "tests" / "support" / "ioerror.c"
LIMIT_SECONDS = 120
POINTS = (0, 1, 2, 5, 9, 13)
"""Calls before the one that fails, in each run."""
REASON = "Input/output error"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="takes Linux and a C compiler"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile what makes calls fail."""
    made = tmp_path_factory.mktemp("ioerror") / "ioerror.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a capture of many reads."""
    path, octets = tmp_path / "x.pcap", LOSSY.read_bytes()
    path.write_bytes(octets[:24] + octets[24:] * 10)
    return path


def failing(
    library: Path, words: list[str], call: str, path: Path, after: int
) -> subprocess.CompletedProcess[str] | None:
    """Run a command whose call after so many on a path fails; return None if it makes fewer."""
    done = path.parent / "failed"
    done.unlink(missing_ok=True)
    ended = subprocess.run(
        [sys.executable, "-m", "netdissect", *words],
        capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, cwd=path.parent,
        env={
            **os.environ, "LD_PRELOAD": str(library), "IOERROR_CALL": call,
            "IOERROR_PATH": str(path), "IOERROR_AFTER": str(after), "IOERROR_DONE": str(done),
        },
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    assert "unexpected" not in ended.stderr
    return ended if done.exists() else None


READING = {
    "read": ["--json"], "slice": ["-w", "part.pcap"], "anonymise": ["-o", "public.pcap"],
    "connections": [], "timeline": [], "info": [], "stats": [], "anomalies": [], "diagnose": [],
    "show": ["10000"], "ladder": ["1"], "follow": ["1"], "report": ["-o", "x.html"],
    "merge": ["x.pcap", "-w", "both.pcap"], "export": ["--pcapng-notes", "noted.pcapng"],
    "diff": [str(LOSSY)],
}  # fmt: skip
"""Commands that read a capture."""
WRITING = {
    "slice": ["slice", "x.pcap", "-w", "out/x.pcap"],
    "report": ["report", "x.pcap", "-o", "out/x.html"],
    "sniff": ["sniff", "-r", "x.pcap", "-w", "out/x.pcapng"],
    "merge": ["merge", "x.pcap", str(LOSSY), "-w", "out/x.pcap"],
    "anonymise": ["anonymise", "x.pcap", "-o", "out/x.pcap"],
    "notes": ["export", "x.pcap", "--pcapng-notes", "out/x.pcapng"],
    "qlog": ["export", "x.pcap", "--qlog", "out/x.qlog"],
    "lua": ["export", "lua", "all", "-o", "out/x.lua"],
    "ladder": ["ladder", "x.pcap", "1", "--svg", "out/x.svg"],
    "plot": ["plot", "rtt", "x.pcap", "-o", "out/x.svg"],
}
"""Commands that write files."""
SOME = {"read", "slice", "anonymise", "report"}
"""Those that are asked on every change."""


def some(names: dict[str, list[str]]) -> list[object]:
    return [each if each in SOME else pytest.param(each, marks=pytest.mark.slow) for each in names]


@pytest.mark.parametrize("name", some(READING))
def test_a_failing_read_is_told(name: str, library: Path, source: Path) -> None:
    """Whichever pass it is in; the others get all of the file."""
    for after in POINTS:
        ended = failing(library, [name, str(source), *READING[name]], "read", source, after)
        if ended is None:
            break
        assert ended.returncode in {2, 3, 6}, (after, ended.stderr)
        said = "an earlier reading" if name == "anonymise" else REASON
        assert ended.returncode == 2 or REASON in ended.stderr or said in ended.stderr, after
    assert after


@pytest.mark.skipif(shutil.which("tshark") is None, reason="takes tshark")
@pytest.mark.slow
@pytest.mark.parametrize("choice", [[], ["-Y", "udp"]])
def test_a_failing_read_is_no_difference_to_tshark(
    choice: list[str], library: Path, tmp_path: Path
) -> None:
    path, told = tmp_path / "x.pcap", 0
    octets = (LOSSY.parents[1] / "knet" / "udp_clean_session.pcap").read_bytes()
    path.write_bytes(octets[:24] + octets[24:] * 28)
    for after in range(1, 17, 3):
        ended = failing(library, ["verify", str(path), *choice], "read", path, after)
        if ended is None:
            break
        assert ended.returncode in {0, 3, 6}, (after, ended.stdout)
        assert ended.returncode == 0 or REASON in ended.stderr
        told += ended.returncode != 0
    assert told > 2


@pytest.mark.parametrize("choice", [["--connection", "1"], ["-Y", "msg.resend"]])
def test_a_part_of_what_could_be_read_once_is_told(
    choice: list[str], library: Path, source: Path
) -> None:
    """The last reading finds all frames, but which ones are wanted is known for some only."""
    missed = 0
    words = ["slice", str(source), *choice, "-w", "part.pcap"]
    for after in POINTS[1:]:
        ended = failing(library, words, "read", source, after)
        if ended is None:
            break
        assert ended.returncode in {2, 3, 6}, (after, ended.stderr)
        missed += "later frames may be missing" in ended.stderr
    assert missed


@pytest.mark.parametrize("call", ["write", "fsync", "close", "rename"])
@pytest.mark.parametrize("name", some(WRITING))
def test_a_failing_write_leaves_what_is_valid(
    name: str, call: str, library: Path, source: Path
) -> None:
    out = source.parent / "out"
    for after in POINTS:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        ended = failing(library, WRITING[name], call, out, after)
        if ended is None:
            break
        assert (ended.returncode, REASON in ended.stderr) == (3, True), (after, ended.stderr)
        for path in out.rglob("*.*"):
            assert path.suffix.startswith(".pcap"), f"half of {path.name} is left"
            valid(path)


def valid(path: Path) -> None:
    """Check that a capture ends with a whole frame, unless not even its header was written."""
    try:
        with open_capture(path) as reader:
            assert sum(map(len, reader.batches())) == reader.info.frames
            assert reader.damage is None, reader.damage
    except CaptureError as error:
        assert "file is empty" in str(error)
