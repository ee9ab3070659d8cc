"""A minimal kNet server over TCP: pings who connects, answers pings, reads everything else.

Source: docs/protocols/knet.md, over TCP.
"""

from __future__ import annotations

from netdissect.fuzz.drivers.knet_tcp import PING_REPLY, PING_REQUEST, frame, frames, parts
from netdissect.fuzz.servers.base import Address, PlantedBugError, Replies, StreamServer
from netdissect.wire.knet import TCP_LIMIT
from netdissect.wire.varint import KNET_7_7_16, VarintError

_LENGTH_BUG = 1 << 20


class KnetTcpServer(StreamServer):
    """The streams of all connections.

    Planted bug: `length` reserves room for as many bytes as a length announces.
    """

    DIALECT = "knet-tcp"
    BUGS = ("length",)

    def greeting(self, peer: Address) -> Replies:
        """Return the ping with which the library begins."""
        return [(frame(PING_REQUEST, b"\1"), peer)]

    def read(self, peer: Address) -> Replies:
        """Count messages and answer pings."""
        replies: Replies = []
        stream = self.streams[peer]
        for message in list(frames(stream)):
            stream = stream[len(message) :]
            self.delivered += 1
            found = parts(message)
            if found is not None and found[0] == PING_REQUEST and found[1]:
                replies.append((frame(PING_REPLY, found[1][:1]), peer))
        self.streams[peer] = stream
        self._check_length(stream, peer)
        return replies

    def _check_length(self, stream: bytes, peer: Address) -> None:
        """Close the connection of who announces a length that no message has."""
        try:
            size, _at = KNET_7_7_16.read(stream, 0, len(stream))
        except VarintError:
            return
        if "length" in self.bugs and size >= _LENGTH_BUG:
            raise PlantedBugError(f"length: {size} bytes announced")
        if not 1 <= size <= TCP_LIMIT:
            self.closing.add(peer)
