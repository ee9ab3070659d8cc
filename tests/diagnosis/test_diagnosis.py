"""The answers about whole captures, against what the programs' and the relays' logs say.

No file name and no port is looked at: the table is that of `tests/truth/verdicts.json`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from io import StringIO
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from netdissect import analyze
from netdissect.cli import cli
from netdissect.diagnosis import diagnose
from netdissect.diagnosis.answers import answer
from netdissect.diagnosis.causes import cause_of
from netdissect.diagnosis.words import NO_SILENCE, line, verdict
from netdissect.model.diagnosis import ENDINGS, Burst, Cause, Limits, Loss
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, EndHint, ProbeReport, RttSummary
from netdissect.pipeline import Options
from netdissect.pipeline.reports import Reports
from netdissect.render.connections import show_connections
from netdissect.render.console import Screen
from netdissect.render.units import Clock
from twocaptures import Record, followed_by, goes_on, held_back, rewritten

TESTS = Path(__file__).parents[1]
CAPTURES = TESTS.parent / "captures"
TOLD: dict[str, dict[str, Any]] = json.loads((TESTS / "truth" / "verdicts.json").read_text("utf-8"))
SAME = {"unreachable": "port-unreachable", "open": "open-at-end"}
LEAST_RIGHT = 0.95
ENOUGH = 100
"""Datagrams, and units, of which a share is compared."""
NEARLY = 0.06
"""How far the share of lost units may be from that of lost datagrams."""
HAND_MADE = "malformed"
"""Captures of hand-made datagrams, which say goodbye for the real programs."""


def endpoint(text: str) -> str:
    host, _, port = text.rpartition(":")
    return f"[{host}]:{port}" if ":" in host else text


def answers() -> list[tuple[str, dict[str, Any], ConnectionReport, int]]:
    """Return (capture, what is told of a connection, its report, time of the first frame)."""
    found = []
    for name, told in TOLD.items():
        analysis = analyze(str(CAPTURES / name))
        left = list(analysis.connections)
        for wanted in told["connections"]:
            ends = (endpoint(wanted["client"]), endpoint(wanted["server"]))
            mine = next((r for r in left if (r.client, r.server) == ends), None)
            if mine is not None:
                left.remove(mine)
                found.append((name, wanted, mine, analysis.info.first_time_ns or 0))
    return found


@pytest.fixture(scope="module")
def table() -> list[tuple[str, dict[str, Any], ConnectionReport, int]]:
    return answers()


def test_who_ended_it(table: Any) -> None:
    """At least 95% of what the oracle knows and the capture shows, and nothing wrong."""
    right, untold, wrong = 0, 0, []
    for name, wanted, report, _ in table:
        shown = wanted.get("shown")
        if wanted["by"] == "unknown" or shown == "nothing" or HAND_MADE in name:
            continue
        ending = report.diagnosis.ending
        if ending.by is None:
            assert ending.confidence == "cannot tell"
            right += shown != "goodbye"
            untold += shown == "goodbye"
            continue
        sides = {wanted["by"], *(by for by, _ in wanted.get("also", ()))}
        hows = {wanted["how"], *(how for _, how in wanted.get("also", ()))}
        if "killed" in hows:
            hows.add("silent")  # what it looks like on the wire
        how = SAME.get(ending.how, ending.how)
        if (ending.by in sides or "both" in sides) and (
            how in hows or (ending.by == "nobody" and "info-only" not in hows)
        ):
            right += 1
        else:
            wrong.append((name, wanted["by"], wanted["how"], ending.by, how))
    assert wrong == []
    assert right / (right + untold) >= LEAST_RIGHT


@pytest.mark.parametrize(
    ("name", "exchanged"),
    [
        ("tw07_server_info", {"requested and sent", "requested"}),
        ("ddnet_server_info", {"requested and sent"}),
        ("tw07_lan_browse", {"requested", "sent"}),  # the answers come from another address
    ],
)
def test_who_asks_for_information_wants_no_connection(name: str, exchanged: set[str]) -> None:
    """A token, and nothing but connectionless messages: they were "never answered"."""
    reports = analyze(str(CAPTURES / "teeworlds" / f"{name}.pcap")).connections
    verdicts = {report.diagnosis.verdict for report in reports}
    assert verdicts == {f"No connection: server information was {what}." for what in exchanged}
    assert {report.diagnosis.ending.how for report in reports} == {"info-only"}


def test_a_token_before_a_connection_is_its_handshake(tmp_path: Path) -> None:
    """Cut behind the client's connect, which nobody has answered, or before it."""
    path = CAPTURES / "teeworlds" / "tw07_clean.pcap"
    for count, word in ((1, "not_seen"), (2, "unanswered"), (3, "not_seen")):
        cut = rewritten(path, tmp_path / "cut.pcap", lambda found, count=count: found[:count])
        (report,) = analyze(cut).connections
        assert (report.handshake, report.diagnosis.ending.how) == (word, "unknown")


REQUESTS = (
    ("riptide/udp_2.2.1_clean", 6), ("eoudp/rfc02_lossy_client", 1), ("netplay/bin1_aborts", 7),
    ("teeworlds/tw07_no_answer", 2),
)  # fmt: skip


@pytest.mark.parametrize(("name", "count"), REQUESTS)
def test_a_request_at_the_end_may_still_be_answered(
    name: str, count: int, tmp_path: Path
) -> None:
    """It was "never answered" as soon as the capture ended behind it."""
    path = CAPTURES / f"{name}.pcap"
    cut = rewritten(path, tmp_path / "cut.pcap", lambda found: found[:count])
    *_, report = analyze(cut).connections
    assert report.diagnosis is not None
    assert report.handshake == "not_seen"
    assert (report.diagnosis.ending.how, report.diagnosis.ending.by) == ("unknown", None)


