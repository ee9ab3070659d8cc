from __future__ import annotations

import io
from dataclasses import replace

import pytest

import hostile
import samples
from netdissect.diagnosis import diagnose
from netdissect.model.live import ConnectionSnapshot, LiveView, ViewRequest
from netdissect.render.console import Line, Screen, cells
from netdissect.render.dashboard import Dashboard, Rates, compose
from netdissect.render.dashboard_keys import Controls, Wanted, press
from netdissect.render.units import Clock

START, MS = samples.START, samples.MS


def glimpse(**changes: object) -> ConnectionSnapshot:
    facts: dict[str, object] = {
        "connection": 1, "dialects": ("riptide-2.1", "riptide-2.2"), "transport": "udp",
        "client": "127.0.0.1:50654", "server": "127.0.0.1:21105", "state": "open",
        "first_time_ns": START, "last_time_ns": START + 900 * MS, "datagrams": (420, 1422),
        "octets": (12_078, 11_237), "units": 110, "retransmissions": 24, "rtt_ms": 60.5,
        "anomalies": (3, 0, 2, 0),
    }  # fmt: skip
    return ConnectionSnapshot(**{**facts, **changes})  # type: ignore[arg-type]


def view(connections: int = 2, **changes: object) -> LiveView:
    facts: dict[str, object] = {
        "source": "lo with dumpcap", "now_ns": START + 1000 * MS, "packets": 1842, "lost": 0,
        "other_datagrams": 1, "connections_begun": connections,
        "connections": [glimpse(connection=number + 1) for number in range(connections)],
        "recent": [samples.unit(), samples.event(), samples.unit(outcome="unacked", acked_frame=None)],
    }  # fmt: skip
    return LiveView(**{**facts, **changes})  # type: ignore[arg-type]


def drawn(what: LiveView, width: int, height: int = 24, wanted: Wanted | None = None) -> list[str]:
    screen = Screen(io.StringIO(), color="never")
    lines: list[Line] = compose(what, (width, height), Rates(), Clock("r", START), screen, wanted)
    return ["".join(text for text, _ in line) for line in lines]


@pytest.mark.parametrize("width", [20, 60, 80, 129, 130, 160, 300])
@pytest.mark.parametrize("height", [4, 10, 24, 60])
def test_a_picture_fits_its_window(width: int, height: int) -> None:
    lines = drawn(view(5), width, height)
    assert len(lines) == height
    assert max(map(cells, lines)) <= width


@pytest.mark.parametrize("width", [80, 160])
def test_the_figures_that_matter_stand_on_every_window(width: int) -> None:
    text = "\n".join(drawn(view(1), width))
    for figure in ("lo with dumpcap", "1,842 packets", "1 connection ", ".0.1:50654", "verdict",
                   "loss →", "late", "2W", "Reliable"):  # fmt: skip
        assert figure in text, figure
    assert "outcome" in text
    assert "Ctrl-C ends the capture" in text


def test_a_wide_window_has_every_figure() -> None:
    text = "\n".join(drawn(view(1), 200))
    for figure in ("127.0.0.1:21105", "23.3 kB", "riptide-2.1,", "420", "1,422", "24", "verdict"):
        assert figure in text, figure


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 160, 180, 220])
def test_a_narrow_window_drops_columns_and_cuts_none(width: int) -> None:
    found = diagnose(samples.connection())
    head, row = drawn(replace(view(1), connections=[glimpse(diagnosis=found)]), width)[2:4]
    titles = [title for title in ("#", "client", "state", "loss →", "late", "RTT", "alerts")
              if title in head]  # fmt: skip
    assert titles[:3] == ["#", "client", "loss →" if width < 96 else "state"]
    assert "…" not in head
    assert "0.1:50654" in row
    said = row[head.index("verdict") :].strip().removesuffix("…")
    assert found.verdict.startswith(said) or "open" in said.split()


def test_many_alerts_stand_apart_and_in_their_room() -> None:
    for width in (80, 160):
        row = drawn(replace(view(1), connections=[glimpse(anomalies=(0, 0, 1751, 673))]), width)[3]
        assert " 673E 1.7kW " in row
        row = drawn(
            replace(view(1), connections=[glimpse(anomalies=(0, 0, 999_999, 2_000_000))]), width
        )[3]
        assert " 2ME 999kW " in row


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80])
def test_lines_of_a_narrow_window_end_with_whole_words(width: int) -> None:
    found = diagnose(samples.connection())
    what = replace(view(1, connections_begun=123_456), connections=[glimpse(diagnosis=found)])
    lines = drawn(what, width, wanted=Wanted())
    whole = drawn(what, 300, wanted=Wanted())
    words = {word for line in whole for word in line.split()} | {"…0.0.1:50654"}
    for line in (lines[0], lines[2], lines[3], *lines[5:]):
        assert {word.removesuffix("…") for word in line.split()} <= words | {""}, line
    assert lines[-1].endswith("q quit")


