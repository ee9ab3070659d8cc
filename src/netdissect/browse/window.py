"""The part of a connection's time that lanes or a plot show."""

from __future__ import annotations

_ZOOM_FACTOR = 4
_MIN_SPAN_NS = 1_000_000
"""The shortest span that is shown."""


class TimeWindow:
    """A span of time that can be zoomed. All times are nanoseconds since the Unix epoch."""

    def __init__(self) -> None:
        self.whole = (0, 0)
        """First and last moment of everything that can be shown."""
        self.part: tuple[int, int] | None = None
        """First and last moment of what is shown; None = `whole`."""
        self.start_mark: int | None = None
        """Where the user began a span that has no end yet."""

    def zoom(self, by: int, middle_ns: int | None) -> bool:
        """Zoom in (`by` above 0), out (below 0), or show everything (0).

        Args:
            by: direction of the zoom.
            middle_ns: centre of the new span; None = that of the present one.

        Returns:
            Whether the span changed.

        """
        before = self.part
        start, end = before or self.whole
        size = (end - start) // _ZOOM_FACTOR if by > 0 else (end - start) * _ZOOM_FACTOR
        if by > 0 and size < _MIN_SPAN_NS:
            return False
        middle = (start + end) // 2 if middle_ns is None else middle_ns
        if not by or size >= self.whole[1] - self.whole[0]:
            self.part = None
        else:
            start = max(self.whole[0], middle - size // 2)
            self.part = start, min(start + size, self.whole[1])
        return self.part != before

    def select(self, one_ns: int, other_ns: int) -> bool:
        """Show the span between two moments; return False if it is too short."""
        start, end = sorted((one_ns, other_ns))
        if end - start < _MIN_SPAN_NS:
            return False
        self.part = start, end
        return True

    def label(self, zero_ns: int) -> str:
        """Return what is shown, in seconds since a moment."""
        start, end = self.part or self.whole
        return f"{(start - zero_ns) / 1e9:.3f} to {(end - zero_ns) / 1e9:.3f} s"
