from __future__ import annotations

import pytest

from netdissect.capture.live.limits import Autostop, RingRule
from netdissect.model.errors import UsageError


def test_conditions_become_limits() -> None:
    found = Autostop.parse(["duration:1.5", "filesize:2", "packets:9", "files:3"], packets=4)
    assert found == Autostop(duration_ns=1_500_000_000, octets=2000, packets=4, files=3)
    assert Autostop.parse([]) == Autostop()
    assert RingRule.parse([]) is None
    assert RingRule.parse(["packets:5", "files:2"]) == RingRule(packets=5, files=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "duration",
        "duration:",
        "duration:x",
        "size:3",
        "packets:0",
        "packets:1.5",
        "filesize:-1",
        "duration:²",
    ],
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Autostop.parse([text])