def test_what_is_certain_was_said(table: Any) -> None:
    """How it ended is the oracle's word, where it is called certain."""
    for name, wanted, report, _ in table:
        ending = report.diagnosis.ending
        if ending.confidence == "certain" and wanted["by"] != "unknown" and HAND_MADE not in name:
            hows = {wanted["how"], *(how for _, how in wanted.get("also", ()))}
            assert SAME.get(ending.how, ending.how) in hows, (name, wanted, ending)


def test_a_goodbye_after_which_nothing_comes_is_likely_meant(tmp_path: Path) -> None:
    """A server sends the same message to all clients when one of them has timed out."""
    ended = ending_of_server(CAPTURES / "eoudp" / "late_three_clients.pcap", 3)
    assert ended == ("server", "said", "DISCONNECT", 255, "likely")
    flood = CAPTURES / "eoudp" / "late_two_clients_one_killed.pcap"
    cut = rewritten(flood, tmp_path / "cut.pcap", lambda found: found[:SECOND_NOTICE])
    assert ending_of_server(Path(cut), 2)[0] is None


SECOND_NOTICE = 578
"""Frame of the second DISCONNECT to a client that goes on playing."""


def ending_of_server(path: Path, number: int) -> tuple[str | None, str, str | None, Any, str]:
    ending = analyze(str(path)).connections[number - 1].diagnosis.ending
    return ending.by, ending.how, ending.reason, ending.frame, ending.confidence


TCP_LOSSES = [
    name for name in TOLD if name.startswith("netplay/") and "_lossy" in name and "__" in name
]


@pytest.mark.parametrize("name", TCP_LOSSES)
def test_packets_of_tcp_are_missing_next_to_their_receiver(name: str) -> None:
    """As many as the relay has dropped, pure acknowledgements included."""
    (wanted,) = TOLD[name]["connections"]
    (report,) = analyze(str(CAPTURES / name)).connections
    way = 1 - SIDES.index(report.vantage)
    found = report.diagnosis
    assert (found.loss[way].basis, found.cause.what) == ("ids", "loss")
    lost, sent = wanted["lost"][("c2s", "s2c")[way]]
    assert found.loss[way].share == pytest.approx(lost / sent, abs=0.01)


@pytest.mark.parametrize("side", SIDES)
def test_packets_of_tcp_that_are_missing_after_a_silence_were_sent_in_it(side: str) -> None:
    name = f"netplay/bin1_blackout_recovers__{side}_side.pcap"
    (report,) = analyze(str(CAPTURES / name)).connections
    cause = report.diagnosis.cause
    assert (cause.what, cause.confidence) == ("silence", "likely")
    assert cause.direction == 1 - SIDES.index(side)


def test_a_drop_comes_after_the_silence_before_it() -> None:
    """A server that starts its numbers again shows that it had dropped the client earlier."""
    spans = re.compile(r"Dropped .* after ([\d.]+) s: .* for ([\d.]+) s, starting ([\d.]+) s into")
    path = CAPTURES / "knet" / "udp_malformed_to_server.client.pcap"
    texts = [report.diagnosis.verdict for report in analyze(str(path)).connections]
    found = [list(map(float, span.groups())) for span in map(spans.match, texts) if span]
    assert found
    assert all(after >= start + lasted - 0.11 for after, lasted, start in found)


def test_a_sender_that_sends_all_twice_shows_what_is_lost() -> None:
    """The relay dropped 95 of 1,068 datagrams."""
    report = analyze(str(CAPTURES / "eoudp" / "early_lossy_client.pcap")).connections[0]
    found = report.diagnosis
    lost = found.loss[1]
    assert (lost.basis, lost.lost, lost.sent) == ("copies", 95, 1066)
    assert "numbers" not in found.cause.text
    assert "copies are missing" in found.cause.text
    # What is sent twice at once is no retransmission that anything waits for.
    assert found.lag.added[1].units == 0


def test_a_rejection_after_acceptance_is_the_last_word_of_the_server() -> None:
    """Clients ignore it, so it counts only where the connection does not go on."""
    path = CAPTURES / "eoudp" / "late_long32_client_vs_64_server.pcap"
    ending = analyze(str(path)).connections[0].diagnosis.ending
    assert (ending.how, ending.by, ending.frame, ending.confidence) == ("said", "server", 11, "likely")
    path = CAPTURES / "eoudp" / "late_reject.pcap"
    ending = analyze(str(path)).connections[0].diagnosis.ending
    assert (ending.how, ending.by) == ("said", "client")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("knet/tcp_timeout.pcap", "ended timed out at the client"),
        ("eoudp/late_accept_lost_client.pcap", "Timed out at the server, which sent DISCONNECT."),
    ],
)
def test_how_a_connection_ended_is_said_alike_in_all_lines(name: str, told: str) -> None:
    result = CliRunner().invoke(cli, ["diagnose", str(CAPTURES / name)], prog_name="netdissect")
    assert told in " ".join(result.stdout.split())
    assert "closed with FIN at" not in result.stdout


def test_one_late_acknowledgement_is_no_proof_that_all_was_well() -> None:
    for side in SIDES:
        name = f"udp_connect_lost.{side}.pcap"
        found = analyze(str(CAPTURES / "knet" / name)).connections[0].diagnosis
        assert "no problem" not in found.cause.text
        assert "1 message sent again was acknowledged more than 200 ms late." in found.cause.text


def test_two_captures_name_both_sides_of_a_blackout() -> None:
    """The cause was "silence of the {}", and the loss of the whole was "before the silence"."""
    sides = [str(CAPTURES / "knet" / f"udp_blackout_both.{side}.pcap") for side in SIDES]
    result = CliRunner().invoke(cli, ["diagnose", *sides], prog_name="netdissect")
    text = " ".join(result.stdout.split())
    assert "nothing came from either side for 15.3 s, starting 5.7 s into the connection" in text
    assert "cause silence of both sides from 5.675014" in text
    assert "lost everything that both sides sent" in text
    assert "from both captures before the silence" not in text


