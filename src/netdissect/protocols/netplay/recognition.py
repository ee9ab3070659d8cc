"""Whether a TCP flow is Netplay, and in which dialect. Source: docs/protocols/netplay.md section 6.

Netplay has no magic number. Each direction is judged by itself, and the better verdict counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from re import compile as compile_
from typing import Final

from netdissect.model.claims import STRONG, Claim, Sample
from netdissect.protocols.netplay.shape import (
    Shape,
    chain,
    chunk_chain,
    find_pair,
    first_frames,
    fits,
    in_chunks,
    values_of,
)
from netdissect.wire.netplay import RESERVED
from netdissect.wire.netplay_text import could_be_class, of_class
from netdissect.wire.netplay_values import NULLABLE_VALUES, PLAIN_VALUES
from netdissect.wire.strictjson import read_json

BIN1: Final = "netplay-bin1"
BIN2: Final = "netplay-bin2"
BIN3: Final = "netplay-bin3"
TEXT: Final = "netplay-text"
FRAMES: Final = (0, 20, 40, 70, 85)
"""Score by the number of chained frames of bin1 or bin2, if the schema decodes none of them."""
CHUNKED: Final = (0, 50, 70, 85)
"""Score by the number of whole messages of bin3."""
DECODED: Final = 80
"""Score of a message that the schema decodes to its last byte, with text in it."""
MIDDLE: Final = 70
"""Score of two messages mid-stream that the schema decodes."""
TEXT_OBJECTS: Final = 90
"""Score of class lines that are followed by JSON objects."""
TEXT_OBJECT_MIDDLE: Final = 80
"""Score of a class line with a JSON object mid-stream."""
TEXT_VALUES: Final = 70
"""Score of class lines of Java that are followed by values of their classes."""
AGREEMENT: Final = 10
"""Added to the score where both directions are of the same dialect."""
DOUBTFUL: Final = 40
"""Largest score of a chain that some evidence contradicts."""

MAX_JUDGED = 64
"""Messages of one direction that are examined."""
MAX_SEARCHED = 8192
"""Bytes of a stream that are searched for messages mid-stream."""
_MIN_VALUES: Final = 3
"""Different values of Java's classes that are no coincidence."""
_LONGEST: Final = 1022
"""Length field of the largest frame that real receivers of bin1 and bin2 hold."""
_DNS_HEADER: Final = 14
"""Size of a DNS header with its length over TCP, bytes."""
_DNS_ZERO: Final = 0x40
"""Bit of the second byte of DNS flags that is always 0."""
_LONGEST_LABEL: Final = 63
"""Longest label of a DNS name, bytes."""
_STUN_COOKIE: Final = b"\x21\x12\xa4\x42"
"""Magic cookie of STUN. Source: RFC 8489, section 5."""
_SHAPES: Final = {dialect: Shape(dialect) for dialect in (BIN1, BIN2, BIN3)}
_OPTIONS: Final = compile_(rb"[\0-\3]")
"""Matches the options of every binary message: their reserved bits are zero."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The verdict on one direction."""

    dialect: str
    score: int
    reason: str
    contradicted: bool = False
    """Whether some evidence contradicts the verdict."""
    late: bool = False
    """Whether other bytes precede the messages."""
    decided: bool | None = None
    """Whether the frames tell bin1 from bin2; None where that was not tested."""


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, or None. Pure."""
    del transport
    pieces = [[octets for sender, _, octets in sample if sender == side] for side in (0, 1)]
    streams = [b"".join(mine) for mine in pieces]
    search = final or len(sample) >= MAX_JUDGED
    verdicts = [
        _judge(stream, mine, search=search) for stream, mine in zip(streams, pieces, strict=True)
    ]
    found = [verdict for verdict in verdicts if verdict is not None]
    if not found:
        return None
    best = max(found, key=lambda verdict: verdict.score)
    score = best.score
    if len(found) > 1 and found[0].dialect == found[1].dialect:
        contradicted = any(verdict.contradicted for verdict in found)
        score = score if contradicted else min(95, score + AGREEMENT)
    elif len(found) > 1 and min(verdict.score for verdict in found) >= STRONG:
        # Both ends of a connection always speak the same dialect.
        return None
    may_wait = score >= STRONG and not final and best.dialect in (BIN1, BIN2)
    if may_wait and not any(map(_is_decided, streams, verdicts)):
        return None  # More frames may tell bin1 from bin2.
    reasons = tuple(verdict.reason for verdict in found if verdict.dialect == best.dialect)
    return Claim(
        "netplay", score, (best.dialect, best.dialect), None, "first_frame", reasons, late=best.late
    )


def may_stand_alone(payload: bytes) -> bool:
    """Return whether a piece of stream has what every claim needs.

    That is the options of a binary message, or two lines of text.
    """
    return _OPTIONS.search(payload) is not None or payload.count(b"\n") > 1


def _is_decided(stream: bytes, verdict: _Verdict | None) -> bool:
    """Return whether the first frames of one direction tell bin1 from bin2."""
    if verdict is not None and verdict.decided is not None:
        return verdict.decided
    frames = _first_frames(stream)
    return _dialect_of(frames, _decoded(frames)) is not None


def _judge(stream: bytes, pieces: list[bytes], *, search: bool) -> _Verdict | None:
    """Return the verdict on one direction; `search`: messages may begin mid-stream."""
    if not stream:
        return None
    verdict = _text(stream) or _chunked(stream, pieces)
    verdict = verdict or _frames(stream, pieces, is_enough=search)
    if verdict is None and search:
        verdict = _middle(stream[:MAX_SEARCHED], pieces)
    return verdict


def _match_pieces(pieces: list[bytes], start: int, sizes: list[int]) -> bool:
    """Return whether pieces of the stream begin where messages do.

    A sender writes each message at once. At least half of the pieces among messages of these sizes,
    from offset `start` on, must begin with a message.
    """
    bounds = list(accumulate(sizes, initial=start))
    begins = list(accumulate(map(len, pieces), initial=0))
    among = [offset for offset in begins[:-1] if start <= offset < bounds[-1]]
    return 0 < len(among) <= 2 * len(set(among).intersection(bounds))


# -- text ------------------------------------------------------------------------------------------


def _text(stream: bytes) -> _Verdict | None:
    """Judge pairs of a class line and a line of strict JSON."""
    lines = stream.split(b"\n", 2 * MAX_JUDGED)
    pairs = good = objects = 0
    values: set[tuple[str, str]] = set()
    for first, second in zip(lines[0:-1:2], lines[1:-1:2], strict=False):
        pairs += 1
        try:
            name, body = first.decode(), second.decode()
        except UnicodeDecodeError:
            continue
        if could_be_class(name) and (read := read_json(body)).valid:
            good += 1
            objects += isinstance(read.value, dict) and bool(read.value)
            if of_class(name, read.value):
                values.add((name, body))
        elif pairs == 1:
            return None
    if not good or 2 * good < pairs:
        return None
    # Many protocols of lines alternate names and scalars, but not Java's classes and their values.
    score = TEXT_VALUES if good == pairs and len(values) >= _MIN_VALUES else DOUBTFUL
    if objects:
        score = TEXT_OBJECTS
    return _Verdict(TEXT, score, f"{good} class lines with a line of JSON each")


# -- bin3 ------------------------------------------------------------------------------------------


def _chunked(stream: bytes, pieces: list[bytes]) -> _Verdict | None:
    """Judge whole messages of bin3, whose chunks have exactly the right headers."""
    count = 0
    while count < len(CHUNKED) - 1 and chunk_chain(stream, 0, count + 1):
        count += 1
    if not count:
        return None
    frames = first_frames(stream, 0, chunked=True, most=count)
    if fits(frames[0], NULLABLE_VALUES):
        text = "whole chunks, the first message decodes to its last byte"
        return _Verdict(BIN3, max(DECODED, CHUNKED[count]), text)
    if chunk_chain(stream, 0, count + 1) is False:
        text = "whole chunks, then something else"
        return _Verdict(BIN3, min(DOUBTFUL, CHUNKED[count]), text, contradicted=True)
    if not _match_pieces(pieces, 0, list(map(in_chunks, frames))):
        text = "whole chunks, sent in other pieces"
        return _Verdict(BIN3, min(DOUBTFUL, CHUNKED[count]), text, contradicted=True)
    return _Verdict(BIN3, CHUNKED[count], f"{count} or more messages in whole chunks")


# -- bin1, bin2 ------------------------------------------------------------------------------------


def _frames(stream: bytes, pieces: list[bytes], *, is_enough: bool) -> _Verdict | None:
    """Judge a chain of frames; `is_enough`: few more bytes will come."""
    frames = _first_frames(stream)
    if not frames:
        return None
    for test, name in ((_is_dns, "DNS"), (_is_stun, "STUN")):
        if all(map(test, frames)):
            return _Verdict(BIN1, 0, f"{name} over TCP", contradicted=True)
    both = _decoded(frames)
    found = _dialect_of(frames, both)
    dialect, decided = found or BIN1, found is not None
    decoded = both[dialect == BIN2]
    score = FRAMES[min(_weight(frames), len(FRAMES) - 1)]
    contradicted = _ends_in_other(stream, 0, frames)
    contradicted = contradicted or not _match_pieces(pieces, 0, list(map(len, frames)))
    # Short messages of others fit by chance, all of one piece alike; each sends them in its pieces.
    in_one_piece = sum(map(len, frames)) <= len(pieces[0])
    if contradicted or (in_one_piece and not is_enough):
        score = min(DOUBTFUL, score)
    if decoded:
        text = f"{decoded} of {len(frames)} frames decode to their last byte as {dialect}"
        return _Verdict(dialect, max(DECODED, score), text, decided=decided)
    text = f"a chain of {len(frames)} frames, likely {dialect}"
    return _Verdict(dialect, score, text, contradicted, decided=decided)


def _first_frames(stream: bytes) -> list[bytes]:
    """Return the whole frames at the start of a stream, up to one that is impossible."""
    return first_frames(stream, 0, chunked=False, most=MAX_JUDGED)


def _weight(frames: list[bytes]) -> int:
    """Return the number of frames that count: programs repeat types, arbitrary numbers vary."""
    return max(1, len(frames) - len({frame[3:5] for frame in frames}) + 1)


def _is_dns(frame: bytes) -> bool:
    """Return whether a frame is DNS over TCP, which resembles Netplay if its id is below 1,024.

    A bit of its flags is 0, and it has one question, whose name begins with text.
    """
    if len(frame) <= _DNS_HEADER or frame[5] & _DNS_ZERO or frame[6:8] != b"\0\1":
        return False
    label = frame[_DNS_HEADER + 1 : _DNS_HEADER + 1 + frame[_DNS_HEADER]]
    return 0 < frame[_DNS_HEADER] <= _LONGEST_LABEL and label.isascii()


def _is_stun(frame: bytes) -> bool:
    """Return whether a frame is a STUN message, framed as by media sessions over TCP (RFC 4571)."""
    return frame[6:10] == _STUN_COOKIE


def _ends_in_other(stream: bytes, start: int, frames: list[bytes]) -> bool:
    """Return whether bytes that are no frame follow the frames; one that is too large is one."""
    if chain(stream, start, len(frames) + 1) is not False:
        return False
    position = start + sum(map(len, frames))
    length = stream[position] << 8 | stream[position + 1]
    options = stream[position + 2] if position + 2 < len(stream) else 0
    return len(frames) <= 2 or length <= _LONGEST or bool(options & RESERVED)  # noqa: PLR2004


def _decoded(frames: list[bytes]) -> tuple[int, int]:
    """Return how many frames the schema decodes as bin1, and as bin2."""
    plain = sum(fits(frame, PLAIN_VALUES) for frame in frames)
    return plain, sum(fits(frame, NULLABLE_VALUES) for frame in frames)


def _dialect_of(frames: list[bytes], decoded: tuple[int, int]) -> str | None:
    """Return bin1 or bin2, by the schema or by the first bytes of the values; None if unknown."""
    plain, nullable = decoded
    if plain != nullable:
        return BIN1 if plain > nullable else BIN2
    heads = [values[0] for frame in frames if (values := values_of(frame))]
    if not heads:
        return None
    return BIN2 if 2 * sum(head == 1 for head in heads) > len(heads) else BIN1


# -- mid-stream ------------------------------------------------------------------------------------


def _middle(stream: bytes, pieces: list[bytes]) -> _Verdict | None:
    """Look for messages behind other bytes: the capture may have begun inside the connection."""
    first = stream.find(b"\n") + 1
    pair = find_pair(stream, first) if first else None
    if pair is not None and _is_object(stream[pair[0] : pair[1]]):
        text = f"class line with JSON after {pair[0]} bytes"
        return _Verdict(TEXT, TEXT_OBJECT_MIDDLE, text, late=True)
    if _OPTIONS.search(stream) is None:
        return None
    for dialect in (BIN3, BIN1, BIN2):
        shape = _SHAPES[dialect]
        for position in shape.places(stream, whole=True):
            if position and shape.starts(stream, position):
                return _judge_middle(stream, pieces, dialect, position)
    return None


def _is_object(pair: bytes) -> bool:
    """Return whether a pair of lines is a class and a JSON object that is not empty."""
    name, body = pair.decode().splitlines()[:2]
    value = read_json(body).value
    return could_be_class(name) and isinstance(value, dict) and bool(value)


def _judge_middle(stream: bytes, pieces: list[bytes], dialect: str, position: int) -> _Verdict:
    """Judge the frames from `position` on."""
    chunked = dialect == BIN3
    frames = first_frames(stream, position, chunked=chunked, most=MAX_JUDGED)
    is_wide_text = any(all(frame[1::2]) and not any(frame[::2]) for frame in frames)
    contradicted = is_wide_text or (not chunked and _ends_in_other(stream, position, frames))
    sizes = list(map(in_chunks if chunked else len, frames))
    contradicted = contradicted or not _match_pieces(pieces, position, sizes)
    if not chunked:
        dialect = _dialect_of(frames, _decoded(frames)) or BIN1
    values = PLAIN_VALUES if dialect == BIN1 else NULLABLE_VALUES
    decoded = sum(fits(frame, values) for frame in set(frames)) > 1
    score = MIDDLE if decoded else FRAMES[min(_weight(frames) - 1, len(FRAMES) - 1)]
    if contradicted and not decoded:
        # Chains occur in text with two bytes per character, and in tables of small numbers.
        score = min(DOUBTFUL, score)
    text = f"messages of {dialect} after {position} bytes"
    return _Verdict(dialect, score, text, contradicted, late=True)
