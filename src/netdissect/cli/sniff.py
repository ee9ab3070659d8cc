"""`netdissect sniff`: live capture."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from netdissect.capture.live.choice import BACKENDS
from netdissect.cli import options
from netdissect.cli.complete import FILE, INTERFACE
from netdissect.cli.live import LiveSession, load
from netdissect.cli.output import Look, one_view, print_json, refuse_input_as_output
from netdissect.cli.request import Match, compiled
from netdissect.cli.session import Choices
from netdissect.cli.settings import in_force
from netdissect.cli.spans import Whole
from netdissect.model.errors import FilterError
from netdissect.model.packets import MAX_SNAP_OCTETS
from netdissect.model.text import quoted
from netdissect.render.console import Screen
from netdissect.render.safe import safe
from netdissect.system import sandbox

if TYPE_CHECKING:
    from netdissect.export.metrics import Endpoint
    from netdissect.model.live import LiveView, ViewRequest

_REFRESH_S = 1.0
"""Minimum time between two updates of the metrics, in seconds."""
_LATE = (
    "netdissect.export.json",
    "netdissect.render.dashboard",
    "netdissect.render.dashboard_keys",
    "rich.cells",
    "rich.live",
    "rich.screen",
)
"""Modules that are otherwise imported only when the capture runs; see `live.load`."""


@click.command("sniff")
@click.option(
    "-i",
    "--interface",
    metavar="IF",
    type=INTERFACE,
    help="Interface to capture on, by name or number.",
)
@click.option(
    "-r",
    "--read-file",
    "file",
    metavar="FILE",
    type=FILE,
    help="Read a file as if it were an interface; `-` reads standard input.",
)
@options.flag("-D", "--list-interfaces", "listed", help="List the interfaces.")
@options.capture_filter
@options.display_filter
@click.option(
    "-w",
    "--write",
    metavar="FILE",
    type=FILE,
    help="Write the packets as pcapng, or as pcap if FILE ends in .pcap; `-` is standard output.",
)
@click.option(
    "-c", "--count", "packets", type=options.COUNT, metavar="N", help="Stop after N packets."
)
@options.repeated(
    "-a",
    "--autostop",
    metavar="COND",
    help="Stop after duration:SECONDS, filesize:KB, packets:N or files:N; may be repeated.",
)
@options.repeated(
    "-b",
    "--ring-buffer",
    "ring",
    metavar="COND",
    help="Start a new file after filesize:KB, duration:SECONDS or packets:N, and keep the newest"
    " files:N; may be repeated.",
)
@click.option(
    "-s",
    "--snapshot-length",
    "snap",
    type=Whole(min=0, max=MAX_SNAP_OCTETS),
    default=MAX_SNAP_OCTETS,
    metavar="N",
    help="Bytes to capture of each packet; 0 means all.",
)
@options.flag(
    "-p", "--no-promiscuous-mode", "modest", help="Do not put the interface into promiscuous mode."
)
@click.option(
    "--backend", type=click.Choice(BACKENDS), help="The program or socket that captures."
)
@options.run_as
@options.repeated(
    "-o",
    "preferences",
    metavar="NAME:VALUE",
    help="A preference of tshark, with --backend tshark; may be repeated.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus, such as on 127.0.0.1:9464, instead of showing datagrams.",
)
@options.flag("--live", help="Show a dashboard of connections and their timeline.")
@options.flag(
    "--hold", help="Hold lines back until the fate of their units is settled, as --json does."
)
@options.flag(
    "-l", "flush", help="Print --json records immediately, without what is only known later."
)
@options.flag("--messages", help="One line per message instead of one per datagram.")
@options.flag("-V", "tree", help="Show the tree of fields below each line.")
@options.flag("-x", "hexed", help="Show the bytes below each line.")
@options.flag("--all", "everything", help="Also show datagrams of no known protocol.")
@options.secrets
@options.json_output
@options.time_style
@options.analysis
@options.screen
def command(
    interface: str | None,
    file: str | None,
    listed: bool,
    display_filter: str | None,
    write: str | None,
    live: bool,
    metrics: str | None,
    as_json: bool,
    choices: Choices,
    look: Look,
    **rest: Any,
) -> int:
    """Capture on an interface; show datagrams as they arrive, write them, or both.

    Ctrl-C ends the capture; dropped packets are reported at the end. With `-w`, `-q` shows no
    datagrams. Only the capturing program has the right to capture; netdissect gives up its own
    before it parses.

    \b
    netdissect sniff -i lo -f 'udp port 8303' -w game.pcapng -a duration:30
    netdissect sniff -i eth0 --live
    ssh host tcpdump -U -w - | netdissect sniff -r -
    """
    if listed:
        _list_interfaces(look, as_json=as_json)
        return 0
    if (interface is None) == (file is None):
        raise click.UsageError(
            "Give either -i INTERFACE (-D lists them) or -r FILE (`-` reads standard input)."
        )
    one_view(("--metrics", metrics is not None), ("--live", live), ("--json", as_json))
    written_only = look.quiet and write is not None and not live
    # A capture on standard output leaves no room for lines.
    show = metrics is not None or (write != "-" and not written_only)
    # Report errors in it before anything is captured. The dashboard may get one later, when the
    # user that parses may not be able to read the names.
    compiled(display_filter or "frame.number")
    # Read the settings now: the user that parses may not be able to read root's files.
    where, endpoint_names = look.screen(flush=True), in_force()["endpoints"]
    load(choices, _LATE)
    served = None if metrics is None else _endpoint(metrics)
    if file is not None:
        refuse_input_as_output(write or "-", [file])
        if served is None and rest["backend"] != "tshark":
            sandbox.confine()
    taken = _session(interface, file, write, choices, quiet=look.quiet, show=show, rest=rest)
    with taken as session:
        match = Match.compile(display_filter, session)
        if not show:
            for _ in session.feed:
                pass
        elif served is not None:
            _serve(session, served)
        elif live and sys.stdout.isatty():
            _dashboard(session, match, display_filter or "", endpoint_names)
        else:
            _print(session, match, rest, as_json=as_json, screen=where)
    return session.status()


def _session(
    interface: str | None,
    file: str | None,
    write: str | None,
    choices: Choices,
    *,
    quiet: bool,
    show: bool,
    rest: dict[str, Any],
) -> LiveSession:
    """Start the capture, and report its backend."""
    from netdissect.pipeline.live import (  # noqa: PLC0415
        Autostop,
        LiveFeed,
        LiveRequest,
        RingRule,
        successor,
    )

    autostop = Autostop.parse(rest["autostop"], packets=rest["packets"])
    ring = RingRule.parse(rest["ring"])
    if write is None and (ring or autostop.octets or autostop.files):
        raise click.UsageError("-b, -a filesize: and -a files: need a file to write: -w FILE.")
    if autostop.files and ring is None:
        raise click.UsageError("-a files: needs -b, which says when a file is full.")
    if rest["preferences"] and rest["backend"] != "tshark":
        raise click.UsageError("-o needs --backend tshark.")
    if unlike := [text for text in rest["preferences"] if not text.partition(":")[1]]:
        raise click.UsageError(f"-o needs NAME:VALUE, not {quoted(unlike[0])}.")
    request = LiveRequest(
        interface=interface,
        file=file,
        backend=rest["backend"],
        capture_filter=rest["capture_filter"],
        # As for tcpdump and dumpcap, 0 means the maximum.
        snap_octets=rest["snap"] or MAX_SNAP_OCTETS,
        promiscuous=not rest["modest"],
        recorded=write is not None,
        preferences=rest["preferences"],
        account=successor(rest["user"]),
    )
    feed = LiveFeed(request, write=write, autostop=autostop, ring=ring, show=show)
    session = LiveSession(feed, choices, write=write, quiet=quiet)
    if interface is not None:
        session.say(f"capturing on {interface} with {feed.backend}")
        session.say(feed.note)
    return session


def _print(
    session: LiveSession, match: Match, rest: dict[str, Any], *, as_json: bool, screen: Screen
) -> None:
    """Print records as they arrive."""
    from netdissect.cli.read import print_lines, print_messages, shown, wanted  # noqa: PLC0415

    session.hold = rest["hold"] or ((as_json or match.waits) and not rest["flush"])
    session.feed.on_tick = session.end_if_unseen
    visible = shown(rest["secrets"], as_json)
    rows = wanted(session, match, everything=rest["everything"], shown=visible)
    if as_json:
        print_messages(rows, flush=True)
    else:
        parts = (rest["messages"], rest["tree"], rest["hexed"])
        print_lines(rows, session, rest["times"], screen, parts)


def _dashboard(
    session: LiveSession, match: Match, expression: str, endpoint_names: dict[str, str]
) -> None:
    """Show the live dashboard."""
    from netdissect.pipeline import Pipeline  # noqa: PLC0415
    from netdissect.pipeline.live import Chosen, look, watch  # noqa: PLC0415
    from netdissect.render.dashboard import Dashboard  # noqa: PLC0415
    from netdissect.render.dashboard_keys import Controls  # noqa: PLC0415

    records = session.record_maker()
    chosen = Chosen(records)
    pipeline = Pipeline(
        session.choices.options(on_anomaly=session.discard, on_report=session.discard),
        recorder=records.recorder,
        observer=records,
    )

    def apply(wanted: Match) -> None:
        records.held.live = not wanted.waits
        test = None if wanted.filter is None else wanted.datagram
        chosen.filter(test and (lambda one: test(one, session.first_ns)))

    def choose(text: str) -> str:
        try:
            apply(Match.compile(text or None, session))
        except FilterError as error:
            return safe(str(error), 300)
        return ""

    def seen(wish: ViewRequest) -> LiveView:
        return look(session.feed, pipeline, wish, chosen)

    def refresh() -> None:
        session.end_if_unseen()
        dashboard.refresh(seen)

    apply(match)
    controls = Controls(session.feed.stop, choose)
    with Dashboard(controls, names=endpoint_names, expression=expression) as dashboard:
        session.feed.on_tick = refresh
        watch(session.feed, pipeline, chosen, lambda: dashboard.keep(seen))


def _endpoint(address: str) -> Endpoint:
    from netdissect.export.metrics import Endpoint  # noqa: PLC0415

    return Endpoint(address)


def _serve(session: LiveSession, served: Endpoint) -> None:
    """Serve metrics while the capture runs."""
    from netdissect.export.metrics import Facts  # noqa: PLC0415
    from netdissect.pipeline import Pipeline  # noqa: PLC0415
    from netdissect.pipeline.live import ServerTotals, watch  # noqa: PLC0415

    totals = ServerTotals()
    pipeline = Pipeline(session.choices.options(on_anomaly=session.discard, on_report=totals.ended))
    due = 0.0

    def refresh() -> None:
        nonlocal due
        now = monotonic()
        if now >= due:
            feed = session.feed
            rows = totals.now(pipeline.tracked())
            served.facts = Facts(feed.packets, feed.own_drops, pipeline.other_datagrams, rows)
            # Updates take at most 10% of the time, however many connections there are.
            due = now + max(_REFRESH_S, 10 * (monotonic() - now))

    session.say(f"metrics at http://{served.address}/metrics")
    session.feed.on_tick = refresh
    try:
        watch(session.feed, pipeline, at_end=refresh)
    finally:
        served.close()


def _list_interfaces(look: Look, *, as_json: bool) -> None:
    from netdissect.pipeline.live import interfaces  # noqa: PLC0415

    if as_json:
        print_json(
            {
                "schema": 1,
                "number": one.index or None,
                "interface": one.name,
                "up": one.up,
                "loopback": one.loopback,
                "addresses": list(one.addresses),
            }
            for one in interfaces()
        )
        return
    screen = look.screen()
    for one in interfaces():
        facts = ["up" if one.up else "down", *(["loopback"] if one.loopback else [])]
        screen.line(
            (f"{one.index or '':>3} ", "dim"),
            (f"{one.name:<16}", "name"),
            (f" {', '.join([*facts, *one.addresses])}" if one.index else " all interfaces", ""),
        )