def test_two_captures_name_the_loss_of_both_directions() -> None:
    sides = [str(CAPTURES / "teeworlds" / f"tw07_loss_{side}_side.pcap") for side in SIDES]
    result = CliRunner().invoke(cli, ["diagnose", *sides, "--json"], prog_name="netdissect")
    assert json.loads(result.stdout.splitlines()[0])["cause"]["text"] == (
        "The network lost 9.7% of what the server sent and 8.1% of what the client sent, as both"
        " captures show."
    )


def test_two_captures_do_not_call_a_late_acknowledgement_no_problem() -> None:
    sides = [str(CAPTURES / "knet" / f"udp_connect_lost.{side}.pcap") for side in SIDES]
    result = CliRunner().invoke(cli, ["diagnose", *sides, "--json"], prog_name="netdissect")
    text = json.loads(result.stdout.splitlines()[0])["cause"]["text"]
    assert "no problem" not in text
    assert "1 message sent again was acknowledged more than 200 ms late." in text


def test_what_was_lost_before_a_one_way_span_is_not_claimed() -> None:
    """What was lost in it was counted as lost before it."""
    path = CAPTURES / "knet" / "udp_blackout_c2s_zombie.server.pcap"
    found = analyze(str(path)).connections[0].diagnosis
    assert (found.cause.what, found.around) == ("one-way", None)


def test_a_loss_is_in_the_verdict_whatever_the_cause() -> None:
    path = CAPTURES / "eoudp" / "rfc02_lossy_server.pcap"
    found = analyze(str(path)).connections[0].diagnosis
    assert found.cause.what == "silence"
    assert found.verdict.endswith("; lost: 9% client to server.")


def test_retransmissions_are_a_problem_where_loss_is_unknown() -> None:
    path = CAPTURES / "eoudp" / "rfc02_lossy_client.pcap"
    text = analyze(str(path)).connections[0].diagnosis.cause.text
    assert "no problem" not in text
    assert "50 of 186 transmissions by the server were retransmissions" in text


def test_a_server_times_out_by_a_stamp_that_is_old_when_it_arrives() -> None:
    """A client that was heard all the time, but asked to join with its first time stamp again."""
    for side in ("client", "server"):
        path = CAPTURES / "eoudp" / f"late_accept_lost_{side}.pcap"
        assert ending_of_server(path, 1)[:2] == ("server", "timed-out")


def test_a_stranger_was_not_timed_out() -> None:
    """Two datagrams that nobody answered show no timer of anybody."""
    reports = analyze(str(CAPTURES / "riptide" / "udp_main_malformed.pcap")).connections
    (stranger,) = [report for report in reports if sum(report.datagrams) == 2]
    assert (stranger.diagnosis.ending.by, stranger.diagnosis.ending.confidence) == (
        None,
        "cannot tell",
    )


def test_every_report_has_its_sentence(table: Any) -> None:
    for _, _, report, _ in table:
        found = report.diagnosis
        assert found.verdict.endswith(".")
        assert found.cause.text.endswith(".")
        assert found.cause.confidence in {"certain", "likely", "cannot tell"}


NEVER_SHOWN = {
    # Datagrams of one direction that nobody acknowledges, its peer's go on; the last half second
    # of a goodbye.
    "knet/udp_ack_across_wrap.server.pcap",
    "knet/udp_disconnectack_lost.client.pcap",
}
SLACK_S = 4.0
"""The longest keep-alive interval of a protocol, and half a second for the programs."""


def test_dark_spans_are_found_where_they_can_be_seen(table: Any) -> None:
    for name, wanted, report, first_ns in table:
        for dark in wanted.get("dark", ()):
            if not dark["visible_from_here"] or name in NEVER_SHOWN:
                continue
            spans = [
                (
                    ("c2s", "s2c")[span.direction],
                    (span.from_ns - first_ns) / 1e9,
                    None if span.to_ns is None else (span.to_ns - first_ns) / 1e9,
                )
                for span in report.quiet
            ]
            low = dark["from_at_the_earliest_s"] or 0.0
            near = [
                direction
                for direction, start, _ in spans
                if low - SLACK_S <= start <= dark["from_s"] + SLACK_S
            ]
            assert near, (name, dark, spans)
            assert {"silence", "one-way"} & set(report.codes), name
            ends = [
                to for direction, start, to in spans if direction in near and start >= low - SLACK_S
            ]
            over = dark["to_s"]
            # Of a peer that has given up meanwhile nothing shows when the network was back.
            assert (
                over is None
                or (wanted["how"] == "timed-out" and None in ends)
                or any(to is not None and abs(to - over) <= SLACK_S for to in ends)
            ), (name, dark, spans)
            if dark["direction"] != "both" and dark["from_at_the_earliest_s"] is not None:
                assert dark["direction"] in near, (name, dark, spans)


def test_no_silence_is_blamed_on_the_network_without_ground() -> None:
    """A server that forgot the client; a lost acknowledgement of many; one number missing."""
    for name in (
        "knet/udp_connect_dup_late.client", "knet/udp_fragments_loss.server",
        "teeworlds/tw07_loss_server_side", "teeworlds/ddnet_loss_client_side",
    ):  # fmt: skip
        cause = analyze(str(CAPTURES / f"{name}.pcap")).connections[0].diagnosis.cause
        quiet = cause.what in {"silence", "one-way"}
        assert not quiet or cause.confidence == "cannot tell", name


def test_a_way_that_brings_nothing_for_long_is_blamed() -> None:
    name = "tw07_oneway_s2c_server_side.pcap"
    (report,) = analyze(str(CAPTURES / "teeworlds" / name)).connections
    (span,) = report.quiet
    assert (span.kind, span.direction) == ("one-way", 1)
    for vantage, asked, confidence in (
        ("unknown", 10, "cannot tell"), ("server", 10, "likely"), ("server", 3, "cannot tell"),
    ):  # fmt: skip
        seen = replace(report, vantage=vantage, quiet=[replace(span, unanswered=asked)])
        cause = diagnose(seen).cause
        assert cause.confidence == confidence
        assert ("or the answers were lost" in cause.text) == (asked < 6)


