"""Everything that needs no capture: decoding one payload, and looking up names.

Used by the command line and the library; combines the registry, the layers and the catalogues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_data
from typing import TYPE_CHECKING, Any

from netdissect.dissect.foreign import LOAD_SECONDS, Overrun, attempt, disable, fault_of, faults
from netdissect.model.annotations import Annotation, CodeRow, code_rows, shared_rows
from netdissect.model.claims import STRONG, Hints
from netdissect.model.dissection import Dissection, FieldNode
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.names import DialectInfo, FieldInfo, ProtocolInfo
from netdissect.model.text import quoted
from netdissect.protocols import registry
from netdissect.protocols.base import Fragment, Protocol, Reading
from netdissect.protocols.foreign import Foreign, trial
from netdissect.system.accounts import as_caller

if TYPE_CHECKING:
    from netdissect.capture.tools import Check


def protocol_names() -> list[str]:
    """Return the names of all protocols in alphabetical order, including those that do not load."""
    return sorted(registry.names())


def own_protocols() -> list[str]:
    """Return the names of netdissect's own protocols (no plug-ins) in alphabetical order."""
    return [known.name for known in loaded_protocols() if known.layer_module is None]


def loaded_protocols() -> tuple[Protocol, ...]:
    """Return every protocol that loads and has not been disabled since."""
    return registry.protocols(without=tuple(faults))


def tried_protocols() -> tuple[tuple[Protocol, ...], dict[str, str]]:
    """Try every protocol on a few payloads; return the good ones, and name -> fault of the others.

    Only plug-ins can fail to load or to decode.
    """
    for protocol in loaded_protocols():
        trial(protocol)
        _described(protocol)
    # Called again, because the trial may have disabled some.
    return loaded_protocols(), dict(faults)


def protocol_infos() -> list[ProtocolInfo]:
    """Return the protocols that `netdissect protocols` lists; disabled ones come last."""
    good, bad = tried_protocols()
    return [
        *map(_info, good),
        *(ProtocolInfo(name, "", (), (), (), disabled=why) for name, why in bad.items()),
    ]


def _info(protocol: Protocol) -> ProtocolInfo:
    spaces: dict[str, None] = {}
    probes: dict[str, None] = {}
    for row in protocol.dialects:
        policy = protocol.policy(row.name)
        rows = policy.spaces
        spaces.update(dict.fromkeys(f"{s.name}[{s.key}]" if s.key else s.name for s in rows))
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
"""Dialect names with which test vectors say that the dialect does not matter."""


def full_dialect(protocol: str, dialect: str | None) -> str:
    """Return the full name of a dialect given with or without its protocol's prefix.

    Args:
        protocol: name of the protocol.
        dialect: None = the protocol's default.

    Raises:
        UsageError: there is no such protocol or dialect.

    """
    known = registry.get(protocol)
    if dialect is None:
        return known.dialects[0].name
    row = known.dialect_row(dialect)
    if row is None:
        names = ", ".join(row.name for row in known.dialects)
        raise UsageError(f"{protocol} has no dialect {quoted(dialect)}; known: {names}")
    return row.name


def known_protocols(given: Iterable[str]) -> frozenset[str]:
    """Return the names as a set, if all of them are protocols.

    Raises:
        UsageError: one of them is not.

    """
    known = frozenset(given)
    for name in known - {*registry.names()}:
        # Raises, with a suggestion.
        registry.get(name)
    return known


def chosen_dialects(given: Iterable[str]) -> dict[str, str]:
    """Return protocol -> full dialect name, for dialects given in full or without a prefix.

    Raises:
        UsageError: no protocol has such a dialect, or several do, or two are of one protocol.

    """
    chosen: dict[str, str] = {}
    for name in given:
        rows = [
            (protocol.name, row.name)
            for protocol in loaded_protocols()
            if (row := protocol.dialect_row(name)) is not None
        ]
        if not rows:
            every = [row.name for protocol in loaded_protocols() for row in protocol.dialects]
            near = did_you_mean(name, every) or "; `netdissect protocols` lists them"
            raise UsageError(f"no protocol has a dialect {quoted(name)}{near}")
        if len(rows) > 1:
            raise UsageError(f"{quoted(name)} is ambiguous: {' or '.join(row[1] for row in rows)}")
        of, dialect = rows[0]
        if chosen.setdefault(of, dialect) != dialect:
            raise UsageError(f"{chosen[of]} and {dialect} exclude each other: choose one")
    return chosen


