"""Minimal servers to fuzz, one module a protocol."""

from __future__ import annotations

from importlib import import_module

from netdissect.fuzz.servers.base import PlantedBugError, Server, open_listener, serve
from netdissect.model.errors import UsageError

__all__ = ["SERVERS", "PlantedBugError", "Server", "make_server", "open_listener", "serve"]

SERVERS: dict[str, dict[str, tuple[str, str, str]]] = {
    "eoudp": {"udp": ("eoudp", "EoudpServer", "exodia-late")},
    "knet": {
        "udp": ("knet", "KnetServer", "knet-2.x"),
        "tcp": ("knet_tcp", "KnetTcpServer", "knet-tcp"),
    },
    "netplay": {"tcp": ("netplay", "NetplayServer", "netplay-bin1")},
    "riptide": {
        "udp": ("riptide", "RiptideServer", "riptide-2.2"),
        "tcp": ("riptide_tcp", "RiptideTcpServer", "riptide-2.2"),
    },
    "teeworlds": {"udp": ("teeworlds", "TeeworldsServer", "teeworlds-0.7")},
}
"""Protocol -> transport -> (module, class, default dialect); the first is the usual one."""


def make_server(
    protocol: str,
    dialect: str | None = None,
    bugs: frozenset[str] = frozenset(),
    transport: str | None = None,
) -> Server:
    """Return the minimal server of a protocol.

    Raises:
        UsageError: there is none, or not with that bug.
    """
    rows = SERVERS.get(protocol)
    if rows is None:
        raise UsageError(f"no server for {protocol!r}; there are: {', '.join(SERVERS)}")
    if transport is not None and transport not in rows:
        raise UsageError(f"no server for {protocol} over {transport}, only: {', '.join(rows)}")
    module, name, usual = rows[transport or next(iter(rows))]
    kind: type[Server] = getattr(import_module(f"netdissect.fuzz.servers.{module}"), name)
    unknown = bugs - set(kind.BUGS)
    if unknown:
        raise UsageError(f"no bug {min(unknown)!r} in it; there are: {', '.join(kind.BUGS)}")
    return kind(dialect or usual, bugs)
