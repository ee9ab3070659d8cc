"""Histories of shipped captures."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from netdissect.cli.plot_data import collect_plot_data
from netdissect.cli.session import Session
from netdissect.plot.history import History

ROOT = Path(__file__).resolve().parents[2]
LOSSY = "riptide/udp_2.2.1_lossy_clientleg.pcap"
DARK = "knet/udp_blackout_both.client.pcap"
SNAPSHOTS = "teeworlds/ddnet_loss_client_side.pcap"
FLOOD = "eoudp/late_timeout_server.pcap"
STREAM = "netplay/bin1_aborts.pcap"


def path(name: str) -> str:
    """Return the path of a shipped capture."""
    return str(ROOT / "captures" / name)


@cache
def histories(name: str, limit: int = 20_000) -> dict[int, History]:
    """Return the histories of a shipped capture."""
    with Session(path(name), quiet=True) as session:
        return collect_plot_data(session, limit=limit).gallery.histories
