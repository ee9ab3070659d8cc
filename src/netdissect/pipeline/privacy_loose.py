"""Overwrites bytes of streams that belong to no message, because bytes before them are missing or
damaged. Recognition may have read messages in them: whole ones are overwritten as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from netdissect.dissect.engine import Request, dissect
from netdissect.model.packets import Packet, flow_endpoints
from netdissect.model.reports import ConnectionReport
from netdissect.model.segments import StreamPiece
from netdissect.pipeline.privacy import Habits, Rewriter, Writer
from netdissect.protocols import registry


class Loose:
    """The bytes that TCP segments of known connections leave over."""

    def __init__(
        self,
        reports: Iterable[ConnectionReport],
        writer: Writer,
        words: Callable[[bytes], bytes],
        schemas: Mapping[str, Any],
    ) -> None:
        """Take the connections of a capture, what replaces texts in messages and words in other
        bytes, and user schemas by protocol.
        """
        self._writer = writer
        self._words = words
        self._schemas = schemas
        self._habits = cache(lambda protocol: Habits(protocol, schemas.get(protocol)))
        self._spoken: dict[tuple[str, str], tuple[str, str, int]] = {}
        """(sender, receiver) -> protocol, dialect, direction."""
        for report in reports:
            if report.transport == "tcp":
                ends = report.client, report.server
                for way, dialect in enumerate(report.dialects):
                    if dialect:
                        self._spoken[ends[way], ends[1 - way]] = report.protocol, dialect, way

    def __call__(self, packet: Packet, octets: bytes) -> bytes:
        """Return the new bytes of a part of a segment."""
        source, destination = map(str, flow_endpoints(packet[3]))
        spoken = self._spoken.get((source, destination))
        return self._words(octets) if spoken is None else self._messages(octets, *spoken)

    def _messages(self, octets: bytes, protocol: str, dialect: str, way: int) -> bytes:
        known = registry.get(protocol)
        framer = known.framer(dialect, way)
        found = [] if framer is None else framer.feed(StreamPiece(0, octets, (0,)))
        out, done = [], 0
        for message, _, _, at in found:
            request = Request(dialect, way, "tcp", schema=self._schemas.get(protocol))
            tree = dissect(protocol, message, request, module=known.layer_module)
            if not tree.annotations and octets.startswith(message, at):
                new, _ = Rewriter(tree, self._habits(protocol), self._writer).payload()
                out += [self._words(octets[done:at]), new]
                done = at + len(message)
        return b"".join(out) + self._words(octets[done:])
