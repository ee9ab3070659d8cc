"""Server endpoints, and what each of them speaks."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from netdissect.model.claims import Claim
from netdissect.model.packets import ACK, SYN, FlowKey, flow_sides
from netdissect.pipeline.handlers import Flow
from netdissect.protocols.base import Protocol
from netdissect.protocols.claiming import roles

__all__ = [
    "SERVER_SCORE", "Servers", "awaits_roles", "still_short", "syn_side", "with_handshake",
]  # fmt: skip

MAX_UNTOLD = 256
"""A TCP flow with more bytes than this speaks for itself."""
MAX_SERVERS = 4096
"""Endpoints remembered as servers of a protocol."""
SERVER_SCORE: Final = 60
"""Score of a claim that rests on what the server spoke on other connections."""

ROLES_NS: Final = 1_500_000_000
"""A UDP flow that a protocol knows, but not yet who is the client, waits so long for what shows it:
keepalives that differ go out once per second.
"""
ROLES_DATAGRAMS: Final = 512
ROLES_OCTETS: Final = 1 << 19
"""Datagrams and bytes held of such a flow at which it waits no longer."""


class Servers:
    """Server endpoints and the claim that was made on a connection to them.

    A connection that was refused, on which nothing was sent, or that holds nothing but what a
    fuzzer made up, says nothing itself; another one to the same server tells what it was for.
    """

    def __init__(self, *, weak: bool = True) -> None:
        """Make one; `weak` False: it claims no UDP flow, which then stays for somebody who knows
        more servers.
        """
        self.partial = not weak
        """Whether somebody knows more servers."""
        self._known: OrderedDict[tuple[str, bytes], Claim] = OrderedDict()
        """(transport, server) -> the claim by which it was found; that of the latest flow last."""
        self._spoken: OrderedDict[bytes, Protocol] = OrderedDict()
        """Server endpoint of a UDP flow -> the protocol that took it; the latest last."""

    def learn(self, flow: Flow, roles_from: str) -> bool:
        """Remember what the server of a claimed flow speaks; return whether another one, of which
        no flow has begun for longest, had to be forgotten for it.
        """
        if flow.claim is None or flow.protocol is None:
            return False
        server = flow_sides(flow.key)[1 - flow.client]
        if flow.transport == "udp":
            self._spoken.setdefault(server, flow.protocol)
            self._spoken.move_to_end(server)
            if len(self._spoken) > MAX_SERVERS:
                self._spoken.popitem(last=False)
            if roles_from == "first_frame":
                return False  # Who is the server was no more than a guess.
        name = (flow.transport, server)
        if name not in self._known:
            if flow.claim.score <= SERVER_SCORE:
                return False  # What rests on a claim is no surer than the claim.
            self._known[name] = flow.claimed(flow.claim)
        self._known.move_to_end(name)
        full = len(self._known) > MAX_SERVERS
        if full:
            self._known.popitem(last=False)
        return full

    def merge(self, others: Servers) -> None:
        """Add what others have learnt."""
        self._known = OrderedDict({**others._known, **self._known})

    def likely(self, flow: Flow) -> Protocol | None:
        """Return the protocol that a UDP flow will be of if its server speaks to all alike.

        It spares the others the look at most samples; at the last one everybody is asked.
        """
        first, second = flow_sides(flow.key)
        return self._spoken.get(second) or self._spoken.get(first)

    def weak(self, flow: Flow) -> Claim | None:
        """Return a claim on a flow that proves nothing, resting on what its server spoke before."""
        if flow.rule is not None:
            return None
        if flow.transport == "udp":
            return None if self.partial else self._recall(flow)
        if flow.octets > MAX_UNTOLD:
            return None
        claim = self._recall(flow)
        return None if claim is None else with_handshake(replace(claim, client=None), flow, claim)

    def recalls(self, transport: str, key: FlowKey) -> bool:
        """Return whether an end of a flow that proves nothing is a server of a known protocol."""
        if not self._known or (self.partial and transport != "tcp"):
            return False
        return any((transport, side) in self._known for side in flow_sides(key))

    def _recall(self, flow: Flow) -> Claim | None:
        sides = flow_sides(flow.key)
        # The destination of the first datagram is the likelier server.
        for side in (1, 0):
            claim = self._known.get((flow.transport, sides[side]))
            if claim is None:
                continue
            theirs = claim.dialects[1 - (claim.client or 0)]
            spoken = theirs or claim.dialects[0] or claim.dialects[1]
            reason = "its server speaks this protocol on other connections"
            return Claim(
                claim.protocol, SERVER_SCORE, (spoken, spoken), 1 - side, "protocol", (reason,),
                doubtful=(True, True),
            )  # fmt: skip
        return None


def syn_side(flow: Flow) -> int | None:
    """Return the end of a TCP flow that sent the SYN, 0 or 1; None = no handshake was captured."""
    for side, packet in flow.packets:
        segment = packet[5]
        if segment is not None and segment.flags & SYN:
            return 1 - side if segment.flags & ACK else side
    return None


def with_handshake(claim: Claim, flow: Flow, otherwise: Claim | None = None) -> Claim:
    """Return the claim with the roles of the TCP handshake: who sends the SYN is the client; where
    there is none, `otherwise` or the claim as it is.
    """
    client = syn_side(flow)
    if client is None:
        return otherwise or claim
    return replace(claim, client=client, roles_from="handshake")


def still_short(flow: Flow) -> bool:
    """Return whether a flow may wait for what shows who is the client."""
    if flow.transport != "udp" or flow.rule is not None or not flow.sample:
        return False
    lasted_ns = flow.last_ns - flow.sample[0][1]
    short = len(flow.sample) < ROLES_DATAGRAMS and flow.octets < ROLES_OCTETS
    return short and lasted_ns < ROLES_NS


def awaits_roles(flow: Flow, claim: Claim, protocols: tuple[Protocol, ...]) -> bool:
    """Return whether the protocol that claims a flow knows nothing yet of who is the client, and
    expects that what comes next shows it.
    """
    mine = next(each for each in protocols if each.name == claim.protocol)
    if claim.client is not None or roles(claim, mine, flow.ports)[1] != "first_frame":
        return False
    early = mine.recognise(flow.sample, flow.transport, final=False)
    return early is not None and early.waits and early.client is None
