"""The editor's tools: captures cut, joined and annotated, with every byte and time left as it was.

They work on the blocks of a file (`capture.blocks`) and know no protocol; which frames are wanted,
and what is to be said of them, the pipeline tells.
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
