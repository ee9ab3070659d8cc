"""The command line: one file per command, without logic of its own.

This module holds the group, which imports the module of a command only when that command runs.
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from netdissect._version import __version__
from netdissect.cli.errors import ClosedOutputError, LenientText, report_failure
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.text import quoted
from netdissect.render.safe import safe
from netdissect.system import interrupt

_SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Show what happened": {
        "diagnose": ("diagnose", "Say what happened to each connection, worst first."),
        "connections": ("connections", "Show all connections, or one of them in full."),
        "timeline": ("timeline", "Show what happened to every reliable unit, in time order."),
        "anomalies": ("anomalies", "List what is wrong or worth knowing, worst first."),
        "explain": ("explain", "Explain a finding of `anomalies` by its code."),
        "stats": ("stats", "Show rates, loss and round-trip times per interval."),
        "plot": ("plot", "Plot a connection over time."),
        "browse": ("browse", "Browse a capture in a full-screen view."),
        "report": ("report", "Write one HTML file that says what happened."),
    },
    "Show what was sent": {
        "info": ("info", "Show facts about a capture file: format, times, protocols."),
        "read": ("read", "Show the datagrams of a capture, one line each."),
        "show": ("show", "Show every field of one frame, and its bytes."),
        "follow": ("follow", "Show the reliable messages of a connection in order."),
        "ladder": ("ladder", "Draw a connection as a sequence diagram."),
        "decode": ("decode", "Decode one payload given as hexadecimal digits."),
    },
    "Work with several captures": {
        "join": ("join", "Show what happened to each datagram between two captures."),
        "diff": ("diff", "Compare two captures, or two frames of one."),
        "survey": ("survey", "Collect many captures in one dataset, and summarise it."),
    },
    "Capture and convert": {
        "sniff": ("sniff", "Capture on an interface; show datagrams, write them, or both."),
        "slice": ("slice", "Write a part of a capture."),
        "merge": ("merge", "Merge captures in time order."),
        "anonymise": ("anonymise", "Write a copy of a capture that is safe to share."),
        "export": ("export", "Write annotated pcapng, qlog or Wireshark dissectors."),
    },
    "Build messages and test servers": {
        "encode": ("encode", "Build one message from fields and print its bytes."),
        "send": ("send", "Send one message built from fields and decode the answers."),
        "fuzz": ("fuzz", "Send mutated messages to your own server, and watch it."),
        "replay": ("replay", "Send the steps of a failure again."),
        "minimise": ("minimise", "Reduce a failure to the fewest steps."),
    },
    "Look up and set up": {
        "protocols": ("protocols", "List the protocols, their dialects, ports and message types."),
        "fields": ("fields", "List the fields for filters and columns."),
        "schema": ("schema", "Print the JSON Schema of a command's --json output."),
        "config": ("config", "Show the settings in force and where each comes from."),
        "doctor": ("doctor", "Check versions, capture backends and rights."),
        "verify": ("verify", "Compare a capture's decoding with that of tshark."),
        "new-protocol": ("new_protocol", "Write a working plug-in for your own protocol."),
        "completion": ("completion", "Print the completion script of a shell."),
        "man": ("man", "Print the manual page of a command."),
    },
}
"""Section of the help -> command -> (module in this package, summary)."""
COMMANDS = {name: row for rows in _SECTIONS.values() for name, row in rows.items()}
"""Command -> (module in this package, summary)."""

ALIASES = {
    "conv,udp": "connections",
    "conv,tcp": "connections",
    "conv": "connections",
    "expert": "anomalies",
    "flow": "ladder",
    "follow": "follow",
    "io,stat": "stats",
}
"""tshark's `-z` names -> our command. `-z io,stat,1` also sets the interval."""

_IMPLIED = {"-i": "sniff", "-D": "sniff", "-w": "slice"}
"""tshark's letter -> our command, if none is named; the first row that occurs counts."""

_OTHER_NAMES = {
    **dict.fromkeys(("capture", "dump", "live", "record"), "sniff"),
    **dict.fromkeys(("open", "tui", "view"), "browse"),
    **dict.fromkeys(("cut", "filter", "split"), "slice"),
    **dict.fromkeys(("chart", "graph"), "plot"),
    **dict.fromkeys(("errors", "findings", "problems"), "anomalies"),
    **dict.fromkeys(("analyse", "analyze"), "diagnose"),
    "compare": "diff", "convert": "export", "flows": "connections", "help": "--help",
    "html": "report", "interfaces": "-D", "summary": "info", "version": "--version",
}  # fmt: skip
"""What other programs call a thing -> our word for it, for suggestions."""

