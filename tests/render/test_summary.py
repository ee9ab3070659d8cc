from __future__ import annotations

import samples
from netdissect.render.summary import datagram_summary


def test_a_protocols_own_line_wins() -> None:
    record = samples.datagram(dissection=samples.dissection(summary="hello"))
    assert datagram_summary(record, record.messages) == "hello"
    # Of some of its messages, each says what it says.
    assert datagram_summary(record, [*record.messages, *record.messages]) == " | ".join(
        ["Reliable sequence_id=12 payload=2 B"] * 2
    )


def test_an_unknown_datagram_says_its_size() -> None:
    record = samples.datagram(protocol=None, messages=[])
    assert datagram_summary(record, []) == "6 bytes"
