from __future__ import annotations

import pytest

import hostile
import samples
from netdissect.render.console import cells
from netdissect.render.ladder import Row, ladder_lines, mermaid, rows
from netdissect.render.units import Clock

MS, START = samples.MS, samples.START
ENDS = ("127.0.0.1:50654", "127.0.0.1:21105")


def drawn() -> list[Row]:
    first = samples.datagram(frame=33, time_ns=START)
    first.messages[0].reliability.kind = "original"
    again = samples.datagram()
    back = samples.datagram(frame=60, direction=1, time_ns=START + 5000 * MS)
    back.messages[0].reliability = None
    records = [(record, record.messages) for record in (first, again, back)]
    return rows(records, [samples.event()], lost=frozenset({33}))


def text(width: int = 80) -> list[str]:
    lines = ladder_lines(drawn(), ENDS, Clock("r", START), width=width)
    return ["".join(part for part, _ in line) for line in lines]


def test_every_kind_of_row_is_drawn() -> None:
    shown = "\n".join(text())
    assert "╳" in shown
    assert "»»" in shown
    assert "silence of 3.93 s" in shown
    assert "state: connecting" in shown
    assert shown.index("#33") < shown.index("#41") < shown.index("#60")


@pytest.mark.parametrize("width", [60, 80, 137, 200])
def test_no_line_is_wider_than_asked(width: int) -> None:
    assert max(cells(line) for line in text(width)) <= width


def test_lanes_stand_straight() -> None:
    lanes = [[index for index, char in enumerate(line) if char in "│┊"] for line in text()[1:]]
    assert all(lane[0] == lanes[0][0] and lane[-1] == lanes[0][-1] for lane in lanes)


def test_a_lost_datagram_does_not_reach_the_other_lane() -> None:
    shaft = next(line for line in text() if "╳" in line)
    assert "▶" not in shaft


def test_mermaid_cannot_be_broken_out_of() -> None:
    evil = [Row(START, 0, "x; participant Z\nend", "resend", 1)]
    lines = mermaid(evil, ENDS, Clock("r", START)).splitlines()
    assert len(lines) == 4
    assert ";" not in lines[3].replace("#59;", "").replace("#92;", "")
    assert lines[3].startswith("    C-->>S: retransmission: ")


def test_hostile_summaries_are_harmless() -> None:
    for evil in hostile.HOSTILE:
        tree = samples.dissection(summary=evil)
        record = samples.datagram(dissection=tree)
        made = rows([(record, record.messages)])
        for line in ladder_lines(made, (evil, evil), Clock("r", START), width=80):
            assert hostile.is_safe("".join(part for part, _ in line))
        assert hostile.is_safe(mermaid(made, (evil, evil), Clock("r", START)))


def test_a_long_address_keeps_its_port() -> None:
    from netdissect.render.ladder import _end

    assert _end("client 127.0.0.1:43346", 30) == "client 127.0.0.1:43346"
    assert _end("client 127.0.0.1:43346", 18) == "client ….0.1:43346"
    assert _end("server [2001:db8::1]:7777", 14) == "server …]:7777"
    assert _end("client x", 3) == "cl…"
