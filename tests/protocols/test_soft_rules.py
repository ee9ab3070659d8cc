"""A soft rule is decided once: what `scan` notes of a datagram is what the walker finds in it."""

from __future__ import annotations

import random

import pytest

from agreement import STOPS, mutations, payloads
from netdissect.dissect.engine import Request, dissect, layer_module
from netdissect.layers.expr import E
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.protocols import registry

SHARED = {"riptide": ("riptide-empty-datagram", "riptide-oversize")}
"""Codes whose rule is about a datagram as a whole: not of a layer, and shared all the same."""
DIALECTS = {"riptide": ("riptide-2.0", "riptide-2.1dev", "riptide-2.1", "riptide-2.2")}


def rules(protocol: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the codes of rules that derived readers carry, and the texts of those they do not."""
    codes, own = set(SHARED[protocol]), set()
    for layer, _skip in layer_module(protocol).READERS:
        for check in layer.checks:
            if isinstance(check.when, E):
                codes.add(check.code)
            else:
                own.add((check.code, check.message))
    return {code for code in codes if code.startswith(f"{protocol}-")}, own


def noted(protocol: str, payload: bytes, dialect: str, direction: int) -> set[tuple[str, str]]:
    events = registry.get(protocol).scan(payload, direction, Hints((dialect, dialect)))
    return {(event[1], event[2]) for event in events if event[0] == Ev.NOTE}


@pytest.mark.parametrize("protocol", sorted(SHARED))
def test_scan_notes_what_the_walker_finds(protocol: str) -> None:
    codes, own = rules(protocol)
    sample = random.Random(3).sample(payloads(protocol), 250)
    octets = [b"", b"\5\5", bytes(1300), *sample, *mutations(sample, 400)]
    met = set()
    for payload in octets:
        for dialect in DIALECTS[protocol]:
            for direction in (0, 1):
                tree = dissect(protocol, payload, Request(dialect, direction), strict=True)
                if any(each.code in STOPS for each in tree.annotations):
                    continue  # cut short: its reader gives no values
                found = {(each.code, each.message) for each in tree.annotations} - own
                found = {each for each in found if each[0] in codes}
                events = noted(protocol, payload, dialect, direction)
                noted_too = {each for each in events if each[0] in codes}
                assert noted_too == found, (dialect, direction, payload.hex())
                met |= {code for code, _text in found}
    assert met == codes
