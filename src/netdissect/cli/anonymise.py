"""`netdissect anonymise`: a copy of a capture that is safe to share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.complete import FILE
from netdissect.cli.errors import EXIT
from netdissect.cli.output import Look, refuse_input_as_output, summarise
from netdissect.cli.session import Choices, Session
from netdissect.edit.plan import Plan
from netdissect.edit.pseudonyms import Pseudonyms, new_key
from netdissect.model.errors import UsageError
from netdissect.model.files import read_octets
from netdissect.model.packets import Packet
from netdissect.system import sandbox

if TYPE_CHECKING:
    from netdissect.pipeline.privacy_loose import Loose

_LEAST_KEY = 16
_MOST_KEY = 65_536
"""Size of a key in bytes."""


@click.command("anonymise")
@options.capture()
@click.option(
    "-o",
    "-w",
    "--output",
    "target",
    metavar="FILE",
    required=True,
    type=FILE,
    help="The file to write; `-` is standard output.",
)
@click.option(
    "--key-file",
    metavar="FILE",
    type=FILE,
    help="A key of 16 bytes or more: the same key gives the same replacements."
    " Without it, a new key is generated and printed.",
)
@options.flag(
    "--keep-others",
    help="Keep payloads that belong to no known connection; by default they are removed.",
)
@options.analysis
@options.screen
def command(
    file: str, target: str, key_file: str | None, keep_others: bool, choices: Choices, look: Look
) -> int:
    """Replace addresses, names, chat and passwords, so that a capture is safe to share.

    Addresses in the same subnet stay in the same subnet. Text becomes other text of the same
    length, even inside compressed packets. Times, sizes, ports and everything else that the
    analysis uses stay as they are, and checksums are corrected. docs/commands/anonymise.md says
    what is not hidden.

    \b
    netdissect anonymise game.pcap -o public.pcap
    netdissect anonymise game.pcap -o public.pcap --key-file key
    """
    if file == "-":
        raise UsageError("anonymise reads the capture twice: name a file instead of `-`")
    refuse_input_as_output(target, [file, key_file])
    sandbox.confine()
    key = _key(key_file)
    names = Pseudonyms(key)
    from netdissect.capture.blocks import BlockReader  # noqa: PLC0415
    from netdissect.edit.anonymising import anonymise  # noqa: PLC0415

    with Plan() as plan:
        known, loose, left = _planned(file, choices, plan, names, keep_others=keep_others)
        with BlockReader(file) as reader:
            done = anonymise(reader, target, plan, names, known, loose)
    text = f"{done.frames:,} frames written to {target}"
    if done.cut:
        text += f"; payloads of {done.cut:,} frames of no known connection removed"
    if done.dropped:
        text += f"; {done.dropped:,} blocks other than frames and interfaces left out"
    if left:
        text += f"; {left:,} compressed places could not be overwritten and are unchanged"
    if done.ended:
        text += "; further ones, which an earlier reading did not find, are left out"
    if key_file is None and not look.quiet:
        print(  # noqa: T201 - part of the answer
            f"netdissect: the key was {key.hex()}; keep it secret, or discard it", file=sys.stderr
        )
    status = summarise(text, [reader], quiet=look.quiet)
    return EXIT.CUT_SHORT if done.ended else status


def _key(path: str | None) -> bytes:
    """Return the key of a file, or a new one.

    Raises:
        UsageError: the file cannot be read, or holds too little.

    """
    if path is None:
        return new_key()
    try:
        octets = read_octets(path, _MOST_KEY)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; `head -c 32 /dev/urandom > {path}` makes a key"
        ) from error
    try:
        octets.decode("utf-8")
    except UnicodeDecodeError:
        key = octets
    else:
        # Ignore the line feed that an editor adds.
        key = octets.strip()
        with suppress(ValueError):
            key = bytes.fromhex(key.decode("utf-8"))
    if len(key) < _LEAST_KEY:
        raise UsageError(f"{path}: the key has {len(key)} bytes; it needs {_LEAST_KEY} or more")
    return key


def _planned(
    file: str, choices: Choices, plan: Plan, names: Pseudonyms, *, keep_others: bool
) -> tuple[Callable[[Packet], bool] | None, Loose, int]:
    """Plan the replacement of every payload.

    Returns whether a packet belongs to a known connection (None: all others stay, too), what
    overwrites bytes that belong to no message, and how many places stay unchanged.
    """
    from netdissect import lookup  # noqa: PLC0415
    from netdissect.edit.anonymising import plan_fragments  # noqa: PLC0415
    from netdissect.edit.frames import of_connections  # noqa: PLC0415
    from netdissect.pipeline.privacy_loose import Loose  # noqa: PLC0415
    from netdissect.pipeline.privacy_parts import rewritten  # noqa: PLC0415

    left = 0
    with Session(file, choices) as session:
        schemas = lookup.load_schemas(choices.schemas)
        for record, new, stay in rewritten(session.records(), names, schemas):
            left += stay
            if record.stream is not None:
                plan.stream(*record.stream, record.payload, new)
            elif record.protocol is not None:
                plan.datagram(record.frame, record.payload, new)
        known = None if keep_others else of_connections(session.reports)
        loose = Loose(session.reports, names, names.words, schemas)
        plan.frames = session.frames_of_all_passes()
    with Session(file, choices, quiet=True) as session:
        # A second pass, because the connections are known only at the end of the first.
        plan_fragments(session.reader.batches(), plan, names, known, loose)
        # The file may have grown between the passes.
        plan.frames = min(plan.frames, session.frames_of_all_passes())
    return known, loose, left
