from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gallery
import hostile
import written
from netdissect.model.reports import Copy, UnitRecord
from netdissect.report import ladder
from netdissect.report.document import MAX_BYTES, document
from netdissect.report.redact import Redactor


class _Page(HTMLParser):
    """What a browser without the script makes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.inline: dict[str, str] = {"style": "", "script": ""}
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "input"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.inline:
            self.inline[self._open[-1]] += data
        else:
            self.text += data


def page(text: str) -> _Page:
    parsed = _Page()
    parsed.feed(text)
    parsed.close()
    assert parsed._open == []
    return parsed


@pytest.fixture(scope="module")
def lossy() -> str:
    return document(written.capture(gallery.LOSSY))


def test_the_policy_allows_style_and_script_by_their_hashes_alone(lossy: str) -> None:
    parsed = page(lossy)
    policy = next(
        attrs["content"] or ""
        for tag, attrs in parsed.tags
        if tag == "meta" and "http-equiv" in attrs
    )
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; ")
    for name, text in parsed.inline.items():
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert sum(tag == "style" for tag, _ in parsed.tags) == 1
    assert sum(tag == "script" for tag, _ in parsed.tags) == 1
    for tag, attrs in parsed.tags:
        assert "style" not in attrs, tag
        assert not any(name.startswith("on") for name in attrs)
        assert not attrs.get("src")
        assert (attrs.get("href") or "#").startswith("#")


def test_the_answer_is_the_heading_and_all_is_there_without_a_script(lossy: str) -> None:
    parsed = page(lossy)
    assert re.findall(r"<h1>(.*?)</h1>", lossy) == [
        "Closed by the client after 12.5 s: Disconnected; lost: 11% client to server, "
        "10% server to client."
    ]
    rows = [tag for tag, attrs in parsed.tags if tag == "tr" and "hidden" not in attrs]
    assert len(rows) > 200
    assert "\\x" not in parsed.text
    for words in ("Why reliable 17 took 257 ms", "Frame 221, bit by bit", "17 01 b0 7e",
                  "90", "poor-quality", "About this report"):  # fmt: skip
        assert words in parsed.text


def test_every_picture_says_its_result(lossy: str) -> None:
    pictures = re.findall(r'<svg id="[^"]*" class="plot".*?</svg>', lossy)
    assert len(pictures) >= 4
    for picture in pictures:
        said = re.search(r"<desc[^>]*>(.*?)</desc>", picture)
        assert said is not None
        assert re.search(r"\d", said[1])
    identifiers = re.findall(r' id="([^"]*)"', lossy)
    assert len(identifiers) == len(set(identifiers))
    links = set(re.findall(r'href="#([^"]*)"', lossy))
    assert links <= set(identifiers)


@pytest.mark.parametrize(
    "name",
    [gallery.DARK, gallery.SNAPSHOTS, gallery.STREAM, "riptide/udp_2.0.0_noserver.pcap",
     "knet/tcp_rst.client.pcap", "eoudp/decoys.pcap", "riptide/udp_2.0.0_reject_custom.pcap"],
)  # fmt: skip
def test_every_kind_of_capture_has_a_report(name: str) -> None:
    text = document(written.capture(name))
    parsed = page(text)
    assert hostile.is_safe(parsed.text.replace("\n", " "))
    assert len(text) < MAX_BYTES
    assert sum(tag == "h1" for tag, _ in parsed.tags) == 1


def test_a_report_keeps_to_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    told = written.capture("eoudp/late_three_clients.pcap")
    whole = document(told)
    limit = len(whole.encode()) - 5_000
    # Another test may have had the module imported anew: this is the one that is called.
    monkeypatch.setitem(document.__globals__, "MAX_BYTES", limit)
    told = written.capture("eoudp/late_three_clients.pcap")
    text = document(told)
    assert (whole.count("<details "), text.count("<details ")) == (3, 2)
    assert "2 of 3 have a part of their own" in text
    assert "other times from that of a connection" in text
    assert len(text.encode()) < limit


def test_a_name_longer_than_any_game_accepts_is_cut() -> None:
    given = written.capture(gallery.SNAPSHOTS)
    given.subjects[0].diagnosis.names = ("W" * 900, None)
    text = document(given)
    assert "W" * 40 in text
    assert "W" * 41 not in text


def test_a_redacted_report_names_nobody() -> None:
    plain = document(written.capture(gallery.SNAPSHOTS))
    text = document(written.capture(gallery.SNAPSHOTS, redact=True), redact=True)
    assert "127.0.0.1" in plain
    assert "127.0.0.1" not in text
    assert "client-1" in text
    assert "server-1" in text
    assert Path(gallery.SNAPSHOTS).name not in text
    assert "bytes on the wire" not in text
    identity = [
        value
        for subject in written.capture(gallery.SNAPSHOTS).subjects
        for value in re.findall(r"'([^']+)'", repr(subject.report.identity))
    ]
    assert identity
    told = page(text).text
    for value in identity:
        assert (
            not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", told)
            or value in plain.split("<main")[0]
        )


def test_a_redacted_frame_has_numbers_and_no_words() -> None:
    told = written.capture(gallery.LOSSY, redact=True)
    record = told.subjects[0].frame
    assert record is not None
    assert record.dissection is not None
    for node in record.dissection.root.children:
        node.display = "SECRET"
        if not isinstance(node.value, int):
            node.value = ["SECRET", {"name": "SECRET"}]
    record.dissection.root.display = "SECRET"
    for item in record.messages:
        item.summary = "SECRET"
    text = document(told, redact=True)
    assert "SECRET" not in text
    assert "left out" in text


def test_words_of_a_redacted_report_stay_the_same() -> None:
    names = Redactor()
    assert names.word("10.0.0.1:5", "client") == "client-1"
    assert names.word("10.0.0.2:5", "client") == "client-2"
    assert names.word("10.0.0.1:5", "client") == "client-1"
    assert names.clean("10.0.0.1:5 left and said “see you, Bob”.") == "client-1 left and said “…”."


def test_the_sentences_are_those_of_the_diagnosis() -> None:
    from netdissect.diagnosis import diagnose

    for name in (gallery.LOSSY, gallery.DARK, "knet/tcp_timeout.pcap"):
        report = gallery.histories(name)[1].report
        assert report is not None
        found = diagnose(report)
        told = page(document(written.capture(name))).text
        assert found.verdict in told
        assert found.cause.text in told


def test_two_captures_tell_what_the_network_did(tmp_path: Path) -> None:
    other = gallery.LOSSY.replace("clientleg", "serverleg")
    path = written.report(gallery.LOSSY, tmp_path, second=other)
    text = path.read_text()
    told = page(text).text
    assert "Between the two captures were lost 52 of 560 datagrams (9.3%) from client to" in told
    assert "lost: 9% client to server, 9% server to client." in told
    assert (
        "The network lost 9.3% of what the client sent and 8.9% of what the server sent, as both"
        " captures show."
    ) in told
    assert text.count("One-way delay, ") >= 2
    lane = re.search(r'class="lost bad" d="([^"]*)"[^>]*data-w="lost on the way"', text)
    assert lane is not None
    assert lane[1].count("M") == 52


def test_two_captures_that_do_not_belong_together_have_no_report(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from netdissect.cli import cli

    names = [gallery.path(gallery.LOSSY), gallery.path(gallery.DARK)]
    result = CliRunner().invoke(cli, ["report", *names, "-o", str(tmp_path / "x.html")])
    assert result.exit_code == 2
    assert "do not belong together" in result.output
    assert not (tmp_path / "x.html").exists()


def test_many_names_are_replaced_without_a_pattern_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Redactor()
    for number in range(2000):
        names.word(f"10.0.{number >> 8}.{number & 255}:5", "client")
    tried = []
    real = re.sub

    def count(*values: str) -> str:
        tried.append(values)
        return real(*values)

    monkeypatch.setattr("netdissect.report.redact.re.sub", count)
    assert names.clean("10.0.0.1:5 left") == "client-2 left"
    assert len(tried) == 1


def test_copies_beyond_the_first_are_counted_before_and_after_the_acknowledgement() -> None:
    copies = [Copy(1, 0, "original")]
    copies += [Copy(at, at * 1_000_000, "retransmission", attempts_left=1) for at in range(2, 12)]
    copies += [Copy(at, at * 1_000_000, "retransmission") for at in range(30, 39)]
    unit = UnitRecord(
        1, 0, "reliable", 5, 5, None, copies, 20, 20_000_000, None, True, "acked", None, 0
    )
    told = [str(step) for step in ladder.story(unit, 0, near=True)]
    assert [step for step in told if "further" in step] == [
        "… and 2 further copies.",
        "… and 1 further copy.",
    ]
    assert "1 attempt left" in told[1]


def test_a_copy_of_either_kind_is_not_called_a_resend() -> None:
    copies = [Copy(1, 0, "original"), Copy(2, 2_000_000, "unknown"), Copy(3, 9_000_000, "unknown")]
    unit = UnitRecord(
        1, 0, "reliable", 5, 5, None, copies, 20, 5_000_000, None, True, "acked", None, 0
    )
    told = [str(step) for step in ladder.story(unit, 0, near=True)]
    assert "retransmitted, or duplicated by the network, 2.0 ms after #1." in told[1]
    assert "retransmitted, or duplicated by the network, 4.0 ms after the acknowledgement." in told[3]


def test_what_two_captures_were_read_for_is_not_said_of_one(tmp_path: Path) -> None:
    other = gallery.LOSSY.replace("clientleg", "serverleg")
    told = page(written.report(gallery.LOSSY, tmp_path, second=other).read_text()).text
    assert "from two capture files, the first (pcap" in told
    assert "one capture file" not in told
