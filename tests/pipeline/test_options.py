from __future__ import annotations

import pytest

from netdissect.model.errors import UsageError
from netdissect.pipeline import decode_as


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("udp.port==7777,riptide", ("udp", 7777, "riptide", None)),
        ("udp.port == 7777, riptide-2.1", ("udp", 7777, "riptide", "riptide-2.1")),
        ("tcp.port==1,riptide-2.0", ("tcp", 1, "riptide", "riptide-2.0")),
    ],
)
def test_rules(text, expected) -> None:
    rule = decode_as(text)
    assert (rule.transport, rule.port, rule.protocol.name, rule.dialect) == expected


@pytest.mark.parametrize(
    "text",
    ["", "riptide", "udp.port==x,riptide", "sctp.port==1,riptide", "udp.port==7777,ripptide",
     "udp.port==7777,riptide-9", "udp.port==7777"],
)  # fmt: skip
def test_what_is_no_rule(text) -> None:
    with pytest.raises(UsageError):
        decode_as(text)
