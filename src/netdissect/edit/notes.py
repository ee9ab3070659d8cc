"""Captures whose frames have comments, so that Wireshark shows what netdissect knows."""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from struct import pack, unpack_from
from typing import IO

from netdissect.capture import codes
from netdissect.capture.blocks import PACKET, SECTION, BlockReader
from netdissect.capture.writer import BlockWriter, block_bytes, option
from netdissect.edit.bare import Bare, BareFrames
from netdissect.edit.plain import Plain, options, section_header
from netdissect.edit.slicing import unmeasured
from netdissect.model.packets import FlowKey
from netdissect.model.records import FrameNote

MAX_COMMENT_OCTETS = 4096
"""Bytes of a comment."""
MAX_COMMENTS = 1000
"""Comments of a frame, besides a last one that says that there are more. A segment that fills a gap
may complete any number of messages, but Wireshark reads no block above 16 MiB.
"""
MAX_AHEAD = 4096
"""Frames between a frame and the one that completes its message; of those further away, the comment
says only what they are. Also the comments that are read ahead.
"""
MAX_HELD_OCTETS = 16 << 20
"""Bytes of blocks that are not written before the packet of a fragment among them is complete."""
MAX_PARTS = 65_536
"""Later frames of which it is kept what they have part in."""
MAX_MARKS = 8
"""Messages that a frame is said to have part in."""
MAX_STREAMS = 4096
"""TCP directions whose connection is remembered; the one used longest ago is forgotten."""
MAX_NAMES = 1000
"""Names that are written."""
_FURTHER = "... (and further messages, which have no comment)"
_IPV4, _IPV6 = 1, 2


def annotate(
    reader: BlockReader,
    target: str | os.PathLike[str] | IO[bytes],
    comments: Iterator[FrameNote],
    names: Mapping[str, str] | None = None,
) -> tuple[int, int]:
    """Write a capture as pcapng with a comment on each frame; everything else stays as it is.

    Args:
        reader: the open capture; afterwards `damage` says whether it was damaged.
        target: a path, `-` for standard output, or an open binary file.
        comments: in order of frames, but for marks; several of one frame are several comments. A
            frame without any gets one that says what it is, and its marks.
        names: address -> name, for the block of names.

    Returns:
        (frames written, frames with a comment). A Simple Packet Block has no room for a comment.

    Raises:
        OSError: the target cannot be written; what was written ends with a whole block.

    """
    frames = noted = 0
    upcoming, bare = _Upcoming(comments), BareFrames()
    plain = Plain(Path(reader.path).name)
    with BlockWriter(target) as file:
        writer = _Held(file)
        if reader.is_pcap:
            writer.write(section_header())
        for block in reader:
            if block.kind == SECTION:
                if not reader.is_pcap:
                    writer.write(unmeasured(block))
                # Names apply to the section that contains them.
                writer.write(_name_block(names or {}, "<" if reader.is_pcap else block.order))
                if reader.is_pcap:
                    writer.write(plain.of_pcap(block, 0))
                continue
            if block.kind != PACKET:
                writer.write(block.raw)
                continue
            # A frame with comments is read as well: all frames tell what later ones are.
            found = bare.take((block.frame, block.time_ns, block.sight, block.data, block.wire))
            texts = upcoming.of(block.frame, found)
            raw, order = (plain.packet(block), "<") if reader.is_pcap else (block.raw, block.order)
            at = _options_at(raw) if reader.is_pcap else block.options
            frames += 1
            noted += bool(at)
            writer.frame(raw, at, order, texts, block.frame, found)
        writer.flush()
    return frames, noted


class _Held:
    """Blocks that are written as soon as the comments of all frames before them are known."""

    def __init__(self, writer: BlockWriter) -> None:
        self._writer = writer
        self._queue: deque[tuple[bytes, int, str, list[str], int]] = deque()
        self._octets = 0
        self._open: dict[int, list[str]] = {}
        """Frame -> comments of a fragment in the queue whose packet is not complete."""

    def write(self, raw: bytes) -> None:
        """Take a block that stays as it is."""
        self._add(raw, 0, "", [], 0)

    def frame(
        self, raw: bytes, at: int, order: str, texts: list[str], number: int, bare: Bare
    ) -> None:
        """Take a frame with its comments; `at`: the offset of its options, 0 if it has none."""
        for piece in bare.pieces:
            texts_of_piece = self._open.pop(piece, None)
            if texts_of_piece is not None:
                texts_of_piece[-1] += f"  [part of #{number}]"
        if bare.unfinished:
            self._open[number] = texts
        self._add(raw, at, order, texts, number)

    def flush(self) -> None:
        """Write all blocks."""
        self._open.clear()
        self._write()

    def _add(self, raw: bytes, at: int, order: str, texts: list[str], number: int) -> None:
        self._queue.append((raw, at, order, texts, number))
        self._octets += len(raw)
        self._write()

    def _write(self) -> None:
        queue = self._queue
        while queue and not (
            self._open and len(queue) <= MAX_AHEAD and self._octets <= MAX_HELD_OCTETS
        ):
            raw, at, order, texts, number = queue.popleft()
            self._octets -= len(raw)
            self._open.pop(number, None)
            self._writer.write(_commented(raw, at, order, texts) if at else raw)


