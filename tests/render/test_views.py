"""Every view over every hostile string: nothing that a terminal obeys comes out, no markup is interpreted."""

from __future__ import annotations

import io
import re
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import console_docs
import hostile
import samples
from netdissect.model.annotations import Annotation, CodeRow, Severity
from netdissect.model.dissection import FieldNode
from netdissect.model.facts import Difference
from netdissect.model.joined import ClockReport, JoinReport
from netdissect.model.names import DialectInfo, FieldInfo, ProtocolInfo
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import CaptureInfo, ConnectionReport
from netdissect.pipeline import analyze
from netdissect.render.catalogs import (
    show_checks,
    show_comparison,
    show_fields,
    show_info,
    show_protocols,
    show_settings,
)
from netdissect.render.connections import show_connection, show_connections
from netdissect.render.console import Screen, cells, wrapped
from netdissect.render.findings import show_anomalies, show_catalogue, show_code
from netdissect.render.follow import FollowView
from netdissect.render.join import show_join
from netdissect.render.read import ReadView, record_title
from netdissect.render.show import show_record
from netdissect.render.timeline import Item, Overview, show_items, show_timeline, show_timeouts
from netdissect.render.tree import find_node, hex_views, tree_lines
from netdissect.render.units import Clock, dialect_text

START, MS = samples.START, samples.MS


def clock() -> Clock:
    return Clock("r", START)


def hostile_record(evil: str) -> DatagramRecord:
    root = FieldNode(
        "x",
        None,
        0,
        48,
        children=[
            FieldNode("text", evil, 0, 8),
            FieldNode("named", 1, 8, 8, evil),
            FieldNode(evil or "empty", evil.encode("utf-8", "surrogatepass")[:30], 16, 8, evil),
        ],
    )
    note = Annotation("code", Severity.WARN, "group", evil, 0, 8)
    tree = samples.dissection(root=root, summary=evil, annotations=[note], fields={"text": evil})
    record = samples.datagram(dissection=tree, src=evil, dst=evil, dialect=evil)
    record.messages[0].annotations = [note]
    record.messages[0].summary = evil
    record.messages[0].type = evil
    return record


def hostile_connection(evil: str) -> Any:
    return samples.connection(
        client=evil,
        server=evil,
        dialects=(evil, evil),
        vantage_basis=evil,
        reject_reason=evil,
        close={"by": evil, "reason": evil, "frame": 1},
        identity={"name": evil, evil: [evil, {"x": evil}]},
        messages=({evil: 1}, {}),
        counters=({evil: 1}, {}),
        explain=(evil,),
        limits_hit={evil: 1},
        state=evil,
    )


def view_read(screen: Screen, evil: str) -> None:
    record = hostile_record(evil)
    for messages in (False, True):
        ReadView(screen, clock(), messages=messages, tree=True, hexed=True).show(
            record, record.messages
        )


def view_show(screen: Screen, evil: str) -> None:
    record = hostile_record(evil)
    assert record.dissection is not None
    screen.line(*record_title(record, clock()))
    for line in (*tree_lines(record.dissection), *hex_views(record.dissection, width=80)):
        screen.line(*line)


def view_one_frame(screen: Screen, evil: str) -> None:
    show_record(screen, hostile_record(evil), clock(), hexed=True, field=None)
    unknown = samples.datagram(protocol=None, dissection=None, messages=[], src=evil, dst=evil)
    show_record(screen, unknown, clock(), hexed=True, field=None)


def view_follow(screen: Screen, evil: str) -> None:
    record = hostile_record(evil)
    record.messages[0].fields = {"text": evil, "octets": evil[:20].encode("utf-8", "surrogatepass")}
    for form in ("line", "hex", "tree"):
        for whole in (1, {}, {"payload": evil}, {"payload": b"\x1b[2J"}):
            record.messages[0].fields["reassembled"] = whole
            FollowView(screen, clock(), form).show(record, record.messages[0])


def view_differences(screen: Screen, evil: str) -> None:
    show_comparison(screen, 1, {evil: 1}, [Difference(1, evil, evil, evil, evil)])


