"""Memory of whole commands, for captures whose datagrams hold many units: it has a bound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netdissect.capture import PcapWriter, open_capture
from netdissect.flow import Decapsulator
from packetbuild import ipv4, udp, vital_chunks

SESSION = Path(__file__).resolve().parents[2] / "captures" / "knet" / "udp_clean_session.pcap"
HANDSHAKE = 12
"""Frames of that session: from the connect datagram to the first messages."""
MESSAGES = 250
GROWTH_OCTETS = 12_000_000
"""A third of what 60 connections more take if their units are kept."""
MORE_OCTETS = 25_000_000
"""Less than a second capture takes whose units are bounded as those of the first one alone."""
BOUNDED = """
import sys
from netdissect.cli import main, request, timeline
from netdissect.pipeline import holding, table
from netdissect.track import recorder

request.MAX_KEPT_ITEMS = timeline.MAX_KEPT_ITEMS = request.MAX_SELECTED = 2_000
table.MAX_ALL_OUTSTANDING = 2_000
holding.MAX_HELD_OCTETS = 600_000
recorder.MAX_PENDING = 2_000
main()
"""
"""A command whose bounds are a hundredth of the usual ones."""


def write_sessions(
    path: Path, connections: int, datagrams: int = 2, time_ns: int = 0
) -> None:
    """Write connections whose clients send some datagrams of MESSAGES reliable messages each."""
    with open_capture(SESSION) as capture:
        head = list(Decapsulator().packets(capture))[:HANDSHAKE]
    with path.open("wb") as file:
        writer = PcapWriter(file, link_type=101)
        for number in range(connections):
            client = bytes([10, 1, number >> 8, number & 255])
            rows = [(key == head[0][3], payload) for _, _, _, key, payload, _, _ in head]
            rows += [(True, datagram(10 + at)) for at in range(datagrams)]
            for up, payload in rows:
                time_ns += 1_000_000
                ends = (client, bytes([10, 0, 0, 2])) if up else (bytes([10, 0, 0, 2]), client)
                ports = (50_000, 7_777) if up else (7_777, 50_000)
                packet = ipv4(udp(payload, *ports), src=ends[0], dst=ends[1])
                writer.write(time_ns, packet, len(packet))
        writer.flush()


def datagram(number: int) -> bytes:
    """Return a kNet datagram with MESSAGES reliable messages."""
    head = bytes([0x40 | number & 0x3F, number >> 6 & 255, number >> 14])
    messages = (
        b"\x01\x10" + (bytes([at]) if at < 128 else bytes([0x80 | at & 127, at >> 7])) + b"\x42"
        for at in range(MESSAGES)
    )
    return head + (2 * MESSAGES * number).to_bytes(2, "little") + b"".join(messages)


def peak_octets(words: list[str], script: str = BOUNDED) -> int:
    """Run a command, usually with small bounds, and return the most memory that it took."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1"},
    ) as process:  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="takes a system that measures its processes")
@pytest.mark.parametrize(
    "words",
    [
        ["timeline"], ["info", "-Y", "udp"],
        *(
            pytest.param([*each, "-Y", "udp"], marks=pytest.mark.slow)
            for each in (["timeline"], ["timeline", "--json"], ["stats"])
        ),
    ],
    ids="-".join,
)  # fmt: skip
def test_units_beyond_the_bounds_take_no_memory(words: list[str], tmp_path: Path) -> None:
    peaks = []
    for connections in (40, 100):
        path = tmp_path / f"{connections}.pcap"
        write_sessions(path, connections)
        peaks.append(peak_octets([words[0], str(path), *words[1:]]))
    assert peaks[1] - peaks[0] < GROWTH_OCTETS, peaks


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="takes a system that measures its processes")
def test_two_captures_take_little_more_than_one(tmp_path: Path) -> None:
    fewer = """
from netdissect.cli import main, timeline
from netdissect.pipeline import holding, table
from netdissect.track import recorder

timeline.MAX_KEPT_ITEMS = table.MAX_ALL_OUTSTANDING = 60_000
holding.MAX_HELD_OCTETS = 600_000
recorder.MAX_PENDING = 2_000
main()
"""
    paths = [tmp_path / "first.pcap", tmp_path / "second.pcap"]
    for delay_ns, path in enumerate(paths):
        write_sessions(path, 60, 4, delay_ns * 1_000_000)
    one = peak_octets(["timeline", str(paths[0])], fewer)
    both = peak_octets(["timeline", *map(str, paths)], fewer)
    assert both - one < MORE_OCTETS, (one, both)


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="takes a system that measures its processes")
def test_a_ladder_keeps_no_messages(tmp_path: Path) -> None:
    peaks = []
    for datagrams in (20, 80):
        path = vital_chunks(tmp_path / f"{datagrams}.pcap", datagrams, 250)
        peaks.append(peak_octets(["ladder", str(path)], "from netdissect.cli import main; main()"))
    assert peaks[1] - peaks[0] < GROWTH_OCTETS, peaks


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="takes a system that measures its processes")
def test_a_report_remembers_few_datagrams_of_many_units(tmp_path: Path) -> None:
    few = "from netdissect.pipeline import scenes; scenes.MAX_RECENT_OCTETS = 2_000_000\n" + BOUNDED
    peaks = []
    for datagrams in (160, 480):
        path = vital_chunks(tmp_path / f"{datagrams}.pcap", datagrams, 250)
        peaks.append(peak_octets(["report", str(path), "-o", "-"], few))
    assert peaks[1] - peaks[0] < 4 * GROWTH_OCTETS, peaks


@pytest.mark.parametrize("other", [[], ["other.pcap"]])
def test_a_ladder_says_what_it_does_not_draw(other: list[str], tmp_path: Path) -> None:
    write_sessions(tmp_path / "in.pcap", 1, 30)
    write_sessions(tmp_path / "other.pcap", 1, 30)
    few = "from netdissect.cli import ladder, main; ladder.MAX_ARROWS = 25; main()"

    def drawn(*more: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", few, "ladder", "in.pcap", *other, "--json", *more],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        arrows = [line for line in done.stdout.splitlines() if json.loads(line)["direction"]]
        return len(arrows), done.stderr

    count, said = drawn()
    assert count == 25
    assert f"{HANDSHAKE + 30 - 25} datagrams are not drawn" in said
    assert "(MAX_ARROWS)" in said
    assert drawn("--count", "20") == (20, "")
