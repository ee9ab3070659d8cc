"""Forged numbers in a capture, one or several in a row: everything else is counted as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agreement import captures
from netdissect.pipeline import analyze
from netdissect.pipeline.iterate import iter_records
from twocaptures import Record, rewritten

JUMPS = (100, 129, 1024, 5000, 70_000)


def knet(payload: bytes, jump: int) -> bytes:
    head = int.from_bytes(payload[:3], "little")
    number = (head & 0x3F | head >> 8 << 6) + jump
    first = payload[0] & 0xC0 | number & 0x3F
    return bytes([first, number >> 6 & 0xFF, number >> 14 & 0xFF]) + payload[3:]


def riptide(payload: bytes, jump: int) -> bytes:
    head = int.from_bytes(payload[:3], "little")
    number = (head >> 4) + jump & 0xFFFF
    return (head & 0xF0000F | number << 4).to_bytes(3, "little") + payload[3:]


def teeworlds(payload: bytes, jump: int) -> bytes:
    number = ((payload[8] & 0xC0) << 2 | payload[9]) + jump & 0x3FF
    return payload[:8] + bytes([payload[8] & 0x3F | number >> 2 & 0xC0, number & 0xFF]) + payload[10:]


def eoudp(payload: bytes, jump: int) -> bytes:
    number = int.from_bytes(payload[9:17], "big") + jump
    return payload[:9] + number.to_bytes(8, "big") + payload[17:]


CASES = {
    # (protocol, capture, direction, which of its datagrams, how to give one another number, jumps)
    "knet": ("knet", "udp_clean_session", 0, lambda p: not p[0] & 0x40, knet, JUMPS),
    "knet with loss": ("knet", "udp_loss8.server", 0, lambda p: not p[0] & 0x40, knet, JUMPS),
    "riptide": ("riptide", "udp_2.2.1_clean", 0, lambda p: p[0] & 15 == 7, riptide, JUMPS),
    # Beyond half of its 10 bits a number is an old one, and forging it a resend.
    "teeworlds": (
        "teeworlds", "tw07_map_download", 1,
        lambda p: len(p) > 10 and not p[0] & 0x1C and p[7] & 0x40, teeworlds, (100, 257, 500),
    ),
    "eoudp": ("eoudp", "late_clean", 1, lambda p: p[0] == 12, eoudp, JUMPS),
}


def figures(path: str | Path) -> list[dict[tuple[str, int], tuple[Any, ...]]]:
    return [
        {(s.space, s.direction): (s.units, s.retransmissions, s.duplicates, s.acked, s.unacked,
                                  s.never_seen, s.out_of_order, s.first_seq, s.last_seq)
         for s in report.spaces}
        for report in analyze(path).connections
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_forged_numbers_leave_the_others_their_counts(
    case: str, count: int, tmp_path: Path
) -> None:
    protocol, stem, way, fits, forge, jumps = CASES[case]
    path = next(path for path in captures(protocol) if path.stem == stem)
    sent = [r for r in iter_records(path)
            if r.connection == 1 and r.direction == way and fits(r.payload)]
    chosen = sent[len(sent) // 4]
    wanted = figures(path)
    for jump in jumps:
        forged = [forge(chosen.payload, jump + each) for each in range(count)]
        after = with_forged(chosen.frame, chosen.payload, forged)
        found = figures(rewritten(path, tmp_path / "forged.pcap", after))
        for before, now in zip(wanted, found, strict=True):
            for name, counts in before.items():
                more = now[name][0] - counts[0]
                assert 0 <= more <= count, (jump, name)
                assert now[name][1:] == counts[1:], (jump, name)


def with_forged(
    frame: int, payload: bytes, forged: list[bytes]
) -> Callable[[list[Record]], list[Record]]:
    def change(found: list[Record]) -> list[Record]:
        time, data, wire = found[frame - 1]
        at = data.rfind(payload)
        before, after = data[:at], data[at + len(payload) :]
        records = [
            (time + 20_000 * number, before + each + after, wire)
            for number, each in enumerate(forged, start=1)
        ]
        return [*found[:frame], *records, *found[frame:]]

    return change
