from __future__ import annotations

import xml.etree.ElementTree as ET

from netdissect.export.junit import junit

FACTS = {
    "seconds": 1.5,
    "coverage": [
        {"type": "Ack", "state": "fresh", "sent": 0, "mutated": 3, "received": 0},
        {"type": "Welcome", "state": "fresh", "sent": 4, "mutated": 0, "received": 1},
    ],
    "failures": [
        {"kind": "exit", "signature": "exit: <&\x1b\ud800", "detail": 'said "\x00]]>"', "case": 7,
         "count": 2, "folder": "run/failures/001-exit"},
    ],
}  # fmt: skip


def test_what_was_mutated_and_what_failed_are_tests() -> None:
    suite = ET.fromstring(junit(FACTS, "fuzz riptide"))  # noqa: S314 - made here
    assert suite.attrib == {
        "name": "fuzz riptide", "tests": "2", "failures": "1", "errors": "0", "time": "1.5",
    }  # fmt: skip
    passed, failed = suite
    assert passed.attrib == {"classname": "fresh", "name": "Ack", "assertions": "3"}
    failure = failed[0]
    assert failed.attrib["name"] == "exit: <&\ufffd\ufffd"
    assert failure.attrib == {"type": "exit", "message": 'said "\ufffd]]>"'}
    assert failure.text == "up to case 7, 2 times: run/failures/001-exit"
    once = {**FACTS, "failures": [{**FACTS["failures"][0], "count": 1}]}
    assert "up to case 7, once: " in junit(once, "fuzz riptide")
