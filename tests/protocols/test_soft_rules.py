"""A soft rule is decided once: what `scan` notes of a datagram is what the walker finds in it."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agreement import STOPS, mutations, payloads
from netdissect.dissect.engine import Request, dissect, layer_module
from netdissect.dissect.schema import Schema, parse_schema
from netdissect.layers.expr import E
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.model.segments import StreamPiece
from netdissect.protocols import registry
from netdissect.protocols.eoudp.dialects import ROWS
from netdissect.protocols.eoudp.state import DecoderState as EoudpState
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.protocols.teeworlds.state import DecoderState as TeeworldsState
from netdissect.protocols.teeworlds.state import Phase as TeeworldsPhase
from streams import streams

VECTORS = Path(__file__).parents[1] / "vectors"


class Rules(NamedTuple):
    """How a protocol is compared."""

    dialects: tuple[str, ...]
    shared: tuple[str, ...]
    """Codes whose rule is about a datagram as a whole: not of a layer, and shared all the same."""
    stops: tuple[str, ...] = ()
    """Codes of datagrams that are cut short, beside those of all protocols."""
    apart: tuple[str, ...] = ()
    """Root layers of what `scan` knows by its place in a connection alone."""
    made: tuple[str, ...] = ()
    """Bytes of what no capture and no vector holds."""
    schema: Schema | None = None
    """Where a schema says what values are: one that says it of none, as `scan` knows none."""


def framed(octets: bytes) -> str:
    """Return options, type and body as a frame of Netplay."""
    return (len(octets).to_bytes(2, "big") + octets).hex()


RULES = {
    "riptide": Rules(
        ("riptide-2.0", "riptide-2.1dev", "riptide-2.1", "riptide-2.2"),
        ("riptide-empty-datagram", "riptide-oversize"),
    ),
    "eoudp": Rules(
        tuple(f"eoudp-{name}" for name in ROWS),
        ("eoudp-content-size", "eoudp-oversize", "eoudp-size-mismatch"),
        ("eoudp-size-mismatch", "list-short", "trailing-bytes"),
        made=(
            "02 00000000 0000000000000000 0300000000000000 00 31322d",  # no digits
        ),
    ),
    "knet": Rules(
        ("knet-2.x", "knet-2010", "knet-urho3d", "knet-spec"),
        ("knet-empty-datagram", "knet-header", "knet-no-base", "knet-oversize"),
        ("knet-zero-content",),
        ("kNet connect datagram",),
        made=(
            "4000000000 02d000020014ff",  # a fragment of transfer 0
            "4000000000 051000 ffffffff07",  # a Disconnect with a byte behind it
            "000000 0240 0001",  # a ping of 2010 with the bit of a fragment
        ),
    ),
    "teeworlds": Rules(
        ("teeworlds-0.7", "teeworlds-ddnet-0.6", "teeworlds-0.6", "teeworlds-0.6.5"),
        ("teeworlds-huffman",),
    ),
    "netplay": Rules(
        ("netplay-bin1", "netplay-bin2", "netplay-bin3", "netplay-text"),
        (
            "chunk-header-unexpected", "class-line-has-cr", "class-line-not-identifier",
            "compressed-flag-not-zlib", "decompression-limit", "empty-body-line",
            "empty-class-line", "frame-above-receiver-buffer", "gzip-payload",
            "incomplete-frame-at-close", "incomplete-message-at-close", "invalid-utf8",
            "json-duplicate-key", "json-invalid", "json-lone-surrogate", "json-not-object",
            "pair-shift-suspected", "zlib-checksum-error", "zlib-data-error",
            "zlib-preset-dictionary", "zlib-trailing-bytes", "zlib-truncated",
        ),
        made=(
            "0009010001 78bb00000000",  # a zlib stream that wants a dictionary
            "00 0500 00 0007" + "00" * 1275,  # an only chunk that another follows
            "10 0003 00 0007",  # a chunk that is none
            framed(b"\1\0\7" + zlib.compress(bytes(100_000))),
            framed(b"\1\0\7" + zlib.compress(b"ab")[:-1] + b"~"),
            framed(b"\1\0\7" + zlib.compress(b"ab") + b"c"),
            b'A\r\n{"a":1,"a":"\\ud800"}\n"\xff"\n'.hex(),
        ),
        stops=("incomplete-frame-at-close",),
        schema=parse_schema({"messages": {}}),
    ),
}


def rules(protocol: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the codes of rules that derived readers carry, and the texts of those they do not."""
    module = layer_module(protocol)
    layers = [layer for layer, _skip in module.READERS] + getattr(module, "RULES", [])
    codes, own = set(), set()
    for check in (check for layer in layers for check in layer.checks):
        if isinstance(check.when, E) and check.severity is None:
            codes.add(check.code)
        else:
            own.add((check.code, check.message))
    return codes & {row.code for row in module.CODES}, own


