"""What each key does. A key does the same thing in every view."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from netdissect.browse import navigation, output
from netdissect.browse.browser import Browser
from netdissect.browse.explanations import explain
from netdissect.browse.pane import CONNECTIONS, FINDINGS, PACKETS, PLOTS, TIME
from netdissect.browse.plots import Plots
from netdissect.browse.units import Units
from netdissect.model.errors import NetdissectError
from netdissect.model.names import FieldInfo
from netdissect.model.text import quoted
from netdissect.render.console import Line, cells

HELP = """\
 Esc or ? closes this. A letter means the same in every view.
 Move    j k ↓ ↑  PgUp PgDn  g G     h l ← → fold, unfold; earlier, later
 Views   1 2 3 4 5                   Tab next pane, S-Tab back, \\ pane full
 Open    Enter deeper                Backspace or b: back to where you were
 Jump    n N next, previous mark     ] [ next, previous of the connection
         u U never acknowledged      o other copy, a its acknowledgement
         v the deciding frame        e explain what is under the cursor
         # go to a frame             @ to a time: 12.5, +1.2, 03:15:02
 Find    / filter                    * filter on this value, ! on its opposite
         f search text, then n N     Esc undoes the filter, then the scope
 Look    x bits or hexadecimal       d times: since what, or of day
         i packets by message        < > other plot, L other direction
         L ladder of all datagrams   ( ) from here, to here, or drag over it
         s S sort, reverse           + - 0 zoom lanes or plot: in, out, all
         c other columns             D decode a port as a protocol
 Keep    m a sets mark a             ' a goes back to it
 Live    p pause, continue           F follow the end
 Take    y copy the line             Y copy the filter
         w write what is shown       r write the report
 Leave   q                           Ctrl-C stops the reading, then quits
 Else    : a command by its name     R read the file again
"""

_HINTS: Final = {
    (CONNECTIONS, 0): "⏎ open  v deciding frame  3 time  / filter  s sort  Tab pane  e explain"
    "  c columns  r report",
    (PACKETS, 0): "Tab tree  n/N mark  o other copy  a its ack  ⌫ back  / filter"
    "  e explain  i messages  f search  c columns  # frame  @ time  m mark  w write",
    (PACKETS, 1): "j/k field  h/l fold  * filter on it  x bits  Tab bytes  ⌫ back  e explain",
    (PACKETS, 2): "j/k scroll  x bits  Tab list  \\ full and back  ⌫ back",
    (TIME, 0): "⏎ frame  L all datagrams  s order  Tab ladder  2 packets  4 plots  / filter",
    (TIME, 1): "j/k scroll  L all datagrams  Tab units  \\ full and back  ⌫ back",
    (PLOTS, 0): "←/→ walk  < > other plot  + - 0 zoom  L direction  ⏎ frame  ( ) span  e explain",
    (FINDINGS, 0): "⏎ first frame  * filter on it  / filter  Tab explanation  e in full",
}
"""(view, pane) -> its keys, the most used first."""
_SCROLL_HINT: Final = "j/k scroll  Tab pane  \\ full and back  ⌫ back"
_LAST_HINT: Final = "  ? help  q quit"
"""Keys that are always named."""
_LAST_HINT_KEYS: Final = 2
_ASCII_KEYS: Final = {"⏎": "Enter", "⌫": "b", "←/→": "h/l", "↑": "Up"}
"""Key -> its name if only ASCII may be shown."""
_HELP_COLUMNS: Final = 74
_SECOND_COLUMN: Final = 37
"""Where the second column of the help begins."""
_STEPS = {"j": 1, "down": 1, "k": -1, "up": -1}
_PAGES = {"pagedown": (1, 1), "pageup": (1, -1), "ctrl+d": (2, 1), "ctrl+u": (2, -1)}
"""Key -> (part of a page, direction)."""


def hints(browser: Browser, width: int) -> str:
    """Return the keys of the focused pane, the most used first, as many as there is room for."""
    loaded = browser.backend.loaded
    paused = browser.packets.paused is not None
    first = f"p {'continue' if paused else 'pause'}  " if loaded.live or paused else ""
    if loaded.live:
        first += "F follow the end  "
    if not loaded.ready:
        first = "Ctrl-C stop reading  "
    text = f"{first}{_HINTS.get((browser.view, browser.focus)) or _SCROLL_HINT}{_LAST_HINT}"
    if browser.findings.walked[0]:
        text = text.replace("n/N mark", f"n/N next {browser.findings.walked[0]}")
    if browser.prompt is not None:
        more = "Tab complete  ↑ history  " if browser.prompt.has_offers else ""
        text = f"⏎ accept  {more}Esc cancel"
    elif browser.help:
        text = "Esc close  j k scroll"
    if browser.plain:
        for sign, name in _ASCII_KEYS.items():
            text = text.replace(sign, name)
    words = text.split("  ")
    while len(words) > _LAST_HINT_KEYS and cells("  ".join(words)) > width:
        del words[-_LAST_HINT_KEYS - 1]
    return "  ".join(words)


def help_lines(width: int, *, plain: bool) -> list[Line]:
    """Return the help; if it is too wide, its two columns one below the other."""
    lines: list[Line] = []
    for line in HELP.splitlines():
        # In ASCII the arrows would become letters of other keys.
        text = line.replace("↓ ↑", "   ").replace("← →", "   ") if plain else line
        if width >= _HELP_COLUMNS or not text:
            lines.append([(text, "")])
            continue
        name = text[1:9].strip() if text[8:9] == " " else ""
        said = text[9:] if text[8:9] == " " else text
        second = _SECOND_COLUMN - 9
        two = said[second - 2 : second] == "  "
        for part in (said[:second], said[second:]) if two else (said,):
            for row in textwrap.wrap(part.strip(), width - 10):
                lines.append([(f" {name:<7}{row}", "")])
                name = ""
    return lines


def press(browser: Browser, key: str, character: str | None = None) -> None:
    """Process one key, given by its name in Textual and the character that it types."""
    browser.say("")
    if key == "ctrl+c":
        browser.leaving = not browser.backend.halt()
    elif browser.prompt is not None:
        prompt = browser.prompt
        if prompt.press(key, character) and browser.prompt is prompt:
            browser.prompt = None
    elif browser.pending:
        pending, browser.pending = browser.pending, ""
        if character and character.isalnum():
            (browser.mark if pending == "m" else browser.to_mark)(character)
    else:
        name = character if character and character.isprintable() and character != " " else key
        if name in _ACTIONS:
            _ACTIONS[name](browser)
        elif not _moved(browser, name):
            browser.say(f"{name}: no such key; ? lists them")


def _moved(browser: Browser, name: str) -> bool:
    """Move the cursor of the focused pane; return False if the key is none that does so."""
    pane = browser.pane
    if name in _STEPS:
        pane.move(_STEPS[name])
    elif name in _PAGES:
        part, by = _PAGES[name]
        pane.move(by * (pane.page // part))
    elif name in {"g", "home", "G", "end"}:
        pane.go(0 if name in {"g", "home"} else max(0, len(pane) - 1))
    elif name in {"h", "left", "l", "right"}:
        by = 1 if name in {"l", "right"} else -1
        if pane is browser.plots:
            browser.plots.step(by)
        elif pane is browser.units:
            browser.units.step(by)
        elif pane is browser.tree:
            browser.tree.fold(closed=by < 0)
    else:
        return False
    return True


# -- actions, in the order of COMMANDS -------------------------------------------------------------


def _view(number: int, browser: Browser) -> None:
    browser.open(number)


def _next_pane(by: int, browser: Browser) -> None:
    browser.focus = (browser.focus + by) % len(browser.panes)


def _full(browser: Browser) -> None:
    browser.full = not browser.full


def _to_frame(browser: Browser) -> None:
    def go(text: str) -> None:
        if text.isdecimal():
            browser.open(PACKETS, frame=int(text[:12]))

    browser.ask("Go to frame #", go)


def _to_time(browser: Browser) -> None:
    def go(text: str) -> None:
        here, index = browser.packets.row(), browser.index
        time_ns = browser.clock.read(text, index.times[here] if here is not None else 0)
        if time_ns is None:
            browser.say(f"{quoted(text)} is not a time such as 12.5, +1.2 or 03:15:02")
        elif index.rows:
            browser.open(PACKETS)
            browser.packets.go(browser.packets.place(index.at_time(time_ns)))

    browser.ask("Go to time @", go)


def _filter_on_value(form: str, browser: Browser) -> None:
    """Add the value under the cursor to the filter, in a form such as `not ({})`."""
    found = output.value_filter(browser)
    if found is None:
        browser.say("no filter can match this value")
        return
    browser.add_filter(form.format(found))


def _escape(browser: Browser) -> None:
    """Close what is open, else remove the filter, else show all connections."""
    if browser.help:
        browser.help = False
    elif browser.expression:
        browser.undo_filter()
    elif browser.connection is not None:
        browser.scope(None)


def _search(browser: Browser) -> None:
    browser.ask("Search ", partial(navigation.search, browser))


def _bits(browser: Browser) -> None:
    browser.octets.bitwise = not browser.octets.bitwise


def _messages(browser: Browser) -> None:
    if browser.view == PACKETS:
        browser.packets.toggle_messages()
    else:
        browser.say("packets can be listed by message; 2 shows them")


def _time_style(browser: Browser) -> None:
    browser.say(browser.clock.turn())


def _columns(browser: Browser) -> None:
    if browser.view == CONNECTIONS:
        browser.connections.traffic = not browser.connections.traffic
    elif browser.view == PACKETS:
        browser.packets.endpoints = not browser.packets.endpoints
    else:
        browser.say("connections and packets have other columns")


def _other(browser: Browser) -> None:
    """Show the other ladder, or the plot of the other direction."""
    if browser.view == TIME:
        browser.units.everything = not browser.units.everything
    else:
        browser.plots.next_chart()


def _timed(browser: Browser) -> Plots | Units | None:
    """Return the pane that shows a span of time; if there is none, say so."""
    if browser.view in {PLOTS, TIME}:
        return browser.plots if browser.view == PLOTS else browser.units
    browser.say("time and plots can be zoomed; 3 and 4 show them")
    return None


def _zoom(by: int, browser: Browser) -> None:
    pane = _timed(browser)
    if pane is not None and not pane.zoom(by):
        browser.say("this is all there is" if by <= 0 else "no closer than this")


def _start_span(browser: Browser) -> None:
    pane = _timed(browser)
    if pane is not None and (here := pane.cursor_ns()) is not None:
        pane.window.start_mark = here
        browser.say("the span starts here; ) ends it")


def _end_span(browser: Browser) -> None:
    pane = _timed(browser)
    if pane is None or (here := pane.cursor_ns()) is None:
        return
    if pane.window.start_mark is None:
        browser.say("( starts a span")
        return
    browser.say(pane.select_span(pane.window.start_mark, here))
    pane.window.start_mark = None


def _pend(first: str, browser: Browser) -> None:
    """Wait for the second key of a command."""
    browser.pending = first
    browser.say("a letter or digit names the mark")


def _decode(browser: Browser) -> None:
    row = browser.packets.row()
    port = ""
    if row is not None:
        party = browser.index.party(row)
        port = f"{party.transport}.port=={party.dst.rpartition(':')[2]},"

    def decode(rule: str) -> None:
        if rule:
            _read_again(browser, rule)

    browser.ask("Decode ", decode, port, browser.backend.protocols())


def _read_again(browser: Browser, rule: str = "") -> None:
    """Read the file again, as it is now, with one more rule of `-d` if there is one."""
    try:
        browser.replacement = browser.backend.again(rule)
    except NetdissectError as error:
        browser.say(str(error))


def _pause(browser: Browser) -> None:
    if browser.backend.loaded.live or browser.packets.paused is not None:
        browser.pause()
    else:
        browser.say("only a running capture can be paused")


def _follow(browser: Browser) -> None:
    browser.packets.go(len(browser.packets) - 1)


def _copy(browser: Browser) -> None:
    browser.copied = output.line_text(browser)
    browser.say("the line is copied, if the terminal allows it")


def _copy_filter(browser: Browser) -> None:
    browser.copied = browser.expression
    browser.say("the filter is copied, if the terminal allows it")


def _write(browser: Browser) -> None:
    browser.ask("Write what is shown to ", partial(output.write, browser))


def _report(browser: Browser) -> None:
    browser.ask("Write the report to ", partial(output.report, browser), "report.html")


def _help(browser: Browser) -> None:
    browser.help, browser.explanation = not browser.help, None
    browser.focus = 0


def _quit(browser: Browser) -> None:
    if browser.help:
        browser.help = False
    else:
        browser.leaving = True


def _by_name(browser: Browser) -> None:
    """Ask for a command by its name, and run it."""

    def run(text: str) -> None:
        word = text.strip().lower()
        found = [command for command in COMMANDS if command.name == word] or [
            command for command in COMMANDS if word and command.name.startswith(word)
        ]
        if len(found) != 1:
            why = "several commands begin like this" if found else "no such command"
            browser.say(f"{quoted(text)}: {why}; Tab completes")
            return
        browser.prompt = None
        found[0].run(browser)

    names = [FieldInfo(command.name, "command", command.meaning) for command in COMMANDS]
    browser.ask(":", run, names=names)


class Command(NamedTuple):
    """Something that a key does."""

    key: str
    """Its name in Textual, or its character."""
    name: str
    """What to type after `:`."""
    meaning: str
    run: Callable[[Browser], None]


COMMANDS: Final = (
    Command("1", "connections", "the connections, worst first", partial(_view, CONNECTIONS)),
    Command("2", "packets", "the packets, with tree and bytes", partial(_view, PACKETS)),
    Command("3", "time", "lanes, slowest messages, ladder", partial(_view, TIME)),
    Command("4", "plots", "plots of the connection", partial(_view, PLOTS)),
    Command("5", "findings", "what was found", partial(_view, FINDINGS)),
    Command("enter", "open", "one level deeper", Browser.deeper),
    Command("backspace", "back", "back to where you were", Browser.back),
    Command("tab", "next-pane", "the next pane", partial(_next_pane, 1)),
    Command("shift+tab", "previous-pane", "the previous pane", partial(_next_pane, -1)),
    Command("\\", "full", "the pane full, and back", _full),
    Command("n", "next", "the next mark", partial(navigation.next_mark, by=1)),
    Command("N", "previous", "the previous mark", partial(navigation.next_mark, by=-1)),
    Command("]", "next-of-connection", "the next packet of the connection",
            partial(navigation.next_of_connection, by=1)),
    Command("[", "previous-of-connection", "the previous packet of the connection",
            partial(navigation.next_of_connection, by=-1)),
    Command("u", "unacknowledged", "the next one that was never acknowledged",
            partial(navigation.next_unacknowledged, by=1)),
    Command("U", "unacknowledged-before", "the previous one that was never acknowledged",
            partial(navigation.next_unacknowledged, by=-1)),
    Command("o", "copy-of", "another copy", navigation.other_copy),
    Command("a", "acknowledgement", "its acknowledgement", navigation.acknowledgement),
    Command("v", "deciding", "the frame that decides the verdict", Browser.deciding),
    Command("#", "frame", "go to a frame", _to_frame),
    Command("@", "second", "go to a time: 12.5, +1.2, 03:15:02", _to_time),
    Command("e", "explain", "what is under the cursor", explain),
    Command("/", "filter", "show only what matches", Browser.ask_filter),
    Command("*", "filter-this", "filter on this value", partial(_filter_on_value, "{}")),
    Command("!", "filter-not-this", "filter on its opposite",
            partial(_filter_on_value, "not ({})")),
    Command("escape", "all", "undo the filter, then the scope", _escape),
    Command("f", "search", "search text", _search),
    Command("x", "bits", "bits or hexadecimal", _bits),
    Command("i", "messages", "packets by message, and back", _messages),
    Command("d", "clock", "times: of capture, of connection, since the line above, of day",
            _time_style),
    Command("s", "sort", "another order", Browser.sort),
    Command("S", "reverse", "the order reversed", partial(Browser.sort, reverse=True)),
    Command("c", "columns", "other columns", _columns),
    Command("<", "plot-before", "the previous plot", lambda browser: browser.plots.turn(-1)),
    Command(">", "plot-next", "the next plot", lambda browser: browser.plots.turn(1)),
    Command("L", "other", "ladder of all datagrams; plot of the other direction", _other),
    Command("+", "zoom-in", "a quarter of the time", partial(_zoom, 1)),
    Command("-", "zoom-out", "four times as much of it", partial(_zoom, -1)),
    Command("0", "zoom-all", "all of it", partial(_zoom, 0)),
    Command("(", "from-here", "start of a span of time", _start_span),
    Command(")", "to-here", "end of the span, which is then shown", _end_span),
    Command("m", "mark", "remember this place under a letter", partial(_pend, "m")),
    Command("'", "to-mark", "go to a mark", partial(_pend, "'")),
    Command("D", "decode-as", "decode a port as a protocol", _decode),
    Command("R", "read-again", "read the file again, as it is now", _read_again),
    Command("p", "pause", "pause a running capture, continue", _pause),
    Command("F", "follow", "follow the end", _follow),
    Command("y", "copy", "copy the line", _copy),
    Command("Y", "copy-filter", "copy the filter", _copy_filter),
    Command("w", "write", "write what is shown", _write),
    Command("r", "report", "write the report", _report),
    Command("?", "help", "the keys", _help),
    Command("q", "quit", "close this, then quit", _quit),
)  # fmt: skip

_ACTIONS: Final[dict[str, Callable[[Browser], None]]] = {
    **{command.key: command.run for command in COMMANDS},
    "b": Browser.back,
    ":": _by_name,
}
"""Key -> what it does; without those that move the cursor."""
