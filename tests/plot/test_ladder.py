from __future__ import annotations

from xml.etree import ElementTree as ET

import hostile
import samples
from netdissect.plot.ladder import document
from netdissect.render.ladder import Row, rows
from netdissect.render.units import Clock

START = samples.START
CLOCK = Clock("r", START)


def test_it_is_well_formed_whatever_the_labels_say() -> None:
    texts = ("<script>", "a&b", '"', "]]>")
    drawn = [Row(START, 0, text, "", 1) for text in texts]
    root = ET.fromstring(document(drawn, ("<client>", "&"), CLOCK))  # noqa: S314 - own output
    assert root.tag.endswith("svg")
    assert {*texts, "<client>", "&"} <= {node.text for node in root.iter()}


def test_silences_and_remarks_have_lines_and_half_an_arrow_is_lost() -> None:
    drawn = [
        Row(START, 0, "asks", "lost", 1), Row(START, None, "state", "event", 1),
        Row(START + 2 * 10**9, 1, "says", "resend", 2),
    ]  # fmt: skip
    text = document(drawn, ("client", "server"), CLOCK)
    assert "silence of 2.00 s" in text
    assert "╳ asks" in text
    assert "» says" in text
    assert text.count('class="msg bad" d="M118 52L379 52m-5') == 1
    assert text.count('class="msg again dashed" d="M640 130L118 130m8') == 1


def test_of_two_captures_each_moment_has_a_line() -> None:
    drawn = [
        Row(START, 0, "a", "", 1, START + 20, ("A#1", "B#7")),
        Row(START + 10, 1, "b", "appeared", 3, START + 15, ("A#3", "")),
        Row(START + 30, 0, "c", "", 4, None, ("A#4", "")),
    ]
    text = document(drawn, ("client", "server"), CLOCK)
    assert "A#1 0.000000" in text
    assert "0.000000 B#7" in text
    assert '"M118 52L640 118m' in text
    assert '"M640 74L118 96m' in text
    assert ">?</text>" in text


def test_hostile_summaries_are_harmless() -> None:
    for evil in hostile.HOSTILE:
        record = samples.datagram(dissection=samples.dissection(summary=evil))
        made = rows([(record, record.messages)])
        assert hostile.is_safe(document(made, (evil, evil), CLOCK))
