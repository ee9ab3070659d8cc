from __future__ import annotations

from hashlib import blake2b

import pytest

from netdissect.protocols.teeworlds.privacy import WRITERS
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
