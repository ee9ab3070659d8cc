"""Capture files in and out: pcap and pcapng, plain, gzip or Zstandard, from a file or a pipe. Knows
nothing above frames.
"""

from __future__ import annotations

from netdissect.capture.reader import CaptureError, CaptureReader, open_capture
from netdissect.capture.writer import PcapngWriter, PcapWriter

__all__ = ["CaptureError", "CaptureReader", "PcapWriter", "PcapngWriter", "open_capture"]
