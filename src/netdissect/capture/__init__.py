"""Capture files in and out: pcap and pcapng, plain, gzip or Zstandard, from a file or a pipe. Knows
nothing above frames.
"""

from __future__ import annotations

from netdissect.capture.reader import CaptureError, CaptureReader, open_capture

__all__ = ["CaptureError", "CaptureReader", "open_capture"]
