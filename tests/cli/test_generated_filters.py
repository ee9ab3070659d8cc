"""200 generated filters against a Python predicate over the rows of `read --json`."""

from __future__ import annotations

import json
import operator
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

import console_docs
from netdissect.cli.naming import names
from netdissect.export import json as export
from netdissect.filters import compile_filter
from netdissect.model.records import DatagramRecord
from netdissect.pipeline.records import iter_records

CAPTURES = console_docs.ROOT / "captures"

Row = dict[str, Any]
Predicate = Callable[[list[Row]], bool]

_OPERATORS = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

_NUMBERS: dict[str, Callable[[Row], Any]] = {
    "frame.number": lambda row: row["frame"],
    "conn.id": lambda row: row["connection"],
    "msg.length": lambda row: row["length"],
    "msg.index": lambda row: row["index"],
    "msg.seq": lambda row: (row["reliability"] or {}).get("seq"),
    "msg.wire_seq": lambda row: (row["reliability"] or {}).get("wire_seq"),
    "msg.rtt": lambda row: (row["reliability"] or {}).get("rtt_ms"),
    "msg.acked_in": lambda row: (row["reliability"] or {}).get("acked_in"),
}
_TEXTS: dict[str, Callable[[Row], Any]] = {
    "msg.type": lambda row: row["type"],
    "msg.space": lambda row: (row["reliability"] or {}).get("space"),
    "msg.kind": lambda row: (row["reliability"] or {}).get("kind"),
    "direction": lambda row: row["direction"],
    "dialect": lambda row: row["dialect"],
}


def occurrences(get: Callable[[Row], Any], rows: list[Row]) -> list[Any]:
    return [value for row in rows if (value := get(row)) is not None]


class Generator:
    """Makes a filter and the predicate that it stands for."""

    def __init__(self, seed: int, rows: list[Row]) -> None:
        self.random = random.Random(seed)
        self.rows = rows

    def sample(self, get: Callable[[Row], Any]) -> Any:
        values = occurrences(get, self.rows)
        return self.random.choice(values)

    def make(self, depth: int = 0) -> tuple[str, Predicate]:
        kind = self.random.choice(
            ["number", "text", "set", "exists", "regex", "not", "and", "or", "any", "all"]
        )
        if depth > 2 and kind in {"not", "and", "or", "any", "all"}:
            kind = "number"
        return getattr(self, f"_{kind}")(depth)

    def _number(self, _: int) -> tuple[str, Predicate]:
        name = self.random.choice(list(_NUMBERS))
        get, symbol = _NUMBERS[name], self.random.choice([*_OPERATORS, "!=", "~="])
        wanted = self.sample(get)
        if symbol == "!=":
            return (
                f"{name} != {wanted!r}",
                lambda rows: bool(v := occurrences(get, rows)) and wanted not in v,
            )
        if symbol == "~=":
            return f"{name} ~= {wanted!r}", lambda rows: any(
                v != wanted for v in occurrences(get, rows)
            )
        compare = _OPERATORS[symbol]
        return f"{name} {symbol} {wanted!r}", lambda rows: any(
            compare(v, wanted) for v in occurrences(get, rows)
        )

    def _text(self, _: int) -> tuple[str, Predicate]:
        name = self.random.choice(list(_TEXTS))
        get = _TEXTS[name]
        wanted = str(self.sample(get))
        if self.random.random() < 0.5:
            return f'{name} == "{wanted}"', lambda rows: wanted in occurrences(get, rows)
        part = wanted[: self.random.randint(1, 4)]
        return f'{name} contains "{part}"', lambda rows: any(
            part in v for v in occurrences(get, rows)
        )

    def _set(self, _: int) -> tuple[str, Predicate]:
        name = self.random.choice(list(_NUMBERS))
        get = _NUMBERS[name]
        low, high, one = sorted(self.sample(get) for _ in range(3))
        text = f"{name} in {{{low!r}..{high!r}, {one!r}}}"
        return text, lambda rows: any(low <= v <= high or v == one for v in occurrences(get, rows))

    def _exists(self, _: int) -> tuple[str, Predicate]:
        return self.random.choice([
            ("msg.resend", lambda rows: any((r["reliability"] or {}).get("kind") == "retransmission" for r in rows)),
            ("msg.seq", lambda rows: any(r["reliability"] for r in rows)),
            ("msg.rtt", lambda rows: bool(occurrences(_NUMBERS["msg.rtt"], rows))),
            ("udp", lambda rows: rows[0]["transport"] == "udp"),
            (str(self.rows[0]["protocol"]), lambda _: True),
        ])  # fmt: skip

    def _regex(self, _: int) -> tuple[str, Predicate]:
        pattern = self.random.choice(
            ["^[A-M]", "e.$", "(re|un)", "a+b*", "[^a-z]", "o{1,2}", "^.{4,6}$"]
        )
        get = _TEXTS["msg.type"]
        found = re.compile(pattern, re.IGNORECASE).search
        return f'msg.type matches "{pattern}"', lambda rows: any(
            found(v) for v in occurrences(get, rows)
        )

    def _not(self, depth: int) -> tuple[str, Predicate]:
        text, inner = self.make(depth + 1)
        return f"not ({text})", lambda rows: not inner(rows)

    def _and(self, depth: int) -> tuple[str, Predicate]:
        (one, first), (other, second) = self.make(depth + 1), self.make(depth + 1)
        return f"({one}) and ({other})", lambda rows: first(rows) and second(rows)

    def _or(self, depth: int) -> tuple[str, Predicate]:
        (one, first), (other, second) = self.make(depth + 1), self.make(depth + 1)
        return f"({one}) || ({other})", lambda rows: first(rows) or second(rows)

    def _any(self, depth: int) -> tuple[str, Predicate]:
        text, inner = self.make(3)
        del depth
        return f"any(msg: {text})", lambda rows: any(inner([row]) for row in rows)

    def _all(self, depth: int) -> tuple[str, Predicate]:
        text, inner = self.make(3)
        del depth
        return f"all(msg: {text})", lambda rows: all(inner([row]) for row in rows)


def datagrams(path: str) -> list[tuple[DatagramRecord, list[Row]]]:
    return [
        (
            record,
            [json.loads(export.dump(export.message(record, item))) for item in record.messages],
        )
        for record in iter_records(CAPTURES / path)
        if record.protocol is not None
    ]


@pytest.mark.parametrize(
    "path",
    ["riptide/udp_2.2.1_lossy_clientleg.pcap", "teeworlds/ddnet_big_snap.pcap"],
    ids=["riptide", "teeworlds"],
)
def test_100_generated_filters_equal_their_predicates(path: str) -> None:
    found = datagrams(path)[:400]
    rows = [row for _, mine in found for row in mine]
    selected = 0
    for seed in range(100):
        text, predicate = Generator(seed, rows).make()
        compiled = compile_filter(text, names())
        ours = [record.frame for record, _ in found if compiled.matches(record)]
        assert ours == [record.frame for record, mine in found if predicate(mine)], text
        selected += 0 < len(ours) < len(found)
    assert selected > 40
