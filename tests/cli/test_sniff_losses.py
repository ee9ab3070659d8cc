"""What is captured, written and shown is counted, and nothing is missing in silence, however slow
any part of it is.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from livetraffic import BACKENDS, LIMIT_SECONDS, Pair, Sniff
from netdissect.capture import open_capture
from netdissect.capture.live.choice import Verdict
from netdissect.capture.live.feed import LiveFeed
from netdissect.capture.live.source import LiveRequest

STARTED = b"capturing on lo"
MANY = [(number % 2, b"datagram %d" % number) for number in range(6000)]


def frames(path: Path) -> int:
    with open_capture(path) as reader:
        count = sum(map(len, reader.batches()))
        assert reader.damage is None, reader.damage
    return count


def recorder(sniff: Sniff) -> int:
    """Return the process that captures and writes: the copy of the command's own."""
    pid = sniff.process.pid
    own = Path(f"/proc/{pid}/cmdline").read_bytes()
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (found,) = (one for one in below if Path(f"/proc/{one}/cmdline").read_bytes() == own)
    return int(found)


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + LIMIT_SECONDS
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("backend", BACKENDS[:3])
def test_a_parser_that_stands_still_costs_the_file_nothing(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "-w", str(path), "--all"
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        stopped(sniff.process.pid)
        pair.send(MANY)
        end = time.monotonic() + LIMIT_SECONDS
        while frames(path) < len(MANY):
            assert time.monotonic() < end, "the file waits for the parser"
            time.sleep(0.1)
        sniff.process.send_signal(signal.SIGCONT)
        status, out, said = sniff.ended(signal.SIGINT)
    lost = int(re.search(r"([\d,]+) by netdissect", said)[1].replace(",", ""))
    assert "6,000 packets, 0 dropped by kernel" in said
    assert len(out.splitlines()) + lost == len(MANY)
    assert status == (6 if lost else 0)
    assert frames(path) == len(MANY)


@pytest.mark.parametrize("name", ["out.pcapng", "out.pcap"])
@pytest.mark.parametrize("backend", BACKENDS[:3])
def test_what_waits_in_pipes_and_kernel_is_taken_at_the_end(
    backend: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "-w", str(path), "--all", "-Y", "frame.number < 2"
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        writes = recorder(sniff)
        stopped(writes)
        pair.send(MANY)
        sniff.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        os.kill(writes, signal.SIGCONT)
        _, _, said = sniff.ended()
    assert "6,000 packets, 0 dropped by kernel" in said
    assert "not complete" not in said
    assert frames(path) == len(MANY)


FAKE = r"""#!{python}
import struct, sys, time
sys.stderr.write("Capturing on 'Loopback: lo'\nFile: -\n")
out = sys.stdout.buffer
def block(kind, body):
    out.write(struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12))
block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
block(1, struct.pack("<HHI", 1, 0, 0))
for number in range(10):
    block(6, struct.pack("<IIIII", 0, 0, number, 4, 4) + b"abcd")
out.flush()
time.sleep(0.3)
sys.stderr.write("Packets captured: {said}\nPackets received/dropped on interface 'lo': "
                 "{said}/{dropped} (pcap:0/dumpcap:0/flushed:0/ps_ifdrop:0) (0.0%)\n")
"""


@pytest.mark.parametrize(("said", "dropped"), [(10, 0), (12, 0), (10, 3)])
def test_a_capture_program_that_took_more_is_believed(
    said: int, dropped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dumpcap"
    program.write_text(
        FAKE.replace("{python}", sys.executable)
        .replace("{said}", str(said))
        .replace("{dropped}", str(dropped))
    )
    program.chmod(0o755)
    chosen = Verdict("dumpcap", str(program), usable=True, reason="")
    monkeypatch.setattr("netdissect.capture.live.choose", lambda _: [chosen])
    path = tmp_path / "out.pcapng"
    with LiveFeed(LiveRequest(interface="lo", backend="dumpcap"), write=str(path)) as feed:
        shown = sum(1 for _ in feed)
    assert (shown, feed.packets, frames(path), feed.kernel_drops) == (10, 10, 10, dropped)
    assert bool(feed.missing) == (said != 10)
    assert feed.complete == (said == 10 and not dropped)
    if said != 10:
        assert "dumpcap took 12 packets, 10 arrived here" in feed.missing


def test_of_a_file_nothing_is_missing_where_its_user_does_not_wait() -> None:
    lossy = Path(__file__).parents[2] / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
    with LiveFeed(LiveRequest(file=str(lossy))) as feed:
        come = iter(feed)
        next(come)
        feed.stop(0.0)
        assert list(come) == []
    assert feed.own_drops == feed.packets - 1 > 0
    assert (feed.missing, feed.complete) == ([], True)
