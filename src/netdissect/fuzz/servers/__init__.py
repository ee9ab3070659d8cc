"""Minimal servers to fuzz, one module a protocol."""

from __future__ import annotations

from netdissect.fuzz.servers.base import PlantedBugError, Server, open_listener, serve
from netdissect.model.errors import UsageError
from netdissect.model.text import quoted
from netdissect.protocols import registry

__all__ = ["PlantedBugError", "Server", "make_server", "open_listener", "serve", "served"]


def served() -> list[str]:
    """Return the protocols that have a minimal server."""
    return [known.name for known in registry.protocols() if known.servers]


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
    rows = registry.get(protocol).servers
    if not rows:
        raise UsageError(f"no server for {quoted(protocol)}; there are: {', '.join(served())}")
    if transport is not None and transport not in rows:
        raise UsageError(f"no server for {protocol} over {transport}, only: {', '.join(rows)}")
    kind: type[Server] = registry.load(rows[transport or next(iter(rows))])
    unknown = bugs - set(kind.BUGS)
    if unknown:
        raise UsageError(f"no bug {quoted(min(unknown))} in it; there are: {', '.join(kind.BUGS)}")
    return kind(dialect, bugs)
