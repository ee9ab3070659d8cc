"""Filters on the entries of a list, one at a time: `any(items: x > 500 and id == 0)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from netdissect.filters.fields import Scope
from netdissect.filters.parser import Combination, ForEach, Node
from netdissect.model.records import DatagramRecord, MessageRecord

MESSAGES = "msg"
"""The list name that means the messages of a datagram."""

Predicate: TypeAlias = Callable[[Scope], bool]
EntryTests: TypeAlias = Mapping[str, Sequence[Predicate]]
"""Name of a list -> predicates; an entry is shown if one of them holds."""


def entries(scope: Scope, name: str) -> Iterator[tuple[Mapping[str, Any], Scope]]:
    """Yield each entry of the lists with this name in the messages of a scope, and a scope in which
    the entry is the message. Fields of the message that are no lists remain visible in it.
    """
    for item in scope.items:
        found = item.fields.get(name)
        if not isinstance(found, (list, tuple)):
            continue
        around = {
            key: value for key, value in item.fields.items() if not isinstance(value, (list, tuple))
        }
        for entry in found:
            if isinstance(entry, Mapping):
                one = item.with_fields({**around, **entry})
                yield entry, Scope(scope.record, (one,), scope.connection, scope.first_ns)


def entry_tests(node: Node, compiled: Callable[[Node], Predicate]) -> EntryTests:
    """Return the tests of entries in a filter that hold wherever it matches: its `any` parts that
    are neither below an `or` nor below a `not`.
    """
    if isinstance(node, Combination) and node.every:
        found: dict[str, list[Predicate]] = {}
        for part in node.parts:
            for name, wanted in entry_tests(part, compiled).items():
                found.setdefault(name, []).extend(wanted)
        return found
    if isinstance(node, ForEach) and not node.every:
        return (
            entry_tests(node.inner, compiled)
            if node.over == MESSAGES
            else {node.over: [compiled(node.inner)]}
        )
    return {}


def narrowed(record: DatagramRecord, item: MessageRecord, wanted: EntryTests) -> MessageRecord:
    """Return a matching message with only those entries of its lists that pass a test, in its
    summary too; the message itself if it has none of these lists.
    """
    scope = Scope(record, (item,))
    fields, texts = dict(item.fields), []
    for name, predicates in wanted.items():
        if name in fields:
            fields[name] = [
                entry for entry, inside in entries(scope, name)
                if any(predicate(inside) for predicate in predicates)
            ]  # fmt: skip
            texts += [_text(entry) for entry in fields[name]]
    if not texts:
        return item
    return item.with_fields(fields, f"{item.summary}: {'; '.join(texts)}")


def _text(entry: Mapping[str, Any]) -> str:
    plain = (
        f"{name}={value}"
        for name, value in entry.items()
        if not isinstance(value, (Mapping, list, tuple))
    )
    return " ".join(plain)
