"""Generated filters against a Python predicate over the rows of `read --json`: 200 of each capture,
one capture a protocol, over the whole grammar.
"""

from __future__ import annotations

import json
import operator
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from click.testing import CliRunner

import console_docs
from netdissect.cli import cli
from netdissect.cli.request import filter_names
from netdissect.filters import compile_filter
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionReport
from netdissect.pipeline import analyze
from netdissect.pipeline.iterate import iter_records

CAPTURES = console_docs.ROOT / "captures"
EACH = 200
FRAMES = 90
"""Datagrams of each capture that are looked at."""

Row = dict[str, Any]
Get = Callable[[Row], list[Any]]
Predicate = Callable[[list[Row]], bool]

ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
WORDS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
PATTERNS = ["^[A-M]", "e.$", "(re|un)", "a+b*", "[^a-z]", "o{1,2}", "^.{4,6}$", "_", r"\d"]


# -- what the names mean, said a second time -------------------------------------------------------


def fact(name: str) -> Get:
    return lambda row: present((row["reliability"] or {}).get(name))


def key(name: str) -> Get:
    return lambda row: present(row[name])


def present(value: Any) -> list[Any]:
    return [] if value is None else [value]


def origin(kind: str) -> Get:
    def get(row: Row) -> list[Any]:
        facts = row["reliability"] or {}
        return present(facts.get("of_frame")) if facts.get("kind") == kind else []

    return get


def port(transport: str, *sides: str) -> Get:
    return lambda row: [
        int(row[side].rpartition(":")[2]) for side in sides if row["transport"] == transport
    ]


def address(*sides: str) -> Get:
    return lambda row: [row[side].rpartition(":")[0].strip("[]") for side in sides]


def field(name: str) -> Get:
    """A field of the message by name, at any depth; lists give each of their values."""
    return lambda row: list(values_of(name, row["fields"]))


