"""The grammar of display filters: turns text into a tree whose nodes know their places in the text.

or     : and (("or" | "||") and)*
and    : not (("and" | "&&") not)*
not    : ("not" | "!") not | "(" or ")" | ("any" | "all") "(" name ":" or ")" | test
test   : ["any" | "all"] operand
         [relation operand | ["not"] "in" "{" items "}" | ("contains" | "matches") value]
operand: ("count" | "len") "(" name ")" | name [slice] ["&" number] | value
items  : item ("," | " ") ... ; item: value [".." value]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from netdissect.filters.regex import CONTROLS
from netdissect.model.errors import FilterError

MAX_LENGTH = 10_000
"""Characters of a filter."""
# Each level takes four calls of the parser, and Python allows a thousand.
MAX_DEPTH = 100
"""Nested brackets and negations."""
_CAPTURE = re.compile(r"\s*((not|src|dst|ip6?|tcp|udp) +)*(host|net|port|portrange) +[\w.:]")
"""The beginning of a filter as capture programs want it. Source: pcap-filter(7)."""


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range in the text of the filter."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as written; text in quotes is never a number."""

    text: str
    quoted: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Field:
    """A name with an optional slice or mask, or `count(name)` or `len(name)`."""

    name: str
    span: Span
    function: str = ""
    """`count`, `len` or ""."""
    cut: tuple[int | None, int | None] | None = None
    """Start and end of a slice, as in Python."""
    mask: int | None = None
    """`& mask`."""


@dataclass(frozen=True, slots=True)
class Test:
    """One test. Without an operator it holds if the field occurs."""

    left: Field | Literal
    operator: str
    """"" or one of == != ~= === !== < <= > >= contains matches in."""
    right: tuple[Field | Literal | tuple[Literal, Literal], ...]
    """One operand, or the items of a set; a pair is a range."""
    quantifier: str
    """`any`, `all` or ""."""
    span: Span


