"""Which units are recorded."""

from __future__ import annotations

from netdissect.model.native import i64


class FrameChoice:
    """Chooses the frames whose numbered units are recorded. A unit that comes first in another one
    has a record of its further copies only.
    """

    __slots__ = ()

    def takes(self, frame: i64) -> bool:
        """Return whether the units that come first in a frame are recorded."""
        raise NotImplementedError
