from __future__ import annotations

import io

import pytest

import hostile
import samples
from netdissect.model.live import Glimpse, LiveView
from netdissect.render.console import Line, Screen, cells
from netdissect.render.dashboard import Rates, compose
from netdissect.render.units import Clock

START, MS = samples.START, samples.MS


def glimpse(**changes: object) -> Glimpse:
    facts: dict[str, object] = {
        "connection": 1, "dialects": ("riptide-2.1", "riptide-2.2"), "transport": "udp",
        "client": "127.0.0.1:50654", "server": "127.0.0.1:21105", "state": "open",
        "first_time_ns": START, "last_time_ns": START + 900 * MS, "datagrams": (420, 1422),
        "octets": (12_078, 11_237), "units": 110, "retransmissions": 24, "rtt_ms": 60.5,
        "anomalies": (3, 0, 2, 0),
    }  # fmt: skip
    return Glimpse(**{**facts, **changes})  # type: ignore[arg-type]


def view(connections: int = 2, **changes: object) -> LiveView:
    facts: dict[str, object] = {
        "source": "lo with dumpcap", "now_ns": START + 1000 * MS, "packets": 1842, "lost": 0,
        "other_datagrams": 1, "connections_begun": connections,
        "connections": [glimpse(connection=number + 1) for number in range(connections)],
        "recent": [samples.unit(), samples.event(), samples.unit(outcome="unacked", acked_frame=None)],
    }  # fmt: skip
    return LiveView(**{**facts, **changes})  # type: ignore[arg-type]


def drawn(what: LiveView, width: int, height: int = 24) -> list[str]:
    screen = Screen(io.StringIO(), color="never")
    lines: list[Line] = compose(what, width, height, Rates(), Clock("r", START), screen)
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
    for figure in ("lo with dumpcap", "1,842 packets", "1 connection ", "127.0.0.1:50654", "open",
                   "420", "24", "60.5 ms", "riptide-2.1/", "Reliable"):  # fmt: skip
        assert figure in text, figure
    assert "outcome" in text
    assert "Ctrl-C ends the capture" in text


def test_a_wide_window_has_every_figure() -> None:
    text = "\n".join(drawn(view(1), 160))
    assert "127.0.0.1:21105" in text
    assert "23.3 kB" in text
    assert "2W 3C" in text


def test_what_is_not_shown_is_said_in_the_first_line() -> None:
    assert "7 not shown" in drawn(view(lost=7), 160)[0]
    assert "no connection of a known protocol yet" in "\n".join(drawn(view(0), 80))


@pytest.mark.parametrize("evil", hostile.HOSTILE[:40])
def test_texts_of_packets_do_nothing_to_the_terminal(evil: str) -> None:
    what = view(1, recent=[samples.unit(type=evil), samples.event(text=evil)])
    assert all(map(hostile.is_safe, drawn(what, 120)))