def test_who_forgot_its_peer_or_cannot_read_it_may_have_received_it() -> None:
    """A kNet server that closed without a word, and one of another release: "the path was broken".
    """
    name = "tw07_oneway_s2c_server_side.pcap"
    (report,) = analyze(str(CAPTURES / "teeworlds" / name)).connections
    (span,) = report.quiet
    blamed = replace(report, vantage="server", quiet=[replace(span, unanswered=10)])
    assert diagnose(blamed).cause.confidence == "likely"
    for change in (
        {"end_hint": EndHint("renewed", 0, 1, span.from_ns - 1)},
        {"dialects": ("teeworlds-0.7", "teeworlds-0.6")},
    ):
        assert diagnose(replace(blamed, **change)).cause.confidence == "cannot tell"


def test_losses_before_and_in_a_silence_stand_apart() -> None:
    (report,) = analyze(str(CAPTURES / "knet" / "udp_blackout_both.client.pcap")).connections
    around = report.diagnosis.around
    assert (around.before[1].sent, around.before[1].lost) == (35, 0)
    assert {part.basis for part in (around.before[0], *around.inside)} == {"unknown"}
    (span,) = report.quiet
    (space,) = [s for s in report.spaces if s.space == "datagram" and s.direction == 1]
    over = replace(span, to_ns=span.from_ns + 5_000_000_000)
    gap = Burst(12, span.from_ns, over.to_ns, 99)
    others = [s for s in report.spaces if s is not space]
    seen = replace(report, quiet=[over], spaces=[*others, replace(space, bursts=(gap,))])
    around = diagnose(seen).around
    assert (around.inside[1].sent, around.inside[1].share) == (12, 1.0)
    assert diagnose(replace(seen, quiet=[])).around is None


def test_who_closed_by_its_own_rule_did_not_stop() -> None:
    name = "udp_2.2.1_poorconnection_loss_clientleg.pcap"
    (report,) = analyze(str(CAPTURES / "riptide" / name)).connections
    assert (report.diagnosis.cause.what, report.quiet) == ("quality", [])


def test_clean_captures_are_never_silent(table: Any) -> None:
    clean = [report for name, _, report, _ in table if "clean" in name]
    assert len(clean) > 20
    for report in clean:
        assert report.quiet == []
        assert report.diagnosis.cause.what not in {"silence", "one-way", "loss"}


def test_clean_captures_raise_none_of_what_operators_ask(table: Any) -> None:
    loud = {
        "high-loss", "high-resend", "burst-loss", "rtt-spike", "jitter", "slow-receiver",
        "late-delivery", "silence",
    }  # fmt: skip
    for name, _, report, _ in table:
        if "clean" in name:
            assert not loud & set(report.codes), name


def test_what_is_lost_at_once_is_told_next_to_the_receiver() -> None:
    """The relay of these captures dropped dozens of datagrams of the client in a row."""
    for release in ("2.0.0", "2.2.1", "main"):
        name = f"udp_{release}_burst_gap_{{}}leg.pcap"
        far, near = (
            analyze(str(CAPTURES / "riptide" / name.format(side))).connections[0].codes
            for side in ("client", "server")
        )
        assert near["burst-loss"] >= 1
        assert "burst-loss" not in far


def test_a_sender_that_repeats_for_losses_is_told() -> None:
    for name in ("eoudp/rfc02_lossy_server.pcap", "knet/udp_fragments_loss.server.pcap"):
        (report,) = analyze(str(CAPTURES / name)).connections
        assert report.codes["high-resend"] >= 1


def test_a_path_that_stands_still_for_a_while_is_told(tmp_path: Path) -> None:
    """By few pings, next to who asks alone: the far side answers as quickly as ever."""
    far, near = (CAPTURES / "knet" / f"udp_fragments_loss.{side}.pcap" for side in SIDES)
    (report,) = analyze(str(far)).connections
    port = int(report.server.rpartition(":")[2])
    held = partial(held_back, port, 2_000_000_000, 5_000_000_000)
    (slow,) = analyze(rewritten(far, tmp_path / "slow.pcap", held(600_000_000))).connections
    (quick,) = analyze(rewritten(far, tmp_path / "quick.pcap", held(50_000_000))).connections
    assert slow.codes["rtt-spike"] == 1
    for other in (report, quick, *analyze(str(near)).connections):
        assert "rtt-spike" not in other.codes


def test_round_trips_that_vary_are_told() -> None:
    (report,) = analyze(str(CAPTURES / "knet" / "udp_loss8.client.pcap")).connections
    for samples, slow_ms, wanted in ((23, 240.0, ["jitter"]), (23, 190.0, []), (19, 240.0, [])):
        rtt = RttSummary(samples, 0, 60.0, 140.0, slow_ms, slow_ms)
        varied = replace(report, probes=[ProbeReport("ping", 0, samples, samples, rtt)])
        codes = [found.code for found in answer(varied, Limits())]
        assert [code for code in codes if code in {"jitter", "rtt-spike"}] == wanted


