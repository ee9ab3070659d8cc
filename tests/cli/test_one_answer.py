"""Every view says the same of a connection: what others of its server show of it, too."""

from __future__ import annotations

import json
import re
from functools import partial
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

import console_docs
from netdissect import analyze
from netdissect.browse.connections import answer
from netdissect.cli import cli
from netdissect.cli.file_backend import FileBackend
from netdissect.cli.session import Choices
from netdissect.render.units import Clock, duration
from twocaptures import Change, goes_on, interleaved, rewritten, with_port

CAPTURES = console_docs.ROOT / "captures"
SERVER = 7777
MERGED = {
    # Which of them share a server, and what one shows of another.
    "silent": ("knet/udp_blackout_both.client", "knet/udp_loss8.client"),
    "lossy": ("knet/urho3d_scene_loss.server", "riptide/udp_2.2.1_seqwrap_serverleg"),
    "moved": ("riptide/udp_2.2.1_poorconnection_attempts_clientleg",),
    "many": (
        "teeworlds/tw07_oneway_s2c_client_side", "eoudp/late_two_clients_one_killed",
    ),
}  # fmt: skip
BRIEF = {"none", "closed", "rejected", "unreachable", "quality"}
"""Causes that the verdict says already, where there is room for a line alone."""


def run(*words: str) -> str:
    return CliRunner().invoke(cli, list(words), prog_name="netdissect").stdout


def merged(names: tuple[str, ...], folder: Path) -> Path:
    """Write captures that begin at once, all of connections to one server."""
    parts = []
    for place, name in enumerate(names):
        path = CAPTURES / f"{name}.pcap"
        ports = {int(each.server.rpartition(":")[2]) for each in analyze(str(path)).connections}
        changes: list[Change] = [with_port(port, SERVER) for port in ports]
        if len(names) == 1:
            changes.append(partial(goes_on, from_another_port=True))
        parts.append(Path(rewritten(path, folder / f"{place}.pcap", *changes)))
    return interleaved(parts, folder / "merged.pcap")


def hold_together(path: Path) -> list[str]:
    """Check that all views of a capture say the same; return what `diagnose` says in full."""
    told = {
        found["connection"]: found
        for found in map(json.loads, run("diagnose", str(path), "--json").splitlines())
    }
    listed = map(json.loads, run("connections", str(path), "--json").splitlines())
    for whole in listed:
        answer_alone = told[whole["connection"]]
        assert whole["diagnosis"] == {key: answer_alone[key] for key in whole["diagnosis"]}
    text = run("diagnose", str(path), "--width", "5000")
    page = unescape(re.sub("<[^>]+>", "", run("report", str(path), "-o", "-")))
    backend = FileBackend(str(path), Choices())
    backend.read()
    for number, found in told.items():
        report = backend.connection(number)
        assert report is not None
        lines = answer(report, Clock("r", 0), 5000)
        browsed = "\n".join(text for line in lines for text, _ in line)
        shown = run("connections", str(path), str(number), "--width", "5000")
        # Of several, only a line says of each one without a problem how it ended.
        is_brief = len(told) > 1 and found["cause"]["calm"]
        full = run("diagnose", str(path), str(number), "--width", "5000") if is_brief else text
        if (usual := found["lag"]["path_ms"]) is not None:
            trip = duration(usual)
            assert f"RTT {trip}" in run("connections", str(path), "--width", "80")
            assert f"round-trip time {trip}" in full
        verdict, cause = found["verdict"], found["cause"]
        for view in (text, full, shown, browsed, page):
            assert verdict in view
        for view in (full, browsed, *(() if cause["what"] in BRIEF else (shown,))):
            assert cause["text"] in view or found["ended"]["how"] == "info-only"
        if f"connection {number} " in page.lower():
            assert cause["text"] in page
    return [json.dumps(found) for found in told.values()]


@pytest.mark.parametrize(
    "name", ["silent", "lossy", "moved", pytest.param("many", marks=pytest.mark.slow)]
)
def test_views_agree_on_connections_of_one_server(name: str, tmp_path: Path) -> None:
    said = " ".join(hold_together(merged(MERGED[name], tmp_path)))
    assert ("it kept sending to c" in said) == (name == "silent")
    assert ("lost almost nothing" in said) == (name == "lossy")
    assert ("may have continued from another port" in said) == (name == "moved")


def test_views_agree_on_the_round_trip_time() -> None:
    """Probes of one side that are answered at once, and units of the other that wait for a reply."""
    hold_together(CAPTURES / "teeworlds" / "ddnet_mixed.pcap")


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*/*.pcap*")), ids=lambda path: path.name)
def test_views_agree_on_every_capture(path: Path) -> None:
    if path.suffix in {".pcap", ".pcapng"}:
        hold_together(path)