class _Upcoming:
    """The comments of the next frames: a frame's part in a message is known when a later frame
    completes that.
    """

    def __init__(self, comments: Iterator[FrameNote]) -> None:
        self._comments = comments
        self._texts: dict[int, list[str]] = {}
        self._marks: dict[int, list[str]] = {}
        self._streams: OrderedDict[tuple[FlowKey, int], str] = OrderedDict()
        """(Key of a TCP direction, ordinal) -> the words before what its frames are."""
        self._read = 0
        """Frame of the last comment that was read."""
        self._held = 0

    def of(self, number: int, bare: Bare) -> list[str]:
        """Return the comments of a frame; the frames are asked for in order."""
        self._read_ahead(number)
        marks = self._marks.pop(number, ())
        texts = self._texts.pop(number, [])
        self._held -= len(texts)
        if not texts:
            whose = "" if bare.stream is None else self._streams.get(bare.stream, "")
            texts = [f"{whose}{bare.text}{''.join(marks)}"]
        return texts

    def _read_ahead(self, number: int) -> None:
        while self._read <= number or (self._read <= number + MAX_AHEAD and self._held < MAX_AHEAD):
            note = next(self._comments, None)
            if note is None:
                self._read = number + MAX_AHEAD + 1
                return
            if note.mark:
                self._mark(note, number)
                continue
            self._read = note.frame
            if note.text and note.frame >= number:
                texts = self._texts.setdefault(note.frame, [])
                if len(texts) <= MAX_COMMENTS:
                    more = len(texts) == MAX_COMMENTS
                    texts.append(_FURTHER if more else note.text[:MAX_COMMENT_OCTETS])
                    self._held += 1
            for stream, whose in note.streams:
                self._streams[stream] = whose
                self._streams.move_to_end(stream)
                if len(self._streams) > MAX_STREAMS:
                    self._streams.popitem(last=False)

    def _mark(self, note: FrameNote, number: int) -> None:
        if note.frame < number or (len(self._marks) >= MAX_PARTS and note.frame not in self._marks):
            return
        marks = self._marks.setdefault(note.frame, [])
        if len(marks) < MAX_MARKS and note.text not in marks:
            marks.append(note.text)
        elif len(marks) == MAX_MARKS:
            marks.append("  ...")


def _options_at(raw: bytes) -> int:
    captured = int.from_bytes(raw[20:24], "little")
    return 28 + ((captured + 3) & ~3)


def _commented(raw: bytes, at: int, order: str, texts: list[str]) -> bytes:
    """Return a packet block with comments added to its options."""
    rows = [*options(raw, at, len(raw) - 4, order)]
    rows += [(codes.COMMENT, _cut(text, MAX_COMMENT_OCTETS)) for text in texts]
    written = b"".join(option(code, value, order) for code, value in rows)
    kind = unpack_from(f"{order}I", raw)[0]
    return block_bytes(kind, raw[8:at] + written + b"\0\0\0\0", order)


def _cut(text: str, most: int) -> bytes:
    """Return as many whole characters of a text as fit, in UTF-8."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore").encode()


def _name_block(names: Mapping[str, str], order: str) -> bytes:
    """Return a Name Resolution Block; b"" without names."""
    records = b""
    for address, name in list(names.items())[:MAX_NAMES]:
        try:
            found = ip_address(address)
        except ValueError:
            continue
        kind = _IPV4 if found.version == 4 else _IPV6  # noqa: PLR2004 - of IP
        text = _cut(name.replace("\0", ""), 255)
        records += option(kind, found.packed + text + b"\0", order)
    return block_bytes(codes.NAMES, records + pack(f"{order}I", 0), order) if records else b""
