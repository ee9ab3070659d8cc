"""How TCP connections end, against what the programs did: conversations written segment by segment.

Each is seen next to the client, the server 30 ms away: as captures of real sockets have it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect import analyze
from netdissect.model.reports import ConnectionReport
from netdissect.pipeline import Options, decode_as
from packetbuild import A4, B4, ipv4, link_frame, pcap_file, tcp

FIN, SYN, RST, ACK = 1, 2, 4, 16
TRIP = 30
"""Round trip to the server, ms."""
LINE = b'NetworkMessageChat\n{"sender":"John","message":"Hello, World"}\n'


class Talk:
    """Segments of one connection; `say` and `end` keep the numbers as a kernel would."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, bytes]] = []
        self.sent = [1000, 7000]
        """Next sequence number of each side."""
        self.heard = [7000, 1000]
        """What each side has received of the other."""

    def send(
        self, side: int, ms: int, flags: int = ACK, payload: bytes = b"", *, back: int = 0
    ) -> None:
        """Write a segment; `back`: how far before the next number it begins."""
        ports = {"sport": 8080, "dport": 40000} if side else {"sport": 40000, "dport": 8080}
        src, dst = (B4, A4) if side else (A4, B4)
        ack = self.heard[side] if flags & ACK else 0
        packet = tcp(payload, seq=self.sent[side] - back, ack=ack, flags=flags, **ports)
        self.packets.append((ms, ipv4(packet, 6, src=src, dst=dst, ident=len(self.packets) + 1)))
        self.sent[side] += max(0, len(payload) + bool(flags & (FIN | SYN)) - back)

    def hears(self, side: int) -> None:
        self.heard[side] = self.sent[1 - side]

    def open(self) -> Talk:
        self.send(0, 0, SYN)
        self.hears(1)
        self.send(1, TRIP, SYN | ACK)
        self.hears(0)
        self.send(0, TRIP)
        for line in range(3):
            self.say(0, 100 + 100 * line)
            self.say(1, 150 + 100 * line)
        return self

    def say(self, side: int, ms: int, *, answered: bool = True) -> None:
        self.send(side, ms, payload=LINE)
        if answered:
            self.hears(1 - side)
            self.send(1 - side, ms if side else ms + TRIP)

    def again(self, side: int, *times: int) -> None:
        """Send the last line once more, as a kernel does that gets no answer."""
        for ms in times:
            self.send(side, ms, payload=LINE, back=len(LINE))

    def report(self, folder: Path, *, without: int = 0) -> ConnectionReport:
        """Return what a capture shows that begins after so many segments."""
        records = [
            (ms // 1000, ms % 1000 * 1000, link_frame("ethernet", packet)[1], len(packet) + 14)
            for ms, packet in self.packets[without:]
        ]
        path = folder / "talk.pcap"
        path.write_bytes(pcap_file(records))
        options = Options(decode_as=(decode_as("tcp.port==8080,netplay"),))
        (report,) = analyze(path, options=options).connections
        return report


@pytest.mark.parametrize("ends", [(FIN, FIN), (FIN, RST), (RST, FIN), (RST, RST)])
def test_sides_that_end_a_connection_before_they_hear_of_each_other(
    ends: tuple[int, int], tmp_path: Path
) -> None:
    """What comes from the server 15 ms later left before the end by the client arrived there."""
    talk = Talk().open()
    talk.send(0, 500, ends[0] | ACK)
    talk.send(1, 515, ends[1] | ACK)
    report = talk.report(tmp_path)
    assert report.close is not None
    assert (report.close["by"], report.close["frame"]) == ("both", 16)
    assert report.diagnosis.ending.by == "both"
    assert "by both sides" in report.diagnosis.verdict


@pytest.mark.parametrize(
    ("server", "ms", "heard"),
    [(FIN | ACK, 530, True), (RST | ACK, 530, True), (RST, 530, False), (FIN | ACK, 2000, False)],
    ids=["answer", "unread", "no socket", "much later"],
)
def test_an_end_that_follows_another_is_not_of_both(
    server: int, ms: int, heard: bool, tmp_path: Path
) -> None:
    """The server had heard of the end, or answers a segment, or ends what is long over."""
    talk = Talk().open()
    talk.send(0, 500, FIN | ACK)
    if heard:
        talk.hears(1)
    talk.send(1, ms, server)
    report = talk.report(tmp_path)
    assert report.close is not None
    assert (report.close["by"], report.close["frame"]) == ("client", 16)


@pytest.mark.parametrize("end", [FIN | ACK, RST | ACK])
def test_a_side_may_have_ended_before_the_capture(end: int, tmp_path: Path) -> None:
    """The client has; then the server sends some more and ends. Nothing shows the client's FIN."""
    talk = Talk().open()
    talk.send(0, 500, FIN | ACK)
    talk.hears(1)
    before = len(talk.packets)
    for ms in range(1000, 1800, 100):
        talk.say(1, ms)
    talk.send(1, 2000, end)
    if end & FIN:
        talk.hears(0)
        talk.send(0, 2000)
    ending = talk.report(tmp_path, without=before).diagnosis.ending
    assert (ending.by, ending.confidence) == ("server", "likely")


@pytest.mark.parametrize("end", [FIN | ACK, RST | ACK])
def test_the_byte_before_a_keep_alive_is_no_fin(end: int, tmp_path: Path) -> None:
    talk = Talk().open()
    before = len(talk.packets)
    talk.send(1, 3000, back=1)
    talk.send(0, 3000)
    for ms in range(4000, 4800, 100):
        talk.say(0, ms)
    talk.send(0, 5000, end)
    ending = talk.report(tmp_path, without=before).diagnosis.ending
    assert ending.by in ("client", None)


def test_a_connection_was_closed_when_it_was_closed(tmp_path: Path) -> None:
    """The server goes on sending for 3 s, as Netplay's programs do."""
    talk = Talk().open()
    talk.send(0, 500, FIN | ACK)
    talk.hears(1)
    for ms in range(530, 3600, 250):
        talk.say(1, ms)
    report = talk.report(tmp_path)
    assert report.diagnosis.verdict.startswith("Closed by the client after 0.5 s")


def test_a_kernel_that_does_not_answer_is_silent(tmp_path: Path) -> None:
    """It would have answered the first copy at once. After three more, nobody sees no problem."""
    talk = Talk().open()
    talk.say(0, 500, answered=False)
    talk.again(0, 700, 1100, 1900)
    report = talk.report(tmp_path)
    cause = report.diagnosis.cause
    assert (cause.what, cause.direction) == ("silence", 1)
    assert report.state == "silent"


def test_a_kernel_that_answers_at_last_was_silent(tmp_path: Path) -> None:
    """Nothing came from the server: it did not keep sending."""
    talk = Talk().open()
    talk.say(0, 500, answered=False)
    talk.again(0, 700, 1100, 1900)
    talk.hears(1)
    talk.send(1, 1930)
    talk.say(0, 2000)
    cause = talk.report(tmp_path).diagnosis.cause
    assert (cause.what, cause.direction, cause.to_frame) == ("silence", 1, 20)


def test_segments_on_their_way_are_no_questions(tmp_path: Path) -> None:
    talk = Talk().open()
    for ms in (500, 525, 550, 575, 600):
        talk.say(0, ms, answered=False)
    assert talk.report(tmp_path).diagnosis.cause.what == "none"


def test_a_connection_is_reset_because_its_keep_alives_were_not_answered(tmp_path: Path) -> None:
    talk = Talk().open()
    for ms in (3000, 4000, 5000):
        talk.send(0, ms, back=1)
    talk.send(0, 6000, RST | ACK)
    report = talk.report(tmp_path)
    found = report.diagnosis
    assert (found.ending.by, found.ending.how) == ("client", "reset")
    assert (found.cause.what, found.cause.direction) == ("silence", 1)
    assert "nothing came from the server for 5" in found.verdict


def test_keep_alives_are_no_answers_to_those_of_the_other_side(tmp_path: Path) -> None:
    """Those of the server arrive; nothing of the client does."""
    talk = Talk().open()
    for ms in (3000, 4000, 5000):
        talk.send(0, ms, back=1)
        talk.send(1, ms + 40, back=1)
        talk.send(0, ms + 40)
    talk.send(0, 6000, RST | ACK)
    talk.send(1, 6040, RST | ACK)
    cause = talk.report(tmp_path).diagnosis.cause
    assert (cause.what, cause.direction) == ("one-way", 0)


def test_answered_keep_alives_ask_nothing_more(tmp_path: Path) -> None:
    talk = Talk().open()
    for ms in (3000, 4000, 5000):
        talk.send(0, ms, back=1)
        talk.send(1, ms + TRIP)
    talk.send(0, 6000, RST | ACK)
    assert talk.report(tmp_path).diagnosis.cause.what == "closed"


def test_a_kernel_that_does_not_acknowledge_the_end_is_silent(tmp_path: Path) -> None:
    """It would have answered the first FIN at once. The client closed, and nobody heard of it."""
    talk = Talk().open()
    talk.send(0, 2500, FIN | ACK)
    for ms in (2700, 3100, 3900, 5500):
        talk.send(0, ms, FIN | ACK, back=1)
    found = talk.report(tmp_path).diagnosis
    assert (found.ending.by, found.ending.how) == ("client", "said")
    assert (found.cause.what, found.cause.direction) == ("silence", 1)
    assert found.cause.to_frame is None
    assert "FIN; nothing came from the server for 5.2 s" in found.verdict


@pytest.mark.parametrize("end", [FIN | ACK, ACK], ids=["an end", "data"])
def test_what_passes_an_end_on_its_way_does_not_answer_it(end: int, tmp_path: Path) -> None:
    """Neither side hears of the other: each sends on, and acknowledges nothing."""
    talk = Talk().open()
    talk.send(0, 2500, FIN | ACK)
    talk.send(1, 2515, end, LINE)
    for ms in (2700, 3100, 3900, 5500):
        talk.send(0, ms, FIN | ACK, back=1)
        talk.send(1, ms + 15, end, LINE, back=len(LINE) + (end & FIN))
    found = talk.report(tmp_path).diagnosis
    assert (found.cause.what, found.cause.direction) == ("one-way", 0)
    assert "nothing that the client sent was answered for 3.0 s" in found.verdict


def test_an_end_that_is_acknowledged_at_last_asks_nothing_more(tmp_path: Path) -> None:
    """Three FINs of four were lost, or their acknowledgements."""
    talk = Talk().open()
    talk.send(0, 2500, FIN | ACK)
    for ms in (2700, 3100, 3900):
        talk.send(0, ms, FIN | ACK, back=1)
    talk.hears(1)
    talk.send(1, 3930)
    cause = talk.report(tmp_path).diagnosis.cause
    assert (cause.what, cause.direction, cause.to_frame) == ("silence", 1, 20)


def test_an_end_just_before_that_of_the_capture_asks_nothing(tmp_path: Path) -> None:
    talk = Talk().open()
    talk.send(0, 500, FIN | ACK)
    talk.send(0, 700, FIN | ACK, back=1)
    assert talk.report(tmp_path).diagnosis.cause.what == "closed"


def test_a_kernel_that_repeats_its_syn_is_not_silent(tmp_path: Path) -> None:
    """It waits longer and longer, because nothing of the client reaches it."""
    talk = Talk()
    talk.send(0, 0, SYN)
    talk.hears(1)
    talk.send(1, TRIP, SYN | ACK)
    talk.hears(0)
    talk.say(0, TRIP, answered=False)
    talk.again(0, 260, 560, 960)
    talk.send(1, 1060, SYN | ACK, back=1)
    talk.again(0, 1760)
    talk.send(1, 3060, SYN | ACK, back=1)
    cause = talk.report(tmp_path).diagnosis.cause
    assert (cause.what, cause.direction) == ("one-way", 0)


def test_a_server_answered_though_its_client_acknowledged_nothing(tmp_path: Path) -> None:
    talk = Talk()
    talk.send(0, 0, SYN)
    talk.hears(1)
    talk.send(1, 0, SYN | ACK)
    for ms in (1000, 3000, 7000):
        talk.send(0, ms, SYN, back=1)
        talk.send(1, ms, SYN | ACK, back=1)
    found = talk.report(tmp_path).diagnosis
    assert (found.ending.by, found.ending.how) == ("nobody", "never-answered")
    assert "acknowledged nothing from the server" in found.verdict
    assert "The server answered." in found.cause.text
