from __future__ import annotations

import os
from tempfile import TemporaryFile

import pytest

from netdissect.capture.live.choice import Verdict
from netdissect.capture.live.process import Child, capture_words, failure
from netdissect.capture.live.source import LiveRequest
from netdissect.model.errors import AccessError, FilterError

DUMPCAP = Verdict("dumpcap", "/usr/bin/dumpcap", usable=True, reason="")
TCPDUMP = Verdict("tcpdump", "/usr/bin/tcpdump", usable=True, reason="")


def test_to_look_at_what_a_program_said_does_not_move_where_it_writes() -> None:
    """It has the same file open, and the same place in it: more than is read was written over."""
    child = Child.__new__(Child)
    with TemporaryFile() as said:
        child._said = said
        os.write(said.fileno(), b"a" * 200_000)
        assert set(child.said()) == {"a"}
        os.write(said.fileno(), b"dropped")
        assert os.pread(said.fileno(), 100, 200_000) == b"dropped"


def test_a_filter_is_never_an_option() -> None:
    request = LiveRequest(interface="lo", capture_filter="-w /etc/x", promiscuous=False)
    assert capture_words(TCPDUMP, "lo", request)[-3:] == ["-p", "--", "-w /etc/x"]
    assert capture_words(DUMPCAP, "lo", request)[-3:] == ["-p", "-f", "-w /etc/x"]


def test_tcpdump_hands_over_at_once_unless_nothing_may_be_missing_in_a_file() -> None:
    shown = capture_words(TCPDUMP, "lo", LiveRequest(interface="lo"))
    assert "--immediate-mode" in shown
    recorded = capture_words(TCPDUMP, "lo", LiveRequest(interface="lo", recorded=True))
    assert "--immediate-mode" not in recorded
    assert capture_words(DUMPCAP, "lo", LiveRequest(interface="lo", recorded=True)) == (
        capture_words(DUMPCAP, "lo", LiveRequest(interface="lo"))
    )


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('dumpcap: There is no device named "x".\n(No such device exists)\n', AccessError),
        ('dumpcap: You do not have permission to capture on device "lo".\n', AccessError),
        ("dumpcap: Invalid capture filter \"u\" for interface 'lo'.\n", FilterError),
        ("", FilterError),
    ],
)
def test_what_a_program_says_becomes_an_error(said: str, kind: type[Exception]) -> None:
    error = failure(DUMPCAP, "lo", LiveRequest(interface="lo", capture_filter="u"), said)
    assert type(error) is kind
