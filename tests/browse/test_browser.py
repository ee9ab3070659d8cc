from __future__ import annotations

import errno
import os
import re
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from math import inf
from pathlib import Path
from threading import Event

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap, wrpcap

from netdissect.browse import output
from netdissect.browse.browser import Browser
from netdissect.browse.connections import answer, lanes
from netdissect.browse.keys import COMMANDS, HELP, help_lines, hints, press
from netdissect.browse.layout import draw, pane_at
from netdissect.browse.navigation import search
from netdissect.browse.output import write
from netdissect.browse.pane import CONNECTIONS, FINDINGS, PACKETS, PLOTS, TIME
from netdissect.browse.units import ladder
from netdissect.cli import browse, file_backend
from netdissect.cli.file_backend import FileBackend
from netdissect.cli.live import LiveSession
from netdissect.cli.live_backend import LiveBackend
from netdissect.cli.request import Match
from netdissect.cli.session import Choices, Session
from netdissect.model.errors import UsageError
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, column, index, open_capture
from netdissect.pipeline.index import AGAIN, COPY, GONE, LOST, RESENT
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.live import LiveFeed, LiveRequest, RingRule
from netdissect.render.console import cells, line_plain, narrowed
from netdissect.render.safe import safe
from netdissect.render.summary import datagram_summary
from netdissect.render.units import Clock
from samples import unit

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
LOSSY = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
DARK = CAPTURES / "riptide" / "udp_2.2.1_blackout_timeout_clientleg.pcap"
STREAM = CAPTURES / "netplay" / "bin1_coalesced__client_leg.pcap"
SIZES = [(80, 24), (160, 50), (40, 10), (30, 5), (110, 30), (59, 14), (80, 12)]


def opened(path: Path = LOSSY, *, plain: bool = False) -> Browser:
    """Return a browser of a capture that is read."""
    backend = FileBackend(str(path), Choices())
    backend.read()
    browser = Browser(backend, plain=plain)
    browser.tick()
    return browser


def keys(browser: Browser, text: str) -> None:
    """Press keys: names between spaces, else characters."""
    for key in text.split(" "):
        press(browser, key, key if len(key) == 1 else None)
        screen(browser)


def screen(browser: Browser, width: int = 80, height: int = 24) -> str:
    return "\n".join(line_plain(line) for line in draw(browser, width, height))


def find(browser: Browser, code: str) -> None:
    """Put the cursor of the findings on a code."""
    keys(browser, "5")
    end = time.monotonic() + 10
    while not browser.findings.kinds and time.monotonic() < end:
        time.sleep(0.01)
        browser.tick()
        screen(browser)
    for _ in range(40):
        if browser.findings.code() == code:
            return
        keys(browser, "j")
    raise AssertionError(code)


def wait(browser: Browser, text: str, width: int = 80, height: int = 24) -> str:
    """Draw until a text is there."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        browser.tick()
        seen = screen(browser, width, height)
        if text in seen:
            return seen
        time.sleep(0.02)
    raise AssertionError(f"{text!r} did not appear in\n{seen}")


@pytest.fixture(scope="module")
def lossy() -> Iterator[Browser]:
    browser = opened()
    yield browser
    browser.index.close()


def test_from_the_verdict_to_the_bit_that_decides_it_in_at_most_four_keys() -> None:
    browser = opened()
    assert "Closed by the client" in screen(browser)
    keys(browser, "v tab")
    seen = screen(browser)
    assert browser.view == PACKETS
    assert "▏   1073   12.504703 →       1 B  Disconnect" in seen
    assert "type_id = 5 (Disconnect)" in seen
    assert "type_id: bits 0.0 to 0.3" in seen
    assert "0000 [05]" in seen


@pytest.mark.parametrize(
    "path", [LOSSY, STREAM, CAPTURES / "teeworlds" / "tw07_vanilla_session.pcap"]
)
def test_rows_are_those_of_read(path: Path) -> None:
    if not path.exists():
        path = next((CAPTURES / "teeworlds").glob("*.pcap"))
    browser = opened(path)
    index = browser.index
    records = list(iter_records(str(path)))
    assert [record.frame for record in records] == list(index.frames)
    assert [record.time_ns for record in records] == list(index.times)
    for row, record in enumerate(records):
        own = index.record(row)
        assert (own.src, own.dst, own.connection, own.direction, own.payload) == (
            record.src, record.dst, record.connection, record.direction,
            record.payload,
        )  # fmt: skip
        assert own.frames == (record.frames if len(record.frames) > 1 else ())
        assert datagram_summary(own, own.messages) == datagram_summary(record, record.messages)


def late_first(path: Path, behind: Path) -> Path:
    """Write a capture that begins with a flow of which too little comes to know it before the end,
    and more behind it than is held back for that.
    """
    first = [rdpcap(str(LOSSY))[0].copy() for _ in range(3)]
    for packet in first:
        packet[UDP].remove_payload()
        packet[UDP].add_payload(b"\xfe" * 9)
        packet[UDP].sport, packet[UDP].dport = 7, 9
        del packet[UDP].chksum, packet[UDP].len, packet[IP].len, packet[IP].chksum
    wrpcap(str(path), [*first, *rdpcap(str(behind))])
    return path


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A capture whose first rows are listed last."""
    monkeypatch.setattr("netdissect.pipeline.index.MAX_WAITING", 100)
    return late_first(tmp_path / "strange.pcap", LOSSY)


def test_all_frames_of_a_row_that_moved_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdissect.pipeline.index.MAX_WAITING", 2)
    browser = opened(late_first(tmp_path / "stream.pcap", STREAM))
    written: list[int] = []
    monkeypatch.setattr(browser.backend, "write", lambda _, frames, _whole: str(written.extend(frames)))
    records = list(iter_records(str(tmp_path / "stream.pcap")))
    row = next(row for row, record in enumerate(records) if len(record.frames) > 1)
    monkeypatch.setattr(browser.packets, "rows", lambda: [row])
    output.write(browser, "some.pcap")
    wait(browser, "None")
    assert set(written) == set(records[row].frames)


@pytest.mark.parametrize("chosen", [False, True])
def test_what_is_written_has_the_handshake_and_the_end_of_tcp(
    tmp_path: Path, chosen: bool
) -> None:
    """They have no row; without them, what is written would say that the connection goes on."""
    browser, out = opened(STREAM), tmp_path / "out.pcap"
    if chosen:
        browser.scope(1)
    output.write(browser, str(out))
    wait(browser, "frames written")
    assert out.read_bytes() == STREAM.read_bytes()
    rows = browser.rows_of(1)
    frames = {one for row in rows for one in (browser.index.frames[row], *browser.index.joined(row))}
    browser.filter("conn.id == 1")
    while browser.filtering or len(browser.packets) < len(rows):
        browser.tick()
    output.write(browser, f"{out}.part")
    wait(browser, f"{len(frames)} frames written")