def start(protocol: str, dialect: str) -> Hints:
    """Return the hints of a connection that is open, where all of a datagram is read."""
    extra: Any = EoudpState() if protocol == "eoudp" else None
    if protocol == "teeworlds":
        extra = TeeworldsState(TeeworldsPhase.ONLINE)  # before, a packet may tell the dialect
    elif protocol == "knet":
        extra = DecoderState(Phase.IDENTIFYING if dialect == "knet-spec" else Phase.OPEN)
    return Hints((dialect, dialect), extra)


def noted(protocol: str, payload: bytes, dialect: str, direction: int) -> set[tuple[str, str]]:
    module, hints = registry.get(protocol), start(protocol, dialect)
    if "udp" in module.transports:
        events = module.scan(payload, direction, hints)
        return {(event[1], event[2]) for event in events if event[0] == Ev.NOTE}
    framer = module.framer(dialect, direction)
    found = set()
    for octets, _, faults, at in framer.feed(StreamPiece(0, payload, (1,))) + framer.finish():
        found |= {fault for fault in faults if not isinstance(fault, str)}
        rest = octets or payload[at:]
        # Bytes that were skipped up to the end leave nothing to read.
        events = module.scan(rest, direction, hints) if rest else []
        found |= {(event[1], event[2]) for event in events if event[0] == Ev.NOTE}
    return found


def samples(protocol: str) -> list[bytes]:
    """Return bytes with every odd thing that a vector or a capture holds, and damaged ones."""
    known = json.loads((VECTORS / f"{protocol}.vectors.json").read_text("utf-8"))
    rows = known if isinstance(known, list) else known["vectors"]
    vectors = [bytes.fromhex(row["hex"]) for row in rows]
    vectors += [bytes.fromhex(text) for text in RULES[protocol].made]
    if registry.get(protocol).transports == ("tcp",):
        seen: Sequence[bytes] = [octets[:4000] for _, octets in streams(protocol)]
    else:
        seen = payloads(protocol)
    sample = vectors + random.Random(3).sample(seen, min(150, len(seen)))
    return [b"", b"\5\5", bytes(2000), *sample, *mutations(sample, 400)]


@pytest.mark.parametrize("protocol", sorted(RULES))
def test_scan_notes_what_the_walker_finds(protocol: str) -> None:
    codes, own = rules(protocol)
    how = RULES[protocol]
    met = set()
    for payload in samples(protocol):
        for dialect in how.dialects:
            for direction in (0, 1):
                request = Request(dialect, direction, schema=how.schema)
                tree = dissect(protocol, payload, request, strict=True)
                if tree.root.name in how.apart:
                    continue
                found = {(each.code, each.message) for each in tree.annotations} - own
                cut = {each.code for each in tree.annotations} & {*STOPS, *how.stops}
                # Of what is cut short its reader gives no values.
                wanted = {*how.shared, *(() if cut else codes)}
                found = {each for each in found if each[0] in wanted}
                events = noted(protocol, payload, dialect, direction)
                noted_too = {each for each in events if each[0] in wanted}
                assert noted_too == found, (dialect, direction, payload.hex())
                met |= {code for code, _text in found}
    assert met == codes | {*how.shared}
