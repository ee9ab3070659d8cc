"""A minimal Riptide server over TCP: the one over UDP behind the framing.

Source: docs/protocols/riptide.md, TCP.
"""

from __future__ import annotations

from netdissect.fuzz.drivers.riptide_tcp import BUFFER_LIMIT, frame, frames, prefix_octets
from netdissect.fuzz.servers.base import Address, Replies
from netdissect.fuzz.servers.riptide import RiptideServer
from netdissect.wire.riptide import size_limit


class RiptideTcpServer(RiptideServer):
    """The streams of all connections, and the server that gets their messages."""

    TRANSPORT = "tcp"

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._streams: dict[Address, bytes] = {}

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Take bytes of a stream; no bytes at all mean that it has ended."""
        if not data:
            self._streams.pop(peer, None)
            self.forget(peer)
            return []
        stream = self._streams.get(peer, b"") + data
        head = prefix_octets(self.dialect)
        limit = BUFFER_LIMIT if "length" in self.bugs else size_limit(self.dialect)
        replies: Replies = []
        for each in frames(stream, self.dialect):
            if len(each) - head > limit:
                break
            replies += super().handle(each[head:], peer, now)
            stream = stream[len(each) :]
        stated = int.from_bytes(stream[:head], "little", signed=head > 2)  # noqa: PLR2004 - an Int32; 2.0 has a UInt16
        impossible = len(stream) >= head and not 1 <= stated <= limit
        if impossible or not self.knows(peer):
            self.closing.add(peer)
        self._streams[peer] = stream
        return self._framed(replies)

    def tick(self, now: float) -> Replies:
        """Do what is due."""
        return self._framed(super().tick(now))

    def _framed(self, replies: Replies) -> Replies:
        return [(frame(message, self.dialect), to) for message, to in replies]