def test_the_limits_are_the_readers() -> None:
    path = str(CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
    strict = Options(limits=Limits(late_delivery=50, high_loss=50))
    (usual,), (other,) = analyze(path).connections, analyze(path, options=strict).connections
    assert "high-loss" in usual.codes
    assert "high-loss" not in other.codes
    assert other.diagnosis.lag.added[0].limit_ms == 50
    assert other.diagnosis.lag.added[0].over_limit > usual.diagnosis.lag.added[0].over_limit


def test_lossy_directions_are_told(table: Any) -> None:
    """Where the receiver tells, or numbers are missing next to it, the share is the relay's."""
    off = []
    for name, wanted, report, _ in table:
        for direction, way in enumerate(("c2s", "s2c")):
            lost, sent = wanted.get("lost", {}).get(way, (0, 0))
            part = report.diagnosis.loss[direction]
            enough = min(sent, part.sent) >= ENOUGH and not wanted.get("dark")
            if enough and part.basis in ("told", "observed"):
                off.append((abs((part.share or 0.0) - lost / sent), name, way))
    assert len(off) > 10
    far = [each for each in off if each[0] > NEARLY]
    assert len(far) <= len(off) / 20, far


def test_who_closed_it_is_a_finding(table: Any) -> None:
    for _, _, report, _ in table:
        ended = report.diagnosis.ending
        told = ended.by is not None and ended.how not in {"open", "info-only", "never-answered"}
        assert ("closed-by" in report.codes) == (told and ended.how != "unknown")


def test_the_verdict_of_two_captures_has_their_loss() -> None:
    """One capture counts 13% of missing numbers where two show that 7% of datagrams were lost."""
    sides = [
        str(CAPTURES / "teeworlds" / f"ddnet_sixup_loss_{side}_side.pcap")
        for side in ("client", "server")
    ]
    words = ["diagnose", *sides, "--json"]
    result = CliRunner().invoke(cli, words, prog_name="netdissect")
    found = json.loads(result.stdout.splitlines()[0])
    shares = [round(100 * found["loss"][way]["share"]) for way in ("c2s", "s2c")]
    assert f"lost: {shares[0]}% client to server, {shares[1]}% server to client" in found["verdict"]


@pytest.mark.parametrize("format_", ["bin1", "text"])
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_program_that_does_not_read_is_the_cause(format_: str, side: str) -> None:
    """Nothing was lost and the goodbye was said; what was bad is that one side took nothing."""
    name = f"{format_}_zero_window_{side}_stalls.pcap"
    (report,) = analyze(str(CAPTURES / "netplay" / name)).connections
    found = report.diagnosis
    assert (found.cause.what, found.cause.direction) == ("slow-receiver", side == "server")
    assert f"; the receive window of the {side} was closed for" in found.verdict
    # It was closed for a part of the connection only.
    cause = found.cause
    assert report.first_time_ns + 10**8 < cause.from_ns < cause.to_ns < report.last_time_ns
    assert report.first_frame < cause.from_frame < cause.to_frame <= report.last_frame
    patient = diagnose(report, Limits(slow_receiver=600_000))
    assert patient.cause.what != "slow-receiver"


UNTOLD = (
    ("eoudp/mid_lossy_server", "Loss cannot be determined from this capture."),
    (
        "riptide/udp_2.0.0_lossy_clientleg",
        "Loss from server to client cannot be determined from this capture.",
    ),
    ("riptide/udp_2.0.0_clean", None),
)


@pytest.mark.parametrize(("name", "sentence"), UNTOLD)
def test_what_was_lost_is_not_called_nothing_where_it_cannot_be_told(
    name: str, sentence: str | None
) -> None:
    report = analyze(str(CAPTURES / f"{name}.pcap")).connections[0]
    found = report.diagnosis
    assert found.cause.what in {"none", "closed"}
    assert found.cause.text.endswith(sentence or "seen before.")
    assert (found.settles is None) == (sentence is None)


def test_a_dialect_that_is_assumed_is_said() -> None:
    report = analyze(str(CAPTURES / "riptide/udp_2.0.0_clean.pcap")).connections[0]
    assert diagnose(report).settles is None
    report.codes["knet-ambiguous-dialect"], report.complete = 1, False
    assert (diagnose(report).settles or "").startswith("The dialect is open (knet-ambiguous")


def test_two_captures_tell_what_was_lost() -> None:
    sides = [
        str(CAPTURES / "eoudp" / f"late_accept_lost_{side}.pcap") for side in ("client", "server")
    ]
    words = ["diagnose", *sides, "--json"]
    result = CliRunner().invoke(cli, words, prog_name="netdissect")
    assert json.loads(result.stdout.splitlines()[0])["cause"]["text"] == (
        "The server measures a silence by the time stamps that the client sends: the newest was too"
        " old, although packets kept arriving."
    )


def test_an_end_of_nobody_names_nobody() -> None:
    """The other direction is not captured: whose FIN came first cannot be told."""
    (report, *_) = analyze(str(CAPTURES / "netplay" / "bin1_example_chat.pcap")).connections
    unknown = replace(report, close={"by": None, "reason": "FIN", "frame": 9}, quiet=[])
    found = diagnose(unknown)
    assert found.cause.text.startswith("It was closed (FIN)")


def then_dark(found: list[Record]) -> list[Record]:
    """Leave half of a capture, and then 40 s of nothing but other traffic."""
    left = found[: len(found) // 2]
    other = b"\xff" * 6 + b"\x02" * 6 + b"\x08\x06" + bytes(46)
    return left + [(left[-1][0] + at * 1_000_000_000, other, len(other)) for at in range(1, 41)]


@pytest.mark.parametrize(
    "name", ["riptide/udp_2.2.1_clean", "riptide/tcp_2.0.0_clean", "teeworlds/tw07_two_players", "knet/udp_clean_session"]
)  # fmt: skip
def test_what_goes_dark_on_both_sides_was_not_heard_as_it_should_be(
    name: str, tmp_path: Path
) -> None:
    """Timed out at both sides, it was said that nothing bad was seen and both sides were heard."""
    path = rewritten(CAPTURES / f"{name}.pcap", tmp_path / "dark.pcap", then_dark)
    reports = analyze(path).connections
    assert reports
    for report in reports:
        found = diagnose(report)
        assert found.ending.how in {"timed-out", "silent"}
        assert found.ending.confidence != "certain"
        assert "No problem was seen" not in found.cause.text
        assert NO_SILENCE not in found.ruled_out
        assert " for 0." not in found.verdict


def test_who_is_not_seen_any_more_did_not_stop_for_certain(tmp_path: Path) -> None:
    """Where nothing of a connection is seen any more, its own link may have ended before others of
    the file.
    """
    first = CAPTURES / "knet" / "udp_midstream_join.pcap"
    later = followed_by(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap", 100_000_000_000)
    together = list(analyze(rewritten(first, tmp_path / "both.pcap", later)).connections)
    for report in together[: len(list(analyze(first).connections))]:
        assert report.diagnosis is not None
        assert report.diagnosis.cause.confidence != "certain"


@pytest.mark.parametrize("plain", [True, False], ids=["kept", "packed"])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_client_that_falls_silent_may_go_on_from_another_port(
    processes: int, plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other port is a flow that another process may have; the answer is one."""
    monkeypatch.setattr("netdissect.pipeline.reports.MAX_PLAIN", 256 if plain else 0)
    first = CAPTURES / "riptide" / "udp_2.2.1_poorconnection_attempts_clientleg.pcap"
    causes = []
    for moved in (False, True):
        change = partial(goes_on, from_another_port=moved)
        path = rewritten(first, tmp_path / f"{moved}.pcap", change)
        reports = analyze(path, processes=processes).connections
        assert len(reports) == 1 + moved
        assert reports[0].vantage == "client"
        assert reports[0].diagnosis is not None
        causes.append(reports[0].diagnosis.cause)
    for cause in causes:
        assert (cause.what, cause.direction, cause.confidence) == ("silence", 0, "cannot tell")
    stopped, moved_on = causes
    text = f"another connection to this server in #{reports[1].first_frame}"
    assert moved_on.text.count(text) == 1
    assert stopped.text == moved_on.text.partition(" It may have")[0]


def test_whose_reset_it_was_is_a_guess_where_the_sides_are(tmp_path: Path) -> None:
    """Cut before a message of the server, which was taken for the client."""
    path = CAPTURES / "netplay" / "bin1_port_reuse.pcap"
    cut = rewritten(path, tmp_path / "cut.pcap", lambda found: found[5:])
    whole, part = (analyze(each).connections[0] for each in (path, cut))
    assert whole.diagnosis is not None
    assert (whole.diagnosis.ending.by, whole.diagnosis.ending.confidence) == ("client", "certain")
    assert part.roles_from == "first_frame"
    assert part.diagnosis is not None
    assert part.diagnosis.ending.confidence == "likely"


@pytest.mark.parametrize("name", ["bin1_server_full", "text_server_full"])
def test_who_ends_a_connection_at_once_has_probably_refused_it(name: str) -> None:
    """A server that stops, or a kick before the first message, looks the same."""
    refused = [
        report.diagnosis
        for report in analyze(CAPTURES / "netplay" / f"{name}.pcap").connections
        if "refused-by-immediate-fin" in report.codes
    ]
    assert refused
    for found in refused:
        assert found is not None
        assert (found.ending.how, found.ending.confidence) == ("rejected", "likely")
        assert found.cause.confidence == "likely"


@pytest.mark.parametrize("name", [
    "eoudp/rfc02_lossy_client", "riptide/udp_2.2.1_burst_gap_serverleg", "netplay/text_lossy__server_side",
    "teeworlds/ddnet_loss_client_side", "knet/udp_blackout_c2s_zombie.server",
])  # fmt: skip
def test_a_side_that_a_capture_lacks_from_the_middle_did_not_stop(
    name: str, tmp_path: Path
) -> None:
    """It was said for certain that its program stopped; it had gone on."""
    path = CAPTURES / f"{name}.pcap"
    side = "client" if "client" in name else "server"
    whole = analyze(path).connections[0]
    assert whole.vantage == side
    ports = [int(end.rpartition(":")[2]) for end in (whole.client, whole.server)]
    port = ports[side == "server"].to_bytes(2, "big")

    def half(found: list[Record]) -> list[Record]:
        later = found[len(found) // 2 :]
        return found[: len(found) // 2] + [row for row in later if row[1][34:36] != port]

    report = analyze(rewritten(path, tmp_path / "half.pcap", half)).connections[0]
    found = report.diagnosis
    assert found is not None
    assert (found.cause.what, found.cause.confidence) == ("silence", "cannot tell")
    assert not any("stopped" in each or "network" in each for each in found.ruled_out)


def test_what_receivers_report_lost_may_have_been_overtaken(table: Any) -> None:
    """Loss was certain at 9%, of which the network had lost 0.9%: a receiver of Riptide discards a
    message that comes behind newer ones, and reports it like a lost one.
    """
    told = 0
    for name, _, report, _ in table:
        found = report.diagnosis
        if found.cause.what == "loss" and "reports." in found.cause.text:
            told += 1
            assert found.cause.confidence == "likely", name
            assert "lost or overtaken" in found.cause.text, name
            assert report.protocol == "riptide"
    assert told >= 4


def test_at_most_is_never_less_than_what_was_lost(table: Any) -> None:
    """A bound of 1% stood beside a loss of 10%: spaces that repair nothing, units that nobody had
    acknowledged, and captures next to the receiver counted as if a resend showed each loss.
    """
    bounds = 0
    for name, wanted, report, _ in table:
        for direction, way in enumerate(("c2s", "s2c")):
            lost, sent = wanted.get("lost", {}).get(way, (0, 0))
            part = report.diagnosis.loss[direction]
            if not sent or not part.is_limit or wanted.get("dark"):
                continue  # what was sent into the dark has no number behind it
            bounds += 1
            true = lost / sent
            chance = 3 * sqrt(true * (1 - true) / part.sent)
            assert part.share >= true - chance, (name, way, part, true)
            assert part.basis in ("ids", "inferred") or report.near[direction], (name, way)
    assert bounds > 20


def test_a_late_copy_of_what_came_before_the_capture_shows_no_loss(tmp_path: Path) -> None:
    """The relay replayed datagram 6 behind 37; the capture begins with 14. Eight were "lost"."""
    path = CAPTURES / "knet" / "udp_late_replay.client.pcap"
    later = rewritten(path, tmp_path / "cut.pcap", lambda found: found[len(found) // 3 :])
    (report,) = analyze(later).connections
    (space,) = [s for s in report.spaces if s.space == "datagram" and s.direction == 1]
    assert (space.first_seq, space.never_seen) == (6, 0)
    assert not report.diagnosis.loss[1].lost


def test_numbers_of_messages_that_are_no_units_count_as_sent() -> None:
    """Of 266 numbers one was to be acknowledged and 24 did not come: that was 96% lost."""
    report, *_ = analyze(str(CAPTURES / "eoudp" / "rfc02_lossy_server.pcap")).connections
    assert report.diagnosis is not None
    part = report.diagnosis.loss[0]
    assert (part.basis, part.lost, part.sent) == ("observed", 24, 266)


def test_of_one_direction_alone_nobody_gave_up_for_certain(tmp_path: Path) -> None:
    """The goodbye is there, whether there was an answer is not."""
    def of_the_client(found: list[Record]) -> list[Record]:
        return [record for record in found if record[1][34:36] == found[0][1][34:36]]

    name = CAPTURES / "eoudp" / "late_oversize_resend.pcap"
    (whole,) = analyze(str(name)).connections
    assert whole.diagnosis is not None
    assert (whole.diagnosis.ending.how, whole.diagnosis.ending.confidence) == ("said", "certain")
    (half,) = analyze(rewritten(name, tmp_path / "half.pcap", of_the_client)).connections
    assert half.diagnosis is not None
    assert half.diagnosis.ending.confidence == "likely"


def test_of_a_side_that_is_not_heard_nobody_says_that_it_has_sent_anything(tmp_path: Path) -> None:
    """A server that does not know the port which a router has given the client does not answer."""
    def of_the_client(found: list[Record]) -> list[Record]:
        mine = [record for record in found if record[1][34:36] == found[0][1][34:36]]
        return mine[len(mine) // 2 : -10]

    name = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
    (half,) = analyze(rewritten(name, tmp_path / "half.pcap", of_the_client)).connections
    assert half.diagnosis is not None
    assert half.diagnosis.ending.how == "open"
    assert "(nothing that the server sent is in the capture)" in half.diagnosis.verdict


def test_who_repeats_a_tenth_is_not_said_to_have_seen_nothing_bad() -> None:
    """TCP sent 9% again next to the sender: at most so much was lost, and the cause says so."""
    path = CAPTURES / "netplay" / "bin1_lossy__client_side.pcap"
    result = CliRunner().invoke(cli, ["diagnose", str(path)], prog_name="netdissect")
    assert "nothing bad" not in result.stdout
    assert "9.0% of what the client sent was sent again or never acknowledged" in result.stdout
    assert "At most 6.8% of what the server sent was lost on the way" in " ".join(
        result.stdout.split()
    )


def test_the_latest_units_stand_in_order_of_their_lateness() -> None:
    path = CAPTURES / "teeworlds" / "ddnet_blackout_server_side.pcap"
    result = CliRunner().invoke(cli, ["diagnose", str(path), "1"], prog_name="netdissect")
    late = [line.split()[5:7] for line in result.stdout.splitlines() if line.startswith("   late ")]
    assert late == [["2.50", "s"], ["2.00", "s"], ["1.15", "s"]]


@pytest.mark.parametrize(
    ("name", "true_ms"),
    [
        ("udp_loss8.client", 10_019),
        ("knet2010_loss.client", 21_316),
        ("urho_fork_loss.client", 10_051),
        ("udp_packetid_wrap.client", 5_011),
    ],
)
def test_what_datagrams_carry_has_waited_since_its_first_copy(name: str, true_ms: int) -> None:
    """Since its last copy, it was said: 0.06 s, where both captures show 10 s. The acknowledgement
    may have been lost and not the copy, so it is no less than what they show.
    """
    (report,) = analyze(str(CAPTURES / "knet" / f"{name}.pcap")).connections
    added = report.diagnosis.lag.added[0]
    assert true_ms <= added.maximum <= 2 * true_ms
    assert report.codes["late-delivery"] == 1
    assert all(each.frame and each.added_ms > 200 for each in added.worst)


def test_a_limited_rate_that_lost_little_is_named_and_not_a_share() -> None:
    """Half a minute of a full queue is nothing in an hour: "lost: ." was all that was said."""
    (report,) = analyze(str(CAPTURES / "teeworlds" / "tw07_loss_server_side.pcap")).connections
    found = diagnose(report)
    few = (Loss(100_000, 9, "told"), Loss(100_000, 0, "told"))
    cause = replace(found.cause, what="loss", direction=0, text="0.0% of what went ...")
    assert verdict(report, found.ending, cause, few).endswith("; the rate was limited.")
    report.diagnosis = replace(found, cause=cause, loss=few)
    assert line(report).startswith("Rate limited; ")


def test_datagrams_that_are_missing_after_a_silence_blame_the_way() -> None:
    """When the datagram before it came was not remembered: the burst seemed to last no time."""
    path = CAPTURES / "knet" / "udp_loss8.client.pcap"
    (report,) = analyze(str(path)).connections
    assert all(burst.from_ns < burst.to_ns for space in report.spaces for burst in space.bursts)


def patient(report: ConnectionReport, back: Loss, again: int) -> Cause:
    """Return why a connection is bad whose client repeated so many of 500, patiently."""
    (space,) = [s for s in report.spaces if s.space == "reliable" and s.direction == 0]
    told = replace(
        space, copies=500 + again, units=500, acked=500, retransmissions=again, timer_ms=5000.0
    )
    others = [each for each in report.spaces if each is not space]
    seen = replace(report, spaces=[*others, told])
    loss = (Loss(500 + again, again, "bound"), back)
    return cause_of(seen, report.diagnosis.ending, loss, Limits())


def test_what_a_patient_sender_repeats_was_lost_on_its_way_where_the_answers_came() -> None:
    """Next to the client 23% were sent again, and of what came back nothing was missing: that was
    said to be lost there, or of the acknowledgements."""
    (report,) = analyze(str(CAPTURES / "knet" / "udp_loss8.client.pcap")).connections
    cause = patient(report, Loss(700, 0, "observed"), 100)
    assert (cause.what, cause.direction, cause.confidence) == ("loss", 0, "likely")
    assert "of 700 that came back none were lost" in cause.text
    assert patient(report, Loss(700, 60, "observed"), 100).direction == 1
    assert patient(report, Loss(700, 0, "observed"), 15).what != "loss"


def test_what_lost_answers_explain_is_no_loss_of_the_other_way() -> None:
    (report,) = analyze(str(CAPTURES / "knet" / "udp_loss8.client.pcap")).connections
    cause = replace(report.diagnosis.cause, what="loss", direction=0)
    loss = (Loss(900, 180, "observed"), Loss(400, 70, "bound"))
    said = verdict(report, report.diagnosis.ending, cause, loss)
    assert said.endswith("lost: 20% client to server.")


def test_who_else_the_server_spoke_to_shows_that_it_did_not_stop() -> None:
    """One client of two was dark, and nobody was told that the server was not to blame."""
    (report,) = analyze(str(CAPTURES / "knet" / "udp_blackout_both.client.pcap")).connections
    beside = replace(report, connection=2, first_frame=2, quiet=[])
    dark = replace(report, connection=2, first_frame=2)
    elsewhere = replace(beside, server="10.9.9.9:1")
    told = Reports([report, beside])[0].diagnosis
    assert told.cause.text.startswith("The server kept sending to c2: the path between it and")
    assert told.ruled_out[-1].startswith("the server as a whole: it kept sending to c2")
    for other in (dark, elsewhere):
        assert Reports([report, other])[0].diagnosis == report.diagnosis


def test_a_neighbour_without_losses_clears_the_link_of_the_server() -> None:
    (report,) = analyze(str(CAPTURES / "knet" / "udp_loss8.server.pcap")).connections
    assert (report.diagnosis.cause.what, report.diagnosis.cause.direction) == ("loss", 0)
    loss = (Loss(900, 0, "observed"), Loss(0, 0, "unknown"))
    good = replace(report, connection=2, diagnosis=replace(report.diagnosis, loss=loss))
    told = Reports([report, good])[0].diagnosis
    assert told.ruled_out[-1] == (
        "the link of the server: c2 lost almost nothing from client to server in that time"
    )
    assert Reports([report, replace(report, connection=2)])[0] is report


@pytest.mark.parametrize(
    "name", ["eoudp/rfc02_clean", "teeworlds/tw07_clean", "teeworlds/tw064_loss_server_side"]
)
def test_a_path_that_stands_still_shows_in_what_is_acknowledged_one_by_one(
    name: str, tmp_path: Path
) -> None:
    """Commands and snapshots are sent once, and have no timer: their round trips were passed over.
    Next to the side that answers, the same answers say nothing of the path.
    """
    path = CAPTURES / f"{name}.pcap"
    (report, *_) = analyze(path).connections
    port = int(report.client.rpartition(":")[2])
    held = partial(held_back, port, 3_000_000_000, 5_000_000_000)
    (slow, *_) = analyze(rewritten(path, tmp_path / "slow.pcap", held(400_000_000))).connections
    assert slow.codes["rtt-spike"] == 1
    assert not {"rtt-spike", "jitter"} & set(report.codes)
    assert slow.diagnosis is not None
    beside = replace(slow, vantage="client")
    codes = [found.code for found in answer(beside, Limits())]
    assert not {"rtt-spike", "jitter"} & set(codes)


def stood_still(found: list[Record]) -> list[Record]:
    """Have the path to the server of a TCP connection stand still for a while: its client sends the
    one segment that it has then again after 0.2, 0.4 and 0.8 s, and all that follows is later.
    """
    port = found[0][1][34:36]
    data = [place for place, (_, octets, _) in enumerate(found)
            if octets[34:36] == port and octets[47] & 8]  # fmt: skip
    at = data[len(data) // 2]
    time, octets, wire = found[at]
    # With another IP identification: the network's copies have the same.
    again = [
        (time + ms * 1_000_000, octets[:18] + bytes([ms % 256, 77]) + octets[20:], wire)
        for ms in (200, 600, 1400)
    ]
    later = [(when + 1_450_000_000, *rest) for when, *rest in found[at + 1 :]]
    return [*found[: at + 1], *again, *later]


@pytest.mark.parametrize(
    ("name", "silent"), [("netplay/text_example_chat", True), ("knet/tcp_clean_session", False)]
)
def test_a_tcp_stall_is_told_however_little_is_sent(
    name: str, silent: bool, tmp_path: Path
) -> None:
    """One segment came 1.4 s late, and three were asked for. Where only the kernel answers it, its
    silence is the cause.
    """
    path = CAPTURES / f"{name}.pcap"
    assert all("late-delivery" not in report.codes for report in analyze(path).connections)
    stalled = analyze(rewritten(path, tmp_path / "stalled.pcap", stood_still)).connections
    report = next(each for each in stalled if "late-delivery" in each.codes)
    assert report.diagnosis.lag.added[0].maximum > 1000
    assert (report.diagnosis.cause.what == "silence") == silent
    assert ("acknowledged more than 200 ms late." in report.diagnosis.cause.text) != silent
    assert "nothing bad" not in report.diagnosis.cause.text


def test_the_table_of_connections_says_how_they_ended_as_the_diagnosis_does() -> None:
    shown = set()
    for name in TOLD:
        connections = list(analyze(str(CAPTURES / name)).connections)
        stream = StringIO()
        show_connections(Screen(stream, width=250, color="never"), connections, Clock())
        for report, row in zip(connections, stream.getvalue().splitlines()[2:], strict=True):
            if report.close is None and report.diagnosis is not None:
                assert f" {report.diagnosis.ending.text} " in row
                shown.add(report.diagnosis.ending.how)
    assert shown >= {"dropped", "silent", "timed-out", "unknown", "open", "never-answered"}


def test_every_ending_has_its_words() -> None:
    source = (TESTS.parent / "src/netdissect/model/diagnosis.py").read_text("utf-8")
    told = source.partition("    how: str\n")[2].partition("reason:")[0]
    assert set(re.findall(r"`([a-z-]+)`", told)) == set(ENDINGS)
