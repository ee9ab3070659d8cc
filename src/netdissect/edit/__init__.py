"""Tools to cut, join and annotate captures that preserve every byte and time stamp.

They work on the blocks of a file (`capture.blocks`) and know no protocol: the caller says which
frames to write, and what to say about them.
"""

from __future__ import annotations

from netdissect.edit.frames import FrameSet, of_connections, parse_frames, pieces
from netdissect.edit.merging import merge
from netdissect.edit.notes import annotate
from netdissect.edit.slicing import slice_capture

__all__ = [
    "FrameSet",
    "annotate",
    "merge",
    "of_connections",
    "parse_frames",
    "pieces",
    "slice_capture",
]
