"""Netplay is found without a port, told from its neighbours, and its dialects from each other."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from netdissect.model.claims import STRONG
from netdissect.protocols.netplay import PROTOCOL
from streams import streams

LOGIN = bytes.fromhex("000900000000044a6f686e")
LOGIN2 = bytes.fromhex("000a0000000100044a6f686e")
TEXT = b'NetworkMessageLogin\n{"username":"John"}\n'


def claim(*pieces: tuple[int, bytes], final: bool = True) -> Any:
    return PROTOCOL.recognise([(side, 0, octets) for side, octets in pieces], "tcp", final=final)


def dialect(*pieces: tuple[int, bytes]) -> str | None:
    found = claim(*pieces)
    if found is None or found.score < STRONG:
        return None
    assert found.dialects[0] == found.dialects[1]
    return found.dialects[0].removeprefix("netplay-")


@pytest.mark.parametrize(
    ("octets", "wanted"),
    [
        (LOGIN, "bin1"),
        (LOGIN2, "bin2"),
        (b"\0" + LOGIN2, "bin3"),
        (TEXT, "text"),
        (b"Integer\n42\n", None),
        (b"Odd[]\n[1]\nOdd[]\n[2]\nOdd[]\n[]\n", "text"),
    ],
)
def test_one_message_that_the_schema_decodes_is_enough(octets: bytes, wanted: str | None) -> None:
    assert dialect((0, octets)) == wanted


def test_unknown_types_want_a_chain() -> None:
    """Never claim on one frame without a schema that fits (section 6)."""
    unknown = bytes.fromhex("0006000909000178")
    assert dialect((0, unknown)) is None
    assert dialect((0, unknown * 2)) is None
    assert dialect((0, unknown * 3)) == "bin1"
    nullable = bytes.fromhex("0006000909010178")
    assert dialect((0, nullable * 4)) == "bin2"
    assert dialect((0, (b"\0" + nullable) * 3)) == "bin3"


@pytest.mark.parametrize("size", range(5))
def test_a_stream_may_end_anywhere_in_a_frame_too_long(size: int) -> None:
    """Such a frame may follow; what was captured of it may be its length alone."""
    unknown = bytes.fromhex("0006000909000178")
    assert dialect((0, unknown * 3 + b"\xff\xff\0\0\0"[:size])) == "bin1"


def test_a_chain_in_one_piece_may_be_another_protocol() -> None:
    """Small messages of Riptide 2.0, joined one byte before the first, read as frames of bin1."""
    acks = b"".join(b"\x07\0\2\x6f\0\xff\xff" + bytes([n, 0]) for n in range(9))
    one = (0, b"\0" + acks + b"\5\0\1\x70\0\xff\xff\5\0\1")
    rest = [(0, bytes([n]) * 1400) for n in range(97, 110)]
    found = claim(one, *rest, final=False)
    assert found is None or found.score < STRONG
    frame = bytes.fromhex("0006000909000178")
    assert claim((0, frame * 3), (0, frame), final=False).score >= STRONG


def test_the_other_direction_helps() -> None:
    unknown = bytes.fromhex("0006000909000178")
    assert dialect((0, unknown * 3), (1, unknown * 2)) == "bin1"


def test_every_clean_stream_of_the_captures_is_classified() -> None:
    odd = (
        "malformed", "wrap", "stalls", "serializer", "mixed", "snaplen", "incomplete", "midstream", "zlib",
    )  # fmt: skip
    missed = []
    for name, octets in streams("netplay"):
        if any(word in name for word in odd):
            continue
        if dialect((0, octets[:16_000])) != name.split("_")[0]:
            missed.append((name, len(octets)))
    # Streams of one message that carries no text tell nothing by themselves.
    assert all(size < 40 for _, size in missed), missed
    assert len(missed) < 12


def test_from_the_middle() -> None:
    for name, octets in streams("netplay"):
        if "types" in name or "example_chat" in name or len(octets) < 3000:
            continue
        if any(word in name for word in ("malformed", "wrap", "stalls", "serializer", "mixed", "snaplen")):
            continue
        if any(word in name for word in ("oversize", "big", "multichunk", "window")):
            continue  # One message fills most of what is searched.
        assert dialect((0, octets[701:6000])) == name.split("_")[0], name


def _dns(chance: random.Random) -> bytes:
    name = b"".join(bytes([len(part)]) + part for part in (b"www", b"example", b"org")) + b"\0"
    query = struct.pack(">HHHHHH", chance.randrange(65536), 0x0100, 1, 0, 0, 0) + name + b"\0\1\0\1"
    return struct.pack(">H", len(query)) + query


FOREIGN = {
    "http": b"GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
    "smtp": b"EHLO a\r\nMAIL FROM:<a@b>\r\nQUIT\r\n",
    "ndjson": b'{"a":1}\n{"b":2}\n{"c":3}\n',
    "stomp": b"CONNECT\naccept-version:1.1\n\n\0SEND\ndestination:/q\n\nhello\0",
    "resp": b"*2\r\n$4\r\nLLEN\r\n$6\r\nmylist\r\n:3\r\n",
    "tls": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(range(160)),
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n\0\0\5\xdc\n\x14" + bytes(60),
    "zeros": bytes(4000),
    "lines": b"hello\nworld\nthis\nis\ntext\n",
    "words": b"alpha\n1\nbeta gamma\n2\n",
    "u16 frames": b"".join(struct.pack(">HB", 8, 0x2F) + b"payload" for _ in range(20)),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_neighbours_are_not_claimed(name: str) -> None:
    assert dialect((0, FOREIGN[name])) is None
    assert dialect((0, FOREIGN[name] * 20)) is None


def test_dns_and_noise_are_not_claimed() -> None:
    chance = random.Random(9)
    for _ in range(300):
        assert dialect((0, b"".join(_dns(chance) for _ in range(chance.randrange(1, 6))))) is None
        assert dialect((0, chance.randbytes(chance.randrange(1, 600)))) is None
        numbers = struct.pack(">40H", *(chance.randrange(40) for _ in range(40)))
        assert dialect((0, numbers)) is None


def test_a_claim_says_why() -> None:
    found = claim((0, TEXT))
    assert found.reasons == ("1 class lines with a line of JSON each",)
    assert json.loads(json.dumps(found.reasons))
