"""Is a TCP stream Netplay, and which dialect? Source: docs/protocols/netplay.md section 6."""

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

__all__ = ["may_stand_alone", "recognise"]

BIN1: Final = "netplay-bin1"
BIN2: Final = "netplay-bin2"
BIN3: Final = "netplay-bin3"
TEXT: Final = "netplay-text"
MAX_JUDGED = 64
"""Messages of one direction that are looked at."""
MAX_SEARCHED = 8192
"""Bytes in which the middle of a stream is searched for messages."""
_LONGEST: Final = 1022
"""Length field of the largest frame that real bin1 and bin2 receivers hold."""
_PER_FRAME: Final = (0, 20, 40, 70, 85)
"""Score of a chain of so many frames of bin1 or bin2 and no schema that fits."""
_PER_CHUNKED: Final = (0, 50, 70, 85)
"""Score of so many whole messages of bin3."""
_FITTING: Final = 80
"""Score of a message that the schema decodes to its last byte, with text in it."""
_DNS_HEADER: Final = 14
"""Bytes of a DNS header behind its length."""
_DNS_ZERO: Final = 0x40
"""The bit of its second byte of flags that is always 0."""
_LONGEST_LABEL: Final = 63
_SHAPES: Final = {dialect: Shape(dialect) for dialect in (BIN1, BIN2, BIN3)}
_OPTIONS: Final = compile_(rb"[\0-\3]")
"""What every binary message has: options without reserved bits."""
_AGREE: Final = 10
"""Added where both directions speak the same dialect."""
_DOUBTFUL: Final = 40
"""Most that a chain is worth in which something speaks against it."""
_STUN_COOKIE: Final = b"\x21\x12\xa4\x42"
"""Source: RFC 8489, section 5."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What one direction looks like."""

    dialect: str
    score: int
    reason: str
    broken: bool = False
    """Whether something else follows the messages."""
    late: bool = False
    """Whether other bytes stand before the messages."""
    told: bool | None = None
    """Whether the first frames tell bin1 from bin2; None where that was not asked."""


