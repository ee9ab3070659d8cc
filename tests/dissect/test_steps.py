"""What is read at a bit position is what the field itself reads from the start of its bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.fields import ConditionalField

from netdissect.dissect import steps
from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.engine import layer_module
from netdissect.dissect.names import layers_of
from netdissect.dissect.packet_scope import PacketScope
from netdissect.dissect.walker import Walker, inline_value
from netdissect.layers import PROTOCOLS
from netdissect.layers.base import Layer
from netdissect.layers.fields import READ_FAULTS, FieldFault, Varint
from netdissect.model.dissection import FieldNode
from netdissect.wire.varint import TEEWORLDS


class Known(PacketScope):
    """Fields read so far: all that a rule can ask for, small numbers."""

    def __missing__(self, name: str) -> int:
        """Return a number."""
        return 5


def fields_of(protocol: str) -> list[Any]:
    """Return the fields of all layers of a protocol, a layout once."""
    found: dict[tuple[Any, ...], Any] = {}
    for layer in layers_of(layer_module(protocol)):
        for step in steps.plan_for(layer).steps:
            if step.kind == steps.LEAF:
                field = step.field
                inner = getattr(field, "item", getattr(field, "fld", field))
                shape = (type(field), type(inner), field.sz, getattr(inner, "size", 0),
                         getattr(inner, "codec", None), field.name)  # fmt: skip
                found.setdefault(shape, field)
    return list(found.values())


def outcome(read: Any, data: bytes, position: int) -> str:
    """Return what a reader makes of bytes, in words (a NaN equals nothing): value and end, or its
    fault.
    """
    try:
        return repr(read(data, position, Known()))
    except READ_FAULTS as fault:
        known = FieldFault.detached(fault)
        return repr((known.code, known.value))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=25)
@given(data=st.binary(max_size=40), start=st.integers(0, 3))
def test_a_field_is_read_in_place_as_from_the_start(protocol: str, data: bytes, start: int) -> None:
    for field in fields_of(protocol):
        position = 8 * min(start, len(data))
        assert outcome(steps._reader(field), data, position) == outcome(
            steps._from_state(field), data, position
        ), field


def test_a_wrapped_field_is_read_in_place_too() -> None:
    inner = Varint("n", 0, TEEWORLDS)
    step = steps.Step(ConditionalField(inner, lambda _: True))
    assert step.read(b"\xff\x81\x01\x05", 8, None) == (65, 24)


class Guarded(Varint):
    """A field of a plug-in, whose text is made while it is guarded."""

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return something else than the value."""
        return f"<{x}>"


def test_only_our_own_fields_are_shown_later() -> None:
    assert steps.Step(Varint("n", 0, TEEWORLDS)).lazy
    assert not steps.Step(Guarded("n", 0, TEEWORLDS)).lazy


def test_what_is_shown_is_made_once_and_can_be_replaced() -> None:
    node = FieldNode("n", 3, 0, 8)
    made: list[Any] = []
    node.format_value, node.raw = lambda value: made.append(value) or f"<{value}>", 3
    assert (node.display, node.display, made) == ("<3>", "<3>", [3])
    node.format_value, node.raw = str, 3
    node.display = "other"
    assert node.display == "other"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=25)
@given(data=st.binary(min_size=1, max_size=12), start=st.integers(0, 40))
def test_the_walker_reads_by_itself_what_the_step_reads(
    protocol: str, data: bytes, start: int
) -> None:
    for layer in layers_of(layer_module(protocol)):
        for step in steps.plan_for(layer).steps:
            value = inline_value(step, data, start) if step.method > steps.CACHED else None
            if value is not None:
                assert (value, start + step.size) == step.read(data, start, Known())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_byte_that_was_read_before_says_the_same_again(protocol: str) -> None:
    def walked(layer: type[Layer], octet: int) -> str:
        walker = Walker(Catalogue(layer_module(protocol).CODES))
        node, _, used = walker.walk(layer, bytes((octet, 1)))
        (leaf,) = node.children
        return repr((leaf.value, leaf.display, leaf.bit_length, used, walker.annotations))

    found = [field for field in fields_of(protocol) if type(field).getfield is Varint.getfield]
    for field in found[::4]:
        layer = type("One", (Layer,), {"name": "one", "fields_desc": [field]})
        first = [walked(layer, octet) for octet in range(256)]
        assert [walked(layer, octet) for octet in range(256)] == first
        assert any(value is not None for value in steps.plan_for(layer).steps[0].cached)
