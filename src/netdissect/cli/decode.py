"""`netdissect decode`: decodes payloads given as hexadecimal digits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from netdissect.cli import options
from netdissect.cli.complete import PROTOCOL
from netdissect.cli.output import Look, print_json
from netdissect.cli.paging import paged
from netdissect.model.files import numbered_lines

if TYPE_CHECKING:
    from netdissect.cli.session import Choices

DIRECTIONS = {"c2s": 0, "s2c": 1, None: None}
"""Name of a direction -> its number."""


class PayloadFacts(NamedTuple):
    """What the user states about a payload that its bytes do not show."""

    dialect: str | None
    transport: str | None
    direction: str | None = None
    """`c2s` or `s2c`."""


@click.command("decode")
@click.argument("protocol", type=PROTOCOL)
@click.argument("digits", metavar="HEX|-", nargs=-1, required=True)
@options.dialect
@click.option(
    "--direction", type=click.Choice(["c2s", "s2c"]), help="Who sent it, if that matters."
)
@options.transport
@options.schema
@options.reading
@options.flag("-x", "--hex", "hexed", help="Also show the bytes, below the tree.")
@options.strict
@options.json_output
@paged
@options.screen
@options.grouped("facts", lambda: PayloadFacts)
@options.grouped("choices", options.late("session", "Choices"), schemas="schema")
def command(
    protocol: str,
    digits: tuple[str, ...],
    facts: PayloadFacts,
    choices: Choices,
    hexed: bool,
    as_json: bool,
    look: Look,
) -> None:
    """Decode one payload given as hexadecimal digits.

    White space and colons between the digits are allowed, and `0x` before them. `-` reads standard
    input, one payload per line. A malformed payload is not an error: as much as possible is
    decoded, with notes on what is wrong.

    \b
    netdissect decode riptide --dialect 2.2 '11 00 10 00 00'
    """
    from netdissect import lookup  # noqa: PLC0415
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.render.tree import hex_views, tree_lines  # noqa: PLC0415

    schemas = lookup.load_schemas(choices.schemas)
    screen = look.screen()
    reading = choices.reading
    lookup.known_protocols([protocol])  # an error even if standard input is empty
    for payload in _payloads(digits):
        tree = lookup.decode_payload(
            protocol,
            payload,
            dialect=facts.dialect,
            direction=DIRECTIONS[facts.direction],
            transport=facts.transport,
            schema=schemas.get(protocol),
            strict=choices.strict,
            bounds=None if reading is None else reading.bounds,
            byte_order=None if reading is None else reading.byte_order,
        )
        if as_json:
            print_json([json.decoded(tree)])
            continue
        screen.lines(tree_lines(tree))
        screen.lines(hex_views(tree, width=screen.width) if hexed else ())


def _payloads(digits: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the payload of the arguments, or one for each line of standard input."""
    if digits == ("-",):
        for number, line in numbered_lines(sys.stdin.buffer):
            yield _octets(line.decode("ascii", "replace"), f"line {number}")
    else:
        yield _octets(" ".join(digits), "HEX")


def _octets(text: str, what: str) -> bytes:
    try:
        return bytes.fromhex("".join(text.replace(":", " ").split()).removeprefix("0x"))
    except ValueError:
        raise click.BadParameter(f"{what} is not an even number of hexadecimal digits.") from None