_WORDS = "netdissect.words"
"""Key of click's `Context.meta`: the words of the command line."""
_FIRST = "netdissect.first"
"""Another key: the first word that the user typed; "" if there was none."""
_QUIET = frozenset({"-q", "--quiet", "config"})
"""Words that suppress the notes on ignored settings; `config` prints those notes itself."""
_GROUP_OPTIONS = frozenset({"--help", "-h", "--version", "--debug"})
"""Options that may precede the name of the command."""


@contextmanager
def _closed_output() -> Iterator[None]:
    """Turn EPIPE into `ClosedOutputError`, for which the exit status is 0; click exits with 1."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise ClosedOutputError from error
        raise


class Group(click.Group):
    """Imports each command on demand, and runs `read` if the first word is a capture file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in alphabetical order."""
        del ctx
        return sorted(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; an unknown one gets a suggestion."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ours = _OTHER_NAMES.get(name)
            near = f"; did you mean {quoted(ours)}?" if ours else did_you_mean(name, COMMANDS)
            raise click.UsageError(f"no command is called {quoted(name)}{near}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return its `command`."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"netdissect.cli.{COMMANDS[cmd_name][0]}")
        return module.command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        del ctx
        longest = max(map(len, COMMANDS))
        for title, rows in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{longest}}", row[1]) for name, row in rows.items()])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the command line; `--help` already prints here."""
        with _closed_output():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; settings files and environment variables give the defaults."""
        from netdissect.cli.settings import blamed, default_map, load  # noqa: PLC0415 - not for --help
        from netdissect.model.files import pinned_files  # noqa: PLC0415 - as above

        found = load()
        defaults = default_map(found)
        if found.ignored and not _QUIET & set(ctx.meta[_WORDS]):
            for sentence in found.ignored:
                click.echo(f"netdissect: note: {safe(sentence)}", err=True)
        # The same for all commands: click skips defaults that a command has no option for.
        ctx.default_map = dict.fromkeys(COMMANDS, defaults) if defaults else None
        try:
            with _closed_output(), pinned_files():
                return super().invoke(ctx)
        except UsageError as error:
            raise blamed(found, error) from error
        except click.NoSuchOption as error:
            if error.option_name == ctx.meta[_FIRST]:
                from difflib import get_close_matches  # noqa: PLC0415 - only after a mistake

                # The command was implied: an option of the program itself may have been meant.
                ours = get_close_matches(error.option_name, _GROUP_OPTIONS)
                near = [*ours, *(error.possibilities or ())]
                raise click.NoSuchOption(error.option_name, None, near, error.ctx) from error
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let `netdissect FILE` and `netdissect -r FILE` mean `netdissect read FILE`."""
        ctx.meta[_FIRST] = next(iter(args), "")
        ctx.meta[_WORDS] = words = default_command(args)
        return super().parse_args(ctx, words)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and turn whatever ends it into the exit status of the contract."""
        _print_warnings()
        words = sys.argv[1:] if args is None else list(args)
        if any(name.endswith("_COMPLETE") for name in os.environ):
            import_module("netdissect.cli.complete")  # a shell requests completions
        # Tests and embedding programs handle the exceptions themselves.
        if not standalone_mode:
            return super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            # click's standalone mode would use exit statuses other than the documented ones.
            status = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
            # A signal after the last check still changes the exit status.
            interrupt.check()
            interrupt.ending()
            sys.stdout.flush()
        except Exception as error:  # noqa: BLE001 - the one place that reports every failure
            interrupt.ending()
            status = report_failure(error, debug="--debug" in words, live="-" in words)
        except KeyboardInterrupt:
            interrupt.ending()
            status = report_failure(KeyboardInterrupt(), debug=False, live="-" in words)
        code = status if isinstance(status, int) else 0
        interrupt.ended(code)
        sys.exit(code)


def _print_warnings() -> None:
    """Print the package's log warnings (a disabled plug-in) like any other message."""
    log = logging.getLogger("netdissect")
    if not log.handlers:
        log.addHandler(_Warnings(logging.WARNING))


