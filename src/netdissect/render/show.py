"""Prints one datagram in full: addresses, fields, fate of its units, bytes."""

from __future__ import annotations

from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.records import DatagramRecord, Reliability
from netdissect.model.text import quoted
from netdissect.render.console import Line, Screen
from netdissect.render.hexdump import hex_rows
from netdissect.render.read import record_title
from netdissect.render.tree import SEVERITY_LETTERS, find_node, hex_views, tree_lines, walk
from netdissect.render.units import COPIES, Clock, duration


def has_field(record: DatagramRecord, field: str | None) -> bool:
    """Return whether the record has a field of this name (or dotted path)."""
    tree = record.dissection
    return field is not None and tree is not None and find_node(tree, field) is not None


def show_record(
    screen: Screen, record: DatagramRecord, clock: Clock, *, hexed: bool, field: str | None
) -> None:
    """Print one datagram.

    Args:
        screen: where to print.
        record: what to print.
        clock: formats times.
        hexed: also print the bytes.
        field: name (or dotted path) of a field to highlight.

    Raises:
        UsageError: there is no such field.

    """
    tree = record.dissection
    chosen = None if field is None or tree is None else find_node(tree, field)
    if field is not None and tree is not None and chosen is None:
        near = did_you_mean(field, {node.name for node, _ in walk(tree.root)})
        raise UsageError(f"frame {record.frame} has no field {quoted(field)}{near}")
    screen.line(*record_title(record, clock))
    if tree is None:
        screen.lines(hex_rows(record.payload, width=screen.width))
        return
    screen.lines(tree_lines(tree, chosen=chosen))
    for item in record.messages:
        if item.reliability is not None:
            screen.line(*_fate(item.reliability))
    for finding in record.findings:
        label = finding.severity.label
        screen.line((f"[{SEVERITY_LETTERS[label]} {finding.code}]", label))
    if hexed or field:
        screen.lines(hex_views(tree, width=screen.width, chosen=chosen))


def _fate(facts: Reliability) -> Line:
    """Return the fate of a message's unit."""
    line: Line = [(f"[{facts.space} {facts.seq}", "generated")]
    if facts.kind in COPIES:
        _, style, word = COPIES[facts.kind]
        line.append((f", {word}, first in #{facts.of_frame}", style))
        if facts.since_ms is not None:
            line.append((f", {duration(facts.since_ms)} after the previous copy", "dim"))
    elif facts.retransmitted_in is not None:
        _, style, word = COPIES["retransmission"]
        line.append((f", {word} in #{facts.retransmitted_in}", style))
    if facts.acked_in is not None:
        line.append((f", acknowledged in #{facts.acked_in}", "good"))
        if facts.rtt_ms is not None:
            line.append((f" after {duration(facts.rtt_ms)}", "dim"))
    elif facts.reliable:
        line.append((", no acknowledgement in this capture", "note"))
    return [*line, ("]", "generated")]
