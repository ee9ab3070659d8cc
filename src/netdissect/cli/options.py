"""The options that commands share, as decorators. Letters mean what they mean in tshark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from importlib import import_module
from os.path import isfile
from typing import Any, Final, TypeVar

import click

from netdissect.cli.complete import EXPRESSION, FILE, PROTOCOL, offer_files
from netdissect.cli.paging import paged
from netdissect.cli.settings import KEYS
from netdissect.cli.spans import AROUND_TYPE, PART, SPAN, Part, Whole, check_order
from netdissect.model.text import quoted

_F = TypeVar("_F", bound=Callable[..., Any])
_TIME_STYLES = ("r", "d", "a", "u", "e")
_MOST = {key.option: key.most for key in KEYS}
"""Option -> its maximum."""


flag: Final = partial(click.option, is_flag=True)
repeated: Final = partial(click.option, multiple=True)


def _all(*decorators: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Return a decorator that applies several, so that help lists their options in this order."""

    def decorate(function: _F) -> _F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def grouped(keyword: str, kind: Callable[[], Any], **names: str) -> Callable[[_F], _F]:
    """Pass several options to the command as one value.

    Args:
        keyword: the command's parameter that gets the value.
        kind: returns the class of the value, a NamedTuple or dataclass; called when a command runs.
        names: field -> option, if their names differ. Fields without an option keep their default.

    """

    def decorate(function: _F) -> _F:
        @wraps(function)
        def wrapper(*args: Any, **options: Any) -> Any:
            made = kind()
            # The fields of a NamedTuple or dataclass, in order.
            calls = {field: names.get(field, field) for field in made.__match_args__}
            given = {field: options.pop(name) for field, name in calls.items() if name in options}
            return function(*args, **{keyword: made(**given)}, **options)

        return wrapper  # type: ignore[return-value]

    return decorate


_ANOTHER: Final = (
    "{} is one capture too many. 'netdissect merge' makes one file of several; "
    "'netdissect survey' reads many, 'netdissect join' two that show the same traffic."
)


def late(module: str, name: str) -> Callable[[], Any]:
    """Return a function that imports and returns a class when a command runs."""
    return lambda: getattr(import_module(f"netdissect.cli.{module}"), name)


def capture(
    operands: Mapping[str, click.ParamType[Any]] | None = None,
    *,
    optional: bool = False,
    second: bool = False,
) -> Callable[[_F], _F]:
    """Add the operand FILE (or `-r FILE`) and further operands, each passed by its own keyword.

    Args:
        operands: name -> type of the optional operands after FILE; None if left out.
        optional: FILE may be left out; `file` is then None.
        second: a second capture may follow FILE, as keyword `second`: a word that is not a number.

    """
    names = list(operands or {})
    kinds = list((operands or {}).values())
    others = ["[FILE2]"] if second else []
    metavar = " ".join(["FILE", *others, *(f"[{name.upper()}]" for name in names)])

    def decorate(function: _F) -> _F:
        @click.argument("operands", nargs=-1, metavar=metavar, shell_complete=offer_files)
        @click.option(
            "-r",
            "--read-file",
            metavar="FILE",
            type=FILE,
            help="The capture; `-` reads standard input.",
        )
        @wraps(function)
        def wrapper(
            *args: Any, operands: tuple[str, ...], read_file: str | None, **options: Any
        ) -> Any:
            words = list(operands) if read_file is None else [read_file, *operands]
            if not words and not optional:
                raise click.UsageError("Missing capture FILE (`-` reads standard input).")
            if "" in words:
                raise click.UsageError("The name of a file cannot be empty.")
            if second:
                is_file = len(words) > 1 and not words[1].isdecimal()
                options["second"] = words.pop(1) if is_file else None
            files = [word for word in words if isfile(word)]  # noqa: PTH113 - any text will do
            if len(files) > 1 + kinds.count(FILE):
                raise click.UsageError(_ANOTHER.format(quoted(files[-1])))
            if len(words) > 1 + len(names):
                raise click.UsageError(f"Got unexpected extra argument ({words[1 + len(names)]}).")
            options["file"] = words[0] if words else None
            for index, (name, kind) in enumerate(zip(names, kinds, strict=True), start=1):
                given = words[index] if index < len(words) else None
                options[name] = None if given is None else _converted(kind, name, given)
            return function(*args, **options)

        return wrapper  # type: ignore[return-value]

    return decorate