@dataclass(frozen=True, slots=True)
class Negation:
    """`not`."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Combination:
    """`and` (if `every`) or `or` of several nodes."""

    every: bool
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ForEach:
    """`any(msg: ...)` or `all(msg: ...)`: the inner filter on one message at a time. With the name
    of a list instead of `msg`, on one entry of that list at a time.
    """

    every: bool
    over: str
    """`msg`, or the name of the list."""
    inner: Node
    span: Span


Node = Test | Negation | Combination | ForEach

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      |(?P<string>r?"(?:\\.|[^"\\])*")
      |(?P<open>r?"(?:\\.|[^"\\])*$)
      |(?P<operator>===|!==|==|!=|~=|<=|>=|&&|\|\||\.\.|[<>!&(){},\[\]])
      |(?P<word>(?:(?!\.\.)[\w.:/+\-])+)
    """,
    re.VERBOSE,
)
_WORDS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "any_ne": "~=",
    "and": "&&",
    "or": "||",
    "not": "!",
    "contains": "contains",
    "matches": "matches",
    "in": "in",
}
_SLIPS = {
    "=>": "greater or equal is written >=",
    "=<": "less or equal is written <=",
    "=": "equality is written ==",
    "'": 'texts stand in double quotes: "..."',
    "|": "either of two is written ||, or the word or",
}
"""Characters outside the grammar -> what to write instead."""
_RELATIONS = frozenset({"==", "!=", "~=", "===", "!==", "<", "<=", ">", ">="})
_NAME = re.compile(r"[A-Za-z_][\w\-]*(\.[\w\-]+)*\Z")
_SLICE = re.compile(
    r"(-?[0-9]{1,9})?(?:(:)([0-9]{1,9})?)?|([0-9]{1,9})-([0-9]{1,9})",
)
_MASK = re.compile(r"(?=.*[1-9A-Fa-f])([0-9]{1,20}|0[xX][0-9A-Fa-f]{1,16}|0[bB][01]{1,64})")
# One token, because `any` and `all` also begin tests: `any f == 1`.
_PER = re.compile(r"(any|all)\s*\(\s*([A-Za-z_]\w*)\s*:\s*")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`op`, `string`, `word` or `end`."""
    text: str
    span: Span


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        per = _PER.match(text, at)
        if per:
            yield _Token("op", f"per-{per[1]} {per[2]}", Span(at, per.end()))
            at = per.end()
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            slip = next((slip for slip in _SLIPS if text.startswith(slip, at)), text[at])
            fault = _SLIPS.get(slip, "unexpected character")
            raise FilterError(fault, text=text, start=at, end=at + len(slip))
        span = Span(at, match.end())
        at = match.end()
        kind = str(match.lastgroup)
        if kind == "open":
            raise FilterError("the string is not closed", text=text, start=span.start, end=span.end)
        if kind == "string":
            yield _Token("string", match[0], span)
        elif kind == "operator":
            yield _Token("op", match[0], span)
        elif kind == "word":
            known = _WORDS.get(match[0].lower())
            yield _Token("op", known, span) if known else _Token("word", match[0], span)
    yield _Token("end", "", Span(len(text), len(text) + 1))


def parse(text: str) -> Node:
    """Return the tree of a filter.

    Raises:
        FilterError: with the place of the fault.

    """
    if len(text) > MAX_LENGTH:
        raise FilterError(
            f"a filter has at most {MAX_LENGTH} characters", text=text, start=MAX_LENGTH
        )
    parser = _Parser(text)
    if parser.here.kind == "end":
        raise FilterError("the filter is empty", text=text)
    tree = parser.disjunction()
    if parser.here.kind != "end":
        ours = "; a capture filter's `udp port 7` is written udp.port == 7, and `host` is ip.addr"
        raise parser.fault(f"expected an operator or the end{ours if _CAPTURE.match(text) else ''}")
    return tree


class _Parser:
    """A recursive-descent parser that looks one token ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    @property
    def here(self) -> _Token:
        return self.tokens[self.at]

    def fault(self, message: str, span: Span | None = None) -> FilterError:
        place = span or self.here.span
        return FilterError(message, text=self.text, start=place.start, end=place.end)

    def is_op(self, *texts: str) -> bool:
        return self.here.kind == "op" and self.here.text in texts

    def take(self) -> _Token:
        token = self.here
        self.at += 1
        return token

    def expect(self, text: str) -> _Token:
        if not self.is_op(text):
            raise self.fault(f"expected {text}")
        return self.take()

    def disjunction(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fault("nested too deeply")
        parts = [self.conjunction()]
        while self.is_op("||"):
            self.take()
            parts.append(self.conjunction())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Combination(every=False, parts=tuple(parts))

    def conjunction(self) -> Node:
        parts = [self.negation()]
        while self.is_op("&&"):
            self.take()
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else Combination(every=True, parts=tuple(parts))

    def negation(self) -> Node:
        negative = False
        while self.is_op("!"):
            self.take()
            negative = not negative
        node = self.primary()
        return Negation(node) if negative else node

    def primary(self) -> Node:
        if self.is_op("("):
            self.take()
            node = self.disjunction()
            self.expect(")")
            return node
        if self.here.kind == "op" and self.here.text.startswith("per-"):
            token = self.take()
            word, _, over = token.text.partition(" ")
            node = self.disjunction()
            self.expect(")")
            return ForEach(every=word == "per-all", over=over, inner=node, span=token.span)
        return self.test()

    def test(self) -> Test:
        start = self.here.span.start
        quantifier = ""
        if self.here.kind == "word" and self.here.text.lower() in {"any", "all"}:
            quantifier = self.take().text.lower()
        left = self.operand()
        operator = ""
        right: tuple[Field | Literal | tuple[Literal, Literal], ...] = ()
        if self.here.kind == "op" and self.here.text in _RELATIONS:
            operator = self.take().text
            right = (self.operand(),)
        elif self.is_op("contains", "matches"):
            operator = self.take().text
            right = (self.literal(),)
        elif self.is_op("in"):
            self.take()
            operator, right = "in", self.items()
        elif self.is_op("!") and self.tokens[self.at + 1].text == "in":
            self.at += 2
            operator, right = "not in", self.items()
        if isinstance(left, Literal):
            if not operator:
                raise self.fault("this is no field name", left.span)
            if not isinstance(right[0], Field):
                raise self.fault("one side must be a field", left.span)
        return Test(
            left, operator, right, quantifier, Span(start, self.tokens[self.at - 1].span.end)
        )

    def operand(self) -> Field | Literal:
        token = self.here
        if (
            token.kind == "word"
            and token.text in {"count", "len"}
            and self.tokens[self.at + 1].text == "("
        ):
            self.at += 2
            inner = self.take()
            if inner.kind != "word" or not _NAME.match(inner.text):
                raise self.fault("expected a field name", inner.span)
            self.expect(")")
            return Field(inner.text, inner.span, function=token.text)
        if token.kind == "word" and _NAME.match(token.text):
            self.take()
            cut = self.slice() if self.is_op("[") else None
            return Field(token.text, token.span, cut=cut, mask=self.mask())
        return self.literal()

    def mask(self) -> int | None:
        if not self.is_op("&"):
            return None
        self.take()
        literal = self.literal()
        if not _MASK.fullmatch(literal.text):
            raise self.fault("a mask is a whole number, 1 or more", literal.span)
        # `010` is ten, as everywhere; `int` with base 0 rejects it.
        return int(literal.text, 10 if literal.text.isdecimal() else 0)

    def literal(self) -> Literal:
        token = self.take()
        if token.kind == "word":
            return Literal(token.text, quoted=False, span=token.span)
        if token.kind == "string":
            return Literal(self._unquote(token), quoted=True, span=token.span)
        self.at -= 1
        raise self.fault("expected a value" if token.kind != "end" else "the filter ends too early")

    def _unquote(self, token: _Token) -> str:
        if token.text.startswith("r"):
            return token.text[2:-1]

        def replace(match: re.Match[str]) -> str:
            word = match[1]
            return chr(int(word[1:], 16)) if len(word) > 1 else CONTROLS.get(word, word)

        return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", replace, token.text[1:-1], flags=re.DOTALL)

    def slice(self) -> tuple[int | None, int | None]:
        """Read `[offset:length]`, `[first-last]`, `[:length]`, `[offset:]` or `[index]`, with
        Wireshark's meaning.
        """
        opened = self.expect("[")
        words = []
        while not self.is_op("]"):
            if self.here.kind != "word":
                raise self.fault("a slice is written [offset:length], [first-last] or [index]")
            words.append(self.take().text)
        closed = self.take()
        text = "".join(words)
        match = _SLICE.fullmatch(text)
        if match is None or text in {"", ":"}:
            raise self.fault(
                "a slice is written [offset:length], [first-last] or [index]",
                Span(opened.span.start, closed.span.end),
            )
        length = 1 if match[2] is None else int(match[3]) if match[3] else None
        if length == 0 or (match[4] is not None and int(match[4]) > int(match[5])):
            raise self.fault("this slice is always empty", Span(opened.span.start, closed.span.end))
        if match[4] is not None:
            return int(match[4]), int(match[5]) + 1
        offset = int(match[1]) if match[1] else 0
        if length is None:
            return offset, None
        # `[-4:4]` reaches the end: it is `[-4:]`, since an end of 0 would select nothing.
        end = offset + length
        return offset, None if offset < 0 <= end else end

    def items(self) -> tuple[Literal | tuple[Literal, Literal], ...]:
        self.expect("{")
        found: list[Literal | tuple[Literal, Literal]] = []
        while not self.is_op("}"):
            low = self.literal()
            if self.is_op(".."):
                self.take()
                found.append((low, self.literal()))
            else:
                found.append(low)
            if self.is_op(","):
                self.take()
        self.take()
        if not found:
            raise self.fault("the set is empty", self.tokens[self.at - 1].span)
        return tuple(found)
