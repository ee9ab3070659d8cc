"""A minimal Netplay server over TCP: reads frames and sends them on to all, as the sample does.

Source: docs/protocols/netplay.md sections 2, 5 and 7.
"""

from __future__ import annotations

from netdissect.fuzz.drivers.netplay import BUFFER_LIMIT, NetplayDriver, joined
from netdissect.fuzz.servers.base import Address, Event, PlantedBugError, Replies, StreamServer
from netdissect.wire.inflate import inflate
from netdissect.wire.netplay import COMPRESSED, HEADER, SHORTEST

_EDGE = 255
"""Bytes of the buffer that the planted bug believes to have room for one more."""
_INFLATED_LIMIT = 1 << 20
_RATIO = 200  # as of --inflate-ratio


class NetplayServer(StreamServer):
    """The streams of all connections.

    Planted bug: `decompression` waits for ever for the end of a body that was cut short, as the
    library does.
    """

    DIALECT = "netplay-bin1"
    BUGS = ("decompression", "off-by-one", "stale-fragment", "unbounded-table", "gates", "steps")

    def read(self, peer: Address) -> Replies:
        """Send whole messages on to all peers."""
        stream = self.streams[peer][-BUFFER_LIMIT:]
        whole = list(NetplayDriver.split(stream, self.dialect))
        rest = stream[sum(map(len, whole)) :]
        self.streams[peer] = rest
        self.delivered += len(whole)
        for message in whole:
            self._check_code(message)
            self._tell(message, peer)
        head = rest[1:3] if self.dialect == "netplay-bin3" else rest[:2]
        short = len(head) == 2 and int.from_bytes(head, "big") < SHORTEST  # noqa: PLR2004
        if short and self.dialect != "netplay-text":
            self.closing.add(peer)
        return [(message, other) for message in whole for other in self.streams]

    def _tell(self, message: bytes, peer: Address) -> None:
        """Show the planted bugs what has come: a length is a number, the flags name a transfer."""
        size = len(message)
        flags = message[2] if size > HEADER - 1 else 0
        first = not flags & ~COMPRESSED
        fragment = flags >> 1, 0, first
        key, content = message[:8], message[HEADER:]
        self.event(
            Event(peer, size, 0, 1 << 16, _EDGE, fragment=fragment, key=key, content=content)
        )

    def _check_code(self, message: bytes) -> None:
        frame = joined(message) if self.dialect == "netplay-bin3" else message
        if self.dialect == "netplay-text" or not frame[2] & COMPRESSED:
            return
        body = inflate(frame[HEADER:], limit=_INFLATED_LIMIT, ratio=_RATIO)
        if "decompression" in self.bugs and not body.complete and body.error:
            raise PlantedBugError(f"decompression: {body.error}")