def wireshark_script(names: Iterable[str]) -> str:
    """Return a Lua script with a Wireshark dissector for each protocol.

    Raises:
        UsageError: there is no such protocol, or its layers cannot be expressed in Lua.

    """
    from netdissect.dissect.lua import script  # noqa: PLC0415 - imports scapy

    facts = {}
    for name in names:
        known = registry.get(name)
        facts[name] = {
            # Avoid the name of a dissector that Wireshark already has.
            "proto_name": f"nd_{name}" if known.wireshark else name,
            "title": known.title,
            "dialects": [row.name for row in known.dialects],
            "ports": known.default_ports,
            "transports": known.transports,
            "module": known.layer_module,
            "codes": {
                code: [row.severity.name.lower(), row.title] for code, row in _rows(known).items()
            },
        }
    return script(facts)


def transports(protocol: str) -> tuple[str, ...]:
    """Return the transports of a protocol: `udp`, `tcp` or both.

    Raises:
        UsageError: there is no such protocol.

    """
    return tuple(registry.get(protocol).transports)


def load_schemas(paths: tuple[str, ...]) -> dict[str, Any]:
    """Return protocol -> user schema; a later file replaces an earlier one of the same protocol.

    Raises:
        UsageError: a file cannot be read or is not a valid schema.

    """
    if not paths:
        return {}
    from netdissect.dissect.engine import schema_values  # noqa: PLC0415 - imports scapy
    from netdissect.dissect.schema import SchemaError, load_schema, named_protocol  # noqa: PLC0415 - only where asked for
    from netdissect.dissect.schema_types import check_types  # noqa: PLC0415 - as above

    formats = {
        end: registry.load(place)
        for protocol in loaded_protocols()
        for end, place in protocol.schema_formats.items()
    }
    found: dict[str, Any] = {}
    for path in paths:
        try:
            with as_caller():
                schema = load_schema(path, formats)
            known = registry.get(named_protocol(schema))
            check_types(schema, schema_values(known.layer_module or known.name), origin=path)
            for key, message in schema.messages.items():
                for dialect in message.dialects:
                    _checked_dialect(known.name, dialect, f"messages.{key}")
        except (SchemaError, UsageError) as error:
            # Some of these errors begin with the file name already.
            text = str(error)
            raise UsageError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from error
        found[known.name] = schema
    return found


def _checked_dialect(protocol: str, dialect: str, where: str) -> None:
    try:
        full_dialect(protocol, dialect)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


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
    """Return the field tree of one payload; a malformed payload never raises.

    Args:
        protocol: name of the protocol.
        payload: bytes of one datagram, or a piece of a stream.
        dialect: its name with or without prefix; None, `any` or `all` = the most likely one judging
            by this payload alone, otherwise the protocol's first.
        direction: `Direction`; None = unknown or irrelevant.
        transport: `udp` or `tcp`; None = the protocol's first.
        schema: user schema.
        strict: re-raise internal errors of netdissect.
        bounds: `wire.inflate.Bounds`: limits for inflating compressed bodies; None = 1 MiB and 200
            times their size.
        byte_order: `<` or `>`: byte order if a format leaves it open; None = detected.

    Raises:
        UsageError: no such protocol or dialect, or it does not use that transport.

    """
    from netdissect.dissect.engine import Request, dissect  # noqa: PLC0415 - imports scapy

    known = registry.get(protocol)
    transport = transport or known.transports[0]
    if transport not in known.transports:
        raise UsageError(f"{protocol} does not run over {transport}")
    if dialect in _ANY:
        dialect = None
    likely = _likeliest(known, payload, transport) if dialect is None else dialect
    chosen = full_dialect(protocol, likely)
    hints = None
    if byte_order is not None:
        hints = known.informed(Hints((chosen, chosen)), Reading(byte_order=byte_order)).extra
    request = Request(chosen, direction, transport, schema=schema, hints=hints, bounds=bounds)
    tree = dissect(protocol, payload, request, module=known.layer_module, strict=strict)
    found = known.fragment(payload, packet=likely is not None)
    if found is not None:
        _add_fragment(tree, found, known)
    return tree


def _add_fragment(tree: Dissection, found: Fragment, known: Protocol) -> None:
    """Add the fields and findings of a payload that is only a fragment of a packet."""
    bits = 8 * len(tree.buffers[0].data)
    for name, value in found.values.items():
        tree.root.children.append(FieldNode(name, value, 0, 0, generated=True))
    tree.fields |= found.values
    rows = _rows(known)
    for code, text in found.notes:
        row = rows[code]
        tree.annotations.append(Annotation(code, row.severity, row.group, text, 0, bits))


def _rows(protocol: Protocol) -> dict[str, CodeRow]:
    """Return code -> row of the findings that a protocol's layers can have."""
    return {row.code: row for row in (*code_rows("common"), *_layers(protocol).CODES)}


def _likeliest(known: Protocol, payload: bytes, transport: str) -> str | None:
    """Return the most likely dialect judging by one payload; None if it does not show any."""
    claim = known.recognise([(0, 0, payload)], transport, final=True)
    if claim is None or claim.score < STRONG or claim.dialects[0] is None:
        return None
    # A plug-in may claim a dialect that it does not describe.
    return claim.dialects[0] if known.dialect_row(claim.dialects[0]) else None


