from __future__ import annotations

from typing import Any

import pytest
from scapy.fields import (
    BitField,
    ByteEnumField,
    ByteField,
    ConditionalField,
    FieldLenField,
    PacketListField,
    ShortField,
    StrLenField,
)

from netdissect.fuzz import Chance, Seed, seeds_from_layers
from netdissect.fuzz.drivers.netplay import frames
from netdissect.fuzz.fields import FIELD_MUTATORS, Edit, is_length, number_range, places, reread
from netdissect.layers.base import Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Items, SizedBytes


class Item(Layer):
    name = "item"
    is_item = True
    fields_desc = [ByteField("size", 0), SizedBytes("body", b"", E("size"))]


class Whole(Layer):
    name = "whole"
    fields_desc = [
        ByteEnumField("kind", 1, {1: "one", 2: "two", 9: "nine"}),
        ByteField("n", 0),
        Items("things", Item, E("n")),
        ShortField("tail", 7),
    ]


OCTETS = bytes.fromhex("01 02 02 6162 03 636465 0007")
SEED = Seed(OCTETS, "Whole", 0, Whole, "test")


def edits(name: str, count: int = 300) -> list[Edit]:
    chance = Chance(name)
    found = [FIELD_MUTATORS[name](reread(SEED), SEED, chance, [SEED]) for _ in range(count)]
    return [edit for edit in found if edit is not None]


def test_places_reach_into_lists() -> None:
    names = [place.name for place in places(reread(SEED))]
    assert names == ["kind", "n", "things", "size", "body", "size", "body", "tail"]


def test_lengths_are_known_by_who_uses_them() -> None:
    lengths = [place.name for place in places(reread(SEED)) if is_length(place)]
    assert lengths == ["n", "size", "size"]


def test_numbers_have_ranges() -> None:
    ranges = {place.name: number_range(place) for place in places(reread(SEED))}
    assert ranges["tail"] == (0, 0xFFFF)
    assert ranges["kind"] == (0, 0xFF)
    assert ranges["body"] is None


@pytest.mark.parametrize("name", sorted(set(FIELD_MUTATORS) - {"float", "flag"}))
def test_every_mutator_changes_something_and_only_its_field(name: str) -> None:
    found = edits(name)
    assert found
    assert any(edit.octets != OCTETS for edit in found)
    assert all(edit.note for edit in found)


class Flagged(Layer):
    name = "flagged"
    fields_desc = [
        BitField("more", 0, 1),
        BitField("rest", 3, 7),
        ConditionalField(ShortField("count", 0), lambda packet: packet.more),
    ]


def test_a_flag_is_set_with_what_it_brings() -> None:
    seed = Seed(b"\x03", "Flagged", 0, Flagged, "test")
    found = {
        edit.octets
        for number in range(60)
        if (edit := FIELD_MUTATORS["flag"](reread(seed), seed, Chance(number), [seed]))
    }
    numbers = (0, 1, 2, 0x7FFF, 0xFFFE, 0xFFFF)
    assert found == {b"\x83" + number.to_bytes(2, "big") for number in numbers}
    assert edits("flag") == []


def test_boundary_values_are_in_range() -> None:
    tails = {edit.octets[-2:] for edit in edits("boundary", 2000) if edit.touched == ("tail",)}
    assert {b"\x00\x00", b"\xff\xff", b"\x7f\xff", b"\x80\x00", b"\x00\x01"} <= tails
    assert b"\x00\x07" not in tails


def test_neighbours_of_names() -> None:
    kinds = {edit.octets[0] for edit in edits("neighbour", 2000) if edit.touched == ("kind",)}
    assert {2, 3, 8, 9, 10, 0} <= kinds


def test_length_lies_leave_the_content_alone() -> None:
    for edit in edits("length"):
        assert edit.touched in (("n",), ("size",))
        assert len(edit.octets) == len(OCTETS)
        assert sum(a != b for a, b in zip(edit.octets, OCTETS, strict=True)) == 1


def test_removal_and_duplication_move_what_follows() -> None:
    removed = {edit.octets for edit in edits("remove", 1000)}
    assert OCTETS[1:] in removed
    assert OCTETS[:-2] in removed
    assert bytes.fromhex("01 02 02 03 636465 0007") in removed
    doubled = {edit.octets for edit in edits("duplicate", 1000)}
    assert OCTETS[:1] + OCTETS in doubled
    assert OCTETS + OCTETS[-2:] in doubled


def test_items_are_removed_doubled_and_swapped() -> None:
    found = {edit.octets for edit in edits("items", 1000)}
    assert bytes.fromhex("01 02 03 636465 0007") in found
    assert bytes.fromhex("01 02 03 636465 02 6162 0007") in found
    assert bytes.fromhex("01 02 02 6162 02 6162 03 636465 0007") in found


class Computed(Layer):
    name = "computed"
    fields_desc = [
        FieldLenField("length", None, length_of="body", fmt="!H"),
        StrLenField("body", b"", length_from=lambda packet: packet.length),
    ]


def test_computed_lengths_lie_or_are_computed_again() -> None:
    seed = Seed(bytes.fromhex("0003616263"), "Computed", 0, Computed, "test")
    chance = Chance("computed")
    right = wrong = 0
    for _ in range(300):
        edit = FIELD_MUTATORS["content"](reread(seed), seed, chance, [seed])
        assert edit is not None
        stated, there = int.from_bytes(edit.octets[:2], "big"), len(edit.octets) - 2
        right += stated == there
        wrong += stated != there
        assert stated == there or not edit.note.endswith("lengths right")
    assert right > 50
    assert wrong > 50


class Odd(Layer):
    name = "odd"
    fields_desc: list[Any] = [PacketListField("inner", [], Item)]


def test_a_message_that_cannot_be_written_is_no_mutant() -> None:
    seed = Seed(b"", "Odd", 0, Odd, "test")
    for name, mutator in FIELD_MUTATORS.items():
        assert mutator(reread(seed), seed, Chance(name), [seed]) is None or name in (
            "splice",
            "remove",
            "duplicate",
        )


def test_messages_get_sizes_at_which_buffers_end_with_lengths_that_are_right() -> None:
    seeds = [
        seed
        for seed in seeds_from_layers("netplay", "netplay-bin1", "tcp").seeds
        if seed.layer is not None
    ]
    chance, whole = Chance("size"), set()
    for _ in range(300):
        seed = chance.choice(seeds)
        edit = FIELD_MUTATORS["size"](reread(seed), seed, chance, seeds)
        if edit is not None:
            assert list(frames(edit.octets)) == [edit.octets]
            whole.add(len(edit.octets))
    assert {63, 64, 65, 255, 256, 257, 1023, 1024, 1025} <= whole
