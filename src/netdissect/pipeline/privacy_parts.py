"""Overwrites the private data in the records of a capture.

Bytes may be divided between datagrams, and a text in them cut in two: a record with such a part
waits for the others, so that all of them are overwritten as one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

from netdissect.model.dissection import FieldNode
from netdissect.model.records import DatagramRecord
from netdissect.pipeline.privacy import Habits, Rewriter, Writer, nodes_of

MAX_WAITING = 256
"""Records that wait for others; the oldest do not wait any longer."""
MAX_KNOWN = 64
"""Finished wholes that are remembered, in case a copy of a part comes late."""


class Rewritten(NamedTuple):
    """One record with its new payload."""

    record: DatagramRecord
    payload: bytes
    left: int
    """Places that are unchanged because overwriting them would change a size."""


@dataclass(slots=True)
class _Whole:
    """Bytes that are divided between datagrams."""

    kind: str
    """Privacy class."""
    count: int
    """Number of parts."""
    old: dict[int, bytes] = field(default_factory=dict)
    """Index -> bytes of the parts that have come."""
    new: dict[int, bytes] = field(default_factory=dict)
    waiting: list[_Waiting] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """One part."""

    node: FieldNode
    whole: _Whole
    index: int
    octets: bytes


@dataclass(slots=True)
class _Waiting:
    """A record with parts."""

    record: DatagramRecord
    rewriter: Rewriter
    parts: list[_Part]
    open: int = 0
    """Parts whose wholes are not finished."""


def rewritten(
    records: Iterable[DatagramRecord],
    writer: Writer,
    schemas: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Rewritten]:
    """Yield each record with its new payload, perhaps later than others.

    Args:
        records: the records of a capture in order.
        writer: replaces texts and addresses.
        schemas: user schemas by protocol.

    """
    parts = _Parts(writer)
    habits = cache(lambda protocol, dialect: Habits(protocol, schemas.get(protocol), dialect))
    for record in records:
        tree = record.dissection
        if tree is None or record.protocol is None:
            yield Rewritten(record, record.payload, 0)
        else:
            known = habits(record.protocol, record.dialect)
            yield from parts.take(record, Rewriter(tree, known, writer), known)
    yield from parts.rest()


class _Parts:
    """The wholes of which parts are missing, and the records that wait for them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._open: OrderedDict[tuple[Any, ...], tuple[_Whole, Habits]] = OrderedDict()
        self._finished: OrderedDict[tuple[Any, ...], _Whole] = OrderedDict()

    def take(
        self, record: DatagramRecord, rewriter: Rewriter, habits: Habits
    ) -> Iterator[Rewritten]:
        """Add a record; yield those that wait no longer."""
        waiting = _Waiting(record, rewriter, [])
        complete = []
        for node, kind, name, index, count in _places(record, habits):
            key = (record.src, record.dst, kind, name)
            whole = self._finished.get(key)
            if whole is None:
                whole, _ = self._open.setdefault(key, (_Whole(kind, count), habits))
                whole.waiting.append(waiting)
                waiting.open += 1
            octets = rewriter.octets(node)
            waiting.parts.append(_Part(node, whole, index, octets))
            if whole.waiting and index not in whole.old:
                whole.old[index] = octets
                if len(whole.old) == whole.count:
                    complete.append(key)
        if not waiting.open:
            yield self._done(waiting)
        for key in complete:
            yield from self._finish(key)
        while sum(len(whole.waiting) for whole, _ in self._open.values()) > MAX_WAITING:
            yield from self._finish(next(iter(self._open)))

    def rest(self) -> Iterator[Rewritten]:
        """Yield the records that still wait."""
        while self._open:
            yield from self._finish(next(iter(self._open)))

    def _finish(self, key: tuple[Any, ...]) -> Iterator[Rewritten]:
        """Overwrite a whole, as far as it has come; yield the records that waited for it."""
        whole, habits = self._open.pop(key)
        for run in _runs(sorted(whole.old)):
            parts = [whole.old[index] for index in run]
            ends = list(accumulate(map(len, parts)))
            new = self._written(whole, habits, b"".join(parts), run, ends[:-1])
            for index, part, end in zip(run, parts, ends, strict=True):
                whole.new[index] = new[end - len(part) : end]
        self._finished[key] = whole
        if len(self._finished) > MAX_KNOWN:
            self._finished.popitem(last=False)
        waiting, whole.waiting = whole.waiting, []
        for each in waiting:
            each.open -= 1
            if not each.open:
                yield self._done(each)

    def _done(self, waiting: _Waiting) -> Rewritten:
        """Return a record whose wholes are finished."""
        rewriter = waiting.rewriter
        for part in waiting.parts:
            whole, index = part.whole, part.index
            if whole.old.get(index) == part.octets:
                rewriter.given[part.node] = whole.new[index]
            else:  # not the part that the others belong to
                new = self._written(whole, rewriter.habits, part.octets, [index], [])
                rewriter.given[part.node] = new
        return Rewritten(waiting.record, *rewriter.payload())

    def _written(
        self, whole: _Whole, habits: Habits, octets: bytes, run: Sequence[int], cuts: Sequence[int]
    ) -> bytes:
        """Return consecutive parts of a whole without what is private."""
        spell = partial(self._writer.text, costs=habits.costs)
        begins, ends = run[0] == 0, run[-1] == whole.count - 1
        new: bytes = habits.writers[whole.kind](octets, spell, cuts, begins=begins, ends=ends)
        return new


def _places(
    record: DatagramRecord, habits: Habits
) -> Iterator[tuple[FieldNode, str, Any, int, int]]:
    """Yield (field, privacy class, name of its whole, index, number of parts)."""
    if not habits.parts or record.dissection is None:
        return
    for parent in nodes_of(record.dissection.root):
        for node in parent.children:
            names = habits.parts.get(node.private)
            if names is not None and node.bit_length:
                whole, index, count = map(parent.value_of, names)
                if count is not None and count > 1:
                    yield node, node.private, whole, index, count


def _runs(indices: Iterable[int]) -> Iterator[list[int]]:
    """Yield the runs of consecutive numbers."""
    run: list[int] = []
    for index in indices:
        if run and index != run[-1] + 1:
            yield run
            run = []
        run.append(index)
    if run:
        yield run
