from __future__ import annotations

import pytest
from scapy.fields import ByteField, ShortField

from netdissect.layers.base import Check, Gen, Layer


class Short(Layer):
    name = "short"
    fields_desc = [ByteField("kind", 1), ShortField("size", 2)]
    generated = (Gen("double", lambda fields: fields["size"] * 2),)
    checks = (Check(lambda fields: fields["kind"] > 5, "trailing-bytes", "kind", "kind {kind}"),)


def test_a_field_that_scapy_hides_is_refused() -> None:
    with pytest.raises(TypeError, match="Late: no field can be called 'time'"):

        class Late(Layer):
            fields_desc = [ByteField("time", 0)]


def test_a_cut_layer_keeps_its_fields_and_its_octets() -> None:
    packet = Short(b"\x07\x01")
    assert packet.kind == 7
    assert packet.fault is not None
    assert packet.fault.code == "truncated"
    assert bytes(packet) == b"\x07\x01"
    assert packet.copy().fault is packet.fault


def test_scapy_conventions_hold() -> None:
    packet = Short(b"\x01\x00\x02rest")
    assert bytes(packet.payload) == b"rest"
    assert eval(Short(kind=3).command(), {"Short": Short}) == Short(kind=3)  # noqa: S307
    assert "short" in packet.show(dump=True)
    assert Short.message_type({}) is None
