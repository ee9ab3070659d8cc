"""The facts about a capture that are collected while it is read: totals, names and damage. Every
list is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdissect.capture.linktypes import link_type_name

if TYPE_CHECKING:
    from netdissect.capture.source import Window
    from netdissect.model.reports import CaptureInfo
    from netdissect.model.sinks import FrameSink

MAX_COMMENTS = 1000
"""Comments kept; further ones are counted in `CaptureInfo.limits_hit`."""
MAX_INTERFACE_NAMES = 1000
"""Interface names kept; further ones are counted."""
MAX_LINK_TYPES = 64
"""Names of link types kept; further ones are counted."""
MAX_TEXT = 4096
"""Characters kept of one comment or name; a longer one ends in an ellipsis."""


class Format:
    """Reads a file in one format."""

    __slots__ = ()

    def more(self, taker: FrameSink) -> bool:
        """Read on, and pass each complete frame to the sink; return False at the end."""
        raise NotImplementedError


class Ledger:
    """Fills in a `CaptureInfo` while the file is read."""

    __slots__ = ("_links", "info")

    def __init__(self, info: CaptureInfo) -> None:
        self.info = info
        self._links: set[int] = set()

    def _hit(self, limit: str) -> None:
        hits = self.info.limits_hit
        hits[limit] = hits.get(limit, 0) + 1

    def frames(self, count: int, octets: int, first_ns: int, last_ns: int) -> None:
        """Count frames.

        Args:
            count: number of frames.
            octets: their bytes on the wire.
            first_ns: earliest time.
            last_ns: latest time.

        """
        info = self.info
        info.frames += count
        info.octets += octets
        if info.first_time_ns is None or first_ns < info.first_time_ns:
            info.first_time_ns = first_ns
        if info.last_time_ns is None or last_ns > info.last_time_ns:
            info.last_time_ns = last_ns

    def link_type(self, link: int) -> None:
        """Add a link type that the file declares."""
        if link in self._links:
            return
        if len(self._links) >= MAX_LINK_TYPES:
            self._hit("MAX_LINK_TYPES")
            return
        self._links.add(link)
        name = link_type_name(link)
        if name not in self.info.link_types:
            self.info.link_types.append(name)

    def interface(self, name: str) -> None:
        """Add an interface that the file declares."""
        if len(self.info.interfaces) < MAX_INTERFACE_NAMES:
            self.info.interfaces.append(name)
        else:
            self._hit("MAX_INTERFACE_NAMES")

    def comment(self, text: str) -> None:
        """Add a comment."""
        if len(self.info.comments) < MAX_COMMENTS:
            self.info.comments.append(text)
        else:
            self._hit("MAX_COMMENTS")

    def damaged(self, window: Window, reason: str) -> None:
        """Record damage at the window's position, after which the file cannot be read."""
        self.info.truncated_at = window.offset
        self.info.damage = reason

    def cut_short(self, window: Window, what: str, need: int) -> None:
        """Record damage if the file does not end at a record boundary.

        Args:
            window: the bytes that are left.
            what: what they should have been.
            need: its length, bytes.

        """
        if window.fault is not None:
            self.damaged(window, window.fault)
        elif window.left:
            self.damaged(window, f"{what} cut short: {window.left} of {need} bytes")