def view_connections(screen: Screen, evil: str) -> None:
    report = hostile_connection(evil)
    show_connections(screen, [report, report], clock())
    show_connection(screen, report, clock(), explain=True)


def show_overview(screen: Screen, report: ConnectionReport, items: list[Item]) -> None:
    lanes = Overview(report, screen.width)
    for item in items:
        lanes.add(item)
    lanes.show(screen)


def view_timeline(screen: Screen, evil: str) -> None:
    units = [samples.unit(type=evil), samples.unit(outcome=evil, acked_frame=None)]
    events = [samples.event(text=evil), samples.event(event="timeout", text=evil)]
    report = hostile_connection(evil)
    show_overview(screen, report, [*units, *events])
    show_timeouts(screen, report, clock())
    show_items(screen, [*units, *events], clock(), several=True)


def view_anomalies(screen: Screen, evil: str) -> None:
    show_anomalies(screen, [samples.anomaly(message=evil, code=evil, group=evil)], clock())
    row = CodeRow(evil, Severity.ERROR, evil, evil, evil)
    show_code(screen, row)
    show_catalogue(screen, [row])


def view_catalogs(screen: Screen, evil: str) -> None:
    info = CaptureInfo(evil, evil, [evil], [evil], [evil], 1, 1, START, START, True, 5, evil, 3)
    show_info(screen, info, {evil: (1, 1)}, 2, {})
    show_protocols(
        screen,
        [ProtocolInfo(evil, evil, (DialectInfo(evil, evil, (evil,)),), ("udp",), (1,))],
        types=True,
    )
    show_fields(screen, [FieldInfo(evil, "int", evil, evil)])
    show_settings(screen, [(evil, {evil: evil}, evil, evil)], origin=True)
    show_checks(screen, [(evil, True, evil, evil)])


VIEWS: list[Callable[[Screen, str], None]] = [
    view_read,
    view_show,
    view_connections,
    view_timeline,
    view_anomalies,
    view_catalogs,
    view_one_frame,
    view_follow,
    view_differences,
]


def printed(
    view: Callable[[Screen, str], None], evil: str, *, width: int = 80, color: str = "never"
) -> str:
    stream = io.StringIO()
    view(Screen(stream, color=color, width=width), evil)
    return stream.getvalue()


_SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("width", [80, 160])
def test_hostile_text_stays_text(view: Callable[[Screen, str], None], width: int) -> None:
    for evil in hostile.HOSTILE:
        text = printed(view, evil, width=width)
        assert hostile.is_safe(text)
        # With colour the only escapes are our own.
        assert hostile.is_safe(
            _SGR.sub("", printed(view, evil[:5000], width=width, color="always"))
        )


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_markup_is_never_interpreted(view: Callable[[Screen, str], None]) -> None:
    assert "[red]x[/red]" in printed(view, "[red]x[/red]", width=160)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_a_pipe_is_neither_cut_nor_wrapped(view: Callable[[Screen, str], None]) -> None:
    stream = io.StringIO()
    view(Screen(stream), "long " * 40)
    assert "…" not in stream.getvalue()


def test_lines_fit_an_80_column_terminal() -> None:
    for view in (view_read, view_timeline, view_anomalies):
        text = printed(view, "a rather ordinary text", width=80)
        long = [line for line in text.splitlines() if cells(line) > 80 and "timer: " not in line]
        assert not [line for line in long if "→" in line and "again" in line], long


@pytest.mark.parametrize("width", [80, 160])
def test_a_long_value_of_a_space_stands_below_the_table(width: int) -> None:
    (report,) = analyze(
        console_docs.ROOT / "captures" / "netplay" / "bin1_lossy__client_side.pcap"
    ).connections
    stream = io.StringIO()
    show_connection(Screen(stream, width=width), report, clock())
    lines = re.sub(r"\n {3}\b", " ", stream.getvalue()).split("\n")
    assert any(line.startswith("copies seen ") for line in lines)
    assert any(line.startswith("with retransmitted bytes ") for line in lines)
    digests = [line for line in lines if line.startswith("stream sha256 ")]
    assert [line.split(": ")[0] for line in digests] == [
        "stream sha256 tcp →",
        "stream sha256 tcp ←",
    ]
    assert all(len(line.split(": ")[1]) == 64 for line in digests)