class _Warnings(logging.Handler):
    """Prints warnings on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one warning."""
        click.echo(f"netdissect: {safe(record.getMessage(), 400)}", err=True)


def default_command(args: list[str]) -> list[str]:
    """Return the arguments, with the command inserted that they imply.

    If the first word is not a command but looks like a file (it exists, is `-`, or contains a dot
    or a slash), or is an option of a command, `read` is inserted, or the command that an option
    implies as in tshark: `-i`, `-D`, `-w`, or `-z` with a name. A command behind the file counts.
    """
    for index, word in enumerate(args):
        if word in _GROUP_OPTIONS:
            continue
        if word in COMMANDS:
            return args
        # As in tshark, the order is free: `FILE -z conv,udp` or `-z conv,udp -r FILE`.
        if "-z" in args[index:]:
            return args[:index] + _tap(args[index:])
        # Even if it does not exist: "no such file" is more helpful than "no such command".
        names_file = word == "-" or "." in word or "/" in word or os.path.exists(word)  # noqa: PTH110 - fast
        if not (names_file or word.startswith("-")):
            return args
        if names_file and args[index + 1 : index + 2] and args[index + 1] in COMMANDS:
            return [*args[:index], args[index + 1], word, *args[index + 2 :]]
        letters = {option[:2] for option in args[index:]}
        implied = next((name for letter, name in _IMPLIED.items() if letter in letters), "read")
        return [*args[:index], implied, *args[index:]]
    return args


def _tap(args: list[str]) -> list[str]:
    """Replace tshark's `-z NAME[,...]` by the corresponding command."""
    at = args.index("-z")
    name = args[at + 1] if at + 1 < len(args) else ""
    rest = args[:at] + args[at + 2 :]
    # Longest first: `conv` is a prefix of `conv,udp`, and takes nothing else.
    for known in sorted(ALIASES, key=len, reverse=True):
        if name == known or (name.startswith(known + ",") and known != "conv"):
            tail = name[len(known) + 1 :].split(",")
            interval = ["--interval", tail[0]] if known == "io,stat" and tail[0] else []
            return [ALIASES[known], *rest, *interval]
    raise click.UsageError(f"unknown statistics -z {name}; known: {', '.join(sorted(ALIASES))}")


@click.command(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, message="netdissect %(version)s")
@click.option("--debug", is_flag=True, help="Print the traceback of an unexpected failure.")
def cli(debug: bool) -> None:
    """Decode and track the reliable-UDP protocols of games: Riptide, Teeworlds, kNet, EOUDP,
    Netplay.

    `netdissect FILE` alone reads a capture; `-` is standard input.

    \b
    netdissect game.pcap
    netdissect diagnose game.pcap
    netdissect connections game.pcap 1
    tcpdump -i eth0 -w - udp port 7777 | netdissect -
    """
    del debug  # read by Group.main from the words, so that it also covers failures of the parser


_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables with a folder of the user's files. A relative one may have been filled by others."""


def main() -> None:
    """Run netdissect as a program."""
    # Records hold no reference cycles. Frequent collections would cost a tenth of the run time,
    # and so would the final one at exit.
    gc.set_threshold(1_000_000, 50, 50)
    atexit.register(gc.freeze)
    for name in _HOMES:
        if not os.path.isabs(os.environ.get(name, "/")):  # noqa: PTH117 - without loading pathlib
            del os.environ[name]  # else Scapy would unpickle its cache from the current folder
    if sys.stdin is None:  # closed by the caller (`<&-`)
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - for the whole run
    for name, kind in (("stdout", io.TextIOWrapper), ("stderr", LenientText)):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller (`>&-`), which is not a failure
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - for the whole run
        elif isinstance(stream, io.TextIOWrapper):
            # The old stream remains as `sys.__stdout__`, for the size of the terminal. With
            # PYTHONUNBUFFERED, it had no buffer.
            by_line = stream.line_buffering or isinstance(stream.buffer, io.RawIOBase)
            setattr(sys, name, kind(
                interrupt.WholeWriter(io.FileIO(stream.fileno(), "wb", closefd=False)),
                stream.encoding, "backslashreplace", line_buffering=by_line,
            ))  # fmt: skip
    try:
        interrupt.install()
    except OSError as error:  # out of file descriptors
        sys.exit(report_failure(error, debug="--debug" in sys.argv))
    cli.main(prog_name="netdissect")
