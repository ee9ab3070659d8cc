"""What is to be written into which frame, worked out before the first frame is written.

A message over TCP, or a datagram in fragments, is read when its last frame is there. What is to
stand in the frames before waits in a temporary file, so that memory does not grow with the capture.
"""

from __future__ import annotations

import sqlite3

from netdissect.model.closing import Closing
from netdissect.model.packets import FlowKey

__all__ = ["Plan"]

_TABLES = """
create table datagram (frame integer primary key, old blob, new blob);
create table piece (frame integer primary key, whole integer, at integer);
create table stream (key blob, ordinal integer, at integer, new blob,
                     primary key (key, ordinal, at)) without rowid;
"""


class Plan(Closing):
    """New bytes of datagrams by frame, and of streams by place. Use as a context manager."""

    def __init__(self) -> None:
        # An empty name is a file that is deleted when it is closed.
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.executescript(f"pragma journal_mode=off; pragma synchronous=off; {_TABLES}")
        self._base.execute("begin")
        self._longest = 0
        self.fragments = False
        """Whether there are datagrams in pieces."""

    def close(self) -> None:
        """Let go of the plan."""
        self._base.close()

    def datagram(self, frame: int, old: bytes, new: bytes) -> None:
        """Take the payload of a datagram, as it is and as it shall be."""
        self._base.execute("insert or replace into datagram values (?,?,?)", (frame, old, new))

    def stream(self, key: FlowKey, ordinal: int, at: int, new: bytes) -> None:
        """Take the bytes that shall stand at a place of a TCP stream."""
        self._longest = max(self._longest, len(new))
        row = (key, ordinal, at, new)
        self._base.execute("insert or replace into stream values (?,?,?,?)", row)

    def piece(self, frame: int, whole: int, at: int) -> None:
        """Take the place of a fragment in the datagram that the frame `whole` completes."""
        self.fragments = True
        self._base.execute("insert or replace into piece values (?,?,?)", (frame, whole, at))

    def of_frame(self, frame: int) -> tuple[bytes, bytes] | None:
        """Return (old, new) payload of the datagram that a frame completes; None = it stays."""
        found = self._base.execute("select old, new from datagram where frame = ?", (frame,))
        row: tuple[bytes, bytes] | None = found.fetchone()
        return row

    def of_piece(self, frame: int) -> tuple[int, int] | None:
        """Return (frame that completes it, offset) of a fragment; None where it is in no datagram
        of a connection.
        """
        found = self._base.execute("select whole, at from piece where frame = ?", (frame,))
        row: tuple[int, int] | None = found.fetchone()
        return row

    def segment(self, key: FlowKey, ordinal: int, start: int, octets: bytes) -> bytes:
        """Return the bytes of a segment as they shall be."""
        end = start + len(octets)
        rows = self._base.execute(
            "select at, new from stream where key = ? and ordinal = ? and at > ? and at < ?",
            # What begins before the segment may reach into it, but no further than the longest
            # does.
            (key, ordinal, start - self._longest, end),
        )
        out = bytearray(octets)
        for at, new in rows:
            first, last = max(at, start), min(at + len(new), end)
            if first < last:
                out[first - start : last - start] = new[first - at : last - at]
        return bytes(out)
