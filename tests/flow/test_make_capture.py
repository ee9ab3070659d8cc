"""bench/make_capture.py: sessions of real captures, each a valid connection of its own."""

from __future__ import annotations

import importlib.util
import io
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from netdissect.capture import open_capture
from netdissect.flow import packets

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "make_capture", ROOT / "bench" / "make_capture.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def templates(script, *names):
    return [script.load(ROOT / "captures" / name) for name in names]


def test_sessions_interleave_and_each_repeats_its_capture(script):
    found = templates(script, "knet/udp_clean_session.pcap", "riptide/udp_2.2.1_clean.pcap")
    out = io.BytesIO()
    script.write(found, 12_000, 20, out)
    flows = defaultdict(list)
    times = []
    for _, _, time_ns, key, payload, _, faults in packets(open_capture(io.BytesIO(out.getvalue()))):
        assert faults == ()
        times.append(time_ns)
        flows[key].append(payload)
    assert len(times) == 12_000
    assert times == sorted(times)
    real = set()
    for template in found:
        sent = defaultdict(list)
        for datagram in template.datagrams:
            sent[datagram.source, datagram.destination].append(datagram.payload)
        real |= {tuple(payloads) for payloads in sent.values()}
    repeats = Counter(tuple(payloads) for payloads in flows.values())
    whole = sum(count for payloads, count in repeats.items() if payloads in real)
    assert whole >= 10
    for payloads in repeats:
        assert any(whole_flow[: len(payloads)] == payloads for whole_flow in real)


def test_captures_with_anything_but_whole_udp_are_left_out(script):
    assert templates(script, "netplay/bin1_types.pcap", "knet/udp_snaplen_96.pcap") == [None, None]
