from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

from netdissect.report.fuzzing import run_page, states_document

SVG = "{http://www.w3.org/2000/svg}"


def facts(**changes: Any) -> dict[str, Any]:
    rows = [
        {"type": "Ack", "state": "fresh", "sent": 0, "mutated": 0, "received": 0},
        {"type": "Ack", "state": "connected", "sent": 2, "mutated": 3, "received": 4},
        {"type": "<script>\x1b", "state": "connected", "sent": 0, "mutated": 1, "received": 0},
    ]
    return {
        "cases": 10, "datagrams": 12, "sessions": 3, "seconds": 2.0, "earlier": 0,
        "ended": "all cases sent",
        "accepted": {"control": {"expected": 4, "acknowledged": 4, "share": 1.0}},
        "coverage": rows, "failures": [], "masked": {}, "held_back": [],
        "mutations": {"octets:flip": 10}, "corpus": 5, "edges": None,
        "moves": [
            {"from": "fresh", "to": "connected", "message": "Welcome", "count": 3},
            {"from": "connected", "to": "closed", "message": None, "count": 2},
            {"from": "closed", "to": "fresh", "message": "Odd", "count": 1},
        ],
        **changes,
    }  # fmt: skip


def test_states_and_what_led_from_one_to_the_next_are_drawn() -> None:
    root = ET.fromstring(states_document(facts()))  # noqa: S314 - made here
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"fresh", "connected", "closed", "Welcome 3", "ours 2", "Odd 1"} <= set(texts)
    assert "2/3/4" in texts
    assert texts.count("never") == 1
    assert "2 of 2 types mutated" in texts
    assert len(list(root.iter(f"{SVG}path"))) == 3
    assert len(list(root.iter(f"{SVG}rect"))) == 4


def test_the_page_escapes_what_the_target_said() -> None:
    failure = {"key": "12345678", "kind": "exit", "signature": "exit: <b>", "count": 2, "case": 3,
               "detail": "<img src=x>", "folder": "run/failures/001-exit"}  # fmt: skip
    held = {"key": "12345678", "facts": "finding <i>", "cases": 214}
    page = run_page(facts(failures=[failure], held_back=[held]), "fuzz riptide")
    assert "finding &lt;i&gt;" in page
    assert "1 kind of failure" in page
    assert "&lt;img src=x&gt;" in page
    assert "<img" not in page
    assert "<script>\x1b" not in page
    assert "5 cases brought something new" in page
    assert "no failure found" in run_page(facts(), "fuzz riptide")


def test_many_states_fit_the_picture() -> None:
    many = [
        {"type": f"t{n}", "state": f"state {n % 9}", "sent": 1, "mutated": 1, "received": 0}
        for n in range(900)
    ]
    root = ET.fromstring(states_document(facts(coverage=many, moves=[])))  # noqa: S314 - made here
    boxes = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "box"]
    assert len(boxes) == 9
    places = sorted(float(box.get("x", 0)) for box in boxes)
    assert all(b - a > 190 for a, b in pairwise(places))
    assert places[-1] + 190 <= float(root.get("width", 0))
    assert any(each.text == "and 60 more" for each in root.iter(f"{SVG}text"))
