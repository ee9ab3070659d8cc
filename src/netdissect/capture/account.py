"""What the formats tell about a capture while they read it: totals, names, damage. Every list is
bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdissect.capture.linktypes import link_type_name

if TYPE_CHECKING:
    from netdissect.capture.source import Window
    from netdissect.model.reports import CaptureInfo
    from netdissect.model.sinks import FrameSink

__all__ = [
    "MAX_COMMENTS", "MAX_INTERFACE_NAMES", "MAX_LINK_TYPES", "MAX_TEXT", "Format", "Ledger",
]  # fmt: skip

MAX_COMMENTS = 1000
"""Comments kept; the rest are counted in `CaptureInfo.limits_hit`."""
MAX_INTERFACE_NAMES = 1000
"""Interface names kept; the rest are counted likewise."""
MAX_LINK_TYPES = 64
"""Link-type names kept; the rest are counted likewise."""
MAX_TEXT = 4096
"""Characters kept of one comment or name; a longer one ends in an ellipsis."""


class Format:
    """One way to store frames, and how far a file of it was read."""

    __slots__ = ()

    def more(self, taker: FrameSink) -> bool:
        """Hand the frames that the next bytes complete to the taker; False at the end."""
        raise NotImplementedError


class Ledger:
    """Fills a `CaptureInfo` as the file is read."""

    __slots__ = ("_links", "info")

    def __init__(self, info: CaptureInfo) -> None:
        self.info = info
        self._links: set[int] = set()

    def _hit(self, limit: str) -> None:
        hits = self.info.limits_hit
        hits[limit] = hits.get(limit, 0) + 1

    def frames(self, count: int, octets: int, first_ns: int, last_ns: int) -> None:
        """Count frames. First and last are the earliest and the latest time, as capinfos has them;
        `octets` are those on the wire.
        """
        info = self.info
        info.frames += count
        info.octets += octets
        if info.first_time_ns is None or first_ns < info.first_time_ns:
            info.first_time_ns = first_ns
        if info.last_time_ns is None or last_ns > info.last_time_ns:
            info.last_time_ns = last_ns

    def link_type(self, link: int) -> None:
        """Note a link type that the file declares."""
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
        """Note an interface that the file declares."""
        if len(self.info.interfaces) < MAX_INTERFACE_NAMES:
            self.info.interfaces.append(name)
        else:
            self._hit("MAX_INTERFACE_NAMES")

    def comment(self, text: str) -> None:
        """Note a comment."""
        if len(self.info.comments) < MAX_COMMENTS:
            self.info.comments.append(text)
        else:
            self._hit("MAX_COMMENTS")

    def damaged(self, window: Window, reason: str) -> None:
        """Note that the file cannot be read past the window's position."""
        self.info.truncated_at = window.offset
        self.info.damage = reason

    def cut_short(self, window: Window, what: str, need: int) -> None:
        """Note the end of the bytes, which is no damage where nothing is left over."""
        if window.fault is not None:
            self.damaged(window, window.fault)
        elif window.left:
            self.damaged(window, f"{what} cut short: {window.left} of {need} bytes")
