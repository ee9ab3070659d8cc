"""Server endpoints and their protocols, and the recognition of the client and server roles."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from netdissect.model.claims import STRONG, Claim
from netdissect.model.packets import ACK, SYN, flow_sides
from netdissect.pipeline.handlers import Flow, Name, is_udp
from netdissect.protocols.base import Protocol
from netdissect.protocols.claiming import roles

MAX_UNTOLD = 256
"""Bytes of a TCP flow up to which it is judged by its server. A longer one must prove itself."""
MAX_SERVERS = 4096
"""Endpoints remembered as servers of a protocol."""
SERVER_SCORE: Final = 60
"""Score of a claim based on the protocol of the server in other connections."""

WAIT_NS: Final = 1_500_000_000
"""Time for which a UDP flow waits that a protocol claims weakly, or without knowing who is the
client, ns. Keepalives that show it are sent once per second.
"""
WAIT_DATAGRAMS: Final = 512
"""Datagrams of such a flow up to which it waits."""
WAIT_OCTETS: Final = 1 << 19
"""Bytes of such a flow up to which it waits."""


class Servers:
    """The known servers, each with the claim on a connection to it.

    A connection that was refused, that is empty or that only has the output of a fuzzer proves
    nothing itself. Another connection to the same server shows what it was for.
    """

    def __init__(self, *, weak: bool = True) -> None:
        """Create one. With `weak` False it never claims UDP flows, because other processes know
        further servers.
        """
        self.partial = not weak
        """Whether other processes know further servers."""
        self._known: OrderedDict[tuple[str, bytes], Claim] = OrderedDict()
        """(transport, server) -> claim by which it was found, most recently used last."""
        self._spoken: OrderedDict[bytes, Protocol] = OrderedDict()
        """Server endpoint of a UDP flow -> protocol that has claimed it, most recently used last.
        """

    def learn(self, flow: Flow, roles_from: str) -> bool:
        """Remember the protocol of the server of a claimed flow. Return True if the least recently
        used server had to be forgotten for it.
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
                return False  # which side is the server was only a guess
        name = (flow.transport, server)
        if name not in self._known:
            if flow.claim.score <= SERVER_SCORE:
                return False  # this claim itself may rest on what is known about the server
            self._known[name] = flow.claimed(flow.claim)
        self._known.move_to_end(name)
        full = len(self._known) > MAX_SERVERS
        if full:
            self._known.popitem(last=False)
        return full

    def merge(self, others: Servers) -> None:
        """Add the servers that another process knows."""
        self._known = OrderedDict({**others._known, **self._known})

    def likely(self, flow: Flow) -> Protocol | None:
        """Return the protocol of a UDP flow's server, if it is known.

        Only this protocol is then asked about incomplete samples, which is faster. All protocols
        are asked about the complete sample.
        """
        first, second = flow_sides(flow.key)
        return self._spoken.get(second) or self._spoken.get(first)

    def weak(self, flow: Flow) -> Claim | None:
        """Return a claim on a flow that proves nothing itself, based on its server."""
        if flow.rule is not None or not flow.packets:  # looked at again, and no packet came
            return None
        if flow.transport == "udp":
            return None if self.partial else self._recall(flow)
        # What the snap length cut off might have proven it.
        lost = sum(p[5].payload_length - len(p[4]) for _, p in flow.packets if p[5] is not None)
        if flow.octets + lost > MAX_UNTOLD:
            return None
        claim = self._recall(flow)
        return None if claim is None else with_handshake(replace(claim, client=None), flow, claim)

    def recalls(self, name: Name) -> bool:
        """Return whether an endpoint of a flow is a known server."""
        udp = is_udp(name)
        if not self._known or (self.partial and udp):
            return False
        transport = "udp" if udp else "tcp"
        return any((transport, side) in self._known for side in flow_sides(name))

    def _recall(self, flow: Flow) -> Claim | None:
        sides = flow_sides(flow.key)
        # The destination of the first datagram is more likely to be the server.
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
    """Return the endpoint (0 or 1) of a TCP flow that sent the SYN; None if it was not captured."""
    for side, packet in flow.packets:
        segment = packet[5]
        if segment is not None and segment.flags & SYN:
            return 1 - side if segment.flags & ACK else side
    return None


def with_handshake(claim: Claim, flow: Flow, otherwise: Claim | None = None) -> Claim:
    """Return the claim with the sender of the SYN as client. Without a captured SYN, return
    `otherwise`, or the claim as it is.
    """
    client = syn_side(flow)
    if client is None:
        return otherwise or claim
    return replace(claim, client=client, roles_from="handshake")


def still_short(flow: Flow) -> bool:
    """Return whether a flow is short enough to wait until more is known of it."""
    if flow.transport != "udp" or flow.rule is not None or not flow.sample:
        return False
    lasted_ns = flow.last_ns - flow.sample[0][1]
    short = len(flow.sample) < WAIT_DATAGRAMS and flow.octets < WAIT_OCTETS
    return short and lasted_ns < WAIT_NS


def awaits_more(flow: Flow, claim: Claim, protocols: tuple[Protocol, ...]) -> bool:
    """Return whether the next datagrams of a flow may tell more: what the claim lacks to be a
    strong one, or who is the client, if its protocol expects to learn that from them.
    """
    if claim.score < STRONG:
        return True
    mine = next(each for each in protocols if each.name == claim.protocol)
    if claim.client is not None or roles(claim, mine, flow.ports)[1] != "first_frame":
        return False
    early = mine.recognise(flow.sample, flow.transport, final=False)
    return early is not None and early.waits and early.client is None
