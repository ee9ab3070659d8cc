"""Our totals against Wireshark's programs, over the shipped captures."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.packets import PacketKind, flow_endpoints

pytestmark = [
    pytest.mark.tshark,
    pytest.mark.skipif(
        shutil.which("tshark") is None or shutil.which("capinfos") is None,
        reason="needs tshark and capinfos",
    ),
]

CAPTURES = Path(__file__).parents[2] / "captures"
PROTOCOLS = ["eoudp", "knet", "netplay", "riptide", "teeworlds"]
IN_CI = 6
LINK_NAMES = {"ether": "EN10MB", "rawip": "RAW", "linux-sll2": "LINUX_SLL2"}

_ROW = re.compile(
    r"^(\S+)\s+<->\s+(\S+)\s+(\d+) (\d+ \S+)\s+(\d+) (\d+ \S+)\s+(\d+) (\d+ \S+)\s", re.MULTILINE
)


def files_of(protocol):
    return sorted((CAPTURES / protocol).glob("*.pcap*"))


def some_files_of(protocol):
    """Return a few files of a protocol, spread over its list."""
    files = files_of(protocol)
    return files[:: max(1, len(files) // IN_CI)][:IN_CI]


def shown(size):
    """Return a number of bytes as tshark prints it: whole kB or MB from 10 of them on."""
    for unit, step in (("MB", 10**6), ("kB", 1000)):
        if size >= 10 * step:
            return f"{size // step} {unit}"
    return f"{size} bytes"


def row(first, second, first_sent, second_sent):
    """Return a conversation with its endpoints in a fixed order."""
    return ((first, *first_sent), (second, *second_sent))[:: 1 if first <= second else -1]


def tshark_conversations(path, kind):
    result = subprocess.run(
        ["tshark", "-n", "-q", "-z", f"conv,{kind}", "-r", path],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [
        row(first, second, (int(sent), sent_size), (int(back), back_size))
        for first, second, back, back_size, sent, sent_size, _, _ in _ROW.findall(result.stdout)
    ]
    return Counter(rows)


def our_conversations(path):
    """Return the conversations of a capture; TCP apart by connection."""
    sizes = {}
    totals = {kind: defaultdict(lambda: [0, 0]) for kind in (PacketKind.UDP, PacketKind.TCP)}

    def frames(reader):
        for frame in reader:
            sizes[frame[0]] = frame[4]
            yield frame

    with open_capture(path) as reader:
        for kind, number, _, key, _, segment, _ in Decapsulator().packets(frames(reader)):
            if kind in totals:
                total = totals[kind][key, segment and segment.connection]
                total[0] += 1
                total[1] += sizes[number]
    return {kind: Counter(_rows(directions)) for kind, directions in totals.items()}


def _rows(directions):
    pairs = defaultdict(dict)
    for (key, ordinal), (count, size) in directions.items():
        source, destination = flow_endpoints(key)
        pairs[frozenset((source, destination)), ordinal][source] = (count, shown(size))
    for (pair, _), sent in pairs.items():
        first, second = sorted(pair) if len(pair) > 1 else [*pair, *pair]
        nothing = (0, shown(0))
        names = [f"{e.address}:{e.port}" for e in (first, second)]
        yield row(*names, sent.get(first, nothing), sent.get(second, nothing))


def compare_conversations(path):
    ours = our_conversations(path)
    assert ours[PacketKind.UDP] == tshark_conversations(path, "udp"), path.name
    assert ours[PacketKind.TCP] == tshark_conversations(path, "tcp"), path.name
    return sum(ours[PacketKind.UDP].values()) + sum(ours[PacketKind.TCP].values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_totals_of_every_capture_equal_capinfos(protocol):
    paths = files_of(protocol)
    command = ["capinfos", "-T", "-m", "-r", "-M", "-S", "-E", "-c", "-d", "-a", "-e", *paths]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = {line[0]: line[1:] for line in csv.reader(output.splitlines())}
    assert len(theirs) == len(paths) > 0
    for path in paths:
        with open_capture(path) as reader:
            count = sum(1 for _ in reader)
        info = reader.info
        link, frames, octets, first, last = theirs[str(path)]
        assert info.link_types == [LINK_NAMES[link]], path.name
        assert (info.frames, info.octets) == (int(frames), int(octets)), path.name
        assert count == info.frames
        assert Decimal(info.first_time_ns) == Decimal(first) * 10**9, path.name
        assert Decimal(info.last_time_ns) == Decimal(last) * 10**9, path.name
        assert reader.damage is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_conversations_of_some_captures_equal_tshark(protocol):
    assert sum(compare_conversations(path) for path in some_files_of(protocol)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_conversations_of_every_capture_equal_tshark(protocol):
    assert sum(compare_conversations(path) for path in files_of(protocol)) > 0
