"""Reads and writes capture files: pcap and pcapng, plain or compressed, from a file or a pipe.
Nothing here knows what is in a frame.
"""

from __future__ import annotations

from netdissect.capture.reader import CaptureReader, open_capture
from netdissect.capture.source import CaptureError
from netdissect.capture.writer import PcapngWriter, PcapWriter

__all__ = ["CaptureError", "CaptureReader", "PcapWriter", "PcapngWriter", "open_capture"]
