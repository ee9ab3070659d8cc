"""Filters on the entries of a list, one at a time: `any(items: x > 500 and id == 0)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from netdissect.filters.fields import Scope
from netdissect.filters.parser import Both, Node, Per
from netdissect.model.records import DatagramRecord, MessageRecord

__all__ = ["MESSAGES", "Looks", "each", "looks", "narrowed"]

MESSAGES = "msg"
"""Name that stands for the messages of a datagram, not for a list in one."""

Predicate: TypeAlias = Callable[[Scope], bool]
Looks: TypeAlias = Mapping[str, Sequence[Predicate]]
"""List -> what every entry that is shown of it fulfils."""


def each(scope: Scope, name: str) -> Iterator[tuple[Mapping[str, Any], Scope]]:
    """Yield every entry of the lists of that name in the messages at hand, and a scope in which it
    is the message: what the message itself holds beside its lists can still be asked for.
    """
    for item in scope.items:
        entries = item.fields.get(name)
        if not isinstance(entries, (list, tuple)):
            continue
        around = {
            key: value for key, value in item.fields.items() if not isinstance(value, (list, tuple))
        }
        for entry in entries:
            if isinstance(entry, Mapping):
                one = item.with_fields({**around, **entry})
                yield entry, Scope(scope.record, (one,), scope.connection, scope.first_ns)


def looks(node: Node, compiled: Callable[[Node], Predicate]) -> Looks:
    """Return what a filter asks of entries wherever it matches: its `any` parts that no `or` and no
    `not` makes optional.
    """
    if isinstance(node, Both) and node.every:
        found: dict[str, list[Predicate]] = {}
        for part in node.parts:
            for name, wanted in looks(part, compiled).items():
                found.setdefault(name, []).extend(wanted)
        return found
    if isinstance(node, Per) and not node.every:
        return (
            looks(node.inner, compiled)
            if node.over == MESSAGES
            else {node.over: [compiled(node.inner)]}
        )
    return {}


def narrowed(record: DatagramRecord, item: MessageRecord, wanted: Looks) -> MessageRecord:
    """Return a message that matched with only those entries of its lists that were asked for, in
    its line too; the message itself where it has no such list.
    """
    scope = Scope(record, (item,))
    fields, texts = dict(item.fields), []
    for name, predicates in wanted.items():
        if name in fields:
            fields[name] = [
                entry for entry, inside in each(scope, name)
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
