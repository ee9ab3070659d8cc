"""Decides which protocol a flow belongs to: by the strongest claim, or by a decode-as rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from netdissect.model.claims import STRONG, Claim, Sample
from netdissect.protocols.base import Protocol

SAMPLE_SIZES: Final = frozenset({1, 2, 3, 4, 6, 8, 12, 16, 32, 64})
"""Numbers of datagrams of a flow at which the protocols are asked to recognise it."""
PORT_BONUS: Final = 10
"""Added to the score of a claim where a port of the flow is a default port of the protocol."""
CERTAIN: Final = 90
"""Score of a claim that ends the search: no other protocol is asked."""
_FIRST_EPHEMERAL: Final = 32768
"""First port that operating systems assign to clients. Source: Linux `ip_local_port_range`."""


@dataclass(frozen=True, slots=True)
class DecodeAs:
    """One decode-as rule: traffic of this port is this protocol."""

    transport: str
    """`udp` or `tcp`."""
    port: int
    protocol: Protocol
    dialect: str | None = None
    """Full name; None = let the protocol recognise it."""


def best_claim(
    protocols: Iterable[Protocol],
    sample: Sequence[Sample],
    transport: str,
    ports: tuple[int, int],
    *,
    final: bool,
    on_fault: Callable[[Protocol, Exception], None],
    least: int = STRONG,
) -> Claim | None:
    """Return the strongest claim that takes the flow, or None. Its score is `least` or more.

    A claim that waits is none yet, but if it is certain, weaker protocols are not asked meanwhile.
    A protocol whose recognition raises is reported to `on_fault` and makes no claim.
    """
    best: Claim | None = None
    if not sample:
        return None
    for protocol in protocols:
        if transport not in protocol.transports:
            continue
        try:
            claim = protocol.recognise(sample, transport, final=final)
        except Exception as bug:  # noqa: BLE001 - the others may still know the flow
            on_fault(protocol, bug)
            continue
        if claim is None:
            continue
        if claim.waits:
            if claim.score >= CERTAIN:
                return None
            continue
        claim = _with_bonus(claim, protocol, ports)
        if claim.score >= least and (best is None or claim.score > best.score):
            best = claim
            if claim.score >= CERTAIN:
                break
    return best


def _with_bonus(claim: Claim, protocol: Protocol, ports: tuple[int, int]) -> Claim:
    """Return the claim, stronger where the flow has a default port of the protocol."""
    if ports[0] not in protocol.default_ports and ports[1] not in protocol.default_ports:
        return claim
    reason = "one of the ports is the protocol's own"
    score = min(100, claim.score + PORT_BONUS)
    return Claim(  # `dataclasses.replace` takes fifty times as long
        claim.protocol, score, claim.dialects, claim.client, claim.roles_from,
        (*claim.reasons, reason), claim.doubtful, claim.forced, claim.waits, claim.attempt,
        claim.late,
    )  # fmt: skip


def forced_claim(
    rule: DecodeAs, sample: Sequence[Sample], ports: tuple[int, int], *, final: bool
) -> Claim | None:
    """Return the claim of a decode-as rule; None while more datagrams may settle the dialect."""
    reason = f"decode-as rule for {rule.transport} port {rule.port}"
    claim = rule.protocol.recognise(sample, rule.transport, final=final)
    if claim is not None and claim.score >= STRONG and not claim.waits:
        claim = replace(claim, score=100, reasons=(reason, *claim.reasons))
        return claim if rule.dialect is None else named(claim, rule.dialect)
    if rule.dialect is None and not final:
        return None
    known = (None, None) if claim is None else claim.dialects
    client = None
    # If both ports are that of the rule, they do not tell the client.
    if (ports[0] == rule.port) != (ports[1] == rule.port):
        client = 1 if ports[0] == rule.port else 0
    return Claim(
        protocol=rule.protocol.name,
        score=100,
        dialects=known if rule.dialect is None else (rule.dialect, rule.dialect),
        client=client,
        roles_from="port" if client is not None else "first_frame",
        reasons=(reason,),
        forced=rule.dialect is not None,
    )


def named(claim: Claim, dialect: str) -> Claim:
    """Return the claim with the dialect that the user names in both directions."""
    return replace(claim, dialects=(dialect, dialect), doubtful=(False, False), forced=True)


def roles(claim: Claim, protocol: Protocol, ports: tuple[int, int]) -> tuple[int, str]:
    """Return (which endpoint is the client, basis of that)."""
    if claim.client is not None:
        return claim.client, claim.roles_from
    own = tuple(port in protocol.default_ports for port in ports)
    if own[0] != own[1]:
        return (1 if own[0] else 0), "port"
    # A server's port is fixed, so it is seldom one that the system assigns.
    low = tuple(port < _FIRST_EPHEMERAL for port in ports)
    if low[0] != low[1]:
        return (1 if low[0] else 0), "port"
    return 0, "first_frame"
