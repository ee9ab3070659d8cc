from __future__ import annotations

import pytest
from scapy.fields import LEThreeBytesField, ThreeBytesField

from netdissect.craft.filling import of_json


def test_three_octets_hold_no_more() -> None:
    for field in (ThreeBytesField("number", 0), LEThreeBytesField("number", 0)):
        assert of_json(field, 0xFFFFFF) == 0xFFFFFF
        with pytest.raises(ValueError, match="0 to 16777215"):
            of_json(field, 0x1000000)
