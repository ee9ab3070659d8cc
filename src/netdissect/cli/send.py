"""`netdissect send`: sends one message built from fields and decodes the answers."""

from __future__ import annotations

from typing import NamedTuple

import click

from netdissect.cli import options
from netdissect.cli.complete import PROTOCOL
from netdissect.cli.decode import DIRECTIONS, PayloadFacts
from netdissect.cli.encode import fields_of
from netdissect.cli.output import Look, print_json
from netdissect.cli.spans import Amount
from netdissect.system.interrupt import at_once

_MAX_ANSWERS = 256
"""Maximum number of answers printed, in case a server floods."""
_ARROWS = {"c2s": ("→ sent", "c2s"), "s2c": ("← received", "s2c")}
"""Direction -> (label, style)."""


class _Sending(NamedTuple):
    """The options that are specific to sending."""

    target: str
    i_own_this_host: bool
    wait: float
    """Seconds."""
    no_session: bool
    exact: bool


@click.command("send")
@click.argument("protocol", type=PROTOCOL)
@click.argument("message", metavar="TYPE")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@options.target
@options.own_host
@options.dialect
@options.transport
@options.number("--wait", 1.0, "How long to wait for answers.", Amount(0, 60), "SECONDS")
@options.flag("--no-session", help="Send without connecting first.")
@options.flag("--exact", help="Send the given numbers instead of those of the connection.")
@options.json_output
@options.screen
@options.grouped("facts", lambda: PayloadFacts)
@options.grouped("sending", lambda: _Sending)
def command(
    protocol: str,
    message: str,
    fields: tuple[str, ...],
    facts: PayloadFacts,
    sending: _Sending,
    as_json: bool,
    look: Look,
) -> None:
    """Send one message built from fields; wait for the answers and decode them.

    It first connects like a client of the protocol, and puts the token and the sequence numbers
    of the connection into the message. Fields are written as for `encode`.

    \b
    netdissect send riptide Heartbeat ping_id=9 rtt_ms=20 --target 127.0.0.1:7777
    """
    from netdissect.craft.encode import encode_text  # noqa: PLC0415
    from netdissect.fuzz.drivers import driver_class  # noqa: PLC0415 - imports scapy
    from netdissect.fuzz.exchange import exchange  # noqa: PLC0415
    from netdissect.fuzz.runs import full_dialect  # noqa: PLC0415
    from netdissect.fuzz.target import Target  # noqa: PLC0415

    where = Target.parse(sending.target, own_host=sending.i_own_this_host)
    driver = driver_class(protocol, facts.transport, facts.dialect)
    name = full_dialect(driver, facts.dialect)
    octets = encode_text(protocol, name, driver.transport, message, fields_of(fields))
    with at_once():
        result = exchange(
            protocol,
            where,
            octets,
            dialect=name,
            wait=sending.wait,
            session=not sending.no_session,
            live=not sending.exact,
            transport=driver.transport,
        )
    rows = [("c2s", result.sent), *[("s2c", each) for each in result.answers[:_MAX_ANSWERS]]]
    for direction, payload in rows:
        known = PayloadFacts(name, driver.transport, direction)
        _show(protocol, known, payload, None if as_json else look)
    if (more := len(result.answers) - _MAX_ANSWERS) > 0:
        click.echo(f"netdissect: {more:,} more answers are not shown", err=True)
    if not result.answers:
        why = "nothing listens on that port" if result.refused else "no answer"
        click.echo(f"netdissect: {why}", err=True)


def _show(protocol: str, facts: PayloadFacts, payload: bytes, look: Look | None) -> None:
    """Show a payload and its direction on the screen, or as JSON if `look` is None."""
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.lookup import decode_payload  # noqa: PLC0415
    from netdissect.render.tree import tree_lines  # noqa: PLC0415

    direction = DIRECTIONS[facts.direction]
    tree = decode_payload(
        protocol, payload, dialect=facts.dialect, direction=direction, transport=facts.transport
    )
    if look is None:
        print_json([json.decoded(tree)])
        return
    screen = look.screen()
    screen.line(_ARROWS[facts.direction or "c2s"], (f" {len(payload)} bytes", "dim"))
    screen.lines(tree_lines(tree, indent=2))
