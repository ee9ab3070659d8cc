from __future__ import annotations

from hashlib import blake2b

import pytest

from netdissect.protocols.teeworlds.privacy import COSTS, WRITERS
from netdissect.wire.teeworlds_snapshots import apply, pack_string, read_delta
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


def client(name: str, clan: str = "") -> list[int]:
    """Return the integers of a client_info item."""
    return [*pack_string(name.encode(), 4), *pack_string(clan.encode(), 3), -1, *[0] * 9]


def delta(*items: tuple[int, list[int]]) -> bytes:
    """Return a delta that updates client_info items, and an item of another type before them."""
    ints = [0, len(items) + 1, 0, 5, 3, 1, 2, 3]
    for number, values in items:
        ints += [11, number, *values]
    return b"".join(map(TEEWORLDS.write, ints))


def changed(before: list[int], after: list[int]) -> list[int]:
    return [new - old for old, new in zip(before, after, strict=True)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("nameless tee", ""), ("mallory", "")), (("alice", "ab"), ("bob", "ab")), (("bob", ""), ("tim", "x")),
        (("alice", ""), ("alicf", "clan")), (("(1)nameless tee", "abcdefghijk"), ("x", "")), (("Zo\u00eb", ""), ("zed", "z")),
    ],
)  # fmt: skip
def test_how_a_name_changes_becomes_something_else(
    before: tuple[str, str], after: tuple[str, str]
) -> None:
    """The differences of its integers stood there as they were."""
    old = changed(client(*before), client(*after))
    data = delta((0, client("somebody")), (5, old), (6, client("else")))
    new = WRITERS["snapshot"](data, spell)
    items = read_delta(new, "0.6").updated
    assert len(new) == len(data)
    assert cost(new) <= cost(data)
    base = {(11, 5): tuple(client(*before))}
    sums = [apply(base, 0, read_delta(octets, "0.6"))[1] for octets in (data, new)]
    assert sums[0] == sums[1]
    assert [bool(value) for value in items[11, 5]] == [bool(value) for value in old]
    assert all(new != value for new, value in zip(items[11, 5], old, strict=True) if value)
    assert items[5, 3] == (1, 2, 3)
    assert items[11, 0] != tuple(client("somebody"))


def test_a_change_that_the_checksum_tells_stays() -> None:
    data = delta((5, changed(client("bob"), client("tim"))))
    assert WRITERS["snapshot"](data, spell) == data
    assert WRITERS["snapshot"](data, spell, begins=True, ends=False) != data


def test_nobody_has_no_name() -> None:
    data = delta((5, client("")))
    assert WRITERS["snapshot"](data, spell) == data


@pytest.mark.parametrize("cut", range(10, 45))
def test_half_a_name_becomes_something_else(cut: int) -> None:
    """The other part of the snapshot is missing: the characters on this side stayed."""
    data = delta((5, client("nameless tee", "clan")), (6, changed(client("bob"), client("tim"))))
    first = 10  # where the name begins
    for old, new in (
        (data[:cut], WRITERS["snapshot"](data[:cut], spell, ends=False)),
        (data[cut:], WRITERS["snapshot"](data[cut:], spell, begins=False)),
    ):
        assert len(new) == len(old)
        assert cost(new) <= cost(old)
        assert [octet >> 7 for octet in new] == [octet >> 7 for octet in old]
    begun = WRITERS["snapshot"](data[:cut], spell, ends=False)
    assert begun[:first] == data[:first]
    for at in range(first, cut - 4, 5):
        assert begun[at : at + 5] != data[at : at + 5] or at > 40


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
