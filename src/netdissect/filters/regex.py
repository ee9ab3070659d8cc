r"""The engine behind `matches`: regular expressions in time linear in the text, whatever the
pattern.

Patterns become a nondeterministic automaton that is run on all its states at once (Thompson's
construction), so `(a+)+$` costs no more than any other. Source: Russ Cox, "Regular Expression
Matching Can Be Simple And Fast".

Supported: literals, `.`, `[a-z]`, `[^...]`, `\d \w \s \D \W \S`, `^`, `$`, `|`, `(...)`,
`(?:...)`, `* + ? {m,n}`. Not supported, by design: back references, look-around, lazy quantifiers
(they change what is captured, not what matches).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_STATES = 2000
"""States of a pattern; bounds repetition, because `{m,n}` is written out."""

MAX_TEXT = 65_536
"""Characters of a text that are searched."""

# Nested groups; each takes five calls of the builder.
_MAX_DEPTH = 50
MAX_REMEMBERED = 200_000
"""Total size of the state sets that a pattern caches."""


class PatternError(Exception):
    """A pattern that cannot be used; `position` is the index of the offending character."""

    def __init__(self, message: str, position: int) -> None:
        """Keep the position of the error in the pattern."""
        super().__init__(message)
        self.position = position


_Test = Callable[[str], bool]
_START, _END = "start", "end"
_PLACES = {"^": _START, "$": _END}
# Not `\d`, which includes other scripts; and few digits, because `int` rejects very many.
_REPETITION = re.compile(r"\s*([0-9]{1,9})\s*(?:(,)\s*([0-9]{1,9})?\s*)?\}")


@dataclass(slots=True)
class _State:
    """A state. It consumes a character that passes `test`; without a test it consumes none, and may
    require a place.
    """

    test: _Test | None = None
    place: str | None = None
    out: list[int] | None = None


@dataclass(slots=True)
class _Part:
    """A piece of the automaton with one entry and one exit."""

    first: int
    last: int


class _Builder:
    """Parses a pattern by recursive descent and builds its automaton."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.states: list[_State] = []

    def fail(self, message: str) -> PatternError:
        return PatternError(message, min(self.at, len(self.pattern)))

    def state(self, test: _Test | None = None, place: str | None = None) -> int:
        if len(self.states) >= MAX_STATES:
            raise self.fail(f"pattern needs more than {MAX_STATES} states")
        self.states.append(_State(test, place, []))
        return len(self.states) - 1

    def link(self, source: int, target: int) -> None:
        out = self.states[source].out
        if out is not None:
            out.append(target)

    def peek(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def take(self) -> str:
        if self.at >= len(self.pattern):
            raise self.fail("pattern ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def single(self, test: _Test | None, place: str | None = None) -> _Part:
        first, last = self.state(test, place), self.state()
        self.link(first, last)
        return _Part(first, last)

    def alternatives(self) -> _Part:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.fail("groups nested too deeply")
        parts = [self.sequence()]
        while self.peek() == "|":
            self.take()
            parts.append(self.sequence())
        self.depth -= 1
        if len(parts) == 1:
            return parts[0]
        first, last = self.state(), self.state()
        for part in parts:
            self.link(first, part.first)
            self.link(part.last, last)
        return _Part(first, last)

    def sequence(self) -> _Part:
        # An alternative may be empty; then it matches everything.
        whole = self.single(None)
        while self.peek() not in {"", "|", ")"}:
            part = self.repeated()
            self.link(whole.last, part.first)
            whole = _Part(whole.first, part.last)
        return whole

    def repeated(self) -> _Part:
        begin = self.at
        part = self.atom()
        if self.peek() not in {"*", "+", "?", "{"}:
            return part
        low, high = self.quantifier()
        end = self.at
        if self.peek() in {"*", "+", "?"}:
            raise self.fail("lazy and stacked quantifiers are not supported")
        copies = [part]
        for _ in range(max(low, high or 1) - 1):
            # The simplest way to repeat an atom n times is to parse it n times.
            self.at = begin
            copies.append(self.atom())
        self.at = end
        return self.repeat(copies, low, high)

    def quantifier(self) -> tuple[int, int | None]:
        sign = self.take()
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        found = _REPETITION.match(self.pattern, self.at)
        if found is None:
            raise self.fail("a repetition is written {n}, {n,} or {n,m}")
        low = int(found[1])
        high = low if found[2] is None else int(found[3]) if found[3] else None
        if low > MAX_STATES or (high is not None and not low <= high <= MAX_STATES):
            raise self.fail("repetition out of range")
        self.at = found.end()
        return low, high

    def repeat(self, copies: list[_Part], low: int, high: int | None) -> _Part:
        first, last = self.state(), self.state()
        at = first
        for index, part in enumerate(copies):
            if high == 0:
                break
            self.link(at, part.first)
            if index >= low:
                self.link(at, last)
            at = part.last
        self.link(at, last)
        if high is None:
            self.link(copies[-1].last, copies[-1].first)
        return _Part(first, last)

    def atom(self) -> _Part:
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return self.single(self.char_class())
        if char == "\\":
            return self.single(_escape(self.take(), self))
        if char in "*+?{":
            self.at -= 1
            raise self.fail("nothing to repeat")
        if char in _PLACES:
            return self.single(None, _PLACES[char])
        return self.single(_not_a_line_end if char == "." else _same(char))

    def group(self) -> _Part:
        if self.peek() == "?":
            if self.pattern[self.at : self.at + 2] != "?:":
                raise self.fail("look-around and named groups are not supported")
            self.at += 2
        part = self.alternatives()
        if self.peek() != ")":
            raise self.fail("a group is not closed")
        self.take()
        return part

    def char_class(self) -> _Test:
        negated = self.peek() == "^"
        if negated:
            self.take()
        tests: list[_Test] = []
        first = True
        while first or self.peek() != "]":
            first = False
            char = self.take()
            if char == "\\":
                tests.append(_escape(self.take(), self))
                continue
            # `-` at the end of a class is a hyphen.
            if self.peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in {"]", ""}:
                self.take()
                high = self.take()
                if high < char:
                    raise self.fail("a range runs backwards")
                tests.append(_between(char, high))
            else:
                tests.append(_same(char))
        self.take()
        return lambda other: any(test(other) for test in tests) != negated


def _not_a_line_end(char: str) -> bool:
    return char != "\n"


def _same(char: str) -> _Test:
    # Wireshark's `matches` ignores case.
    forms = frozenset({char, char.lower(), char.upper()})
    return lambda other: other in forms


def _between(low: str, high: str) -> _Test:
    return lambda other: (
        low <= other <= high or low <= other.lower() <= high or low <= other.upper() <= high
    )


_CLASSES: dict[str, _Test] = {
    "d": str.isdigit,
    "w": lambda char: char.isalnum() or char == "_",
    "s": str.isspace,
}
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def _escape(char: str, builder: _Builder) -> _Test:
    if char.lower() in _CLASSES:
        test = _CLASSES[char.lower()]
        return test if char.islower() else lambda other: not test(other)
    if char == "x":
        digits = builder.pattern[builder.at : builder.at + 2]
        try:
            value = chr(int(digits, 16))
        except ValueError:
            raise builder.fail("\\x needs two hexadecimal digits") from None
        builder.at += 2
        return _same(value)
    if char.isalnum() and char not in CONTROLS:
        raise builder.fail(f"\\{char} is not supported")
    return _same(CONTROLS.get(char, char))


def search(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns whether the pattern matches anywhere in a text.

    Raises:
        PatternError: the pattern is wrong, or needs what this engine leaves out on purpose.

    """
    builder = _Builder(pattern)
    whole = builder.alternatives()
    if builder.peek():
        raise builder.fail("unmatched )")
    return _Machine(builder.states, whole).found


class _Machine:
    """Runs the automaton in all states at once, and caches its transitions."""

    def __init__(self, states: list[_State], whole: _Part) -> None:
        self._states = states
        self._first = whole.first
        self._last = whole.last
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._remembered = 0

    def _closure(self, seeds: set[int], *, start: bool, end: bool) -> frozenset[int]:
        """Return the states that are reachable from `seeds` without consuming a character."""
        found, todo = set(seeds), list(seeds)
        while todo:
            state = self._states[todo.pop()]
            if state.test is not None:
                continue
            if (state.place == _START and not start) or (state.place == _END and not end):
                continue
            for target in state.out or ():
                if target not in found:
                    found.add(target)
                    todo.append(target)
        return frozenset(found)

    def found(self, text: str) -> bool:
        """Return whether the pattern matches within the first MAX_TEXT characters."""
        text = text[:MAX_TEXT]
        here = self._closure({self._first}, start=True, end=not text)
        for index, char in enumerate(text):
            if self._last in here:
                return True
            # At the last character `$` holds as well, so the cache does not apply.
            is_last = index == len(text) - 1
            key = (here, char)
            known = None if is_last else self._steps.get(key)
            if known is None:
                known = self._step(here, char, end=is_last)
                if not is_last and self._remembered < MAX_REMEMBERED:
                    self._steps[key] = known
                    self._remembered += len(known)
            here = known
        return self._last in here

    def _step(self, here: frozenset[int], char: str, *, end: bool) -> frozenset[int]:
        # A match may begin at any character.
        seeds = {self._first}
        for number in here:
            state = self._states[number]
            if state.test is not None and state.test(char):
                seeds.update(state.out or ())
        return self._closure(seeds, start=False, end=end)
