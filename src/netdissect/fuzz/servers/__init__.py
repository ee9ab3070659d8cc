"""Minimal servers to fuzz, one module a protocol."""

from __future__ import annotations

from importlib import import_module

from netdissect.fuzz.servers.base import PlantedBugError, Server, open_listener, serve
from netdissect.model.errors import UsageError

__all__ = ["SERVERS", "PlantedBugError", "Server", "make_server", "open_listener", "serve"]

SERVERS: dict[str, tuple[str, str]] = {
    "eoudp": ("EoudpServer", "exodia-late"),
    "knet": ("KnetServer", "knet-2.x"),
    "netplay": ("NetplayServer", "netplay-bin1"),
    "riptide": ("RiptideServer", "riptide-2.2"),
    "teeworlds": ("TeeworldsServer", "teeworlds-0.7"),
}
"""Protocol -> (class in the module of the same name, default dialect)."""


def make_server(
    protocol: str, dialect: str | None = None, bugs: frozenset[str] = frozenset()
) -> Server:
    """Return the minimal server of a protocol.

    Raises:
        UsageError: there is none, or not with that bug.
    """
    if protocol not in SERVERS:
        raise UsageError(f"no server for {protocol!r}; there are: {', '.join(SERVERS)}")
    name, usual = SERVERS[protocol]
    kind: type[Server] = getattr(import_module(f"netdissect.fuzz.servers.{protocol}"), name)
    unknown = bugs - set(kind.BUGS)
    if unknown:
        raise UsageError(f"no bug {min(unknown)!r} in it; there are: {', '.join(kind.BUGS)}")
    return kind(dialect or usual, bugs)