def may_stand_alone(payload: bytes) -> bool:
    """Return whether a piece of stream has what any claim needs: the options of a binary message,
    or a line of text that follows another.
    """
    return _OPTIONS.search(payload) is not None or payload.count(b"\n") > 1


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a TCP flow from the start of both its directions, or None."""
    del transport
    pieces = [[octets for sender, _, octets in sample if sender == side] for side in (0, 1)]
    streams = [b"".join(mine) for mine in pieces]
    thorough = final or len(sample) >= MAX_JUDGED
    verdicts = [
        _judge(stream, mine, thorough=thorough)
        for stream, mine in zip(streams, pieces, strict=True)
    ]
    found = [verdict for verdict in verdicts if verdict is not None]
    if not found:
        return None
    best = max(found, key=lambda verdict: verdict.score)
    score = best.score
    if len(found) > 1 and found[0].dialect == found[1].dialect:
        # What is no chain on one side is no second witness.
        score = score if any(verdict.broken for verdict in found) else min(95, score + _AGREE)
    elif len(found) > 1 and min(verdict.score for verdict in found) >= STRONG:
        # Both ends of a connection always speak the same dialect.
        return None
    unsure = score >= STRONG and not final and best.dialect in (BIN1, BIN2)
    if unsure and not any(map(_tells, streams, verdicts)):
        return None  # Frames are too few to tell bin1 from bin2, and more may come.
    reasons = tuple(verdict.reason for verdict in found if verdict.dialect == best.dialect)
    return Claim(
        "netplay", score, (best.dialect, best.dialect), None, "first_frame", reasons, late=best.late
    )


def _tells(stream: bytes, verdict: _Verdict | None) -> bool:
    """Return whether the first frames of one direction tell bin1 from bin2."""
    if verdict is not None and verdict.told is not None:
        return verdict.told
    bodies = _bodies(stream)
    return _dialect_of_bodies(bodies, _fitting(bodies)) is not None


def _judge(stream: bytes, pieces: list[bytes], *, thorough: bool) -> _Verdict | None:
    """Return what one direction looks like; where `thorough`, also from its middle."""
    if not stream:
        return None
    verdict = _text(stream) or _chunked(stream, pieces) or _frames(stream, pieces)
    if verdict is None and thorough:
        verdict = _middle(stream[:MAX_SEARCHED], pieces)
    return verdict


def _written(pieces: list[bytes], start: int, sizes: list[int]) -> bool:
    """Return whether pieces begin where messages of these sizes do: each is written at once, and
    half of the pieces that begin among them begin one, unless the path cuts them anew.
    """
    ends = list(accumulate(sizes, initial=start))
    begins = list(accumulate(map(len, pieces), initial=0))
    among = [place for place in begins[:-1] if start <= place < ends[-1]]
    return 0 < len(among) <= 2 * len(set(among).intersection(ends))


# -- text ------------------------------------------------------------------------------------------


def _text(stream: bytes) -> _Verdict | None:
    """Judge pairs of a class line and a line of strict JSON."""
    lines = stream.split(b"\n", 2 * MAX_JUDGED)
    pairs = good = objects = 0
    typed: set[tuple[str, str]] = set()
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
                typed.add((name, body))
        elif pairs == 1:
            return None
    if not good or 2 * good < pairs:
        return None
    # Names and scalars by turns are what many protocols of lines look like: Java's own classes
    # with values of theirs are not.
    plain = 70 if good == pairs and len(typed) > 2 else 40  # noqa: PLR2004 - three values
    score = 90 if objects else plain
    return _Verdict(TEXT, score, f"{good} class lines with a line of JSON each")


# -- bin3 ------------------------------------------------------------------------------------------


def _chunked(stream: bytes, pieces: list[bytes]) -> _Verdict | None:
    """Judge chunks with exact headers; `chunk_chain` holds them to the lengths."""
    count = 0
    while count < len(_PER_CHUNKED) - 1 and chunk_chain(stream, 0, count + 1):
        count += 1
    if not count:
        return None
    frames = first_frames(stream, 0, chunked=True, most=count)
    if fits(frames[0], NULLABLE_VALUES):
        text = "whole chunks, the first message decodes to its last byte"
        return _Verdict(BIN3, max(_FITTING, _PER_CHUNKED[count]), text)
    if chunk_chain(stream, 0, count + 1) is False:
        text = "whole chunks, then something else"
        return _Verdict(BIN3, min(_DOUBTFUL, _PER_CHUNKED[count]), text, broken=True)
    if not _written(pieces, 0, list(map(in_chunks, frames))):
        text = "whole chunks, sent in other pieces"
        return _Verdict(BIN3, min(_DOUBTFUL, _PER_CHUNKED[count]), text, broken=True)
    return _Verdict(BIN3, _PER_CHUNKED[count], f"{count} or more messages in whole chunks")


# -- bin1, bin2 ------------------------------------------------------------------------------------


def _frames(stream: bytes, pieces: list[bytes]) -> _Verdict | None:
    """Judge a chain of frames."""
    bodies = _bodies(stream)
    if not bodies:
        return None
    for test, name in ((_is_dns, "DNS"), (_is_stun, "STUN")):
        if all(map(test, bodies)):
            return _Verdict(BIN1, 0, f"{name} over TCP", broken=True)
    both = _fitting(bodies)
    likely = _dialect_of_bodies(bodies, both)
    dialect, told = likely or BIN1, likely is not None
    fitting = both[dialect == BIN2]
    plain = _PER_FRAME[min(_weight(bodies), len(_PER_FRAME) - 1)]
    broken = _goes_on_otherwise(stream, 0, bodies)
    broken = broken or not _written(pieces, 0, list(map(len, bodies)))
    if broken:
        plain = min(_DOUBTFUL, plain)
    if fitting:
        text = f"{fitting} of {len(bodies)} frames decode to their last byte as {dialect}"
        return _Verdict(dialect, max(_FITTING, plain), text, told=told)
    text = f"a chain of {len(bodies)} frames, likely {dialect}"
    return _Verdict(dialect, plain, text, broken, told=told)


def _bodies(stream: bytes) -> list[bytes]:
    """Return the whole frames at the start of a stream, as long as they look like Netplay's."""
    return first_frames(stream, 0, chunked=False, most=MAX_JUDGED)


def _weight(frames: list[bytes]) -> int:
    """Return how many frames count: programs repeat their types, other numbers vary."""
    return max(1, len(frames) - len({frame[3:5] for frame in frames}) + 1)


