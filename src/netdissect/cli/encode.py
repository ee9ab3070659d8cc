"""`netdissect encode`: builds one message from fields."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from netdissect.cli import options
from netdissect.cli.complete import PROTOCOL
from netdissect.cli.decode import DIRECTIONS, PayloadFacts
from netdissect.cli.output import print_json
from netdissect.model.errors import UsageError, reason
from netdissect.model.files import numbered_lines
from netdissect.model.text import quoted, unescape_surrogates
from netdissect.render.safe import safe

_BESIDE: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("dialect", lambda given: given is None or isinstance(given, str), "a text"),
    ("transport", lambda given: given in (None, "udp", "tcp"), "udp or tcp"),
    (
        "messages",
        lambda given: given is None
        or (isinstance(given, list) and all(isinstance(each, dict) for each in given)),
        "a list of objects",
    ),
)
"""Keys of a line of `decode --json` beside its fields: name, check of the value, valid values."""


@click.command("encode")
@click.argument("protocol", type=PROTOCOL)
@click.argument("message", metavar="TYPE|-")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@options.dialect
@options.transport
@options.flag("--bare", help="Only the message, without the packet that carries it.")
@options.json_output
@options.grouped("facts", lambda: PayloadFacts)
def command(
    protocol: str,
    message: str,
    fields: tuple[str, ...],
    facts: PayloadFacts,
    bare: bool,
    as_json: bool,
) -> None:
    """Build one message from fields and print its bytes as hexadecimal digits.

    TYPE is a message type or the class of a layer; an invalid one lists the valid ones. Numbers
    are decimal, 0x... or the name of a value; bytes are hexadecimal digits or text:...; lists are
    JSON. Other fields have their defaults, and lengths are computed. `-` reads the output of
    `decode --json`, one object per line, and builds it again.

    \b
    netdissect encode riptide Reliable sequence_id=17 message_id=5 data=text:hello
    netdissect decode riptide '11 00 10 00 00' --json | netdissect encode riptide -
    """
    from netdissect.craft.encode import encode_text  # noqa: PLC0415 - imports scapy
    from netdissect.lookup import full_dialect  # noqa: PLC0415

    transport = _transport(protocol, facts.transport)
    if message == "-":
        if fields:
            raise click.UsageError(f"The fields come from standard input, not from {fields[0]}.")
        _rebuild(protocol, facts, as_json=as_json)
        return
    name = full_dialect(protocol, facts.dialect)
    octets = encode_text(protocol, name, transport, message, fields_of(fields), bare=bare)
    _print(protocol, name, message, octets, as_json=as_json)


def fields_of(words: tuple[str, ...]) -> dict[str, str]:
    """Return the FIELD=VALUE words as a mapping."""
    values = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{quoted(word)} is not FIELD=VALUE.")
        if name in values:
            raise click.BadParameter(f"{quoted(name)} is given twice.")
        values[name] = text
    return values


def _transport(protocol: str, requested: str | None) -> str:
    """Return the requested transport, otherwise the protocol's usual one.

    Raises:
        UsageError: there is no such protocol, or it does not use that transport.

    """
    from netdissect.lookup import transports  # noqa: PLC0415

    known = transports(protocol)
    if requested is not None and requested not in known:
        raise UsageError(f"{protocol} does not run over {requested}")
    return requested or ("udp" if "udp" in known else "tcp")


def _lines() -> Iterator[dict[str, Any]]:
    for number, line in numbered_lines(sys.stdin.buffer):
        try:
            row = _restored(json.loads(line))
        except RecursionError:
            raise click.BadParameter(f"line {number} is nested too deeply.") from None
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise click.BadParameter(f"line {number} is not JSON.") from None
        except ValueError as error:
            raise click.BadParameter(f"line {number}: {reason(error)}.") from None
        if not isinstance(row, dict) or not isinstance(row.get("fields"), dict):
            raise click.BadParameter(f"line {number} has no object `fields`.")
        for name, fits, wanted in _BESIDE:
            if not fits(row.get(name)):
                raise click.BadParameter(f"line {number}: {name} must be {wanted}.")
        yield row


def _restored(value: Any) -> Any:
    """Return a value with escaped text restored, as it was before it was written as JSON."""
    if isinstance(value, dict):
        return {unescape_surrogates(key): _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return unescape_surrogates(value) if isinstance(value, str) else value


def _rebuild(protocol: str, facts: PayloadFacts, *, as_json: bool) -> None:
    """Rebuild payloads from the output of `decode --json` on standard input."""
    from netdissect.craft.encode import encode_decoded  # noqa: PLC0415 - imports scapy
    from netdissect.craft.rebuild import ignored_changes, rebuild  # noqa: PLC0415
    from netdissect.lookup import full_dialect  # noqa: PLC0415

    for row in _lines():
        given = row.get("dialect") if facts.dialect is None else facts.dialect
        name = full_dialect(protocol, given)
        transport = _transport(protocol, facts.transport or row.get("transport"))
        fields = row["fields"]
        if "type" in row:
            kind = str(row["type"])
            made = encode_decoded(protocol, name, transport, kind, fields)
            _print(protocol, name, kind, made, as_json=as_json)
            continue
        kind = " ".join(str(each.get("type")) for each in row.get("messages") or ())
        octets = _stated(row)
        before = octets and _shown(protocol, name, transport, row, octets)
        # If the stated bytes still decode to these fields, they are used as they are: building
        # would lose what the fields do not contain.
        if before != fields and row.get("length") != 0:
            octets = rebuild(protocol, name, transport, fields)
            now = before and _shown(protocol, name, transport, row, octets)
            for field in ignored_changes(before, fields, now) if before and now else ():
                text = f"{safe(field)} is ignored: change the fields that it is computed from"
                click.echo(f"netdissect: {text}", err=True)
        _print(protocol, name, kind, octets or b"", as_json=as_json)


def _stated(row: dict[str, Any]) -> bytes | None:
    """Return the bytes that a row of `decode` states; None if it states none."""
    try:
        return bytes.fromhex(row["octets"])
    except (KeyError, TypeError, ValueError):
        return None


def _shown(
    protocol: str, dialect: str, transport: str, row: dict[str, Any], octets: bytes
) -> dict[str, Any]:
    """Return the fields that `decode --json` prints for these bytes."""
    from netdissect.export.json import decoded  # noqa: PLC0415
    from netdissect.export.jsonline import dump  # noqa: PLC0415
    from netdissect.lookup import decode_payload  # noqa: PLC0415

    direction = DIRECTIONS.get(str(row.get("direction")))
    tree = decode_payload(
        protocol, octets, dialect=dialect, direction=direction, transport=transport
    )
    # Via JSON, like the row: tuples become lists, and bytes become text.
    found: dict[str, Any] = _restored(json.loads(dump(decoded(tree))))["fields"]
    return found


def _print(protocol: str, dialect: str, message: str, octets: bytes, *, as_json: bool) -> None:
    if not as_json:
        click.echo(octets.hex())
        return
    row = {"schema": 1, "protocol": protocol, "dialect": dialect, "type": message}
    print_json([{**row, "length": len(octets), "octets": octets.hex()}])