def test_keys_sort_select_find_pause_and_look_closer() -> None:
    shown = [7, 5, 3]
    wanted = Wanted()
    for key, changed in (
        ("s", {"order": "number"}), ("down", {"selected": 7}), ("j", {"selected": 5}),
        ("down", {"selected": 3}), ("down", {"selected": 3}), ("k", {"selected": 5}),
        ("enter", {"detail": True}), ("escape", {"detail": False}), ("p", {"paused": True}),
        ("p", {"paused": False}), ("f", {"typing": "f"}), ("q", {"typed": "q"}),
        ("backspace", {"typed": ""}), ("é", {"typed": "é"}), ("up", {}), ("\x07", {}),
        ("enter", {"typing": "", "typed": "", "text": "é"}), ("f", {"typing": "f"}),
        ("escape", {"typing": ""}), ("/", {"typing": "/"}), ("f", {"typed": "f"}),
        ("enter", {"typing": "", "typed": "", "expression": "f"}),
        ("/", {"typing": "/", "typed": "f"}), ("escape", {"typing": "", "typed": ""}),
        ("escape", {"expression": ""}), ("escape", {"text": ""}), ("x", {}),
        ("q", {"quits": True}),
    ):  # fmt: skip
        before, wanted = wanted, press(wanted, key, shown)
        assert wanted == replace(before, **changed), key


def test_what_is_typed_is_bounded_and_shown_as_text() -> None:
    wanted = Wanted(typing="f")
    for _ in range(1000):
        wanted = press(wanted, "[", [])
    assert len(wanted.typed) == 200
    assert "[[[" in drawn(view(1), 120, wanted=wanted)[-1]


def test_the_selected_connection_can_have_the_screen() -> None:
    found = diagnose(samples.connection())
    what = replace(view(1), connections=[glimpse(diagnosis=found)])
    text = "\n".join(drawn(what, 120, wanted=Wanted(selected=1, detail=True)))
    assert found.verdict in text
    assert "2W 3C" in text
    assert "round-trip time" in text


def test_who_loses_much_is_named_in_few_words() -> None:
    found = diagnose(samples.connection())
    loss = replace(found.loss[0], basis="told", lost=17, sent=156)
    none = replace(found.loss[1], basis="told", lost=0, sent=163)
    losing = replace(
        found,
        ending=replace(found.ending, how="open"),
        cause=replace(found.cause, what="loss", text="10.9% of what went from client to server"),
        loss=(loss, none),
    )
    shown = drawn(replace(view(1), connections=[glimpse(diagnosis=losing)]), 80)
    assert shown[3].rstrip().endswith("losing 10.9% →")


def test_the_selection_is_seen_without_colour() -> None:
    rows = drawn(view(3), 80, wanted=Wanted(selected=2))
    assert [row[0] for row in rows[3:6]] == [" ", "▌", " "]


def test_a_chosen_connection_that_has_ended_is_said() -> None:
    text = "\n".join(drawn(view(0), 80, wanted=Wanted(selected=7, detail=True)))
    assert "Connection 7 has ended; Esc goes back." in text


def test_keys_have_their_answer_while_the_picture_stands_still() -> None:
    asked: list[ViewRequest] = []

    def look(wish: ViewRequest) -> LiveView:
        asked.append(wish)
        return view(5)

    dashboard = Dashboard()
    for wanted, looks in (
        (Wanted(), 1), (Wanted(paused=True), 1), (Wanted(paused=True, selected=3), 1),
        (Wanted(paused=True, selected=3, detail=True), 2), (Wanted(paused=True), 3),
        (Wanted(paused=True, typing="f", text="7"), 3), (Wanted(paused=True, text="7"), 4),
        (Wanted(paused=True, text="7"), 4), (Wanted(text="7"), 5),
    ):  # fmt: skip
        dashboard._wanted = wanted
        dashboard._picture(look, 0.0)
        assert len(asked) == looks, wanted
    assert [wish.only for wish in asked] == [None, 3, None, None, None]


def test_a_filter_is_that_of_every_command_and_its_fault_is_said() -> None:
    chosen: list[str] = []

    def choose(text: str) -> str:
        chosen.append(text)
        return "no field bad" if "bad" in text else ""

    dashboard = Dashboard(Controls(choose=choose))
    for key in ("/", *"bad", "enter"):
        dashboard._press(key)
    foot = drawn(view(1), 80, wanted=dashboard._wanted)[-1]
    assert "filter bad" in foot
    assert "no field bad" in foot
    for key in ("backspace", "backspace", "backspace", *"msg", "enter"):
        dashboard._press(key)
    assert "filter msg" in drawn(view(1), 120, wanted=dashboard._wanted)[-1]
    assert "has matched the filter" in "".join(drawn(view(0, connections_begun=3), 80, wanted=dashboard._wanted))
    dashboard._press("escape")
    assert chosen == ["bad", "msg", ""]


def test_a_pause_and_the_order_are_said() -> None:
    foot = drawn(view(1, hidden=1200), 120, wanted=Wanted(paused=True, order="loss", text="udp"))[
        -1
    ]
    for said in ("paused, p continues", "by loss", "only udp", "1,200 more", "q quit"):
        assert said in foot, said
    assert "p pause" not in foot
    assert drawn(view(1), 40, wanted=Wanted(paused=True))[-1].startswith("paused, p continues")


def test_what_is_not_shown_is_said_in_the_first_line() -> None:
    assert "7 not shown" in drawn(view(lost=7), 160)[0]
    assert "no connection of a known protocol yet" in "\n".join(drawn(view(0), 80))


@pytest.mark.parametrize("evil", hostile.HOSTILE[:40])
def test_texts_of_packets_do_nothing_to_the_terminal(evil: str) -> None:
    what = view(1, recent=[samples.unit(type=evil), samples.event(text=evil)])
    assert all(map(hostile.is_safe, drawn(what, 120)))
