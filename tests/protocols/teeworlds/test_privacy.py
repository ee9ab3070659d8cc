from __future__ import annotations

from hashlib import blake2b

import pytest

from netdissect.protocols.teeworlds.privacy import COSTS, WRITERS
from netdissect.wire.teeworlds_snapshots import pack_string
from netdissect.wire.varint import TEEWORLDS

LETTERS = b"abcdefghijklmnopqrstuvwABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def spell(text: bytes) -> bytes:
    """Return other letters, which depend on the whole text."""
    digest = blake2b(text, digest_size=64).digest()
    return bytes(LETTERS[octet % len(LETTERS)] for octet in digest[: len(text)])


def read(data: bytes) -> list[int]:
    ints, at = [], 0
    while at < len(data):
        value, at = TEEWORLDS.read(data, at, len(data))
        ints.append(value)
    return ints


@pytest.mark.parametrize(
    ("name", "clan"),
    [
        ("nameless tee", ""), ("lossy", ""), ("zyx", "zz"), ("xxxxxxxxxxxxxxx", "yyyyyyyyyyy"),
        ("~{|}", "|"), ("x", "y"), ("Zo\u00eb", "caf\u00e9"), ("abc\u00c1", ""), ("abc\U0001f600", "abcd\u0401"),
    ],
)  # fmt: skip
def test_a_name_in_a_snapshot_becomes_another(name: str, clan: str) -> None:
    """Whichever letters it has: some make a packed integer shorter."""
    texts = pack_string(name.encode(), 4) + pack_string(clan.encode(), 3)
    data = b"".join(map(TEEWORLDS.write, [11, 0, *texts, -1, 0]))
    new = WRITERS["snapshot"](data, spell)
    assert len(new) == len(data)
    assert read(new)[:2] == [11, 0]
    assert sum(read(new)) & 0xFFFFFFFF == sum(read(data)) & 0xFFFFFFFF
    assert read(new)[2:4] != read(data)[2:4] or len(name) < 5
    assert read(new)[2] != read(data)[2]
    assert not clan or read(new)[6] != read(data)[6]


def cost(data: bytes) -> int:
    return sum(COSTS[octet] for octet in data)


@pytest.mark.parametrize("cut", range(1, 38))
def test_a_name_that_is_cut_in_two_becomes_another_of_the_same_cost_on_both_sides(cut: int) -> None:
    texts = pack_string(b"nameless tee", 4) + pack_string(b"clan", 3)
    data = b"".join(map(TEEWORLDS.write, [11, 0, *texts, -1, 0]))
    new = WRITERS["snapshot"](data, spell, [cut])
    assert len(new) == len(data)
    assert read(new)[2] != read(data)[2]
    assert sum(read(new)) & 0xFFFFFFFF == sum(read(data)) & 0xFFFFFFFF
    assert cost(new[:cut]) <= cost(data[:cut])
    assert cost(new[cut:]) <= cost(data[cut:])


@pytest.mark.parametrize(
    ("reason", "stays"),
    [
        ("", ""),
        ("Timeout", "Timeout"),
        ("Only 4 players with the same IP are allowed", "Only 4 players with the same IP are allowed"),
        ("Wrong version. Server is running '0.7 802f1be60a05665f' and client '0.7'",
         "Wrong version. Server is running '0.7 802f1be60a05665f' and client '0.7'"),
        ("Too weak connection (not acked for 100 seconds)", "Too weak connection (not acked for 100 seconds)"),
        ("You have been banned for 5 minutes (Stressing network)",
         "You have been banned for 5 minutes (Stressing network)"),
        ("You have been banned for 5 minutes (mallory cheats)", "You have been banned for 5 minutes ("),
        ("You have been banned (mallory)", "You have been banned ("),
        ("Kicked (mallory (again))", "Kicked ("),
        ("mallory", ""),
        ("Timeout, mallory", ""),
    ],
)  # fmt: skip
def test_of_the_reason_of_a_close_what_was_typed_becomes_something_else(reason: str, stays: str) -> None:
    octets = reason.encode() + b"\0"
    new = WRITERS["close_reason"](octets, spell)
    assert len(new) == len(octets)
    assert new.endswith(b"\0")
    assert b"mallory" not in new
    assert new.startswith(stays.encode())
    assert (new == octets) == (reason == stays)
