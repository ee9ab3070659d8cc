"""Captures whose frames have comments, so that Wireshark shows what netdissect knows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from struct import pack, unpack_from
from typing import IO

from netdissect.capture import codes
from netdissect.capture.blocks import PACKET, SECTION, BlockReader
from netdissect.capture.writer import BlockWriter, block_bytes, option
from netdissect.edit.plain import Plain, options, section_header
from netdissect.edit.slicing import unmeasured

MAX_COMMENT_OCTETS = 4096
"""Bytes of a comment."""
MAX_NAMES = 1000
"""Names that are written."""
_IPV4, _IPV6 = 1, 2


def annotate(
    reader: BlockReader,
    target: str | os.PathLike[str] | IO[bytes],
    comments: Iterator[tuple[int, str]],
    names: Mapping[str, str] | None = None,
) -> tuple[int, int]:
    """Write a capture as pcapng with a comment on each frame; everything else stays as it is.

    Args:
        reader: the open capture; afterwards `damage` says whether it was damaged.
        target: a path, `-` for standard output, or an open binary file.
        comments: (frame, text) in order of frames; several of one frame are several comments.
        names: address -> name, for the block of names.

    Returns:
        (frames written, frames with a comment). A Simple Packet Block has no room for a comment.

    Raises:
        OSError: the target cannot be written; what was written ends with a whole block.

    """
    frames = noted = 0
    upcoming = next(comments, None)
    plain = Plain(Path(reader.path).name)
    with BlockWriter(target) as writer:
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
            texts = []
            while upcoming is not None and upcoming[0] <= block.frame:
                texts += [upcoming[1]] if upcoming[0] == block.frame else []
                upcoming = next(comments, None)
            raw, order = (plain.packet(block), "<") if reader.is_pcap else (block.raw, block.order)
            at = _options_at(raw) if reader.is_pcap else block.options
            frames += 1
            noted += bool(texts and at)
            writer.write(_commented(raw, at, order, texts) if texts and at else raw)
    return frames, noted


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