class Count(Whole):
    """An integer from `min` up to the largest that fits a machine word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        found = super().convert(value, param, ctx)
        if found > sys.maxsize:
            self.fail("larger than any capture.", param, ctx)
        return found


COUNT: Final = Count(min=1)


def _converted(kind: click.ParamType[Any], name: str, given: str) -> Any:
    """Return the value of an operand; an error names the operand."""
    hint = name.upper()
    if isinstance(kind, click.IntRange) and not (given.isascii() and given.isdecimal()):
        text = f"{quoted(given)} is not a number; {hint} follows FILE."
        raise click.BadParameter(text, param_hint=hint)
    try:
        return kind.convert(given, None, click.get_current_context())
    except click.BadParameter as error:
        error.param_hint = hint
        raise


def number(
    name: str, usual: float, text: str, kind: click.ParamType[Any] = COUNT, unit: str = "N"
) -> Callable[[_F], _F]:
    """Add an option for a number; `text` is its help, which also shows the usual value."""
    return click.option(name, type=kind, default=usual, show_default=True, metavar=unit, help=text)


json_output = flag("--json", "as_json", help="One JSON object per line.")

count = click.option(
    "-c", "--count", "limit", type=COUNT, metavar="N", help="Stop after N lines of output."
)

display_filter = click.option(
    "-Y",
    "--display-filter",
    "display_filter",
    metavar="EXPR",
    type=EXPRESSION,
    help="Show only what matches, such as 'msg.resend and msg.since > 80' (docs/filters.md).",
)


AROUND: Final = 500_000_000
"""Nanoseconds that `--around TIME` shows before and after the time."""
_AROUND_FRAMES: Final = 20
"""Frames that `--around #FRAME` shows before and after the frame."""


def span_around(around: str) -> tuple[int, int, bool]:
    """Return (first, last, whether these are frame numbers instead of ns) for `--around`."""
    if around.startswith("#"):
        frame = int(around[1:])
        return max(1, frame - _AROUND_FRAMES), frame + _AROUND_FRAMES, True
    moment = SPAN.convert(around, None, None)
    return max(0, moment - AROUND), moment + AROUND, False


around = click.option(
    "--around",
    type=AROUND_TYPE,
    metavar="TIME|'#FRAME'",
    help="Half a second before and after a time, or 20 frames before and after a frame.",
)


capture_filter = click.option(
    "-f",
    "--capture-filter",
    "capture_filter",
    default="",
    metavar="BPF",
    help="Capture only what matches this libpcap filter, such as 'udp port 8303'.",
)
run_as = click.option(
    "--user",
    metavar="NAME",
    help="When run as root, parse as this user; default: the caller of sudo, otherwise nobody.",
)


time_span = _all(
    click.option(
        "--from", "since", type=SPAN, metavar="TIME", help="Start at this time: 3s, 250ms, 1m."
    ),
    click.option("--to", "until", type=SPAN, metavar="TIME", help="Stop at this time."),
)
only_connection = repeated(
    "--connection",
    "of_connection",
    type=COUNT,
    metavar="N",
    help="Only this connection; may be repeated.",
)


def part(function: _F) -> _F:
    """Add the options that select a time span and connections, passed as one keyword `part`; for
    commands without display filter and frame numbers.
    """

    @wraps(function)
    def wrapper(*args: Any, since: int | None, until: int | None, **options: Any) -> Any:
        moment = options.pop("around")
        check_order(since, until, moment)
        if moment is not None:
            since, until = max(0, moment - AROUND), moment + AROUND
        # In the order given, which is the order of connections in a plot.
        only = dict.fromkeys(options.pop("of_connection"))
        around = None if moment is None else str(moment)
        return function(*args, part=Part(since, until, False, tuple(only), around), **options)

    return _all(  # type: ignore[return-value]
        time_span,
        click.option(
            "--around", type=SPAN, metavar="TIME", help="Half a second before and after this time."
        ),
        only_connection,
    )(wrapper)


def narrowed(function: _F) -> _F:
    """Add `-Y` and the shorthands for common filters, passed as one keyword `display_filter`.

    The shorthands are also stored in the context as a `Part`. If there is a second capture, they
    are only stored there.
    """

    @wraps(function)
    def wrapper(*args: Any, display_filter: str | None, **options: Any) -> Any:
        parts = [] if display_filter is None else [display_filter]
        low, high = options.pop("since"), options.pop("until")
        moment, frames = options.pop("around"), False
        check_order(low, high, moment)
        if moment is not None:
            low, high, frames = span_around(moment)
        part = Part(low, high, frames, tuple(options.pop("of_connection")), moment)
        click.get_current_context().meta[PART] = part
        # Two captures have no common frame numbers: views of both apply the part themselves.
        if options.get("second") is None:
            parts += part.filters()
        text = parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)
        return function(*args, display_filter=text if parts else None, **options)

    return _all(  # type: ignore[return-value]
        display_filter, time_span, around, only_connection
    )(wrapper)


dialect = click.option(
    "--dialect", metavar="DIALECT", help="Dialect, with or without the protocol's prefix."
)
transport = click.option("--transport", type=click.Choice(["udp", "tcp"]), help="What carries it.")
target = click.option(
    "--target",
    required=True,
    metavar="HOST:PORT",
    help="The server to send to; loopback unless --i-own-this-host is given.",
)
own_host = flag(
    "--i-own-this-host",
    help="Confirm that you may send harmful traffic to a target that is not this machine.",
)


secrets = click.option(
    "--show-secrets/--mask-secrets",
    "secrets",
    default=None,
    help="Show or mask passwords; by default only --json and -T show them.",
)


schema = repeated(
    "--schema",
    metavar="FILE",
    type=FILE,
    help="Layout of user messages, JSON or TOML (docs/schemas.md).",
)
strict = flag("--strict", help="Stop at an internal error instead of noting it.")
quiet = flag("-q", "--quiet", help="Print only errors on standard error.")


screen = _all(
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="When to use colour; auto obeys NO_COLOR, FORCE_COLOR and the terminal.",
    ),
    click.option(
        "--width",
        type=Whole(min=20, max=100_000),
        metavar="N",
        help="Width of the output in columns.",
    ),
    quiet,
    flag("--verbose", help="Report each step on standard error (`survey`)."),
    flag("--debug", expose_value=False, help="Print the traceback of a failure."),
    flag(
        "-n", "numeric", expose_value=False, hidden=True,
        help="Accepted as in tshark; addresses and ports are never shown as names.",
    ),
    grouped("look", late("output", "Look")),
)  # fmt: skip
"""Adds the options for the look of the output, passed as one keyword `look`."""


time_style = click.option(
    "-t",
    "--time",
    "times",
    type=click.Choice(_TIME_STYLES),
    default="r",
    help="Time format: r since first frame, d since previous line, a local, u UTC, e epoch.",
)


reading = _all(
    click.option(
        "--byte-order",
        type=click.Choice(["little", "big"]),
        help="Byte order, for formats that leave it open; by default it is detected.",
    ),
    click.option(
        "--inflate-limit",
        type=Whole(min=1, max=_MOST["inflate_limit"]),
        metavar="BYTES",
        help="Inflate a compressed message to at most this size.  [default: 1048576]",
    ),
    click.option(
        "--inflate-ratio",
        type=Whole(min=1, max=_MOST["inflate_ratio"]),
        metavar="N",
        help="Inflate a compressed message to at most N times its size.  [default: 200]",
    ),
)
"""Adds the options on bytes that the capture itself does not answer."""


analysis = _all(
    repeated(
        "-d",
        "--decode-as",
        "decode_as",
        metavar="udp.port==N,PROTOCOL",
        help="Decode a port as this protocol or dialect, without recognition.",
    ),
    repeated(
        "--dialect",
        metavar="DIALECT",
        help="The dialect to assume for its protocol.",
    ),
    repeated(
        "--disable-protocol",
        metavar="PROTOCOL",
        type=PROTOCOL,
        help="Do not recognise this protocol.",
    ),
    schema,
    reading,
    strict,
    grouped(
        "choices", late("session", "Choices"),
        dialects="dialect", disabled="disable_protocol", schemas="schema",
    ),
)  # fmt: skip
"""Adds the options that decide how datagrams are decoded, passed as one keyword `choices`."""


facts = _all(json_output, analysis, paged, screen)
"""Adds the options of a command that prints results from a capture, through a pager."""
report = _all(
    json_output, time_style, analysis, paged, screen, grouped("request", late("request", "Request"))
)
"""Like `facts` for output with times; everything is passed as one keyword `request`."""