def _is_dns(frame: bytes) -> bool:
    """Return whether a frame reads as DNS over TCP, which looks like Netplay where its identifier
    is below 1,024: a bit of the flags is 0, and one question follows, whose name begins with text.
    """
    if len(frame) <= _DNS_HEADER or frame[5] & _DNS_ZERO or frame[6:8] != b"\0\1":
        return False
    label = frame[_DNS_HEADER + 1 : _DNS_HEADER + 1 + frame[_DNS_HEADER]]
    return 0 < frame[_DNS_HEADER] <= _LONGEST_LABEL and label.isascii()


def _is_stun(frame: bytes) -> bool:
    """Return whether a frame is a STUN message, which media sessions over TCP send with the same
    length before it (RFC 4571).
    """
    return frame[6:10] == _STUN_COOKIE


def _goes_on_otherwise(stream: bytes, start: int, frames: list[bytes]) -> bool:
    """Return whether what follows the frames is none, nor one larger than receivers hold."""
    if chain(stream, start, len(frames) + 1) is not False:
        return False
    position = start + sum(map(len, frames))
    length = stream[position] << 8 | stream[position + 1]
    options = stream[position + 2] if position + 2 < len(stream) else 0
    return len(frames) <= 2 or length <= _LONGEST or bool(options & RESERVED)  # noqa: PLR2004


def _fitting(frames: list[bytes]) -> tuple[int, int]:
    """Return how many frames the schema decodes as bin1, and as bin2."""
    plain = sum(fits(frame, PLAIN_VALUES) for frame in frames)
    return plain, sum(fits(frame, NULLABLE_VALUES) for frame in frames)


def _dialect_of_bodies(frames: list[bytes], fitting: tuple[int, int]) -> str | None:
    """Return bin1 or bin2 by schema, else by the first bytes of the values; None = not told."""
    plain, nullable = fitting
    if plain != nullable:
        return BIN1 if plain > nullable else BIN2
    heads = [values[0] for frame in frames if (values := values_of(frame))]
    if not heads:
        return None
    return BIN2 if 2 * sum(head == 1 for head in heads) > len(heads) else BIN1


# -- from the middle -------------------------------------------------------------------------------


def _middle(stream: bytes, pieces: list[bytes]) -> _Verdict | None:
    """Look for messages behind the start: the capture may have begun inside the connection."""
    first = stream.find(b"\n") + 1
    pair = find_pair(stream, first) if first else None
    if pair is not None and _names_an_object(stream[pair[0] : pair[1]]):
        return _Verdict(TEXT, 80, f"class line with JSON after {pair[0]} bytes", late=True)
    if _OPTIONS.search(stream) is None:
        return None
    for dialect in (BIN3, BIN1, BIN2):
        shape = _SHAPES[dialect]
        for position in shape.places(stream, whole=True):
            if position and shape.starts(stream, position):
                return _found_late(stream, pieces, dialect, position)
    return None


def _names_an_object(pair: bytes) -> bool:
    """Return whether a pair of lines is a class and an object with something in it."""
    name, body = pair.decode().splitlines()[:2]
    value = read_json(body).value
    return could_be_class(name) and isinstance(value, dict) and bool(value)


def _found_late(stream: bytes, pieces: list[bytes], dialect: str, position: int) -> _Verdict:
    """Judge frames from the middle of a stream."""
    chunked = dialect == BIN3
    frames = first_frames(stream, position, chunked=chunked, most=MAX_JUDGED)
    wide = any(all(frame[1::2]) and not any(frame[::2]) for frame in frames)
    broken = wide or (not chunked and _goes_on_otherwise(stream, position, frames))
    sizes = list(map(in_chunks if chunked else len, frames))
    broken = broken or not _written(pieces, position, sizes)
    if not chunked:
        dialect = _dialect_of_bodies(frames, _fitting(frames)) or BIN1
    values = PLAIN_VALUES if dialect == BIN1 else NULLABLE_VALUES
    known = sum(fits(frame, values) for frame in set(frames)) > 1
    score = 70 if known else _PER_FRAME[min(_weight(frames) - 1, len(_PER_FRAME) - 1)]
    if broken and not known:
        # Text of two bytes a character and tables of small numbers hold chains, too.
        score = min(_DOUBTFUL, score)
    text = f"messages of {dialect} after {position} bytes"
    return _Verdict(dialect, score, text, broken, late=True)
