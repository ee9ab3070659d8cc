from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

import console_docs
from netdissect.capture import CaptureError, open_capture
from netdissect.capture.blocks import INTERFACE, PACKET, SECTION, BlockReader
from packetbuild import block, interface, section

CAPTURES = sorted((console_docs.ROOT / "captures").rglob("*.pcap*"))[::12]


def both(source: bytes) -> None:
    """Hold the blocks to the frames that the usual reader makes of the same bytes."""
    try:
        with open_capture(io.BytesIO(source)) as reader:
            frames = list(reader)
            damage = reader.damage
    except CaptureError:
        with pytest.raises(CaptureError):
            BlockReader(io.BytesIO(source))
        return
    with BlockReader(io.BytesIO(source)) as blocks:
        found = list(blocks)
    packets = [block for block in found if block.kind == PACKET]
    assert [(b.frame, b.link, b.data, b.wire) for b in packets] == [
        (number, link, data, wire) for number, _, link, data, wire in frames
    ]
    assert [b.time_ns for b in packets if b.time_ns >= 0] == [
        frame[1] for frame, b in zip(frames, packets, strict=True) if b.time_ns >= 0
    ]
    assert bool(blocks.damage) == bool(damage)
    if not damage:
        assert b"".join(block.raw for block in found) == source


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_blocks_are_the_file_and_hold_its_frames(path: Path) -> None:
    both(path.read_bytes())


def test_mutated_files_are_read_as_the_usual_reader_does() -> None:
    chance = random.Random(7)
    sources = [path.read_bytes()[:4000] for path in CAPTURES[:4]] + [pcapng()]
    for _ in range(400):
        content = bytearray(chance.choice(sources))
        for _ in range(chance.randrange(1, 4)):
            content[chance.randrange(24, len(content))] = chance.randrange(256)
        both(bytes(content[: chance.randrange(30, len(content) + 1)]))


def pcapng() -> bytes:
    """Return a file with interfaces, comments, statistics and a block that nobody knows."""
    from netdissect.capture import PcapngWriter

    out = io.BytesIO()
    with PcapngWriter(out, comment="all of it") as writer:
        writer.add_interface(1, "eth0")
        writer.add_interface(101, "tun0")
        for number in range(40):
            comment = "seen" if number % 3 else None
            writer.write(10**18 + number, bytes(number), 99, interface=number % 2, comment=comment)
        writer.write_statistics(10**18, received=40, dropped=1)
    unknown = b"\xad\x0b\x00\x00\x10\x00\x00\x00abcd\x10\x00\x00\x00"
    return out.getvalue() + unknown


def test_every_block_of_pcapng_comes_back() -> None:
    both(pcapng() * 2)


@pytest.mark.parametrize("kind", [1, 2, 3, 6])
def test_a_block_too_short_for_what_it_must_hold_is_damage(kind: int) -> None:
    """Tools that copy blocks believe what those that read frames believe."""
    content = section() + interface() + block("<", kind, b"" if kind in {1, 3} else bytes(8))
    with BlockReader(io.BytesIO(content)) as reader:
        assert [found.kind for found in reader] == [SECTION, INTERFACE]
        assert "too short" in (reader.damage or "")