def test_words_that_do_not_fit_begin_a_row() -> None:
    line = [("c1  ", "title"), ("who speaks", ""), (", and ", "dim"), ("what", "good")]
    rows = ["".join(part for part, _ in row) for row in wrapped(line, 13, 2)]
    assert rows == ["c1  who", "  speaks, and", "  what"]
    assert [*wrapped(line, 80, 2)] == [
        [("c1", "title"), ("  ", "title"), ("who", ""), (" speaks", ""), (",", "dim"),
         (" and", "dim"), (" ", "dim"), ("what", "good")]
    ]  # fmt: skip
    assert [*wrapped([("x" * 30, "")], 20, 2)] == [[("x" * 30, "")]], "nothing is lost"


@pytest.mark.parametrize("width", [40, 80])
def test_no_verdict_is_cut(width: int) -> None:
    reports = analyze(
        console_docs.ROOT / "captures" / "teeworlds" / "ddnet_blackout_client_side.pcap"
    ).connections
    verdicts = [report.diagnosis.verdict for report in reports if report.diagnosis]
    assert verdicts
    for view in (show_connections, partial(show_timeline, items=[], shown=[])):
        stream = io.StringIO()
        view(Screen(stream, width=width), reports, clock=clock())
        said = " ".join(stream.getvalue().split())
        assert all(verdict in said for verdict in verdicts)


def test_a_connection_without_a_reliable_unit_has_no_lanes() -> None:
    stream = io.StringIO()
    screen = Screen(stream, width=80)
    show_overview(screen, samples.connection(), [samples.event(event="probe")])
    assert stream.getvalue() == ""
    show_overview(screen, samples.connection(), [samples.event(event="state")])
    assert "!" in stream.getvalue()


@pytest.mark.parametrize(
    ("transport", "count", "shown"),
    [("udp", 1, "1 datagram,"), ("udp", 2, "2 datagrams,"), ("tcp", 2, "2 segments,")],
)
def test_what_a_connection_sent_is_named_by_its_carrier(
    transport: str, count: int, shown: str
) -> None:
    stream = io.StringIO()
    report = samples.connection(transport=transport, datagrams=(count, 0))
    show_connections(Screen(stream, width=80), [report], clock())
    assert f" {shown} " in stream.getvalue()


def test_a_limit_that_was_reached_is_shown_with_what_it_makes_unknown() -> None:
    report = samples.connection(limits_hit={"MAX_BURSTS": 3, "MAX_SPACES": 1})
    stream = io.StringIO()
    show_connection(Screen(stream, color="never"), report, clock())
    for text in (
        "MAX_BURSTS, 3 times: shorter runs of missing numbers are not reported",
        "MAX_SPACES, once: the units of further spaces are ignored",
    ):
        assert f"limit reached  {text}" in stream.getvalue()


def test_a_fact_of_a_connection_goes_on_below_itself() -> None:
    basis = "the quickest of 48 answers of the client took 0.0 ms; no network between them is to be seen"
    stream = io.StringIO()
    report = samples.connection(vantage_basis=basis)
    show_connection(Screen(stream, width=80), report, clock())
    lines = stream.getvalue().split("\n")
    (at,) = (i for i, line in enumerate(lines) if line.lstrip().startswith("captured at  "))
    beside = lines[at].index("captured at  ") + len("captured at  ")
    assert lines[at + 1][:beside].isspace()
    assert not lines[at + 1][beside].isspace()
    assert max(map(len, lines[at : at + 2])) <= 80
    assert " ".join(f"{lines[at]} {lines[at + 1]}".split()).endswith(basis)


