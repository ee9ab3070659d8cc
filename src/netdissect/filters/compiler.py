"""Compiles the tree of a filter into one closure. Each name is looked up once, each value is parsed
once.

`f == v` holds if any occurrence of f equals v; `f != v` if f occurs and no occurrence equals v; `f
~= v` if any occurrence differs; `all f == v` if f occurs and all occurrences are equal. A
comparison with a field that does not occur is false. Wireshark 4.0 gives the same answers for its
own fields.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from operator import itemgetter
from typing import Any, TypeAlias

from netdissect.filters.entries import MESSAGES, EntryTests, entries, entry_tests, narrowed
from netdissect.filters.fields import BUILTIN_FIELDS, Getter, Names, Scope, UnitGetter
from netdissect.filters.parser import (
    Combination,
    Field,
    ForEach,
    Literal,
    Negation,
    Node,
    Span,
    Test,
    parse,
)
from netdissect.filters.regex import PatternError, search
from netdissect.model.errors import FilterError, did_you_mean
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.model.reports import ConnectionReport
from netdissect.model.text import quoted

_Predicate: TypeAlias = Callable[[Scope], bool]
_Check: TypeAlias = Callable[[Any], bool]

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXTS = frozenset({"address", "bytes", "str"})
_OWN = frozenset(info.name for info in BUILTIN_FIELDS)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


# `int` and `float` accept these words, digits of other scripts, and 1_000.
_NO_NUMBER = re.compile(r"[+-]?(inf|infinity|nan)\Z|.*[^\x00-\x7f]|.*_")


class Filter:
    """A compiled filter."""

    def __init__(
        self,
        text: str,
        predicate: _Predicate,
        names: frozenset[str],
        entry_tests: EntryTests | None = None,
        needs: frozenset[str | None] | None = None,
    ) -> None:
        """Keep the closure."""
        self.text = text
        self.names = names
        """Names in the text."""
        self.first_ns = 0
        """Time of the first frame, for relative times."""
        self.needs = needs
        """A datagram can only match if it carries a copy of one of these kinds; None among them =
        of any kind. None instead of a set = a datagram without units may match.
        """
        self._predicate = predicate
        self._entry_tests = entry_tests or {}

    def narrowed(self, record: DatagramRecord, item: MessageRecord) -> MessageRecord:
        """Return a matching message with its lists reduced to the entries that `any(LIST: ...)`
        selects.
        """
        return narrowed(record, item, self._entry_tests) if self._entry_tests else item

    def matches(
        self,
        record: DatagramRecord,
        connection: ConnectionReport | None = None,
    ) -> bool:
        """Return whether the datagram as a whole matches."""
        return self._predicate(Scope(record, None, connection, self.first_ns))

    def matches_message(
        self,
        record: DatagramRecord,
        item: MessageRecord,
        connection: ConnectionReport | None = None,
    ) -> bool:
        """Return whether one message of the datagram matches on its own."""
        return self._predicate(Scope(record, (item,), connection, self.first_ns))


def compile_filter(text: str, names: Names) -> Filter:
    """Compile a filter.

    Raises:
        FilterError: unknown field, wrong grammar or a pattern that cannot be used, with its place.

    """
    compiler = _Compiler(text, names)
    tree = parse(text)
    predicate = compiler.node(tree)
    wanted = entry_tests(tree, compiler.node)
    needs = compiler.needs(tree)
    return Filter(text, predicate, frozenset(compiler.used), wanted, needs)


def compile_column(name: str, names: Names) -> Getter:
    """Return the getter of one field, for a column.

    Raises:
        FilterError: no such field.

    """
    return _Compiler(name, names).getter(name, Span(0, len(name)))


class _Compiler:
    """Compiles one text; keeps it to show where an error is."""

    def __init__(self, text: str, names: Names) -> None:
        self.text = text
        self.names = names
        self.used: set[str] = set()

    def fault(self, message: str, span: Span) -> FilterError:
        return FilterError(message, text=self.text, start=span.start, end=span.end)

    def node(self, node: Node) -> _Predicate:
        if isinstance(node, Negation):
            inner = self.node(node.inner)
            return lambda scope: not inner(scope)
        if isinstance(node, Combination):
            parts = self.cheapest_first(node.parts)
            if node.every:
                return lambda scope: all(part(scope) for part in parts)
            return lambda scope: any(part(scope) for part in parts)
        if isinstance(node, ForEach):
            return self.for_each(node)
        return self.test(node)

    def cheapest_first(self, nodes: Iterable[Node]) -> list[_Predicate]:
        """Return the predicates of nodes, those first that do not need the datagram decoded."""
        used, found = self.used, []
        for node in nodes:
            self.used = set()
            found.append((self.node(node), max(map(self.names.cost, self.used), default=0)))
            used |= self.used
        self.used = used
        return [predicate for predicate, _ in sorted(found, key=itemgetter(1))]

    def needs(self, node: Node) -> frozenset[str | None] | None:
        """Return `Filter.needs` of a node. It relies on the fact that a test is false if its field
        does not occur.
        """
        if isinstance(node, Combination):
            found = [self.needs(part) for part in node.parts]
            known = [needs for needs in found if needs is not None]
            if node.every:
                # Every part must hold, so any part's needs will do: the fewest kinds exclude the
                # most datagrams.
                return min(known, key=len, default=None)
            # A part that may hold without units makes the whole hold without them.
            return frozenset().union(*known) if len(known) == len(found) else None
        if isinstance(node, ForEach):
            return self.needs(node.inner) if node.over == MESSAGES else None
        if isinstance(node, Test) and isinstance(node.left, Field) and not node.left.function:
            getter = self.names.resolve(node.left.name)
            return frozenset({getter.kind}) if isinstance(getter, UnitGetter) else None
        return None

    def for_each(self, node: ForEach) -> _Predicate:
        inner = self.node(node.inner)
        if node.over != MESSAGES:
            return self.for_each_entry(node, inner)

        def found(scope: Scope) -> list[bool]:
            return [
                inner(Scope(scope.record, (item,), scope.connection, scope.first_ns))
                for item in scope.items
            ]

        # `all` of no message is false, as a comparison with a field that does not occur.
        if node.every:
            return lambda scope: bool(scope.items) and all(found(scope))
        return lambda scope: any(found(scope))

    def for_each_entry(self, node: ForEach, inner: _Predicate) -> _Predicate:
        """Return the predicate of `any(LIST: ...)` or `all(LIST: ...)`."""
        name = node.over
        if not self.names.is_list(name):
            raise self.fault(
                f'no message has a list "{name}"; any(msg: ...) asks messages', node.span
            )
        self.used.add(name)
        if node.every:
            return lambda scope: (
                bool(found := [inner(inside) for _, inside in entries(scope, name)]) and all(found)
            )
        return lambda scope: any(inner(inside) for _, inside in entries(scope, name))

    def getter(self, name: str, span: Span) -> Getter:
        self.used.add(name)
        found = self.names.resolve(name)
        if found is None:
            near = did_you_mean(name, (info.name for info in self.names.all()))
            raise self.fault(f"no field is called {quoted(name)}{near}", span)
        return found

    def field(self, field: Field) -> Getter:
        """Return the getter of an operand, with its slice, mask or function applied."""
        get = self.getter(field.name, field.span)
        if field.function == "count":
            return lambda scope: (len(get(scope)),)
        if field.function == "len":
            return lambda scope: [
                len(value) for value in get(scope) if isinstance(value, (str, bytes))
            ]
        if field.cut is not None:
            part = slice(*field.cut)
            return lambda scope: [
                value[part] for value in get(scope) if isinstance(value, (str, bytes))
            ]
        if field.mask is not None:
            mask = field.mask
            return lambda scope: [value & mask for value in get(scope) if isinstance(value, int)]
        return get

    def operand(self, field: Field) -> str:
        """Return `number` or `text` if an operand is always one; "" if it may be either."""
        if field.function or field.mask is not None:
            return "number"
        # The table of a protocol's fields may be incomplete: they may hold other kinds.
        known = field.name in _OWN and self.names.kinds(field.name) <= _TEXTS
        if field.cut is not None or known:
            return "text"
        return "number" if self.names.is_number(field.name) else ""

    def check_comparable(self, left: Field, right: Field) -> None:
        """Reject two fields that can never be equal: a number and a text."""
        one, other = self.operand(left), self.operand(right)
        if {one, other} == {"number", "text"}:
            raise self.fault(f"{left.name} is a {one}, and {right.name} is a {other}", right.span)

    def test(self, test: Test) -> _Predicate:
        if isinstance(test.left, Literal):
            # `5 < field` is `field > 5`.
            mirrored = _MIRRORED.get(test.operator, test.operator)
            test = Test(test.right[0], mirrored, (test.left,), test.quantifier, test.span)  # type: ignore[arg-type]
        left = self.field(test.left)  # type: ignore[arg-type]
        if not test.operator:
            if isinstance(test.left, Field) and test.left.mask is not None:
                return lambda scope: any(left(scope))
            if test.quantifier:
                raise self.fault(f"{test.quantifier} needs a comparison", test.span)
            return lambda scope: bool(left(scope))
        right = test.right[0]
        if isinstance(right, Field) and self.names.resolve(right.name) is not None:
            self.check_comparable(test.left, right)  # type: ignore[arg-type]
            return self.between_fields(left, test, self.field(right))
        return _quantified(left, test, self.check(test))

    def between_fields(self, left: Getter, test: Test, right: Getter) -> _Predicate:
        compare = test.operator

        def holds(scope: Scope) -> bool:
            ours, theirs = left(scope), right(scope)
            if not ours or not theirs:
                return False
            results = [_related(compare, one, other) for one in ours for other in theirs]
            return (
                all(results)
                if test.quantifier == "all" or compare in {"!=", "==="}
                else any(results)
            )

        return holds

    def check(self, test: Test) -> _Check:
        """Return the test of one occurrence; for `!=`, `!==` and `not in` that of the opposite."""
        if test.operator in {"in", "not in"}:
            return self.membership(test)
        right = test.right[0]
        if isinstance(right, Field):
            # A bare word that is no field is a value, such as `open` in `conn.state == open`.
            if right.cut is not None or right.function or right.mask is not None:
                raise self.fault(f'no field is called "{right.name}"', right.span)
            right = Literal(right.name, quoted=False, span=right.span)
        if isinstance(right, tuple):
            raise self.fault("a range stands in a set: {1..5}", test.span)
        self.check_value(test, right)
        if test.operator == "matches":
            return self.pattern(right)
        if test.operator == "contains":
            return _contains(right)
        if test.operator in _ORDER:
            return _ordered(_ORDER[test.operator], right)
        return _equal(right)

    def membership(self, test: Test) -> _Check:
        checks: list[_Check] = []
        for item in test.right:
            for literal in item if isinstance(item, tuple) else (item,):
                self.check_value(test, literal)
            if isinstance(item, tuple):
                number, text = _number(item[0]), item[0].text
                low, high = _address(text), _address(item[1].text)
                first = text if number is None and low is not None else number
                checks.append(_range(item[0], item[1]))
                if first is not None and not checks[-1](first):
                    mixed = low is not None and high is not None and low.version != high.version
                    how = "mixes IPv4 and IPv6" if mixed else "runs backwards"
                    raise self.fault(f"the range {how}", item[0].span)
            elif isinstance(item, Literal):
                checks.append(_equal(item))
        return lambda value: any(check(value) for check in checks)

    def check_value(self, test: Test, value: Literal | Field) -> None:
        """Reject a value that a field can never equal."""
        left = test.left
        if not isinstance(left, Field) or not isinstance(value, Literal):
            return
        number = _number(value)
        if number is not None and abs(number) == math.inf:
            raise self.fault("this number is too large", value.span)
        whole = left.cut is None and left.function == ""
        kinds = self.names.kinds(left.name) if whole else frozenset()
        self.check_number(test, left, value, number)
        if test.operator in {"contains", "matches"}:
            return
        self.check_slice(left, value, number)
        if kinds and kinds <= {"presence"} and (number not in (0, 1) or test.operator in _ORDER):
            raise self.fault(f"{left.name} is true or false, and this is neither", value.span)
        if kinds == {"address"}:
            self.check_address(test, value)
        # The table of a protocol's fields may be incomplete: they may hold other kinds.
        text = kinds == {"str"} and left.name in _OWN
        if number is not None and text and test.operator in _ORDER:
            raise self.fault(
                f'{left.name} is a text, and this is a number; write "{value.text}"', value.span
            )
        if number is not None and whole and left.mask is None:
            self.check_range(left.name, test.operator, number, value.span)
        known = self.names.texts(left.name) if whole and test.operator not in _ORDER else ()
        # Several dialects that are still possible are one text: `riptide-2.1/2.2`.
        if known and value.text not in known and "/" not in value.text:
            near = did_you_mean(value.text, known)
            raise self.fault(f"{left.name} is never {quoted(value.text)}{near}", value.span)

    def check_address(self, test: Test, value: Literal) -> None:
        """Reject a value that is no address, and `<` and `>` for networks."""
        if _network(value) is None:
            name = test.left.name if isinstance(test.left, Field) else ""
            raise self.fault(f"{name} is an address, and this is none", value.span)
        if test.operator in _ORDER and "/" in value.text:
            raise self.fault("a network has no order; write one of its addresses", value.span)

    def check_number(self, test: Test, left: Field, value: Literal, number: float | None) -> None:
        """Reject anything but a number for a numeric field, and searching for text in one."""
        if left.cut is not None:
            return
        whole = not left.function
        is_number = not whole or self.names.is_number(left.name)
        if test.operator in {"contains", "matches"}:
            if is_number or self.names.kinds(left.name) == {"presence"}:
                raise self.fault(f"{test.operator} is for texts and bytes", test.span)
            return
        # `true` and `false` are values of a number that can only be 0 or 1.
        flag = whole and self.names.range(left.name)[1] <= 1
        if is_number and (number is None or (isinstance(number, bool) and not flag)):
            raise self.fault(f"{left.name} is a number, and this is none", value.span)

    def check_slice(self, left: Field, value: Literal, number: float | None) -> None:
        """Reject decimal digits instead of bytes: `data[0] == 5` would mean the character."""
        if self.names.kinds(left.name) != {"bytes"} or left.function:
            return
        octets = _octets(value)
        if number is not None and octets == value.text.encode():
            raise self.fault(f"{left.name} is bytes, written 05:ff or 0x05ff", value.span)
        start, end = left.cut or (0, None)
        if end is not None and len(octets) > end - (start or 0):
            raise self.fault(f"this is longer than {left.name}[...]", value.span)

    def check_range(self, name: str, symbol: str, number: float, span: Span) -> None:
        """Reject a number that a field can never hold, and limits that exclude nothing."""
        whole = name in _OWN and self.names.kinds(name) == {"int"}
        if whole and number % 1 and symbol not in _ORDER:
            raise self.fault(f"{name} is a whole number, never this one", span)
        low, high = self.names.range(name)
        spare = symbol in _ORDER  # allows `frame.number > 0` and `udp.port < 65536`
        if not low - spare <= number <= high + spare:
            most = "or more" if high == math.inf else f"to {high}"
            raise self.fault(f"{name} is {low} {most}, never this number", span)

    def pattern(self, literal: Literal) -> _Check:
        try:
            found = search(literal.text)
        except PatternError as error:
            # In quotes, the pattern starts after the quotation mark.
            start = literal.span.start + (1 if literal.quoted else 0) + error.position
            place = Span(min(start, literal.span.end - 1), min(start, literal.span.end - 1) + 1)
            raise self.fault(str(error), place) from None
        return lambda value: found(_text(value))


def _quantified(left: Getter, test: Test, check: _Check) -> _Predicate:
    """Return the predicate over all occurrences of the left side."""
    symbol = test.operator
    if symbol in {"!=", "not in"} and test.quantifier != "any":
        return lambda scope: (
            bool(values := left(scope)) and not any(check(value) for value in values)
        )
    if symbol in {"~=", "!==", "!=", "not in"}:
        return lambda scope: any(not check(value) for value in left(scope))
    if symbol == "===" or test.quantifier == "all":
        return lambda scope: bool(values := left(scope)) and all(check(value) for value in values)
    return lambda scope: any(check(value) for value in left(scope))


def _number(literal: Literal) -> float | None:
    if literal.quoted:
        return None
    lowered = literal.text.lower()
    if _NO_NUMBER.match(lowered):
        return None
    if lowered in {"true", "false"}:
        return lowered == "true"
    try:
        return int(literal.text, 0)
    except ValueError:
        # `010` is no integer to Python; as a float it is ten.
        pass
    try:
        return float(literal.text)
    except ValueError:
        return None


def _octets(literal: Literal) -> bytes:
    """Return the bytes that a value stands for: `de:ad:be:ef`, `0xdead`, or the UTF-8 of a text."""
    text = literal.text
    if not literal.quoted:
        compact = text[2:] if text[:2].lower() == "0x" else text.replace(":", "")
        if text[:2].lower() == "0x" or all(len(part) == 2 for part in text.split(":")):  # noqa: PLR2004
            try:
                return bytes.fromhex(compact)
            except ValueError:
                pass
    return text.encode("utf-8", "surrogateescape")


def _text(value: Any) -> str:
    # One character per byte, so that `\x80` in a pattern means that byte.
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _network(literal: Literal) -> IPv4Network | IPv6Network | None:
    if "." not in literal.text and ":" not in literal.text:
        return None
    try:
        return ip_network(literal.text, strict=False)
    except ValueError:
        return None


# Cached: a capture has few addresses, each in many datagrams.
@lru_cache(maxsize=4096)
def _address(text: str) -> Any:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _equal(literal: Literal) -> _Check:
    number, text, octets, network = (
        _number(literal),
        literal.text,
        _octets(literal),
        _network(literal),
    )

    def check(value: Any) -> bool:
        if isinstance(value, (int, float)):
            return number is not None and value == number
        if isinstance(value, bytes):
            return value == octets
        if value == text:
            return True
        if network is not None and isinstance(value, str):
            address = _address(value)
            return address is not None and address in network
        return False

    return check


def _ordered(compare: Callable[[Any, Any], bool], literal: Literal) -> _Check:
    number, text, octets = _number(literal), literal.text, _octets(literal)
    wanted = _address(text) if _network(literal) is not None else None

    def check(value: Any) -> bool:
        if isinstance(value, (int, float)):
            return number is not None and compare(value, number)
        if isinstance(value, bytes):
            return compare(value, octets)
        if not isinstance(value, str):
            return False
        if wanted is not None:
            address = _address(value)
            # IPv4 and IPv6 addresses have no order among each other: comparing them raises.
            return (
                address is not None
                and address.version == wanted.version
                and compare(address, wanted)
            )
        return number is None and compare(value, text)

    return check


def _range(low: Literal, high: Literal) -> _Check:
    above, below = _ordered(operator.ge, low), _ordered(operator.le, high)
    return lambda value: above(value) and below(value)


def _contains(literal: Literal) -> _Check:
    text, octets = literal.text, _octets(literal)

    def check(value: Any) -> bool:
        if isinstance(value, bytes):
            return octets in value
        return isinstance(value, str) and text in value

    return check


def _related(symbol: str, one: Any, other: Any) -> bool:
    if symbol in {"==", "==="}:
        return bool(one == other)
    if symbol in {"!=", "~=", "!=="}:
        return bool(one != other)
    try:
        return _ORDER[symbol](one, other)
    except TypeError:
        return False