def values_of(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from leaves(value.get(name))
        value = [inner for other, inner in value.items() if other != name]
    for inner in value if isinstance(value, list) else ():
        yield from values_of(name, inner)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif value is not None and value is not False:
        yield value


NUMBERS: dict[str, Get] = {
    "frame.number": key("frame"), "frame.time_ns": key("time_ns"), "conn.id": key("connection"),
    "msg.length": key("length"), "msg.offset": key("offset"), "msg.index": key("index"),
    "msg.seq": fact("seq"), "msg.wire_seq": fact("wire_seq"), "msg.rtt": fact("rtt_ms"),
    "msg.acked_in": fact("acked_in"), "msg.resend_of": origin("retransmission"),
    "msg.duplicate_of": origin("duplicate"), "udp.srcport": port("udp", "src"),
    "udp.port": port("udp", "src", "dst"), "tcp.port": port("tcp", "src", "dst"),
}  # fmt: skip
TEXTS: dict[str, Get] = {
    "msg.type": key("type"), "msg.space": fact("space"), "msg.kind": fact("kind"),
    "direction": key("direction"), "dialect": key("dialect"), "protocol": key("protocol"),
}  # fmt: skip
ADDRESSES = {"ip.src": address("src"), "ip.dst": address("dst"), "ip.addr": address("src", "dst")}
OF_DATAGRAM = frozenset({
    "frame.number", "frame.time_ns", "conn.id", "udp.srcport", "udp.port", "tcp.port", "direction",
    "dialect", "protocol", *ADDRESSES,
})  # fmt: skip
"""Names that mean the datagram: its messages do not repeat them."""


def kind_is(kind: str) -> Predicate:
    return lambda rows: any((row["reliability"] or {}).get("kind") == kind for row in rows)


def is_resent(rows: list[Row]) -> bool:
    """Over TCP, retransmitted bytes have no row of their own but are noted with their message."""
    return kind_is("retransmission")(rows) or any(
        "retransmitted_in" in (row["reliability"] or {}) for row in rows
    )


def found(what: str) -> Callable[[list[Row]], list[str]]:
    """Codes or severities: the decoder's in these messages, the tracker's on the frame."""

    def get(rows: list[Row]) -> list[str]:
        noted = [note[what] for row in rows for note in row["annotations"]]
        noted += [finding[what] for finding in rows[0]["findings"]]
        return noted + (rows[0].get("faults", []) if what == "code" else [])

    return get


# -- a filter and its predicate --------------------------------------------------------------------


class Generator:
    """Makes filters and the predicates that they stand for, from what a capture holds."""

    def __init__(self, seed: int, groups: list[list[Row]], reports: dict[int, Row]) -> None:
        self.random = random.Random(seed)
        self.groups = groups
        self.reports = reports
        self.rows = [row for group in groups for row in group]
        self.made: Counter[str] = Counter()
        self.numbers, self.texts, self.octets = dict(NUMBERS), dict(TEXTS), {}
        for name, kind in self._plain_fields():
            table = {int: self.numbers, str: self.texts}[kind]
            table[f"msg.{name}"] = field(name)
        self.numbers = {name: get for name, get in self.numbers.items() if self._values(get)}
        self.texts = {name: get for name, get in self.texts.items() if self._values(get)}

    def _plain_fields(self) -> Iterator[tuple[str, type]]:
        """Yield plain fields of messages that hold one kind of value everywhere."""
        tops = sorted({name for row in self.rows for name in row["fields"]})
        for name in tops:
            if name in {"type", "index", "offset", "length", "space", "seq", "kind", "decoded"}:
                continue  # msg.NAME means something else
            kinds = {type(value) for row in self.rows for value in field(name)(row)}
            if len(kinds) == 1 and kinds <= {int, str} and not self._hidden(name):
                yield name, kinds.pop()

    def _hidden(self, name: str) -> bool:
        """Return whether JSON writes the field otherwise than filters see it: bytes as hex."""
        values = [value for row in self.rows for value in field(name)(row)]
        return isinstance(values[0], str) and (
            any(re.fullmatch("([0-9a-f]{2})*|-?inf|NaN", value) for value in values)
            or any(not re.fullmatch(r"[ !#-\[\]-~]{1,60}", value) for value in values)
        )

    def _values(self, get: Get) -> list[Any]:
        return [value for row in self.rows for value in get(row)]

    def make(self, depth: int = 0) -> tuple[str, Predicate]:
        several = ["not", "and", "or", "any", "all", "count", "pair"] if depth <= 2 else []
        kind = self.random.choice(
            [
                "number", "number", "text", "set", "exists", "regex", "slice", "mask", "length",
                "address", "every", "anomaly", "connection", *several,
            ]
        )  # fmt: skip
        self.made[kind] += 1
        return getattr(self, f"_{kind}")(depth)

    def _pick(self, table: dict[str, Get]) -> tuple[str, Callable[[list[Row]], list[Any]], Any]:
        name = self.random.choice(sorted(table))
        get = table[name]
        return name, of(name, get), self.random.choice(self._values(get))

    def _spelt(self, symbol: str) -> str:
        return self.random.choice([symbol, WORDS.get(symbol, symbol)])

    def _number(self, _: int) -> tuple[str, Predicate]:
        name, get, wanted = self._pick(self.numbers)
        symbol = self.random.choice([*ORDERS, "==", "!=", "~="])
        shown = hex(wanted) if isinstance(wanted, int) and wanted >= 0 else repr(wanted)
        shown = self.random.choice([shown, repr(wanted)])
        if symbol in {"!=", "~="}:
            text = f"{name} {self._spelt(symbol)} {shown}"
            return text, related(symbol, get, wanted)
        if symbol in ORDERS and self.random.random() < 0.3:
            mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[symbol]
            return f"{shown} {mirrored} {name}", related(symbol, get, wanted)
        return f"{name} {self._spelt(symbol)} {shown}", related(symbol, get, wanted)

    def _text(self, _: int) -> tuple[str, Predicate]:
        name, get, wanted = self._pick(self.texts)
        choice = self.random.choice(["==", "!=", "<", ">=", "contains", "set"])
        if choice == "set":
            other = self._pick({name: self.texts[name]})[2]
            return f'{name} in {{"{wanted}", "{other}"}}', lambda rows: any(
                value in {wanted, other} for value in get(rows)
            )
        if choice == "contains":
            start = self.random.randrange(len(wanted))
            part = wanted[start : start + self.random.randint(1, 4)]
            return f'{name} contains "{part}"', lambda rows: any(
                part in value for value in get(rows)
            )
        return f'{name} {self._spelt(choice)} "{wanted}"', related(choice, get, wanted)

    def _set(self, _: int) -> tuple[str, Predicate]:
        name, get, low = self._pick(self.numbers)
        low, high, one = sorted([low, *(self._pick({name: self.numbers[name]})[2] for _ in "ab")])
        text = f"{{{low!r}..{high!r}, {one!r}}}"

        def holds(value: Any) -> bool:
            return low <= value <= high or value == one

        if self.random.random() < 0.3:
            return (
                f"{name} not in {text}",
                lambda rows: bool(values := get(rows)) and not any(map(holds, values)),
            )
        return f"{name} in {text}", lambda rows: any(map(holds, get(rows)))

    def _exists(self, _: int) -> tuple[str, Predicate]:
        name = self.random.choice(sorted({**self.numbers, **self.texts}))
        get = of(name, {**self.numbers, **self.texts}[name])
        return self.random.choice([
            ("msg.resend", is_resent),
            ("msg.duplicate", kind_is("duplicate")),
            ("msg.reliable", lambda rows: any((r["reliability"] or {}).get("reliable") for r in rows)),
            ("udp", lambda rows: rows[0]["transport"] == "udp"),
            ("tcp", lambda rows: rows[0]["transport"] == "tcp"),
            (str(self.rows[0]["protocol"]), lambda _: True),
            (name, lambda rows: bool(get(rows))),
        ])  # fmt: skip

    def _regex(self, _: int) -> tuple[str, Predicate]:
        name, get, _value = self._pick(self.texts)
        pattern = self.random.choice(PATTERNS)
        search = re.compile(pattern, re.IGNORECASE).search
        shown = pattern.replace("\\", "\\\\")
        return f'{name} matches "{shown}"', lambda rows: any(search(value) for value in get(rows))

    def _slice(self, _: int) -> tuple[str, Predicate]:
        name, get, wanted = self._pick(self.texts)
        start, length = self.random.randrange(len(wanted)), self.random.randint(1, 4)
        shown, cut = self.random.choice([
            (f"[{start}:{length}]", slice(start, start + length)),
            (f"[{start}]", slice(start, start + 1)),
            (f"[{start}-{start + length}]", slice(start, start + length + 1)),
            (f"[:{length}]", slice(0, length)),
            (f"[{start}:]", slice(start, None)),
        ])  # fmt: skip
        symbol = self.random.choice(["==", "!="])
        return f'{name}{shown} {symbol} "{wanted[cut]}"', related(
            symbol, lambda rows: [value[cut] for value in get(rows)], wanted[cut]
        )

    def _mask(self, _: int) -> tuple[str, Predicate]:
        whole = {
            name: get
            for name, get in self.numbers.items()
            if all(isinstance(value, int) for value in self._values(get))
        }
        name, get, wanted = self._pick(whole)
        mask = self.random.choice([1, 3, 6, 0xF0, 0x101])
        if self.random.random() < 0.5:
            return f"{name} & {mask:#x}", lambda rows: any(value & mask for value in get(rows))
        return f"{name} & {mask} == {wanted & mask}", lambda rows: any(
            value & mask == wanted & mask for value in get(rows)
        )

    def _length(self, _: int) -> tuple[str, Predicate]:
        name, get, wanted = self._pick(self.texts)
        symbol = self.random.choice([*ORDERS, "=="])
        return f"len({name}) {symbol} {len(wanted)}", related(
            symbol, lambda rows: [len(value) for value in get(rows)], len(wanted)
        )

    def _address(self, _: int) -> tuple[str, Predicate]:
        name, get, wanted = self._pick(ADDRESSES)
        bits = 8 if ip_address(wanted).version == 4 else 10
        network = ip_network(f"{wanted}/{bits}", strict=False)
        return self.random.choice([
            (f"{name} == {wanted}", related("==", get, wanted)),
            (f"{name} != {wanted}", related("!=", get, wanted)),
            (f"{name} in {{{network}, 192.0.2.7}}",
             lambda rows: any(ip_address(value) in network for value in get(rows))),
        ])  # fmt: skip

    def _every(self, _: int) -> tuple[str, Predicate]:
        name, get, wanted = self._pick(self.numbers)
        return self.random.choice([
            (f"all {name} >= {wanted!r}",
             lambda rows: bool(v := get(rows)) and all(value >= wanted for value in v)),
            (f"any {name} != {wanted!r}", lambda rows: any(value != wanted for value in get(rows))),
            (f"{name} === {wanted!r}",
             lambda rows: bool(v := get(rows)) and all(value == wanted for value in v)),
            (f"{name} !== {wanted!r}", lambda rows: any(value != wanted for value in get(rows))),
        ])  # fmt: skip

    def _anomaly(self, _: int) -> tuple[str, Predicate]:
        what, name = self.random.choice([("code", "anomaly"), ("severity", "anomaly.severity")])
        get = found(what)
        known = sorted({value for group in self.groups for value in get(group)}) or ["nothing"]
        wanted = self.random.choice(known)
        return self.random.choice([
            (name, lambda rows: bool(get(rows))),
            (f'{name} == "{wanted}"', lambda rows: wanted in get(rows)),
            (f'{name} contains "{wanted[:4]}"',
             lambda rows: any(wanted[:4] in value for value in get(rows))),
        ])  # fmt: skip

    def _connection(self, _: int) -> tuple[str, Predicate]:
        """The connection as `connections --json` shows it."""
        name = self.random.choice(["state", "handshake", "client", "server", "vantage"])
        wanted = self.random.choice(sorted({report[name] for report in self.reports.values()}))
        get = of("conn.id", lambda row: present(self.reports[row["connection"]][name]))
        symbol = self.random.choice(["==", "!=", "~="])
        return f'conn.{name} {symbol} "{wanted}"', related(symbol, get, wanted)

    def _pair(self, _: int) -> tuple[str, Predicate]:
        """Two fields of the datagram: every pair of their values is looked at."""
        one, other = self.random.sample(
            ["frame.number", "msg.seq", "msg.acked_in", "udp.srcport"], 2
        )
        first, second = of(one, NUMBERS[one]), of(other, NUMBERS[other])
        symbol = self.random.choice(sorted(ORDERS))
        compare = ORDERS[symbol]
        return f"{one} {symbol} {other}", lambda rows: any(
            compare(mine, theirs) for mine in first(rows) for theirs in second(rows)
        )

    def _count(self, _: int) -> tuple[str, Predicate]:
        name, get, _value = self._pick(self.numbers)
        size = self.random.randint(0, 3)
        return f"count({name}) >= {size}", lambda rows: len(get(rows)) >= size

    def _not(self, depth: int) -> tuple[str, Predicate]:
        text, inner = self.make(depth + 1)
        return f"{self.random.choice(['not ', '!'])}({text})", lambda rows: not inner(rows)

    def _and(self, depth: int) -> tuple[str, Predicate]:
        (one, first), (other, second) = self.make(depth + 1), self.make(depth + 1)
        word = self.random.choice(["and", "&&"])
        return f"({one}) {word} ({other})", lambda rows: first(rows) and second(rows)

    def _or(self, depth: int) -> tuple[str, Predicate]:
        (one, first), (other, second) = self.make(depth + 1), self.make(depth + 1)
        word = self.random.choice(["or", "||"])
        return f"({one}) {word} ({other})", lambda rows: first(rows) or second(rows)

    def _any(self, _: int) -> tuple[str, Predicate]:
        text, inner = self.make(3)
        return f"any(msg: {text})", lambda rows: any(inner([row]) for row in rows)

    def _all(self, _: int) -> tuple[str, Predicate]:
        text, inner = self.make(3)
        return f"all(msg: {text})", lambda rows: all(inner([row]) for row in rows)


def of(name: str, get: Get) -> Callable[[list[Row]], list[Any]]:
    """Return a getter over the messages of a datagram."""
    if name in OF_DATAGRAM:
        return lambda rows: get(rows[0])
    return lambda rows: [value for row in rows for value in get(row)]


def related(symbol: str, get: Callable[[list[Row]], list[Any]], wanted: Any) -> Predicate:
    if symbol == "!=":
        return lambda rows: bool(values := get(rows)) and wanted not in values
    if symbol == "~=":
        return lambda rows: any(value != wanted for value in get(rows))
    compare = ORDERS.get(symbol, operator.eq)
    return lambda rows: any(compare(value, wanted) for value in get(rows))


# -- the comparison --------------------------------------------------------------------------------


def objects(*words: str) -> list[Row]:
    result = CliRunner().invoke(cli, [*words, "--json"], prog_name="netdissect")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def grouped(rows: list[Row]) -> list[list[Row]]:
    """Return the rows of each datagram; a new one begins where the index does."""
    groups: list[list[Row]] = []
    for row in rows:
        if not row["index"]:
            groups.append([])
        groups[-1].append(row)
    return groups


@pytest.mark.parametrize(
    "name",
    [
        "riptide/udp_2.2.1_lossy_clientleg.pcap",
        "teeworlds/tw07_loss_client_side.pcap",
        "knet/knet2010_loss.client.pcap",
        "eoudp/late_resend_lossy_client.pcap",
        "netplay/bin1_lossy__client_side.pcap",
    ],
)
def test_200_generated_filters_equal_their_predicates(name: str) -> None:
    path = str(CAPTURES / name)
    groups = grouped(objects("read", path))[:FRAMES]
    reports = {row["connection"]: row for row in objects("connections", path)}
    generator = Generator(7, groups, reports)
    records: list[DatagramRecord] = [
        record for record in iter_records(path) if record.protocol is not None
    ][:FRAMES]
    assert [record.frame for record in records] == [group[0]["frame"] for group in groups]
    finals: dict[int | None, ConnectionReport] = {
        report.connection: report for report in analyze(path).connections
    }
    selective = 0
    for number in range(EACH):
        text, predicate = generator.make()
        wanted = [group[0]["frame"] for group in groups if predicate(group)]
        compiled = compile_filter(text, filter_names())
        ours = [
            record.frame
            for record in records
            if compiled.matches(record, finals.get(record.connection))
        ]
        assert ours == wanted, text
        selective += 0 < len(wanted) < len(groups)
        if not number % 100:  # through the whole command as well
            shown = {row["frame"] for row in objects("read", path, "-Y", text)}
            assert {frame for frame in shown if frame <= groups[-1][0]["frame"]} == set(wanted)
    assert selective > EACH / 4
    assert min(generator.made.values()) >= 3, "every kind of expression was made"
    assert len(generator.made) == 19