def doctor_checks(version: str) -> list[Check]:
    """Return the checks of `netdissect doctor`."""
    from netdissect.capture.tools import Check, checks  # noqa: PLC0415 - asks other programs

    good, bad = tried_protocols()
    plug_ins = [known.name for known in good if isinstance(known, Foreign)]
    return [
        Check("netdissect", None, f"{version}, hot path {hot_path()}{_not_compiled()}"),
        *(Check(f"protocol {name}", True, "plug-in, works") for name in plug_ins),
        *(Check(f"protocol {name}", False, f"disabled: {why}") for name, why in bad.items()),
        *checks(),
    ]


def hot_path() -> str:
    """Return whether the hot path runs `compiled` or `interpreted`."""
    # Any module of the hot path will do.
    from netdissect.track import space  # noqa: PLC0415

    return "interpreted" if Path(space.__file__).suffix == ".py" else "compiled"


def _not_compiled() -> str:
    """Return why the hot path could not be compiled at installation; "" if unknown."""
    try:
        said = (get_data("netdissect", "data/not-compiled.txt") or b"").decode().split()
    except OSError:  # there is no such file
        said = []
    # The compiler's message on one line.
    return f": it could not be compiled, {' '.join(said)[:200]}" if said else ""


def catalogue() -> dict[str, CodeRow]:
    """Return code -> row of the catalogue of findings, in alphabetical order."""
    rows = shared_rows()
    for protocol in loaded_protocols():
        for row in (*_described(protocol), *protocol.codes):
            # The first row wins: a plug-in cannot redefine a shared code.
            rows.setdefault(row.code, row)
    return dict(sorted(rows.items()))


def _layers(protocol: Protocol) -> Any:
    from netdissect.dissect.engine import layer_module  # noqa: PLC0415 - imports scapy

    return layer_module(protocol.layer_module or protocol.name)


def load_layers() -> None:
    """Import and read all that decoding needs: the layers of every protocol, Scapy with them, and
    tables; disable plug-ins that fail.
    """
    from netdissect.dissect.engine import finisher  # noqa: PLC0415 - imports scapy
    from netdissect.dissect.schema import built_in  # noqa: PLC0415

    for protocol in loaded_protocols():
        where = protocol.layer_module or protocol.name
        _of_layers(protocol, partial(finisher, where), None)
        with suppress(FileNotFoundError):
            built_in(protocol.name)
    field_table()


def layer_files() -> dict[str, Path]:
    """Return protocol -> file of its layer module."""
    found = {}
    for protocol in loaded_protocols():
        spec = find_spec(protocol.layer_module or f"netdissect.layers.{protocol.name}")
        if spec is not None and spec.origin is not None:
            found[protocol.name] = Path(spec.origin).absolute()
    return found


def _described(protocol: Protocol) -> Iterable[CodeRow]:
    """Return the findings of a protocol's layers; disable a plug-in that fails."""
    if not isinstance(protocol, Foreign):
        return code_rows(protocol.name)  # the same rows, without importing Scapy
    return _of_layers(protocol, lambda: _layers(protocol).CODES, ())  # type: ignore[no-any-return]


def _of_layers(protocol: Protocol, query: Callable[[], Any], default: Any) -> Any:
    """Return the result of a query on a protocol's layers; a plug-in that fails is disabled, and
    the default returned.
    """
    if not isinstance(protocol, Foreign):
        return query()
    try:
        return attempt(query, seconds=LOAD_SECONDS)
    except (Exception, SystemExit, Overrun) as bug:  # noqa: BLE001 - whatever a plug-in raises
        disable(protocol.name, fault_of(bug))
        return default


@cache
def field_table() -> dict[str, dict[str, FieldInfo]]:
    """Return protocol -> field name -> description.

    The table of our own protocols is shipped; that of a plug-in is derived from its layers.
    """
    # `importlib.resources` would import a dozen modules for this.
    shipped = json.loads(get_data("netdissect", "data/fields.json") or b"")
    return {
        protocol.name: {
            name: FieldInfo.parse(name, text) for name, text in shipped[protocol.name].items()
        }
        if protocol.name in shipped
        else _of_layers(protocol, partial(_kept_fields, protocol), {})
        for protocol in loaded_protocols()
    }


def field_aliases() -> dict[str, str]:
    """Return field names of other tools -> ours."""
    return {
        theirs: ours
        for protocol in loaded_protocols()
        for theirs, ours in protocol.field_aliases.items()
    }


def _kept_fields(protocol: Protocol) -> dict[str, FieldInfo]:
    from netdissect.dissect.cache import field_kinds  # noqa: PLC0415 - only plug-ins need it

    texts = field_kinds(protocol.layer_module or protocol.name)
    return {name: FieldInfo.parse(name, text) for name, text in sorted(texts.items())}
