"""The bytes of every TCP direction, against what the programs sent and received."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path

from netdissect.capture import open_capture
from netdissect.flow import packets
from netdissect.model.packets import flow_endpoints

CAPTURES = Path(__file__).parents[2] / "captures"


def streams_of(path):
    """Return {(source, destination, ordinal): bytes in order}."""
    streams = defaultdict(bytes)
    with open_capture(path) as reader:
        for _, _, _, key, _, segment, _ in packets(reader):
            if segment is not None:
                ends = [f"{end.address}:{end.port}" for end in flow_endpoints(key)]
                streams[*ends, segment.connection] += b"".join(p.data for p in segment.stream)
    return streams


def test_every_stream_has_the_length_and_hash_of_its_truth_file():
    compared = 0
    for truth_path in sorted(CAPTURES.glob("netplay/*.truth.json")):
        name = truth_path.name.removesuffix(".truth.json")
        streams = streams_of(next(CAPTURES.glob(f"netplay/{name}.pcap*")))
        truth = json.loads(truth_path.read_text(encoding="utf-8"))
        ordinals = Counter()
        for connection in truth["expect"].get("connections", []):
            if "server" not in connection:
                continue  # Cut by the snap length: the truth has no streams there.
            client, server = connection["client"], connection["server"]
            ordinals[client, server] += 1
            ordinal = ordinals[client, server]
            for side, key in (("c2s", (client, server)), ("s2c", (server, client))):
                data = streams[*key, ordinal]
                assert len(data) == connection[side]["stream_bytes"], (name, key)
                assert hashlib.sha256(data).hexdigest() == connection[side]["stream_sha256"]
                compared += 1
    assert compared >= 380
