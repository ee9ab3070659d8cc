"""Prints catalogues (protocols, fields, settings, checks), capture facts and comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from netdissect.model.compare import ABSENT, Changed
from netdissect.model.facts import Difference
from netdissect.model.names import FieldInfo, ProtocolInfo
from netdissect.model.reports import CaptureInfo
from netdissect.render.console import Screen, line_text
from netdissect.render.safe import safe
from netdissect.render.units import Clock, duration, octets

_SETTING_COLUMNS = 40
"""Maximum width of a setting for its remark to be aligned with the others."""
_WORDS = {None: "none", True: "yes", False: "no"}
"""Value without digits or text of its own -> how it is shown."""


def show_protocols(screen: Screen, infos: Sequence[ProtocolInfo], *, types: bool) -> None:
    """Print protocols with their dialects, and with `types` the message types of each dialect."""
    for info in infos:
        if info.disabled:
            screen.line((info.name, "title"), ("  disabled: ", "bad"), (safe(info.disabled), ""))
            continue
        ports = _port_text(info.default_ports) or "no default"
        screen.line(
            (info.name, "title"),
            (f"  {info.title}", ""),
            (f"  {' and '.join(info.transports)}, ports: {ports}", "dim"),
        )
        screen.line(
            (f"  spaces: {', '.join(info.spaces)}  probes: {', '.join(info.probes) or '-'}", "dim")
        )
        longest = max((len(row.name) for row in info.dialects), default=0)
        for row in info.dialects:
            head = f"  {row.name:<{longest}}  "
            screen.line((head, "name"), (row.title, ""), hang=len(head))
            if types:
                _words(screen, row.message_types, indent=longest + 4)


def _port_text(ports: Iterable[int]) -> str:
    """Return ports in order; three or more consecutive ones as a range."""
    # In a run of consecutive numbers, the difference from their places is the same.
    runs = groupby(enumerate(sorted(ports)), lambda placed: placed[1] - placed[0])
    spans = ([port for _, port in run] for _, run in runs)
    return ", ".join(
        f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span))  # noqa: PLR2004
        for span in spans
    )


def _words(screen: Screen, words: Iterable[str], indent: int) -> None:
    """Print words in lines as wide as the screen, but at most 100 columns."""
    width = min(screen.width, 100) - indent
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            screen.line((" " * indent + line, "dim"))
            line = ""
        line += f", {word}" if line else word
    if line:
        screen.line((" " * indent + line, "dim"))


def show_fields(screen: Screen, infos: Iterable[FieldInfo]) -> None:
    """Print fields, one per line."""
    for info in infos:
        unit = f" [{info.unit}]" if info.unit else ""
        screen.line(
            (f"{info.name:<40} ", "name"),
            (f"{info.kind:<9}", "dim"),
            (f"{info.meaning}{unit}", ""),
            cut=True,
        )


_USUAL = frozenset({"frames", "udp", "tcp", "tcp_connections"})
"""Counters that every capture has, which are not worth printing."""


def show_info(
    screen: Screen,
    info: CaptureInfo,
    protocols: Mapping[str, tuple[int, int]],
    other: int,
    flow: Mapping[str, Any],
) -> None:
    """Print the facts of a capture file and its contents.

    Args:
        screen: where to print.
        info: the facts.
        protocols: name -> (datagrams, connections).
        other: datagrams of no known protocol.
        flow: counters of the layers below the protocols.

    """
    clock = Clock("u")
    span = None
    if info.first_time_ns is not None and info.last_time_ns is not None:
        span = (info.last_time_ns - info.first_time_ns) / 1e6
    facts = [
        ("file", info.path),
        ("format", info.format + (", nanoseconds" if info.nanosecond else ", microseconds")),
        ("link types", ", ".join(info.link_types) or "-"),
        ("interfaces", ", ".join(info.interfaces)),
        ("frames", f"{info.frames} ({octets(info.octets)} on the wire)"),
        ("first", clock.show(info.first_time_ns)),
        ("last", clock.show(info.last_time_ns)),
        ("span", "" if span is None else duration(span)),
        ("limits reached", ", ".join(f"{limit} {n}" for limit, n in info.limits_hit.items())),
        ("dropped by capture", "" if info.drops is None else str(info.drops)),
    ]
    if info.truncated_at is not None:
        damage = f"at offset {info.truncated_at}: {info.damage or 'cut short'}"
        facts.append(("damaged", damage))
    counts = (
        # There is one number for each type of unknown link: print the sum.
        f"{sum(count.values()) if isinstance(count, Mapping) else count}"
        f" {name.replace('_', ' ').replace('octets', 'bytes')}"
        for name, count in flow.items()
        if count and name not in _USUAL
    )
    facts.append(("lower layers", ", ".join(counts)))
    facts += [("comment", comment) for comment in info.comments]
    for name, value in facts:
        if value:
            screen.line((f"{name:>20}  ", "dim"), (safe(value, 400), ""))
    screen.text()
    table = screen.table("protocol", "datagrams", "connections", right=("datagrams", "connections"))
    for name, (datagrams, connections) in sorted(protocols.items()):
        table.add_row(line_text([(name, "protocol")]), str(datagrams), str(connections))
    table.add_row("of no known protocol", str(other), "-")
    screen.print(table)


def show_settings(
    screen: Screen,
    found: Iterable[tuple[str, Any, str, str]],
    ignored: Iterable[str] = (),
    *,
    origin: bool,
) -> None:
    """Print settings, given as (name, value, origin, meaning), as TOML with remarks; settings
    without a value and ignored ones are comments.
    """
    rows = [
        (f"{'# ' if value is None else ''}{name} = {_setting(value)}", where if origin else meaning)
        for name, value, where, meaning in found
    ]
    widest = max((len(text) for text, _ in rows if len(text) <= _SETTING_COLUMNS), default=0)
    for text, remark in rows:
        name, _, value = text.partition(" = ")
        padding = " " * max(0, widest - len(text))
        screen.line((name, "name"), (f" = {value}{padding}", ""), (f"  # {remark}", "dim"))
    for sentence in ignored:
        screen.line((f"# {sentence}", "warn"))


def _setting(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_quoted(key)} = {_quoted(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    return "" if value is None else str(value) if isinstance(value, int) else _quoted(value)


def _quoted(text: Any) -> str:
    """Return text as a TOML basic string."""
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def show_changes(screen: Screen, rows: Iterable[tuple[str, Changed]]) -> None:
    """Print differences: a heading for each place, then one line per field."""
    last = None
    for where, change in rows:
        if where != last:
            screen.line((where, "title"))
            last = where
        before, after = (_value(item) for item in (change.before, change.after))
        name = change.path or "connection"
        screen.line((f"  {name}  ", "name"), (before, "error"), (" → ", "dim"), (after, "good"))


def _value(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    if isinstance(value, Mapping):
        return "present"
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return value.hex() if isinstance(value, bytes) else str(value)


def show_checks(screen: Screen, found: Iterable[tuple[str, bool | None, str, str]]) -> None:
    """Print checks, given as (name, good, text, remedy). Remedies are on separate lines, ready to
    paste.
    """
    for name, good, text, remedy in found:
        mark, style = {True: ("ok", "good"), False: ("--", "bad"), None: ("  ", "dim")}[good]
        screen.line((f"{mark:>3} ", style), (f"{name:<15} ", "name"), (text, ""))
        for line in remedy.split("\n") if remedy else ():
            screen.line((f"{'':>20}{line}", "title"))


def show_comparison(
    screen: Screen, compared: int, equal: Mapping[str, int], differences: Sequence[Difference]
) -> None:
    """Print how many facts of each kind agree with tshark, and every difference."""
    unequal = Counter(item.what for item in differences)
    table = screen.table("fact", "equal", "different", right=("equal", "different"))
    for name in dict.fromkeys([*equal, *unequal]):
        table.add_row(line_text([(name, "")]), str(equal.get(name, 0)), str(unequal[name]))
    screen.text(f"{compared} datagrams and segments compared with tshark")
    screen.print(table)
    for item in differences:
        known = f"  ({item.known})" if item.known else ""
        screen.line(
            (f"#{item.frame:<7} ", "frame"),
            (f"{item.what}: ", "name"),
            (f"{item.ours} here, {item.theirs} in tshark", "warn"),
            (known, "dim"),
        )
