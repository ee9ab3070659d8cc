"""The new contents of frames, which are computed before the first frame is written.

A message over TCP, or a fragmented datagram, is known when its last frame is read. The new contents
of earlier frames wait in a temporary file, so that memory does not grow with the capture.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from netdissect.model.closing import Closing
from netdissect.model.packets import FlowKey

_TABLES = """
create table datagram (frame integer primary key, old blob, new blob);
create table piece (frame integer primary key, new blob);
create table stream (key blob, ordinal integer, at integer, old blob, new blob,
                     primary key (key, ordinal, at)) without rowid;
"""


class Plan(Closing):
    """New bytes of datagrams by frame, and of streams by offset. Use it as a context manager."""

    def __init__(self) -> None:
        # An empty name means a temporary file, which SQLite deletes when it is closed.
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.executescript(f"pragma journal_mode=off; pragma synchronous=off; {_TABLES}")
        self._base.execute("begin")
        self.frames = 0
        """Number of the last frame that the plan was made of. Nothing is known about later ones."""

    def close(self) -> None:
        """Delete the plan."""
        self._base.close()

    def datagram(self, frame: int, old: bytes, new: bytes) -> None:
        """Add the payload of a datagram, before and after."""
        self._base.execute("insert or replace into datagram values (?,?,?)", (frame, old, new))

    def stream(self, key: FlowKey, ordinal: int, at: int, old: bytes, new: bytes) -> None:
        """Add the bytes at an offset in a TCP stream, before and after."""
        row = (key, ordinal, at, old, new)
        self._base.execute("insert or replace into stream values (?,?,?,?,?)", row)

    def piece(self, frame: int, new: bytes) -> None:
        """Add the new bytes of the fragment in a frame."""
        self._base.execute("insert or replace into piece values (?,?)", (frame, new))

    def of_frame(self, frame: int) -> tuple[bytes, bytes] | None:
        """Return (old, new) payload of the datagram that a frame completes; None = it stays."""
        found = self._base.execute("select old, new from datagram where frame = ?", (frame,))
        row: tuple[bytes, bytes] | None = found.fetchone()
        return row

    def of_piece(self, frame: int) -> bytes | None:
        """Return the new bytes of the fragment in a frame; None if its packet never came whole."""
        found = self._base.execute("select new from piece where frame = ?", (frame,))
        row: tuple[bytes] | None = found.fetchone()
        return None if row is None else row[0]

    def segment(
        self,
        key: FlowKey,
        ordinal: int,
        start: int,
        octets: bytes,
        others: Callable[[bytes], bytes],
    ) -> bytes:
        """Return the new bytes of a TCP segment; `others` gives those of bytes in no message.

        These are added to the plan, because copies of them may be cut at other places.
        """
        end = start + len(octets)
        out = []
        done = start

        def left_over(until: int) -> bytes:
            old = octets[done - start : until - start]
            if not old:
                return b""
            new = others(old)
            self.stream(key, ordinal, done, old, new)
            return new

        for at, old, new in self._messages(key, ordinal, start, end):
            first, last = max(at, done), min(at + len(new), end)
            if first < last:
                mine = octets[first - start : last - start]
                change = old[first - at : last - at], new[first - at : last - at]
                out.append(left_over(first))
                out.append(_copy(mine, *change, others))
                done = last
        return b"".join(out) + left_over(end)

    def _messages(
        self, key: FlowKey, ordinal: int, start: int, end: int
    ) -> list[tuple[int, bytes, bytes]]:
        """Return (offset, old bytes, new ones) of what a part of a stream may have to do with, in
        order: messages, and what was left over.
        """
        words = "select at, old, new from stream where key = ? and ordinal = ? and at"
        # They do not overlap: only the last one before the part may reach into it.
        rows = self._base.execute(f"{words} <= ? order by at desc limit 1", (key, ordinal, start))
        found: list[tuple[int, bytes, bytes]] = rows.fetchall()
        span = (key, ordinal, start, end)
        rows = self._base.execute(f"{words} > ? and at < ? order by at", span)
        return found + rows.fetchall()


def _copy(octets: bytes, old: bytes, new: bytes, others: Callable[[bytes], bytes]) -> bytes:
    """Return the new bytes of a copy of a stream, which differ from it where the old ones do."""
    if octets == old:
        return new
    return bytes(
        stays if was == own else word if word != stays else word ^ 1
        for own, was, stays, word in zip(octets, old, new, others(octets), strict=True)
    )
