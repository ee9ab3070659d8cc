"""Minimal servers to fuzz, one module a protocol."""

from __future__ import annotations

from netdissect.fuzz.drivers import driver_class
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
        UsageError: there is none, or not with that bug, or none that speaks the dialect.
    """
    rows = registry.get(protocol).servers
    if not rows:
        raise UsageError(f"no server for {quoted(protocol)}; there are: {', '.join(served())}")
    if transport is not None and transport not in rows:
        raise UsageError(f"no server for {protocol} over {transport}, only: {', '.join(rows)}")
    kinds: list[type[Server]] = [
        registry.load(rows[each]) for each in ([transport] if transport else rows)
    ]
    kind, spoken = kinds[0], None
    if dialect is not None:
        names = {name: each for each in reversed(kinds) for name in _dialects(protocol, each)}
        wanted = (dialect, f"{protocol}-{dialect}")
        spoken = next((name for name in names if name in wanted), None)
        if spoken is None:
            known = ", ".join(names)
            raise UsageError(f"no server for the dialect {quoted(dialect)}; there are: {known}")
        kind = names[spoken]
    unknown = bugs - set(kind.BUGS)
    if unknown:
        raise UsageError(f"no bug {quoted(min(unknown))} in it; there are: {', '.join(kind.BUGS)}")
    return kind(spoken, bugs)


def _dialects(protocol: str, kind: type[Server]) -> tuple[str, ...]:
    """Return the dialects that a server speaks: by default, all of the driver's."""
    return kind.DIALECTS or driver_class(protocol, kind.TRANSPORT).dialects
