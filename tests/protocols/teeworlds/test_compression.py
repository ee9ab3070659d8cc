"""Every packet of the captures is compressed as the original encoder does it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agreement import captures
from netdissect.flow import Decapsulator
from netdissect.pipeline import opened
from netdissect.pipeline.stages import Pipeline
from netdissect.wire.huffman import compress, decompress
from netdissect.wire.teeworlds_forms import FORMS


class Payloads:
    """Gathers (payload, dialect) of all claimed datagrams."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, str]] = []

    def reads_events(self, protocol: Any) -> bool:
        return False

    def seen(self, item: Any) -> None:
        self.rows.append((item.payload, item.hints.dialects[item.direction]))

    def other(self, packet: Any) -> None:
        raise AssertionError(f"frame {packet[1]} was not claimed")

    def finding(self, *args: Any) -> None:
        pass


def compared(data: bytes, dialect: str) -> str:
    """Return what a packet is: `packed`, `plain`, or without anything to compress."""
    seven = dialect == "teeworlds-0.7"
    token = seven or (dialect == "teeworlds-0.6.5" and data[0] & 0x08)
    body = data[7 if token else 3 :]
    control = data[0] & (0x04 if seven else 0x10)
    if data[0] & 0x20 or control or not body:
        return "other"
    if not data[0] & (0x10 if seven else 0x80):
        assert len(compress(body)) >= len(body)  # or it would have been sent compressed
        return "plain"
    plain = decompress(body, FORMS[dialect].limit)
    assert compress(plain) == body
    assert len(body) < len(plain)
    return "packed"


def test_every_captured_payload_compresses_back_to_the_same_octets() -> None:
    counts: Counter[str] = Counter()
    for path in captures("teeworlds"):
        found = Payloads()
        pipeline = Pipeline(observer=found)
        with opened(path) as reader:
            pipeline.run(Decapsulator().packets(reader))
        pipeline.finish()
        counts.update(compared(*row) for row in found.rows)
    assert counts["packed"] == 18_279
    assert counts["plain"] == 10_365
