"""`netdissect encode`: the bytes of one message built from fields."""

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
from netdissect.model.errors import UsageError
from netdissect.model.files import numbered_lines
from netdissect.model.text import quoted, unescape_surrogates
from netdissect.render.safe import safe

__all__ = ["command", "fields_of"]

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
"""What is read of a line of `decode` beside its fields: name, whether a value fits, what would."""


@click.command("encode")
@click.argument("protocol", type=PROTOCOL)
@click.argument("message", metavar="TYPE|-")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@options.dialect
@options.transport
@click.option("--bare", is_flag=True, help="Only the message, without the packet that carries it.")
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

    TYPE is a message type or the class of a layer; a wrong one lists the valid ones. Numbers
    are decimal or 0x..., or the name of an enumeration's value; bytes are hexadecimal digits or
    text:...; lists are JSON. Fields that are not given have their defaults, and lengths are
    computed. `-` reads what `decode --json` prints, one object per line, and builds it again.

    \b
    netdissect encode riptide Reliable sequence_id=17 message_id=5 data=text:hello
    netdissect decode riptide '11 00 10 00 00' --json | netdissect encode riptide -
    """
    from netdissect.craft.encode import encode_text  # noqa: PLC0415 - imports scapy
    from netdissect.lookup import full_dialect  # noqa: PLC0415

    transport = _transport(protocol, facts.transport)
    if message == "-":
        _again(protocol, facts, as_json=as_json)
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


def _transport(protocol: str, asked: str | None) -> str:
    """Return the transport that is asked for, else the protocol's usual one.

    Raises:
        UsageError: no such protocol, or it is not carried by that.
    """
    from netdissect.lookup import transports  # noqa: PLC0415

    known = transports(protocol)
    if asked is not None and asked not in known:
        raise UsageError(f"{protocol} is not carried by {asked}")
    return asked or ("udp" if "udp" in known else "tcp")


def _lines() -> Iterator[dict[str, Any]]:
    for number, line in numbered_lines(sys.stdin.buffer):
        try:
            row = _restored(json.loads(line))
        except RecursionError:
            raise click.BadParameter(f"line {number} is nested too deeply.") from None
        except ValueError:
            raise click.BadParameter(f"line {number} is not JSON.") from None
        if not isinstance(row, dict) or not isinstance(row.get("fields"), dict):
            raise click.BadParameter(f"line {number} has no object `fields`.")
        for name, fits, wanted in _BESIDE:
            if not fits(row.get(name)):
                raise click.BadParameter(f"line {number}: {name} must be {wanted}.")
        yield row


def _restored(value: Any) -> Any:
    """Return a value with its text as it was before it was written as JSON."""
    if isinstance(value, dict):
        return {unescape_surrogates(key): _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return unescape_surrogates(value) if isinstance(value, str) else value


def _again(protocol: str, facts: PayloadFacts, *, as_json: bool) -> None:
    """Build what `decode --json` printed."""
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
        # Bytes that give the same fields are taken as they are: building would lose what fields do
        # not tell.
        if before != fields and row.get("length") != 0:
            octets = rebuild(protocol, name, transport, fields)
            now = before and _shown(protocol, name, transport, row, octets)
            for field in ignored_changes(before, fields, now) if before and now else ():
                text = f"{safe(field)} is passed over: change the fields that it follows from"
                click.echo(f"netdissect: {text}", err=True)
        _print(protocol, name, kind, octets or b"", as_json=as_json)


def _stated(row: dict[str, Any]) -> bytes | None:
    """Return the bytes that a row of `decode` was made of, None where it does not say."""
    try:
        return bytes.fromhex(row["octets"])
    except (KeyError, TypeError, ValueError):
        return None


def _shown(
    protocol: str, dialect: str, transport: str, row: dict[str, Any], octets: bytes
) -> dict[str, Any]:
    """Return the fields that `decode --json` prints of bytes, as those of the row were printed."""
    from netdissect.export.json import decoded, dump  # noqa: PLC0415
    from netdissect.lookup import decode_payload  # noqa: PLC0415

    direction = DIRECTIONS.get(str(row.get("direction")))
    tree = decode_payload(
        protocol, octets, dialect=dialect, direction=direction, transport=transport
    )
    # Through JSON and back, as the row came: tuples are lists then, and bytes are text.
    found: dict[str, Any] = _restored(json.loads(dump(decoded(tree))))["fields"]
    return found


def _print(protocol: str, dialect: str, message: str, octets: bytes, *, as_json: bool) -> None:
    if not as_json:
        click.echo(octets.hex())
        return
    row = {
        "schema": 1,
        "protocol": protocol,
        "dialect": dialect,
        "type": message,
        "length": len(octets),
        "octets": octets.hex(),
    }
    print_json([row])
