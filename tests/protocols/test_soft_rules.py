"""A soft rule is decided once: what `scan` notes of a datagram is what the walker finds in it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agreement import STOPS, mutations, payloads
from netdissect.dissect.engine import Request, dissect, layer_module
from netdissect.layers.expr import E
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.protocols import registry
from netdissect.protocols.eoudp.rows import ROWS, Learnt
from netdissect.protocols.knet.phases import Phase, Progress

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
    coarse: tuple[str, ...] = ()
    """Ends of what `scan` says of a content of which the walker says where it is broken."""
    made: tuple[str, ...] = ()
    """Octets of what no capture and no vector holds."""


RULES = {
    "riptide": Rules(
        ("riptide-2.0", "riptide-2.1dev", "riptide-2.1", "riptide-2.2"),
        ("riptide-empty-datagram", "riptide-oversize"),
    ),
    "eoudp": Rules(
        tuple(f"eoudp-{name}" for name in ROWS),
        ("eoudp-content-size", "eoudp-oversize", "eoudp-size-mismatch"),
        ("eoudp-size-mismatch", "list-short", "trailing-bytes"),
        coarse=("SYSTEM_LOAD", "GAME_EVENT", "COMPONENT_OF", "DELETE_COMPONENT"),
    ),
    "knet": Rules(
        ("knet-2.x", "knet-2010", "knet-urho3d", "knet-spec"),
        ("knet-empty-datagram", "knet-header", "knet-no-base", "knet-oversize"),
        ("knet-zero-content",),
        ("kNet connect datagram",),
        made=(
            "4000000000 02d000020014ff",  # a fragment of transfer 0
            "4000000000 051000 ffffffff07",  # a Disconnect with an octet behind it
            "000000 0240 0001",  # a ping of 2010 with the bit of a fragment
        ),
    ),
    "teeworlds": Rules(
        ("teeworlds-0.7", "teeworlds-ddnet-0.6", "teeworlds-0.6", "teeworlds-0.6.5"),
        ("teeworlds-huffman",),
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
    return {code for code in codes if code.startswith(f"{protocol}-")}, own


def start(protocol: str, dialect: str) -> Hints:
    """Return the hints of a connection that is open, where all of a datagram is read."""
    extra: Any = Learnt() if protocol == "eoudp" else None
    if protocol == "knet":
        extra = Progress(Phase.LEARNING if dialect == "knet-spec" else Phase.OPEN)
    return Hints((dialect, dialect), extra)


def noted(protocol: str, payload: bytes, dialect: str, direction: int) -> set[tuple[str, str]]:
    events = registry.get(protocol).scan(payload, direction, start(protocol, dialect))
    return {(event[1], event[2]) for event in events if event[0] == Ev.NOTE}


def samples(protocol: str) -> list[bytes]:
    """Return octets with every odd thing that a vector or a capture holds, and damaged ones."""
    known = json.loads((VECTORS / f"{protocol}.vectors.json").read_text("utf-8"))
    rows = known if isinstance(known, list) else known["vectors"]
    vectors = [bytes.fromhex(row["hex"]) for row in rows]
    vectors += [bytes.fromhex(text) for text in RULES[protocol].made]
    sample = vectors + random.Random(3).sample(payloads(protocol), 150)
    return [b"", b"\5\5", bytes(2000), *sample, *mutations(sample, 400)]


@pytest.mark.parametrize("protocol", sorted(RULES))
def test_scan_notes_what_the_walker_finds(protocol: str) -> None:
    codes, own = rules(protocol)
    how = RULES[protocol]
    met = set()
    for payload in samples(protocol):
        for dialect in how.dialects:
            for direction in (0, 1):
                tree = dissect(protocol, payload, Request(dialect, direction), strict=True)
                if tree.root.name in how.apart:
                    continue
                found = {(each.code, each.message) for each in tree.annotations} - own
                cut = {each.code for each in tree.annotations} & {*STOPS, *how.stops}
                # Of what is cut short its reader gives no values.
                wanted = {*how.shared, *(() if cut else codes)}
                found = {each for each in found if each[0] in wanted}
                events = noted(protocol, payload, dialect, direction)
                events = {each for each in events if not each[1].endswith(how.coarse or "\n")}
                noted_too = {each for each in events if each[0] in wanted}
                assert noted_too == found, (dialect, direction, payload.hex())
                met |= {code for code, _text in found}
    assert met == codes | {*how.shared}
