"""Answers that need no capture: one payload decoded, and what exists by name.

The command line and the library ask here; it knows the registry, the layers and the catalogues.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from netdissect.capture.tools import Check, checks
from netdissect.model.annotations import COMMON_CODES, Annotation, CodeRow
from netdissect.model.claims import STRONG, Hints
from netdissect.model.dissection import Dissection, FieldNode
from netdissect.model.errors import UsageError
from netdissect.model.names import DialectInfo, FieldInfo, ProtocolInfo
from netdissect.protocols import registry
from netdissect.protocols.base import Fragment, Protocol, Reading

__all__ = [
    "catalogue",
    "chosen_dialects",
    "collect_fields",
    "decode_payload",
    "doctor_checks",
    "field_aliases",
    "field_table",
    "full_dialect",
    "known_protocols",
    "layer_files",
    "load_schemas",
    "loaded_protocols",
    "protocol_infos",
    "transports",
]

_log = logging.getLogger(__name__)


@cache
def loaded_protocols() -> tuple[Protocol, ...]:
    """Return every protocol that loads. One that does not is named in the log and left out."""
    found = []
    for name in registry.names():
        try:
            found.append(registry.get(name))
        except Exception as fault:  # noqa: BLE001
            # A plug-in of another distribution must not take the others down with it.
            _log.warning("protocol %s is disabled: %s: %s", name, type(fault).__name__, fault)
    return tuple(found)


def protocol_infos() -> list[ProtocolInfo]:
    """Return what `netdissect protocols` lists."""
    return [_info(protocol) for protocol in loaded_protocols()]


def _info(protocol: Protocol) -> ProtocolInfo:
    spaces: dict[str, None] = {}
    probes: dict[str, None] = {}
    for row in protocol.dialects:
        policy = protocol.policy(row.name)
        spaces.update(dict.fromkeys(space.name for space in policy.spaces))
        probes.update(dict.fromkeys(probe.kind for probe in policy.probes))
    return ProtocolInfo(
        protocol.name,
        protocol.title,
        tuple(
            DialectInfo(row.name, row.title, tuple(row.message_types)) for row in protocol.dialects
        ),
        tuple(protocol.transports),
        tuple(protocol.default_ports),
        tuple(spaces),
        tuple(probes),
    )


_ANY = ("any", "all")
"""How vector files say that the dialect does not matter."""


def full_dialect(protocol: str, dialect: str | None) -> str:
    """Return the full name of a dialect, given with or without its protocol's prefix; None = the
    default.

    Raises:
        UsageError: the protocol or its dialect does not exist.

    """
    known = registry.get(protocol)
    if dialect is None:
        return known.dialects[0].name
    row = known.dialect_row(dialect)
    if row is None:
        names = ", ".join(row.name for row in known.dialects)
        raise UsageError(f"{protocol} has no dialect {dialect!r}; known: {names}")
    return row.name


def known_protocols(given: Iterable[str]) -> frozenset[str]:
    """Return the names; each must be a protocol's.

    Raises:
        UsageError: one is not.

    """
    return frozenset(registry.get(name).name for name in given)


def chosen_dialects(given: Iterable[str]) -> dict[str, str]:
    """Return protocol -> full dialect name; each is given in full, or short where only one protocol
    has it.

    Raises:
        UsageError: no protocol has such a dialect, or several do.

    """
    chosen: dict[str, str] = {}
    for name in given:
        rows = [
            (protocol.name, row.name)
            for protocol in loaded_protocols()
            if (row := protocol.dialect_row(name)) is not None
        ]
        if not rows:
            raise UsageError(
                f"no protocol has a dialect {name!r}; `netdissect protocols` lists them"
            )
        if len(rows) > 1:
            raise UsageError(f"{name!r} may be {' or '.join(row[1] for row in rows)}; say which")
        chosen[rows[0][0]] = rows[0][1]
    return chosen


def transports(protocol: str) -> tuple[str, ...]:
    """Return what carries a protocol: of `udp` and `tcp`.

    Raises:
        UsageError: no such protocol.

    """
    return tuple(registry.get(protocol).transports)


def load_schemas(paths: tuple[str, ...]) -> dict[str, Any]:
    """Return the user schemas of the files by protocol; a later file replaces an earlier one.

    Raises:
        UsageError: a file cannot be read or is no schema.

    """
    from netdissect.dissect.schema import SchemaError, load_schema  # noqa: PLC0415 - only where asked for

    formats = {
        end: registry.load(place)
        for protocol in loaded_protocols()
        for end, place in protocol.schema_formats.items()
    }
    found: dict[str, Any] = {}
    for path in paths:
        try:
            schema = load_schema(path, formats)
        except (OSError, SchemaError) as error:
            text = str(error)
            raise UsageError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from error
        if schema.protocol is None:
            raise UsageError(f"{path}: the schema does not say its protocol")
        found[schema.protocol] = schema
    return found


def decode_payload(
    protocol: str,
    payload: bytes,
    *,
    dialect: str | None = None,
    direction: int | None = None,
    transport: str | None = None,
    schema: Any = None,
    strict: bool = False,
    bounds: Any = None,
    byte_order: str | None = None,
) -> Dissection:
    """Return the tree of one payload. Never raises on the payload.

    Args:
        protocol: name of the protocol.
        payload: octets of one datagram, or of a piece of stream.
        dialect: its name with or without prefix; None, `any` or `all` = the likeliest of those that
            the payload alone may be, else the protocol's first.
        direction: `Direction`, or None where it does not matter.
        transport: `udp` or `tcp`; None = the protocol's first.
        schema: user schema.
        strict: re-raise a fault of netdissect.
        bounds: `wire.inflate.Bounds`: how far compressed bodies are inflated; None = 1 MiB and 200
            times their size.
        byte_order: `<` or `>`: order of numbers where a format leaves it open; None = found out.

    Raises:
        UsageError: no such protocol or dialect.

    """
    from netdissect.dissect.engine import Request, dissect  # noqa: PLC0415 - imports scapy

    known = registry.get(protocol)
    transport = transport or known.transports[0]
    if dialect in _ANY:
        dialect = None
    likely = dialect or _likeliest(known, payload, transport)
    chosen = full_dialect(protocol, likely)
    request = Request(chosen, direction, transport, schema=schema)
    if bounds is not None:
        request = replace(request, bounds=bounds)
    if byte_order is not None:
        hints = known.informed(Hints((chosen, chosen)), Reading(byte_order=byte_order))
        request = replace(request, hints=hints.extra)
    tree = dissect(protocol, payload, request, module=known.layer_module, strict=strict)
    found = known.fragment(payload, packet=likely is not None)
    if found is not None:
        _add_fragment(tree, found, known)
    return tree


def _add_fragment(tree: Dissection, found: Fragment, known: Protocol) -> None:
    """Add what the octets say in a code of the protocol, as they are no packet."""
    bits = 8 * len(tree.buffers[0].data)
    for name, value in found.values.items():
        tree.root.children.append(FieldNode(name, value, 0, 0, generated=True))
    tree.fields |= found.values
    rows = {row.code: row for row in (*COMMON_CODES, *_layers(known).CODES)}
    for code, text in found.notes:
        row = rows[code]
        tree.annotations.append(Annotation(code, row.severity, row.group, text, 0, bits))


def _likeliest(known: Protocol, payload: bytes, transport: str) -> str | None:
    """Return the likeliest dialect of one payload alone, None where it shows none."""
    claim = known.recognise([(0, 0, payload)], transport, final=True)
    if claim is None or claim.score < STRONG or claim.dialects[0] is None:
        return None
    return claim.dialects[0] if known.dialect_row(claim.dialects[0]) else None


def doctor_checks(version: str) -> list[Check]:
    """Return what `netdissect doctor` lists."""
    return [Check("netdissect", None, f"{version}, hot path {hot_path()}"), *checks()]


def hot_path() -> str:
    """Return `compiled` or `interpreted`: how what every datagram passes through is running."""
    from netdissect.track import space  # noqa: PLC0415

    return "interpreted" if Path(space.__file__).suffix == ".py" else "compiled"


def catalogue() -> dict[str, CodeRow]:
    """Return every row of the catalogue by code, in alphabetical order."""
    from netdissect.flow.codes import FLOW_CODES  # noqa: PLC0415
    from netdissect.track.findings import TRACK_CODES  # noqa: PLC0415
    from netdissect.track.stream import TCP_CODES  # noqa: PLC0415

    rows = {row.code: row for row in (*COMMON_CODES, *FLOW_CODES, *TRACK_CODES, *TCP_CODES)}
    for protocol in loaded_protocols():
        for row in (*_layers(protocol).CODES, *protocol.codes):
            rows.setdefault(row.code, row)
    return dict(sorted(rows.items()))


def _layers(protocol: Protocol) -> Any:
    from netdissect.dissect.engine import layer_module  # noqa: PLC0415 - imports scapy

    return layer_module(protocol.layer_module or protocol.name)


def layer_files() -> dict[str, Path]:
    """Return protocol -> file of its layer module."""
    found = {}
    for protocol in loaded_protocols():
        spec = find_spec(protocol.layer_module or f"netdissect.layers.{protocol.name}")
        if spec is not None and spec.origin is not None:
            found[protocol.name] = Path(spec.origin).absolute()
    return found


@cache
def field_table() -> dict[str, dict[str, FieldInfo]]:
    """Return the fields of every protocol by name, from the shipped table; plug-ins are asked."""
    text = resources.files("netdissect.data").joinpath("fields.json").read_text("utf-8")
    shipped = json.loads(text)
    return {
        protocol.name: {
            name: FieldInfo(name, kind, "") for name, kind in shipped[protocol.name].items()
        }
        if protocol.name in shipped
        else collect_fields(protocol.name)
        for protocol in loaded_protocols()
    }


def field_aliases() -> dict[str, str]:
    """Return other tools' names of fields -> ours."""
    return {
        theirs: ours
        for protocol in loaded_protocols()
        for theirs, ours in protocol.field_aliases.items()
    }


def collect_fields(protocol: str) -> dict[str, FieldInfo]:
    """Return the fields of a protocol as its layers state them: slow, it imports scapy."""
    from netdissect.dissect.names import layer_fields  # noqa: PLC0415 - imports scapy

    kinds = layer_fields(_layers(registry.get(protocol)))
    return {name: FieldInfo(name, kind, "") for name, kind in sorted(kinds.items())}
