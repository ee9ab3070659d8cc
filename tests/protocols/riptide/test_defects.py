"""Section 9: the known defects show as the reference says, in the captures that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.pipeline import analyze

CAPTURES = Path(__file__).resolve().parents[3] / "captures" / "riptide"


def found(name):
    return [
        (anomaly.code, anomaly.message) for anomaly in analyze(CAPTURES / f"{name}.pcap").anomalies
    ]


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("udp_2.1.0_broadcast_or_bug", "acked-yet-resent", "D1"),
        ("udp_2.1.0_broadcast_or_bug", "number-reused", "D1"),
        ("udp_2.1.2_kick_stop", "riptide-misencoded-stop", "ServerStopped"),  # D5
        ("udp_2.2.0_kick_stop", "riptide-misencoded-stop", "ServerStopped"),
        ("udp_2.2.1_burst_gap_serverleg", "ack-of-unseen", "D7"),
        ("udp_2.2.1_empty_datagram", "riptide-empty-datagram", "no bytes"),  # D10
        ("udp_pytide2.1client_2.2.1server", "first-number-skipped", "1 was never sent"),  # D13
        ("udp_2.0.0_giveup_serverleg", "attempts-exhausted", "15 times"),
        ("udp_2.2.1_poorconnection_attempts_serverleg", "attempts-exhausted", "15 times"),
        ("udp_2.2.1_poorconnection_loss_clientleg", "poor-quality", "more than its sender"),
        ("udp_2.2.1_poorconnection_loss_clientleg", "silent-close", "PoorConnection"),
        ("udp_2.2.1_noserver", "port-unreachable", "nothing listens"),
        ("udp_2.2.1_malformed", "ack-of-unsent", "no copy of it was seen"),
        ("udp_2.2.1_malformed", "riptide-invalid-type", "type"),
        ("udp_main_malformed", "ack-of-unsent", "notify 500"),
        ("udp_main_malformed", "sequence-jump", "jumps ahead"),
        ("udp_main_malformed", "number-before-first", "0 is before 1"),
        ("udp_2.0.0_malformed", "riptide-connect-again", "live connection"),
        ("udp_2.2.1_malformed", "riptide-welcome-again", "id"),
    ],
)
def test_shown(name, code, says) -> None:
    assert any(code == other and says in message for other, message in found(name))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("udp_main_burst_gap_serverleg", "ack-of-unseen"),  # fixed there
        ("udp_2.1.1_broadcast", "acked-yet-resent"),  # fixed there
        ("udp_2.1.1_broadcast", "number-reused"),
        ("udp_2.2.1_kick_stop", "riptide-misencoded-stop"),
        ("udp_2.2.1_lossy_clientleg", "attempts-exhausted"),
        ("udp_2.2.1_seqwrap_serverleg", "sequence-jump"),
        ("udp_2.2.1_clean", "ack-of-unsent"),
    ],
)
def test_not_shown(name, code) -> None:
    assert code not in [other for other, _ in found(name)]


CLEAN = ["udp_2.0.0_clean", "udp_2.1.2_clean", "udp_2.2.1_clean", "udp_main_clean",
         "tcp_2.0.0_clean", "tcp_2.1.2_clean", "tcp_2.2.1_clean", "udp_2.1dev_clean"]  # fmt: skip


@pytest.mark.parametrize("name", CLEAN)
def test_clean_connections_have_no_findings_above_chat(name) -> None:
    for report in analyze(CAPTURES / f"{name}.pcap").connections:
        assert report.anomalies["warn"] == report.anomalies["error"] == 0
        if not name.startswith("tcp"):  # there acks wait in the stream while resends go on
            assert report.anomalies["note"] == 0
