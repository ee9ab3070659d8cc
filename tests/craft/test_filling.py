from __future__ import annotations

import pytest
from scapy.fields import Field, IEEEFloatField, LEThreeBytesField, ThreeBytesField

from netdissect.craft.filling import holds_octets, of_json


def test_three_octets_hold_no_more() -> None:
    for field in (ThreeBytesField("number", 0), LEThreeBytesField("number", 0)):
        assert of_json(field, 0xFFFFFF) == 0xFFFFFF
        with pytest.raises(ValueError, match="0 to 16777215"):
            of_json(field, 0x1000000)


def test_a_float_is_a_number_whatever_its_default() -> None:
    for field in (IEEEFloatField("x", 0.0), IEEEFloatField("x", 0), Field("x", 1.5, "<f")):
        assert of_json(field, 2.5) == 2.5
        assert not holds_octets(field)