def test_frames_that_are_gone_when_they_are_written_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a running capture, whose oldest packets are dropped meanwhile."""
    backend, out = opened().backend, "some.pcap"
    monkeypatch.chdir(tmp_path)
    assert backend.write(out, [1, 3, 3]) == f"2 frames written to {out}"
    said = backend.write(out, [1, 3, 3, 1073, 1074, 2000])
    assert said == f"3 frames written to {out}; 2 others no longer kept"


@pytest.mark.parametrize("small", [False, True])
def test_a_flow_that_is_not_known_yet_holds_nothing_up(
    strange: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    if small:
        small_pieces(monkeypatch)
    backend = FileBackend(str(strange), Choices())
    seen = []
    listed = backend.index.list_until
    backend.index.list_until = lambda oldest: (  # type: ignore[method-assign]
        listed(oldest), seen.append((oldest, backend.index.rows)))  # fmt: skip
    backend.read()
    assert any(oldest == 1 and rows > 100 for oldest, rows in seen)
    frames = list(backend.index.frames)
    assert frames != sorted(frames)
    assert backend.index.row_of(1) == frames.index(1)
    assert backend.index.row_of(500) == frames.index(500)
    browser = Browser(backend)
    browser.packets.go(frames.index(500))
    keys(browser, "m a")
    payloads = {frame: backend.index.payload(row) for row, frame in enumerate(frames)}
    browser.tick()
    index = browser.index
    assert list(index.frames) == sorted(frames) == list(index.frames[: index.rows])
    assert list(index.times[5:500]) == list(index.times)[5:500]
    row = browser.packets.row()
    assert row is not None
    assert index.frames[row] == 500
    keys(browser, "g g")
    keys(browser, "' a")
    assert browser.packets.row() == row
    for own, record in enumerate(sorted(iter_records(str(strange)), key=lambda item: item.frame)):
        again = index.record(own)
        assert again.frame == record.frame
        assert again.payload == record.payload == payloads[record.frame]
        assert (again.connection, again.direction) == (record.connection, record.direction)
        assert datagram_summary(again, again.messages) == datagram_summary(record, record.messages)


def test_what_is_known_of_a_datagram_before_its_row_is_noted_once(
    strange: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"marked": 0, "told": 0}
    mark, unit = index.Index._mark, index.Index.unit

    def marked(self: index.Index, *what: int) -> None:
        counts["marked"] += 1
        mark(self, *what)

    def told(self: index.Index, record: UnitRecord) -> None:
        counts["told"] += len(record.copies)
        unit(self, record)

    monkeypatch.setattr(index.Index, "_mark", marked)
    monkeypatch.setattr(index.Index, "unit", told)
    browser = opened(strange)
    findings = sum(map(len, browser.index.hits.values()))
    assert counts["told"] <= counts["marked"] <= counts["told"] + findings
    assert not browser.index._late


def test_of_frames_without_a_row_the_newest_marks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_LATE", 3)
    found = index.Index()
    for frame in range(1, 7):
        found._mark(frame, index.ACKED, 0, 0)
    assert list(found._late) == [4, 5, 6]
    found.close()


@pytest.mark.parametrize("path", [LOSSY, DARK, CAPTURES / "knet" / "udp_loss8.client.pcap"])
def test_a_small_screen_leaves_out_and_cuts_nothing(path: Path) -> None:
    browser = opened(path)
    seen = screen(browser, 40, 10).splitlines()
    assert "▌" in seen[3]
    assert "…" not in seen[3]
    assert seen[4].startswith("─ connection 1")
    keys(browser, "3")
    seen = wait(browser, "▌", 40, 10).splitlines()
    assert "…" not in "".join(seen[2:])


def test_a_long_search_goes_on_beside_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdissect.browse.navigation._SEARCH_S", 0)
    browser = opened()
    keys(browser, "2 g")
    search(browser, "disconnect")
    assert browser.said.startswith("searching for")
    wait(browser, "▌   1073")
    search(browser, "disconnect")
    assert browser.said.startswith("no further")
    keys(browser, "g")
    search(browser, "disconnect")
    keys(browser, "j")  # the cursor goes elsewhere: it is not taken away from there
    row = browser.packets.row()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        browser.tick()
        time.sleep(0.02)
    assert browser.packets.row() == row


def test_a_filter_finds_what_was_listed_late(strange: Path) -> None:
    browser = opened(strange)
    browser.filter("frame.number < 6")
    wait(browser, "5 datagrams match")
    assert [browser.index.frames[row] for row in browser.packets.chosen or ()] == [1, 2, 3, 4, 5]


def test_a_search_in_the_background_survives_a_filter_that_changes_the_list() -> None:
    """It asks for the row of the cursor at any time."""
    browser = opened()

    class Changing(list[int]):
        def __len__(self) -> int:
            browser.packets.chosen = array("I", [1])
            return super().__len__()

    browser.packets.cursor, browser.packets.chosen = 2, Changing([1, 2, 3])
    assert browser.packets.row() == 3
    assert browser.packets.row() is None


def test_a_short_explanation_fills_a_low_screen(tmp_path: Path) -> None:
    """It left room below, and a verdict was looked for there."""
    (tmp_path / "empty.pcap").write_bytes(LOSSY.read_bytes()[:24])
    browser = opened(tmp_path / "empty.pcap")
    keys(browser, "e")
    assert "matches a known protocol" in screen(browser, 200, 12)


def test_reading_leaves_the_processor_to_the_screen_within_the_units_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    most = 0
    take = FileBackend._take

    def counted(backend: FileBackend, items: Iterable[object]) -> None:
        nonlocal most
        before, units = len(pauses), list(items)
        if backend.loaded.share != 1:  # not the rest after the last packet
            most = max(most, len(units))
            assert len(pauses) - before >= len(units) // 64
        take(backend, units)

    monkeypatch.setattr(FileBackend, "_take", counted)
    monkeypatch.setattr("netdissect.cli.file_backend.time.sleep", pauses.append)
    backend = FileBackend(str(LOSSY), Choices())
    backend.loaded.yield_until = inf
    backend.read()
    assert most > 64
    backend.index.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[LiveBackend, Browser]]:
    """A capture that is taken the way an interface is."""
    target = str(tmp_path / "live.pcapng")
    feed = LiveFeed(LiveRequest(file=str(LOSSY), recorded=True), write=target)
    with LiveSession(feed, Choices(), write=target, quiet=True) as session:
        backend = LiveBackend(target, Choices(), session)
        yield backend, Browser(backend)
    backend.index.close()


def test_a_filter_shows_what_it_has_found_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    browser, goes_on = opened(), Event()

    def select(_: str) -> Iterator[tuple[int, int]]:
        goes_on.wait(60)
        goes_on.clear()
        yield from ((3, 0), (5, 0))
        goes_on.wait(60)
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(browser.backend, "select", select)
    keys(browser, "2")
    browser.filter("msg.resend")
    assert "No datagram matches the filter so far." in screen(browser)
    assert "0 of 1,073 so far" in screen(browser)
    assert not browser.tick()
    goes_on.set()
    end = time.monotonic() + 60
    while not browser.tick() and time.monotonic() < end:
        time.sleep(0.02)
    assert "2 of 1,073 so far" in screen(browser)
    goes_on.set()
    wait(browser, "the disk is broken")
    assert "2 of 1,073 " in screen(browser)
    assert "so far" not in screen(browser)


def test_a_capture_that_runs_becomes_that_of_its_file(watched: tuple[LiveBackend, Browser]) -> None:
    backend, browser = watched
    browser.begin()
    wait(browser, "Closed by the client")
    end = time.monotonic() + 60
    while not backend.loaded.done and time.monotonic() < end:
        time.sleep(0.02)
        browser.tick()
    assert backend.status() == 0
    assert backend.loaded.live == ""
    whole = opened()
    for name in ("frames", "times", "marks", "acked", "firsts", "starts"):
        assert list(getattr(backend.index, name)) == list(getattr(whole.index, name)), name
    known, other = backend.loaded.entries[0], whole.backend.loaded.entries[0]
    assert (known.verdict, known.again, known.datagrams) == (
        other.verdict, other.again, other.datagrams)  # fmt: skip
    history = backend.history(1)
    assert history is not None
    assert len(history.slowest()) == len(whole.backend.history(1).slowest())  # type: ignore[union-attr]


def test_the_cursor_follows_until_it_leaves_the_end(watched: tuple[LiveBackend, Browser]) -> None:
    backend, browser = watched
    backend.read()
    backend.loaded.live, backend.loaded.done = "● 0:01", False
    browser.view = PACKETS
    browser.tick()
    last = backend.index.rows - 1
    assert browser.packets.cursor == last
    keys(browser, "k")
    backend.loaded.version += 1
    browser.tick()
    assert browser.packets.cursor == last - 1
    keys(browser, "F")
    keys(browser, "p")
    assert "paused" in screen(browser)
    keys(browser, "k")
    assert "p continue" in screen(browser)
    rows, browser.index.rows = browser.index.rows, browser.index.rows - 10
    keys(browser, "p")
    keys(browser, "p")
    browser.index.rows = rows
    browser.tick()
    assert len(browser.packets) == rows - 10
    keys(browser, "p")
    browser.tick()
    assert len(browser.packets) == rows
    backend.loaded.live = ""
    keys(browser, "p")
    assert "only a running capture" in screen(browser)


def test_marks_and_fates_are_those_of_read() -> None:
    browser = opened()
    index = browser.index
    for row, record in enumerate(iter_records(str(LOSSY))):
        kinds = {
            item.reliability.kind: item.reliability for item in record.messages if item.reliability
        }
        assert bool(index.marks[row] & AGAIN) == ("retransmission" in kinds)
        assert bool(index.marks[row] & COPY) == ("duplicate" in kinds)
        for facts in kinds.values():
            assert (index.acked[row] or None) == facts.acked_in
            assert (index.firsts[row] or None) == facts.of_frame


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_every_line_is_as_wide_as_the_screen(size: tuple[int, int], plain: bool) -> None:
    browser = opened(plain=plain)
    for key in "12345?":
        press(browser, key, key)
        for focus in range(3):
            browser.focus = focus
            lines = draw(browser, *size)
            assert len(lines) == size[1]
            assert {sum(cells(text) for text, _ in line) for line in lines} == {size[0]}


def test_a_tiny_window_says_so_and_a_small_one_says_something(lossy: Browser) -> None:
    assert "window too small; q quits" in screen(lossy, 30, 5)
    small = screen(lossy, 40, 10)
    assert "Lost 11% →, 10% ←; closed by client" in small
    assert "[1 Conn]" in small


@pytest.mark.parametrize("view", "12345")
def test_every_view_names_help_and_quit(lossy: Browser, view: str) -> None:
    keys(lossy, view)
    for width in (40, 80, 160):
        assert screen(lossy, width, 10).rstrip().endswith("? help  q quit")
    keys(lossy, "1")


def test_an_early_acknowledgement_is_above_later_copies() -> None:
    """A sender may have sent it again before it knew."""
    known = unit()
    early = unit(acked_frame=50, acked_time_ns=known.copies[1].time_ns + 1)
    for one, wanted in ((known, [33, 41, 55, 60]), (early, [33, 41, 50, 55])):
        lines = [line_plain(line) for line in ladder(one, Clock(), 80)]
        assert [int(line.partition("#")[2].split()[0]) for line in lines] == wanted


def test_a_narrow_ladder_has_all_names_whole() -> None:
    names = {
        line_plain(line).strip("│ ").partition("reli")[2].partition("─")[0]
        for line in ladder(unit(), Clock(), 40)[:3]
    }
    assert len(names) == 1
    assert names != {""}


def test_a_filter_leaves_what_read_leaves() -> None:
    browser = opened()
    expression = "msg.resend"
    keys(browser, "/")
    for character in expression:
        press(browser, character, character)
    assert "resend" in screen(browser).splitlines()[2]
    press(browser, "enter")
    wait(browser, "datagrams match")
    with Session(str(LOSSY), Choices(), quiet=True) as session:
        match = Match.compile(expression, session)
        wanted = [
            record.frame for record in session.records() if match.datagram(record, session.first_ns)
        ]
    assert wanted
    browser.open(PACKETS)
    rows = [browser.packets.row(place) for place in range(len(browser.packets))]
    assert [browser.index.frames[row] for row in rows if row is not None] == wanted
    assert f"{len(wanted)} of 1,073" in screen(browser)
    press(browser, "escape")
    assert len(browser.packets) == 1073


def test_a_filter_given_at_the_start_waits_for_what_is_read() -> None:
    backend = FileBackend(str(LOSSY), Choices())
    browser = Browser(backend, expression="msg.resend")
    time.sleep(0.5)  # the filter is ahead
    browser.begin()
    wait(browser, "datagrams match")
    assert len(browser.packets) == 87


def test_a_faulty_filter_is_reported_and_changes_nothing() -> None:
    browser = opened()
    keys(browser, "/")
    for character in "msg.seq =>":
        press(browser, character, character)
    press(browser, "enter")
    assert browser.prompt is not None
    assert browser.prompt.fault
    assert browser.prompt.fault[:20] in screen(browser)
    assert "msg.seq ▏=>" in screen(browser)  # the cursor is where the fault is
    assert browser.prompt.fault == "greater or equal is written >="
    keys(browser, "escape")
    assert browser.prompt is None
    assert browser.expression == ""


def test_escape_takes_back_the_last_step_of_a_filter() -> None:
    browser = opened()
    browser.filter("msg.resend")
    wait(browser, "datagrams match")
    keys(browser, "! !")
    assert browser.expression == "((msg.resend) and not (conn.id == 1)) and not (conn.id == 1)"
    keys(browser, "escape")
    assert browser.expression == "(msg.resend) and not (conn.id == 1)"
    wait(browser, "0 datagrams match")
    keys(browser, "2")
    assert "No datagram matches the filter. Esc undoes it." in screen(browser)
    keys(browser, "escape")
    assert browser.expression == "msg.resend"
    browser.filter("msg.duplicate")  # typed: nothing of the other one is left
    keys(browser, "escape")
    assert browser.expression == ""
    browser.index.close()


def test_columns_leave_room_for_what_a_datagram_says() -> None:
    browser = opened()
    browser.open(PACKETS, frame=1044)
    keys(browser, "c")
    wide = screen(browser, 160, 50)
    assert "127.0.0.1:51399 → 127.0.0.1:21109  Notify last" in wide
    assert "again o…" not in wide
    assert "acked #…" not in wide
    assert "Notify" in screen(browser, 40, 10)
    browser.index.close()


def test_tab_completes_a_field(lossy: Browser) -> None:
    keys(lossy, "/")
    for character in "msg.rese":
        press(lossy, character, character)
    press(lossy, "tab")
    assert lossy.prompt is not None
    assert lossy.prompt.text == "msg.resend"
    press(lossy, "escape")


def test_time_has_the_slowest_unit_and_its_ladder() -> None:
    browser = opened()
    keys(browser, "3")
    seen = wait(browser, "ladder of reliable 17")
    assert "~257 ms" in seen
    assert "#208" in seen
    wait(browser, "client →")
    keys(browser, "enter")
    assert browser.view == PACKETS
    assert "▌    208" in screen(browser)
    keys(browser, "backspace")
    assert browser.view == TIME


def test_the_ladder_can_have_all_datagrams_of_the_time_in_which_a_unit_waited() -> None:
    browser = opened()
    keys(browser, "3")
    wait(browser, "ladder of reliable 17")
    keys(browser, "L")
    assert "all datagrams while reliable 17 waited" in screen(browser)
    keys(browser, "tab \\")
    seen = screen(browser, 100, 60)
    found = [int(frame) for frame in re.findall(r"│ #(\d+)", seen)]
    assert found == list(range(208, 247))
    assert re.search(r"│──»»─* Reliable sequence_id=17.*▶│ #221", seen)
    assert re.search(r"│◀─.* Ack last_received=19.*│ #245", seen)
    keys(browser, "\\ L")
    assert "ladder of reliable 17" in screen(browser)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10)])
def test_a_message_is_not_cut(lossy: Browser, columns: int, rows: int) -> None:
    text = "start with --user NAME to write there, or name another folder: this is a long one"
    lossy.say(text)
    seen = screen(lossy, columns, rows).splitlines()
    lossy.say("")
    assert (len(seen), {len(line) for line in seen}) == (rows, {columns})
    assert text in " ".join(" ".join(seen).split())


def test_a_connection_without_messages_says_so() -> None:
    browser = opened(CAPTURES / "netplay" / "bin1_server_full.pcap")
    screen(browser)
    empty = next(one for one in browser.connections.shown if not browser.rows_of(one.number))
    browser.connections.find(empty.number)
    keys(browser, "enter")
    assert f"connection {empty.number} carried no message" in screen(browser)
    keys(browser, "b")
    assert browser.view == CONNECTIONS


def test_left_and_right_go_to_the_unit_sent_before_and_after() -> None:
    browser = opened()
    keys(browser, "3")
    wait(browser, "ladder of reliable 17")
    sent = [browser.units.cursor_ns()]
    for key in ("l", "right", "h", "left"):
        keys(browser, key)
        sent.append(browser.units.cursor_ns())
    every = sorted(one.copies[0].time_ns for one in browser.units.units)
    at = every.index(sent[0])
    assert sent == [every[at + step] for step in (0, 1, 2, 1, 0)]


def test_units_and_plots_begin_at_the_selected_datagram() -> None:
    browser = opened()
    keys(browser, "4")
    wait(browser, "Time until acknowledged")
    browser.open(PACKETS, frame=793)  # the third copy of reliable 78
    keys(browser, "4")
    assert "#778  reliable 78" in screen(browser)
    browser.open(PACKETS, frame=705)  # sent by the server
    keys(browser, "4")
    assert "#705  reliable 74" in screen(browser)
    browser.open(PACKETS, frame=793)
    keys(browser, "3")
    assert "ladder of reliable 78" in screen(browser)


def test_views_show_the_connection_of_the_selected_datagram() -> None:
    browser = opened(CAPTURES / "eoudp" / "late_three_clients.pcap")
    rows = browser.index.rows
    connection = browser.index.party(rows - 1).connection
    assert connection is not None
    keys(browser, "2")
    browser.packets.go(rows - 1)
    keys(browser, "1")
    assert browser.chosen() == connection


def test_plots_show_what_matches_the_filter() -> None:
    browser = opened()
    keys(browser, "4")
    wait(browser, "of 129 points")
    browser.filter("frame.number < 200")
    wait(browser, "of 19 points")
    history = browser.plotted()
    assert history is not None
    assert {finding.frame for finding in history.findings} < set(range(200))
    assert history.first_ns == browser.history().first_ns  # type: ignore[union-attr]
    keys(browser, "3")
    assert browser.history() is not history
    keys(browser, "4")
    browser.filter("frame.number == 0")
    wait(browser, "No connection is selected")
    browser.scope(1)
    wait(browser, "nothing that is shown is numbered")
    browser.scope(None)
    browser.filter("")
    wait(browser, "of 129 points")


def test_plots_of_a_running_capture_show_what_the_filter_has_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser, goes_on = opened(), Event()

    def select(_: str) -> Iterator[tuple[int, int]]:
        yield from ((4, 0), (33, 0))
        goes_on.wait(60)

    monkeypatch.setattr(browser.backend, "select", select)
    browser.filter("msg.resend")
    keys(browser, "4")
    wait(browser, "Looking for what matches the filter")
    while len(browser.packets) < 2:
        browser.tick()
        screen(browser)
    monkeypatch.setattr(browser.backend.loaded, "live", "live")
    wait(browser, "1 of 3 points")
    goes_on.set()


def test_plots_walk_from_point_to_frame() -> None:
    browser = opened()
    keys(browser, "4")
    assert "Reading this connection…" in screen(browser)
    assert "No plot" not in screen(browser)
    wait(browser, "Time until acknowledged")
    first = browser.plots.here()
    keys(browser, "right right")
    second = browser.plots.here()
    assert first != second
    assert second is not None
    keys(browser, "enter")
    row = browser.packets.row()
    assert browser.view == PACKETS
    assert row is not None
    assert browser.index.frames[row] == second.frame
    keys(browser, "4 >")
    assert browser.view == PLOTS
    assert "Time until acknowledged" not in screen(browser)


def test_findings_lead_to_their_first_frame() -> None:
    browser = opened()
    find(browser, "poor-quality")
    seen = screen(browser)
    assert browser.view == FINDINGS
    assert "poor-quality" in seen
    assert "87" in seen
    keys(browser, "enter")
    row = browser.packets.row()
    assert row is not None
    assert browser.index.frames[row] == 541
    assert "n/N next poor-quality" in screen(browser)
    walked = []
    while not browser.said:
        row = browser.packets.row()
        assert row is not None
        walked.append(browser.index.frames[row])
        keys(browser, "n")
    assert walked == [541, 699]
    assert browser.said == "no further poor-quality"
    keys(browser, "N")
    row = browser.packets.row()
    assert row is not None
    assert browser.index.frames[row] == 541
    keys(browser, "2 g n")  # marks again
    row = browser.packets.row()
    assert row is not None
    assert browser.index.frames[row] not in walked


def test_copies_acknowledgements_marks_and_the_way_back() -> None:
    browser = opened()
    browser.open(PACKETS, frame=208)
    keys(browser, "o")
    assert "▌    221" in screen(browser)
    keys(browser, "a")
    assert "▌    245" in screen(browser)
    keys(browser, "m x g ' x")
    assert "▌    245" in screen(browser)
    keys(browser, "g n")
    assert "again of" in browser.packets.fate(browser.packets.row() or 0)
    keys(browser, "b b b b b b")
    assert browser.view == CONNECTIONS


def test_messages_whose_tcp_segment_was_retransmitted_have_a_mark() -> None:
    """The frame of a retransmission brings nothing new, so it has no row of its own."""
    browser = opened(CAPTURES / "netplay" / "bin1_lossy__client_side.pcap")
    index = browser.index
    marked = [row for row in range(index.rows) if index.marks[row] & RESENT]
    lost = {index.frames[row] for row in marked}
    (report,) = analyze(str(CAPTURES / "netplay" / "bin1_lossy__client_side.pcap")).connections
    (segments,) = (each for each in report.spaces if each.space == "tcp" and not each.direction)
    assert len(lost) == segments.added.units == 33
    browser.open(PACKETS, frame=687)
    assert "→ »" in screen(browser)
    assert browser.packets.fate(browser.packets.row() or 0) == "retransmitted in #697"
    # All messages of a segment are acknowledged, not only the first.
    assert all(index.acked[row] for row in range(index.rows) if index.frames[row] == 683)


@pytest.mark.parametrize("name", ["bin1_lossy__client_side", "text_lossy__server_side"])
def test_all_views_agree_on_messages_that_tcp_has_retransmitted(name: str) -> None:
    path = CAPTURES / "netplay" / f"{name}.pcap"
    browser = opened(path)
    keys(browser, "2 / m s g . r e s e n d enter")
    wait(browser, "datagrams match")
    index, found = browser.index, list(browser.packets.rows())
    assert found
    assert found == [row for row in range(index.rows) if index.marks[row] & RESENT]
    with Session(str(path), Choices(), quiet=True) as session:
        match = Match.compile("msg.resend", session)
        match.restrict(session)
        records = [record for record in session.records() if match.datagram(record, 0)]
    with Session(str(path), Choices(), quiet=True) as session:
        units = [item for item in session.timeline() if isinstance(item, UnitRecord)]
    frames = [index.frames[row] for row in found]
    assert [record.frame for record in records] == frames
    assert [unit.copies[0].frame for unit in units if "retransmitted_in" in unit.extra] == frames
    again = {copy.frame for unit in units for copy in unit.copies if copy.kind == "retransmission"}
    for record in records:
        facts = record.messages[0].reliability
        assert facts is not None
        assert facts.retransmitted_in in again


def test_a_large_file_is_filtered_once_it_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_backend, "MAX_BESIDE", 1000)
    backend = FileBackend(str(LOSSY), Choices())
    browser = Browser(backend, expression="msg.resend")
    assert "starts when all is read" in screen(browser)
    backend.read()
    wait(browser, "datagrams match")
    assert "87 of 1,073" in screen(browser)


@pytest.mark.parametrize("width", [45, 46, 60, 61, 80, 81, 110, 111])
def test_lists_have_the_columns_of_their_headings(width: int) -> None:
    browser = opened()
    head, row = draw(browser, width, 24)[2:4]
    assert ("client" in line_plain(head)) == ("127.0.0.1:51399" in line_plain(row))
    assert ("lasted" in line_plain(head)) == ("12.50 s" in line_plain(row))
    keys(browser, "2")
    head, row = draw(browser, width, 24)[2:4]
    place = line_plain(head).find("time") + len("time")
    assert (place > 10) == bool(re.search(r" \d+\.\d{6} ", line_plain(row)))
    assert place < 10 or line_plain(row)[place - 1].isdigit()
    keys(browser, "5")
    wait(browser, "retransmission")
    head, row = draw(browser, width, 24)[2:4]
    assert ("what it says" in line_plain(head)) == (len(line_plain(row).split()) > 4)


def test_a_timeout_ends_when_its_last_frame_was_sent() -> None:
    browser = opened(CAPTURES / "teeworlds" / "tw07_blackout_client_side.pcap")
    found = re.search(r"ended in #(\d+) at ([\d.]+)", " ".join(screen(browser).split()))
    assert found is not None
    row = browser.index.row_of(int(found[1]))
    assert row is not None
    assert found[2] == browser.clock.show(browser.index.times[row])


def test_search_and_jumps() -> None:
    browser = opened()
    keys(browser, "2 f D i s c o n n e c t enter")
    wait(browser, "▌   1073")
    keys(browser, "# 3 0 0 enter")
    assert "▌    300" in screen(browser)
    keys(browser, "@ 3 . 0 5 enter")
    row = browser.packets.row()
    assert row is not None
    assert browser.index.frames[row] == 221


def test_shown_frames_are_written_byte_for_byte(tmp_path: Path) -> None:
    browser = opened()
    target = tmp_path / "part.pcap"
    find(browser, "retransmission")
    keys(browser, "*")
    wait(browser, "datagrams match")
    write(browser, str(target))
    wait(browser, "frames written")
    frames = list(iter_records(str(target)))
    assert len(frames) == len(browser.packets) == 87
    assert {frame.payload for frame in frames} <= {
        browser.index.payload(row) for row in range(browser.index.rows)
    }


def test_the_source_is_never_written_over() -> None:
    browser = opened()
    before = LOSSY.read_bytes()
    write(browser, str(LOSSY))
    assert "is also an input" in wait(browser, "another file", 250)
    assert LOSSY.read_bytes() == before


def test_hostile_text_is_neither_obeyed_nor_markup(lossy: Browser) -> None:
    text = "\x1b]0;owned\x07[red]name[/red]\u202e"
    shown = line_plain(narrowed([(text, "")], 80))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]name[/red]" in shown
    lossy.open(PACKETS)
    lossy.packets.go(0)
    lossy.packets._summaries[0] = text
    seen = screen(lossy, 160, 50)
    assert "[red]name" in seen
    assert "\x1b" not in seen
    lossy.packets._summaries.clear()
    lossy.open(CONNECTIONS)


def test_a_cut_file_opens_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(LOSSY.read_bytes()[:-7])
    browser = opened(path)
    assert "cut short" in screen(browser)
    assert browser.backend.status() == 6  # type: ignore[attr-defined]


def test_a_capture_of_nothing_known_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "none.pcap"
    path.write_bytes(LOSSY.read_bytes()[:24])
    assert "No connection of a known protocol" in screen(opened(path))


def test_a_verdict_has_room_and_the_ruler_round_seconds() -> None:
    browser = opened()
    rows = screen(browser).splitlines()
    place = rows[2].index("verdict")
    assert 80 - place >= 36
    assert rows[3].index("Lost 11% →, 10% ←; closed by client") == place
    assert "…" not in rows[3]
    index = browser.backend.index
    ruler = line_plain(lanes(index, range(len(index.times)), 80)[0])
    assert re.findall(r"\|(\S+) s", ruler) == ["0", "5", "10"]


def test_a_long_address_keeps_its_port_in_the_list() -> None:
    from netdissect.browse.backend import Entry
    from netdissect.browse.connections import Connections
    from netdissect.render.units import Clock

    pane = Connections(Clock("r", 0))
    ends = "[2001:db8:1:2:3:4:5:6]:51110", "[::1]:7777"
    pane.take([Entry(n, "riptide-2.2", *ends, verdict="Closed.") for n in range(1, 13)])
    for width in (80, 160):
        assert {
            cells(line_plain(pane.line(n, width)).partition("Closed.")[0]) for n in (0, 11)
        } == {cells(line_plain(pane.head(width)[0]).partition("verdict")[0]) - 1}
        assert ":51110 " in line_plain(pane.line(11, width))


def test_the_cursor_is_on_the_worst_until_the_user_moves_it() -> None:
    from netdissect.browse.backend import Entry
    from netdissect.browse.connections import Connections
    from netdissect.render.units import Clock

    def entries(*bad: int) -> list[Entry]:
        return [Entry(n, "x", "a:1", "b:2", badness=bad[n]) for n in range(len(bad))]

    pane = Connections(Clock("r", 0))
    for bad, worst in (((0, 0), 0), ((0, 0, 5), 2), ((0, 9, 5), 1)):
        pane.take(entries(*bad))
        found = pane.entry()
        assert found is not None
        assert found.number == worst
    pane.move(1)
    pane.take(entries(0, 9, 5, 7))
    found = pane.entry()
    assert found is not None
    assert found.number == 2


def test_the_pane_that_has_the_keys_is_seen_without_colour() -> None:
    browser = opened()
    before = screen(browser)
    keys(browser, "tab")
    assert "━ connection 1" in screen(browser)
    assert "─ connection 1" in before
    browser.plain = True
    assert "⏎" not in screen(browser)


def test_a_plot_is_zoomed_around_its_point_and_back() -> None:
    browser = opened()
    keys(browser, "4")
    wait(browser, "Time until acknowledged")
    keys(browser, "right right right")
    frame = browser.plots.here()
    whole = browser.plots.chart()
    keys(browser, "+")
    near = browser.plots.chart()
    assert whole is not None
    assert near is not None
    assert near.end_ns - near.start_ns <= (whole.end_ns - whole.start_ns) // 4
    assert browser.plots.here() == frame
    keys(browser, "-")
    assert browser.plots.chart() == whole
    keys(browser, "0")
    assert "this is all there is" in screen(browser)


def test_lanes_are_zoomed_around_a_unit_and_back() -> None:
    browser = opened()
    keys(browser, "3")
    wait(browser, "reliable 17")
    wait(browser, "|10 s")
    whole, everything = browser.units.lanes, len(browser.units.units)
    keys(browser, "+ +")
    wait(browser, "|3.0 s")
    assert browser.units.window.part is not None
    start, end = browser.units.window.part
    assert all(start <= unit.copies[0].time_ns <= end for unit in browser.units.units)
    assert 0 < len(browser.units.units) < everything
    keys(browser, "( j )")
    assert "s; 0 shows all" in screen(browser)
    keys(browser, "0")
    wait(browser, "|10 s")
    assert (browser.units.lanes, len(browser.units.units)) == (whole, everything)
    keys(browser, "0")
    assert "this is all there is" in screen(browser)


def test_messages_are_ordered_by_time_and_reversed() -> None:
    browser = opened()
    keys(browser, "3")
    wait(browser, "slowest first")
    wait(browser, "▌")
    slowest = [unit.wire_seq for unit in browser.units.units]
    orders = {"S": "slowest last", "s": "oldest last", "S ": "oldest first", "s ": "slowest first"}
    found = {}
    for key, order in orders.items():
        keys(browser, key.strip())
        assert order in screen(browser)
        found[order] = [unit.wire_seq for unit in browser.units.units]
    assert found["slowest last"] == found["slowest first"][::-1] == slowest[::-1]
    assert found["oldest last"] == found["oldest first"][::-1]
    before = browser.connections.reverse
    for key in "245":
        keys(browser, f"{key} S")
        assert "have other orders" in browser.said
        keys(browser, "s")
        assert "have other orders" in browser.said
    assert browser.connections.reverse == before


def test_findings_of_no_frame_are_among_those_of_a_connection() -> None:
    browser = opened()
    screen(browser)
    keys(browser, "enter")
    assert browser.connection == 1
    find(browser, "high-loss")
    assert re.search(r"W high-loss +2 ", screen(browser))
    keys(browser, "enter")
    assert "no single frame shows this" in screen(browser)
    browser.filter("msg.resend")
    wait(browser, "▌C retransmission")
    assert "high-loss" not in screen(browser)


def test_the_help_fits_a_usual_screen(lossy: Browser) -> None:
    keys(lossy, "?")
    assert HELP.splitlines()[-1] in screen(lossy)
    keys(lossy, "?")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_help_is_whole_at_every_width(width: int) -> None:
    text = "".join(line_plain(line) for line in help_lines(width, plain=False)).replace(" ", "")
    for word in HELP.split():
        assert word in text
    assert all(cells(line_plain(line)) <= width for line in help_lines(width, plain=False))


def test_what_is_not_resent_by_design_is_not_drawn_like_lost_reliable_data() -> None:
    browser = opened()
    marks = list(browser.index.marks)
    assert sum(bool(mark & GONE) for mark in marks) > 10
    assert not any(mark & LOST for mark in marks)
    keys(browser, "3")
    assert "✗" not in screen(browser)
    browser.packets.go(next(row for row, mark in enumerate(marks) if mark & GONE))
    keys(browser, "2")
    assert re.search(r" x +\d+ B  Notify", screen(browser))
    assert "lost, not retransmitted" in screen(browser)


def test_reading_can_be_stopped_and_what_was_read_stays() -> None:
    backend = FileBackend(str(LOSSY), Choices())
    browser = Browser(backend)
    assert "Ctrl-C stop reading" in screen(browser)
    keys(browser, "ctrl+c")
    assert not browser.leaving
    backend.read()
    browser.tick()
    assert backend.loaded.done
    assert browser.index.rows < 1073
    assert "! Reading was stopped at 0% of the file." in screen(browser)
    keys(browser, "ctrl+c")
    assert browser.leaving


def test_what_runs_is_open_so_far_and_its_silence_is_counted() -> None:
    backend = FileBackend(str(DARK), Choices())
    backend.read()
    report = backend.connection(1)
    assert report is not None
    assert report.diagnosis is not None
    report.diagnosis.ending.how = "open"
    (timer,) = [timer for timer in report.timeouts if timer.side == "client"]
    now_ns = (timer.last_heard_ns or 0) + 4_000_000_000
    report.timeouts = [replace(timer, fired=None)]
    said = " ".join(line_plain(line) for line in answer(report, Clock(), 200, now_ns=now_ns))
    assert "Open so far." in said
    assert "The server has been silent for 4.00 s of 5.00 s; then the client gives up." in said


@pytest.mark.parametrize("view", range(5))
def test_each_key_in_the_hints_does_something(view: int) -> None:
    browser = opened()
    for focus in range(3):
        keys(browser, str(view + 1))
        browser.focus = min(focus, len(browser.panes) - 1)
        for word in hints(browser, 500).split("  "):
            told = word.partition(" ")[0] if word != "< > other plot" else "<"
            for key in {
                "←/→": ["left", "right"],
                "⏎": ["enter"],
                "⌫": ["backspace"],
                "Tab": ["tab"],
                "+": ["+", "-", "0"],
            }.get(told, told.split("/") if len(told) > 1 else [told]):
                press(browser, key, key if len(key) == 1 else None)
                assert "no such key" not in browser.said, word
                browser.prompt, browser.help, browser.leaving, browser.pending = (
                    None,
                    False,
                    False,
                    "",
                )
                browser.view, browser.focus = view, min(focus, len(browser.panes) - 1)


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "_BITS", 4)
    monkeypatch.setattr(column, "_REST", 15)
    for module in (column, index):
        monkeypatch.setattr(module, "PIECE", 16)


def test_who_gave_up_rights_is_told_where_to_write(
    watched: tuple[LiveBackend, Browser], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, _ = watched
    backend.feed.note = "running as user 65534 (nobody)"
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    # A terminal of 80 columns cuts the rest.
    with pytest.raises(UsageError, match=r"^.{,40}--user NAME.*another folder"):
        backend.write(str(tmp_path / "kept.pcapng"), [1])
    (tmp_path / "open").mkdir()
    backend._fits(str(tmp_path / "open" / "kept.pcapng"))


@pytest.fixture
def ringed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LiveBackend, Browser]]:
    """A capture that is taken the way an interface is, of which 24 kB are kept."""
    small_pieces(monkeypatch)
    folder = tmp_path / "ring"
    folder.mkdir()
    target = str(folder / "live.pcapng")
    ring = RingRule(octets=3000, files=8, by_frame=True)
    feed = LiveFeed(LiveRequest(file=str(LOSSY), recorded=True), write=target, ring=ring)
    with LiveSession(feed, Choices(), write=None, quiet=True) as session:
        backend = LiveBackend(target, Choices(), session, folder=folder, keep=24_000)
        yield backend, Browser(backend)
    backend.index.close()


def test_a_capture_that_has_no_end_drops_its_oldest_packets(
    ringed: tuple[LiveBackend, Browser], tmp_path: Path
) -> None:
    backend, browser = ringed
    backend.read()
    browser.tick()
    kept, whole = backend.index, opened().backend.index
    first = kept.frames[kept.first]
    assert 1 < first < 1073
    assert list(kept.frames)[kept.first :] == list(range(first, 1074))
    assert list(kept.times)[kept.first :] == list(whole.times)[first - 1 :]
    for row in (kept.first, kept.rows - 1):
        assert kept.payload(row) == whole.payload(row)
        assert browser.packets.record(row).connection == 1
    assert f"The oldest {first - 1:,} packets were dropped" in screen(browser)
    keys(browser, "2")
    assert f"{1074 - first:,} of {1074 - first:,}" in screen(browser)
    keys(browser, "g")
    assert browser.packets.row() == kept.first
    browser.filter("conn.id == 1")
    wait(browser, f"{1074 - first:,} datagrams match")
    browser.filter("")
    copy = tmp_path / "copy.pcapng"
    assert backend.write(str(copy), list(range(first, 1074))) == (
        f"{1074 - first:,} frames written to {copy}"
    )
    with open_capture(str(copy)) as reader:
        times = [frame[1] for frame in reader]
    assert times == list(whole.times)[first - 1 :]
    history = backend.history(1)
    assert history is not None
    assert {unit.copies[0].frame >= first for unit in history.slowest()} == {True}
    assert backend.report(str(tmp_path / "report.html")).endswith("kB")


def test_payloads_lie_in_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    monkeypatch.setattr(index, "_LEAST_RING", 1)
    monkeypatch.setattr(index, "_WRITE_OCTETS", 300)
    whole = opened().backend.index
    ring = FileBackend(str(LOSSY), Choices(), ring=8000)
    ring.read()
    kept = ring.index
    assert kept.rows == whole.rows
    rows = range(kept.first, kept.rows)
    assert 6500 < sum(whole.length(row) for row in rows) <= 8000
    assert [kept.payload(row) for row in rows] == [whole.payload(row) for row in rows]
    assert [kept.marks[row] for row in rows] == [whole.marks[row] for row in rows]
    monkeypatch.setattr(index, "MAX_ROWS", 100)
    fewer = FileBackend(str(LOSSY), Choices(), ring=1_000_000)
    fewer.read()
    assert fewer.index.rows - fewer.index.first <= 100
    assert fewer.index.frames[fewer.index.rows - 1] == 1073
    assert not fewer.index.left_out


def test_lines_stay_where_they_are_when_the_oldest_leave(ringed: tuple[LiveBackend, Browser]) -> None:
    backend, browser = ringed
    backend.folder = None
    backend.read()
    browser.view = PACKETS
    browser.tick()
    browser.packets.go(600)
    before = screen(browser).splitlines()[4:10]
    frame = browser.index.frames[browser.packets.row() or 0]
    browser.index.forget_frames(500)
    browser.tick()
    assert browser.index.frames[browser.packets.row() or 0] == frame
    assert screen(browser).splitlines()[4:10] == before
    browser.index.forget_frames(900)
    browser.tick()
    assert browser.packets.row() == browser.index.first
    assert browser.index.row_of(600) is None
    assert browser.index.near(600) == browser.index.first
    assert min(browser.index.first_hits.values()) >= 900


def test_help_and_docs_tell_every_key_there_is() -> None:
    assert HELP in (CAPTURES.parent / "docs/commands/browse.md").read_text()
    shown = {"enter": "Enter", "backspace": "Backspace", "tab": "Tab", "shift+tab": "S-Tab",
             "escape": "Esc"}  # fmt: skip
    for key in ["b", ":", *(command.key for command in COMMANDS)]:
        word = shown.get(key, key)
        assert re.search(rf"(?<!\S){re.escape(word)}:?(?!\S)", HELP), key
    for part in ("key", "name"):
        assert len({getattr(command, part) for command in COMMANDS}) == len(COMMANDS)


def test_a_command_is_given_by_its_name(lossy: Browser) -> None:
    keys(lossy, "1")
    press(lossy, ":", ":")
    for letter in "pac":
        press(lossy, letter, letter)
    press(lossy, "tab")
    assert lossy.prompt is not None
    assert lossy.prompt.text == "packets"
    press(lossy, "enter")
    assert lossy.view == PACKETS
    for text, said in (("nothing", "no such command"), ("un", "several commands")):
        keys(lossy, ":")
        assert lossy.prompt is not None
        lossy.prompt.paste(text)
        press(lossy, "enter")
        assert said in lossy.said
    keys(lossy, ":")
    assert lossy.prompt is not None
    lossy.prompt.paste("write")
    press(lossy, "enter")
    assert lossy.prompt is not None  # the file is asked for
    press(lossy, "escape")
    keys(lossy, "1")


def test_what_is_under_the_cursor_is_explained() -> None:
    browser = opened()
    screen(browser)
    keys(browser, "e")
    assert "Recognised by" in screen(browser)
    keys(browser, "escape")
    assert not browser.help
    browser.open(PACKETS, frame=3)
    keys(browser, "e")
    assert "Nothing was found in it" in screen(browser)
    keys(browser, "q")
    browser.open(PACKETS, frame=221)
    keys(browser, "e")
    assert "Retransmission" in screen(browser)
    keys(browser, "q tab j e")
    assert "riptide.type_id" in screen(browser)
    assert "from bit 0 of byte 0" in screen(browser)
    keys(browser, "?")
    find(browser, "high-loss")
    keys(browser, "e")
    assert "high-loss (warn)" in screen(browser)
    keys(browser, "q 3")
    wait(browser, "ladder of")
    keys(browser, "e")
    assert "copies of it were seen" in screen(browser)
    keys(browser, "q 4")
    wait(browser, "of sending")
    keys(browser, "e")
    assert "were acknowledged within" in screen(browser)
    browser.index.close()


def test_packets_are_listed_by_message_as_far_as_they_are_seen() -> None:
    browser = opened(CAPTURES / "knet" / "udp_loss8.client.pcap")
    packets = browser.packets
    keys(browser, "i")
    assert browser.said == "packets can be listed by message; 2 shows them"
    keys(browser, "2 g i")
    expected = [
        (number, message)
        for number in range(len(packets))
        for message in range(max(1, len(packets.record(number).messages)))
    ]
    assert len(expected) > len(packets) + 10
    shown = []
    for _ in expected:
        shown.append((packets.cursor, packets.message))
        lines = screen(browser).splitlines()
        chosen = [line for line in lines if line.startswith("▌")]
        record = packets.record(packets.cursor)
        assert len(chosen) == 1
        assert (f" {record.frame} " in chosen[0][:9]) == (packets.message == 0)
        said = safe(record.messages[packets.message].summary)
        assert said[:20] in chosen[0]
        assert record.dissection is not None
        views = record.dissection.messages
        node = views[packets.message].node if views else record.dissection.root
        assert browser.tree.node() is node
        assert output.line_text(browser).endswith(said[-20:]) or packets.message == 0
        keys(browser, "j")
    assert shown == expected
    for place in reversed(expected[-50:]):
        assert (packets.cursor, packets.message) == place
        keys(browser, "k")
    keys(browser, "g pagedown")
    assert (packets.cursor, packets.message) == expected[packets.page]
    packets.select(3)
    assert (packets.cursor, packets.message) in expected
    keys(browser, "G")
    last = screen(browser).splitlines()
    assert all(line.strip() for line in last[3 : 3 + packets.page])
    packets.move(2)
    keys(browser, "i")
    assert packets.message == 0
    assert "what, by message" not in screen(browser)
    browser.index.close()


def test_a_line_is_copied_as_it_is_read() -> None:
    browser = opened()
    browser.open(PACKETS, frame=221)
    keys(browser, "y")
    assert browser.copied is not None
    assert re.match(
        r"221 +3\.056686 +1 → » +38 B  Reliable sequence_id=17 .*data=34 B +again of #208$",
        browser.copied,
    )
    keys(browser, "4")
    wait(browser, "of 129 points")
    keys(browser, "y")
    assert "»" in browser.copied or "#208" in browser.copied
    for key, seen in {"1": "Lost", "3": "ladder of", "5": "retransmission"}.items():
        keys(browser, key)
        wait(browser, seen)
        keys(browser, "y")
        assert browser.copied
        assert " " * 40 not in browser.copied


@pytest.mark.parametrize(
    ("name", "frame", "field", "expected"),
    [
        ("teeworlds/tw07_kicked", 91, "reason", 'teeworlds.reason == "Kicked (bad manners)"'),
        ("teeworlds/tw07_kicked", 91, "control_flag", "teeworlds.control_flag == true"),
        ("teeworlds/tw07_blackout_client_side", 3, "token", "teeworlds.token == 7c:85:fa:e2"),
        ("netplay/bin1_lossy__client_side", 16, "sender", 'netplay.sender == "lossy"'),
        ("riptide/udp_2.2.1_lossy_clientleg", 221, "sequence_id", "riptide.sequence_id == 17"),
    ],
)
def test_a_filter_on_a_value_matches_where_it_was_found(
    name: str, frame: int, field: str, expected: str
) -> None:
    browser = opened(CAPTURES / f"{name}.pcap")
    browser.open(PACKETS, frame=frame)
    keys(browser, "tab")
    for _ in range(60):
        node = browser.tree.node()
        if node is not None and node.name == field:
            break
        keys(browser, "j")
    keys(browser, "*")
    assert browser.expression == expected
    wait(browser, "1 datagram matches" if field == "reason" else "datagrams match")
    assert frame in {browser.index.frames[row] for row in browser.packets.rows()}
    browser.index.close()


def test_a_quoted_text_is_filtered_on_as_it_is() -> None:
    text = 'a\\b "c"\n[red]\u202e'
    with Session(str(LOSSY), Choices(), quiet=True) as session:
        Match.compile(f"netplay.sender == {output._literal(text)}", session)
    assert output._literal('a\\"') == '"a\\\\\\""'
    assert output._literal("x" * 10_000) is None


def test_other_columns() -> None:
    browser = opened()
    keys(browser, "c")
    assert "datagrams" in screen(browser)
    assert "1,073" in screen(browser).splitlines()[3]
    keys(browser, "c")
    assert "127.0.0.1:51399" in screen(browser).splitlines()[3]
    keys(browser, "2 c")
    assert "127.0.0.1:51399 → 127.0.0.1:21109" in screen(browser, 105).splitlines()[3]
    browser.index.close()


def test_a_span_of_a_plot_is_shown() -> None:
    browser = opened()
    keys(browser, "4")
    wait(browser, "of sending")
    keys(browser, "l (")
    browser.plots.step(20)
    keys(browser, ")")
    assert re.search(r"s: 2\d points; 0 shows all", screen(browser))
    chart = browser.plots.chart()
    assert chart is not None
    assert chart.end_ns - chart.start_ns < 4_000_000_000
    keys(browser, "0 )")
    assert "( starts a span" in screen(browser)
    browser.index.close()


def test_a_port_is_decoded_as_a_protocol(tmp_path: Path) -> None:
    packets = [Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=5000, dport=6000)
               / Raw(b"\x08\x00") for _ in range(3)]  # fmt: skip
    path = tmp_path / "plain.pcap"
    wrpcap(str(path), packets)
    browser = opened(path)
    keys(browser, "e")
    assert "10.0.0.1:5000 → 10.0.0.2:6000" in screen(browser)
    keys(browser, "q D")
    assert browser.prompt is not None
    assert browser.prompt.text == "udp.port==6000,"
    browser.prompt.paste("nothing")
    press(browser, "enter")
    assert "nothing" in browser.said
    keys(browser, "D")
    assert browser.prompt is not None
    browser.prompt.paste("riptide-2.")
    assert "riptide-2.2" in [info.name for info in browser.prompt.offers()]
    browser.prompt.paste("2")
    press(browser, "enter")
    again = browser.replacement
    assert again is not None
    again.read()
    assert [entry.dialect for entry in again.loaded.entries] == ["riptide-2.2"]
    again.index.close()
    browser.index.close()


@pytest.mark.parametrize(
    ("name", "frame", "field"),
    [
        ("riptide/udp_2.2.1_lossy_clientleg", 1073, "type_id"),
        ("teeworlds/tw07_kicked", 91, "reason"),
        ("eoudp/rfc02_reject", 39, "command"),
        ("knet/knet2010_loss.client", 453, "message_id"),
        ("teeworlds/tw07_two_players", 1011, "control_id"),
        ("riptide/udp_2.0.0_kick_stop", 36, "reason"),
        ("riptide/tcp_2.2.1_coalesce", 234, "type_id"),  # its segment has a Heartbeat, too
        ("netplay/bin1_lossy__client_side", 725, "Netplay stream"),  # its FIN has no payload
    ],
)
def test_from_a_verdict_to_the_field_that_says_it(name: str, frame: int, field: str) -> None:
    browser = opened(CAPTURES / f"{name}.pcap")
    screen(browser)
    keys(browser, "v tab")
    row, node = browser.packets.row(), browser.tree.node()
    assert row is not None
    assert node is not None
    assert (browser.index.frames[row], node.name) == (frame, field)
    assert field != "type_id" or "(Disconnect)" in screen(browser)
    browser.index.close()


def test_what_waits_keeps_its_bytes_and_nothing_else(strange: Path) -> None:
    """A flow that is not recognised holds up to MAX_WAITING datagrams back."""
    held: list[int] = []
    backend = FileBackend(str(strange), Choices())
    listed = backend.index.list_until

    def watched(oldest: int | None) -> None:
        waiting = [*backend.index.held._items]
        held.append(len(waiting))
        assert not any(item.events or item.touched or item.findings for item in waiting)
        listed(oldest)

    backend.index.list_until = watched  # type: ignore[method-assign]
    backend.read()
    assert max(held) > 50
    backend.index.close()


def test_a_file_that_has_grown_is_read_again(tmp_path: Path) -> None:
    growing, whole = tmp_path / "growing.pcap", LOSSY.read_bytes()
    growing.write_bytes(whole[: len(whole) // 3])
    browser = opened(growing)
    before = browser.index.rows
    keys(browser, "3")
    wait(browser, "▌")
    assert "has grown" not in screen(browser)
    growing.write_bytes(whole)
    browser.filter("msg.resend")
    wait(browser, "! The file has grown since it was read: R reads it again.")
    assert browser.index.rows == before < 1073
    keys(browser, "R")
    assert browser.replacement is not None
    browser.replacement.read()
    assert browser.replacement.index.rows == 1073
    assert browser.replacement.status() == 0


@pytest.mark.parametrize("key", ["r", "w"])
def test_the_capture_and_the_screen_are_not_written_over(key: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcap"
    copy.write_bytes(LOSSY.read_bytes())
    browser = opened(copy)
    for path, said in ((str(copy), "is also an input: write to another file"), ("-", "name a file")):
        press(browser, key, key)
        assert browser.prompt is not None
        browser.prompt.text = path
        press(browser, "enter")
        wait(browser, said, width=240)
    assert copy.read_bytes() == LOSSY.read_bytes()


def test_enter_leaves_the_help_and_every_place_of_the_screen_has_a_pane() -> None:
    browser = opened()
    keys(browser, "2 ?")
    assert browser.help
    keys(browser, "enter")
    assert not browser.help
    for size in ((80, 24), (160, 50)):
        for text in ("2", "tab", "?", "enter", "tab", "tab"):
            keys(browser, text)
            screen(browser, *size)
            for row in range(size[1]):
                number, _ = pane_at(browser, size[0] - 3, row, size)
                assert number < len(browser.panes)
    keys(browser, "2")
    screen(browser, 160, 50)
    assert [pane_at(browser, 150, row, (160, 50)) for row in (46, 47)] == [(2, -1), (2, 0)]


def test_what_came_during_a_pause_is_not_written() -> None:
    browser = opened()
    browser.packets.paused = 5
    assert list(browser.packets.rows()) == [0, 1, 2, 3, 4]


def test_a_disk_that_takes_a_part_at_a_time_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: whole(file, data[:1000], at))
    monkeypatch.setattr(index, "_WRITE_OCTETS", 5000)
    browser = opened()
    payloads = [record.payload for record in iter_records(str(LOSSY))]
    assert [browser.index.payload(row) for row in range(browser.index.rows)] == payloads


def test_a_pipe_that_is_too_long_is_said_to_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    octets = LOSSY.read_bytes()
    monkeypatch.setattr(browse, "MAX_PIPED", len(octets))
    assert not browse._copied(BytesIO(octets), copy := BytesIO())
    assert copy.getvalue() == octets
    assert browse._copied(BytesIO(octets + b"x"), copy := BytesIO())
    assert copy.getvalue() == octets
    backend = FileBackend(str(LOSSY), Choices(), piped=4_000_000_000, name="standard input")
    again = backend.again("udp.port==1,riptide")
    for each in (backend, again):
        each.read()
        assert each.loaded.notes == ["Only the first 4 GB of standard input are shown."]
        assert screen(Browser(each)).startswith(" standard input ")
