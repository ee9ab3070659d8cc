from __future__ import annotations

from random import Random

import pytest

from netdissect.wire.teeworlds_snapshots import (
    Delta,
    Items,
    NamedItems,
    SnapshotError,
    apply,
    read_delta,
    unpack_string,
)
from netdissect.wire.varint import TEEWORLDS

# 0.7: one new pickup (type 4, three integers) with id 2, one deleted laser (type 3) with id 1.
PICKUP = (1, 1, 0, 3 << 16 | 1, 4, 2, 100, -200, 1)


def packed(*numbers: int) -> bytes:
    return b"".join(TEEWORLDS.write(number) for number in numbers)


def checksum(items: Items) -> int:
    total = sum(map(sum, items.values())) & 0xFFFFFFFF
    return total - 2**32 if total >= 2**31 else total


def test_a_delta_is_applied_to_its_base() -> None:
    delta = read_delta(packed(*PICKUP), "0.7")
    assert delta.deleted == [(3, 1)]
    assert delta.updated == {(4, 2): (100, -200, 1)}
    base = {(3, 1): (1, 2, 3, 4, 5), (4, 2): (2**31 - 1, 0, 0)}
    items, total = apply(base, checksum(base), delta)
    assert items == {(4, 2): (-(2**31) + 99, -200, 1)}
    assert base[4, 2] == (2**31 - 1, 0, 0)
    assert total == 2**31 + 99 - 200 + 1
    assert apply({}, 0, delta) == ({(4, 2): (100, -200, 1)}, -99)


@pytest.mark.parametrize("seed", range(20))
def test_the_checksum_follows_from_the_one_before(seed: int) -> None:
    """Items come, go and change their sizes; some are deleted that the base lacks, or updated."""
    random = Random(seed)
    items: Items = {}
    known = 0
    for _ in range(30):
        keys = [(random.randrange(3), random.randrange(8)) for _ in range(random.randrange(6))]
        updated = {
            key: tuple(random.randrange(-(2**31), 2**31) for _ in range(random.randrange(4)))
            for key in keys
        }
        gone = [(random.randrange(3), random.randrange(8)) for _ in range(random.randrange(3))]
        delta = Delta(gone * random.randint(1, 2), updated)
        items, known = apply(items, known, delta)
        assert known == checksum(items)
    assert items


def test_items_have_names() -> None:
    delta = read_delta(packed(*PICKUP), "0.7")
    assert NamedItems("0.7").of(delta.updated) == [
        {"item_type": 4, "item_id": 2, "object": "pickup", "x": 100, "y": -200, "type": 1}
    ]


def test_an_item_that_stays_as_it_was_is_named_once() -> None:
    namer = NamedItems("0.7")
    base = {(4, 2): (100, -200, 1), (4, 3): (5, 6, 0)}
    before = namer.of(base)
    moved = read_delta(packed(0, 1, 0, 4, 2, 1, 0, 0), "0.7")
    items, _ = apply(base, checksum(base), moved)
    after = namer.of(items)
    assert after == NamedItems("0.7").of(items)
    assert [one is other for one, other in zip(before, after, strict=True)] == [False, True]
    assert [item["x"] for item in after] == [101, 5]


@pytest.mark.parametrize("family", ["0.6", "0.7"])
def test_items_that_change_are_named_as_new_ones(family: str) -> None:
    random = Random(family)
    namer = NamedItems(family)
    items: Items = {}
    for _ in range(300):
        for kind in range(26):
            size = random.choice((4, 10, 15, 17, 22, 30))
            values = items.get((kind, 1), ())
            if len(values) != size and random.random() < 0.3:
                values = (0,) * size
            values = tuple(value if random.random() < 0.9 else value + 1 for value in values)
            items[kind, 1] = values
        assert namer.of(items) == NamedItems(family).of(items)


def test_what_announces_a_type_may_change() -> None:
    namer = NamedItems("0.6")
    uuids = ("22ca938d13803e2b9e7bd2558ea6be11", "00" * 16)
    values = (3, 1)
    names = []
    for uuid in map(bytes.fromhex, uuids):
        ints = tuple(int.from_bytes(uuid[at : at + 4], "big") for at in range(0, 16, 4))
        names.append(namer.of({(0, 0x7FFE): ints, (0x7FFE, 5): values})[1]["object"])
    assert names == ["ddnet_player", None]


def test_uuid_items_are_named_by_the_item_that_announces_them() -> None:
    # player@netobj.ddnet.tw announced as type 7ffe
    uuid = bytes.fromhex("22ca938d13803e2b9e7bd2558ea6be11")
    ints = [int.from_bytes(uuid[at : at + 4], "big", signed=True) for at in range(0, 16, 4)]
    data = packed(0, 2, 0, 0, 0x7FFE, 4, *ints, 0x7FFE, 5, 2, 3, 1)
    found = NamedItems("0.6").of(read_delta(data, "0.6").updated)
    assert found[0] == {
        "item_type": 0,
        "item_id": 0x7FFE,
        "object": "uuid",
        "uuid": uuid.hex(),
    }
    assert found[1]["object"] == "ddnet_player"
    assert (found[1]["flags"], found[1]["auth_level"]) == (3, 1)


@pytest.mark.parametrize(
    "numbers",
    [(), (1,), (-1, 0, 0), (2000, 0, 0), (0, 1, 0), (0, 1, 0, 4, 2, 1, 1), (0, 1, 0, 30, 1, 9999),
     (0, 1, 0, 30, 1, -1)],
)  # fmt: skip
def test_damaged_data(numbers: tuple[int, ...]) -> None:
    with pytest.raises(SnapshotError):
        read_delta(packed(*numbers), "0.7")


def test_packed_strings() -> None:
    octets = bytes((octet + 128) & 0xFF for octet in b"nameless tee\0\0\0") + b"\0"
    ints = [int.from_bytes(octets[at : at + 4], "big", signed=True) for at in range(0, 16, 4)]
    assert unpack_string(ints) == "nameless tee"