@pytest.mark.parametrize(("leg", "least"), [("client", 30.0), ("server", 30.0)])
def test_the_round_trip_of_a_connection_is_no_time_to_answer(leg: str, least: float) -> None:
    path = console_docs.ROOT / "captures" / "netplay" / f"bin1_lossy__{leg}_side.pcap"
    (report,) = analyze(path).connections
    assert report.vantage == leg
    stream = io.StringIO()
    show_connections(Screen(stream, width=80), [report], clock())
    shown = re.search(r"RTT ([\d.]+) ", stream.getvalue())
    assert shown is not None
    assert float(shown[1]) > least


def test_the_narrow_form_of_connections_tells_what_the_table_tells() -> None:
    stream = io.StringIO()
    show_connections(Screen(stream, width=80, color="never"), [samples.connection()], clock())
    text = stream.getvalue()
    for fact in (
        "riptide-2.1, 2.2",
        "127.0.0.1:50654",
        "127.0.0.1:21105",
        "closed",
        "Disconnected",
        "client",
        "12.42 s",
        "420",
        "422",
        "12.1 kB",
        "11.2 kB",
        "24 retrans",
        "60.0 ms",
        "2 warn",
    ):
        assert fact in text
    assert max(map(cells, text.splitlines())) <= 80


def test_severity_has_a_letter_beside_its_colour() -> None:
    assert printed(view_anomalies, "x").count("E x") + printed(view_anomalies, "x").count("W ") >= 2


def test_the_chosen_field_is_marked_in_the_octets() -> None:
    tree = samples.dissection()
    rows = [
        "".join(part for part, _ in line)
        for line in hex_views(tree, width=80, chosen=find_node(tree, "sequence_id"))
    ]
    assert rows[1].startswith("0000 [c7 00 00]00 00 ff")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_without_colour_there_is_no_escape(view: Callable[[Screen, str], None]) -> None:
    assert "\x1b" not in printed(view, "x")


def test_what_a_second_capture_shows_is_never_cut() -> None:
    """On a narrow screen other details go; that a copy was lost gets a line where it must."""
    lost = samples.unit(outcome="unacked", acked_frame=None, acked_time_ns=None, rtt_ms=None)
    for copy in lost.copies:
        copy.fate, copy.basis = "lost", "observed"
    for width in (40, 80, 160):
        stream = io.StringIO()
        screen = Screen(stream, width=width, color="never")
        show_items(screen, [lost], Clock("r", samples.START))
        lines = stream.getvalue().splitlines()
        assert stream.getvalue().count("lost on the way") == len(lost.copies)
        assert not any("…" in line for line in lines if "lost" in line)
        assert max(map(cells, lines)) <= width


def test_every_bound_that_a_join_has_hit_is_told() -> None:
    report = JoinReport(
        captures=(CaptureInfo("a", "pcap"), CaptureInfo("b", "pcap")),
        clock=ClockReport(
            offset_ms=0.0, bound_ms=None, drift_ppm=0.0, drift_bound_ppm=0.0,
            least_delay_ms=(None, None), anchors=2, contradicting=0,
            steps=((1, 7, -10_000.0),),
        ),
        same_place=False,
        overlap_ms=0.0,
        conversations=[],
        reports=([], []),
        apart=(0, 0),
        limits_hit={"MAX_WAITING": 1, "MAX_JUMPS": 5000, "MAX_CONNECTIONS": 3},
    )  # fmt: skip
    out = io.StringIO()
    show_join(Screen(out), report)
    for limit in report.limits_hit:
        assert limit in out.getvalue()
    assert "was set by -10.000000 s before frame 7" in out.getvalue()


def test_overviews_are_small() -> None:
    """A full table of connections has one each: 100 MB in all, not half a gigabyte."""
    report = hostile_connection("")
    tracemalloc.start()
    lanes = [Overview(report, 160) for _ in range(100)]
    octets, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert octets < 5_000 * len(lanes)


def test_two_dialects_do_not_look_like_one_that_is_undecided() -> None:
    assert dialect_text(("knet-2010", "knet-2.x")) == "knet-2010, 2.x"
    assert dialect_text(("knet-2010/2.x", "knet-2010/2.x")) == "knet-2010/2.x"
    assert dialect_text(("riptide-2.1/2.2", "riptide-2.2")) == "riptide-2.1/2.2, 2.2"
