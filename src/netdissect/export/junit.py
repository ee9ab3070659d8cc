"""A fuzzing run as JUnit XML, for build servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain. *Source:* https://www.w3.org/TR/xml/#charsets"""


def junit(facts: Mapping[str, Any], name: str) -> str:
    """Return a run as a test suite: a passed test for each type and state that was mutated, with
    the number of mutants as `assertions`, and a failed one for each kind of failure.

    Args:
        facts: contents of `report.json`.
        name: of the suite, such as protocol and target.

    """
    failures = facts["failures"]
    passed = [row for row in facts["coverage"] if row["mutated"]]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuite name={_quoted(name)} tests={_quoted(len(passed) + len(failures))} "
        f'failures={_quoted(len(failures))} errors="0" time={_quoted(facts["seconds"])}>',
    ]
    lines += [_case(row) for row in passed]
    for failure in failures:
        times = "once" if failure["count"] == 1 else f"{failure['count']} times"
        text = f"up to case {failure['case']}, {times}: {failure['folder']}"
        lines += [
            f'<testcase classname="failures" name={_quoted(failure["signature"])}>',
            f"<failure type={_quoted(failure['kind'])} message={_quoted(failure['detail'])}>"
            f"{escape(_clean(text))}</failure>",
            "</testcase>",
        ]
    return "\n".join([*lines, "</testsuite>", ""])


def _case(row: Mapping[str, Any]) -> str:
    # Build servers follow a test by its name, which therefore has no count.
    return (
        f"<testcase classname={_quoted(row['state'])} name={_quoted(row['type'])} "
        f"assertions={_quoted(row['mutated'])}/>"
    )


def _clean(value: object) -> str:
    return _FORBIDDEN.sub("\ufffd", str(value))


def _quoted(value: object) -> str:
    return quoteattr(_clean(value))
