from __future__ import annotations

import io
from typing import Any

import pytest

from netdissect.render.console import UNLIMITED, Screen, cells, fit, fit_clauses, wants_color
from netdissect.render.units import Clock, duration, octets, percent, rtt_range, share


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("mode", "environ", "terminal", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_the_flag_wins_then_no_color_then_force_color_then_the_terminal(
    mode: str, environ: dict[str, str], terminal: bool, expected: bool
) -> None:
    stream: Any = Terminal() if terminal else io.StringIO()
    assert wants_color(mode, stream, environ) is expected


def test_a_pipe_has_no_width() -> None:
    assert Screen(io.StringIO()).width == UNLIMITED
    assert Screen(io.StringIO()).wide


def test_cut_lines_end_in_an_ellipsis() -> None:
    stream = io.StringIO()
    Screen(stream, width=20, color="never").line(
        ("abcdefghij", ""), ("klmnopqrstuvwxyz", ""), cut=True
    )
    assert stream.getvalue() == "abcdefghijklmnopqrs…\n"


@pytest.mark.parametrize("width", range(1, 12))
def test_fit_never_exceeds_its_width(width: int) -> None:
    for text in ("abcdefghijklmnop", "日本語日本語", "aé日b", ""):
        assert cells(fit(text, width)) <= width


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"),
        (0.0, "0.00 ms"),
        (0.4242, "0.42 ms"),
        (61.26, "61.3 ms"),
        (99.94, "99.9 ms"),
        (99.96, "100 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (12_418.0, "12.42 s"),
        (185_000.0, "3 min 05 s"),
        (7_260_000.0, "2 h 01 min"),
        (-5.0, "-5.0 ms"),
    ],
)
def test_durations(value: float | None, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (12_078, "12.1 kB"),
        (999_900, "1000 kB"),
        (3_400_000, "3.4 MB"),
    ],
)
def test_octets(value: int, text: str) -> None:
    assert octets(value) == text


def test_shares_of_nothing_are_unknown() -> None:
    assert percent(share(1, 0)) == "-"
    assert percent(share(1, 8)) == "12.5%"


def test_round_trips_share_one_unit() -> None:
    assert rtt_range(50.0, 60.25, 82.0) == "60.2 ms (50.0–82.0)"
    assert rtt_range(0.004, 0.012, 0.02) == "0.01 ms (0.00–0.02)"
    assert rtt_range(16.4, 16.4, 16.4) == "16.4 ms"
    assert rtt_range(None, None, None) == "-"
    assert rtt_range(None, 60.0, None) == "60.0 ms"
    assert rtt_range(50.0, 600.0, 3000.0) == "600 ms (50.0 ms–3.00 s)"


NS = 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    ("style", "text"),
    [("r", "1.500000"), ("u", "2023-11-14 22:13:21.623456Z"), ("e", "1700000001.623456789")],
)
def test_times(style: str, text: str) -> None:
    clock = Clock(style, NS)
    assert clock.show(NS + 1_500_000_000) == text


def test_deltas_count_from_the_line_before() -> None:
    clock = Clock("d", NS)
    assert [clock.show(NS), clock.show(NS + 2_000_000), clock.show(NS + 3_000_000)] == [
        "0.000000",
        "0.002000",
        "0.001000",
    ]


def test_times_outside_the_calendar_are_shown_as_numbers() -> None:
    assert Clock("u").show(10**30).startswith("1000000000000")


def test_a_time_before_the_first_is_negative() -> None:
    assert Clock("r", NS).show(NS - 1_000_000) == "-0.001000"


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (75, "Timed out at the client: nothing came for 10.0 s, from 11.0 s on; lost: 5%."),
        (74, "Timed out at the client: nothing came for 10.0 s, from 11.0 s on; lost: 5%"),
        (70, "Timed out at the client: nothing came for 10.0 s, from 11.0 s on"),
        (60, "Timed out at the client: nothing came for 10.0 s"),
        (30, "Timed out at the client"),
        (12, "Timed out…"),
        (3, "Ti…"),
    ],
)
def test_a_sentence_ends_with_what_fits_of_its_clauses(width: int, kept: str) -> None:
    text = "Timed out at the client: nothing came for 10.0 s, from 11.0 s on; lost: 5%."
    assert fit_clauses(text, width) == kept
    assert cells(kept) <= width


def test_how_long_it_lasted_is_left_out_before_a_word_is_cut() -> None:
    assert (
        fit_clauses("Closed by the client after 6.3 s: Disconnected; lost: 5%.", 24)
        == "Closed by the client"
    )
