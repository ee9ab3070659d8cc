"""What each key does: the same in every view."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Final

from netdissect.browse import taking, walking
from netdissect.browse.browser import Browser
from netdissect.browse.explaining import explain
from netdissect.browse.pane import CONNECTIONS, FINDINGS, PACKETS, PLOTS, TIME
from netdissect.browse.time import Plots, Units
from netdissect.model.errors import NetdissectError
from netdissect.model.names import FieldInfo
from netdissect.model.text import quoted
from netdissect.render.console import Line, cells

__all__ = ["ACTIONS", "COMMANDS", "HELP", "help_lines", "hints", "press"]

HELP = """\
 Esc or ? closes this. A letter means the same in every view.
 Move    j k ↓ ↑  PgUp PgDn  g G     h l ← → fold, unfold; earlier, later
 Views   1 2 3 4 5                   Tab next pane, S-Tab back, \\ pane full
 Open    Enter deeper                Backspace or b: back to where you were
 Jump    n N next, previous mark     ] [ next, previous of the connection
         u U never acknowledged      o other copy, a its acknowledgement
         v the frame that decides the verdict
         # go to a frame             @ go to a time in seconds
         e explain what is under the cursor
 Find    / filter                    * filter on this value, ! on its opposite
         f search text, then n N     Esc takes the filter, then the scope back
 Look    x bits or hexadecimal       d time: first, previous, of day
         s S sort, reverse           < > other plot, L its other direction
         c other columns             + - 0 zoom lanes or plot: in, out, all
                                     ( ) from here, to here, or drag over it
         D decode a port as a protocol, and read the file again
 Keep    m a sets mark a             ' a goes back to it
 Live    p pause, go on              F follow the end
 Take    y copy the line             Y copy the filter
         w write what is shown       r write the report
 Leave   q                           Ctrl-C stops the reading, then quits
 Else    : a command by its name     Tab completes it
"""

_HINTS: Final = {
    (CONNECTIONS, 0): "⏎ open  v deciding frame  3 time  / filter  s sort  Tab pane  e explain"
    "  c columns  r report",
    (PACKETS, 0): "Tab tree  n/N mark  o other copy  a its ack  ⌫ back  / filter"
    "  e explain  f search  c columns  # frame  @ time  m mark  w write",
    (PACKETS, 1): "j/k field  h/l fold  * filter on it  x bits  Tab bytes  ⌫ back  e explain",
    (PACKETS, 2): "j/k scroll  x bits  Tab list  \\ full and back  ⌫ back",
    (TIME, 0): "⏎ frame  s order  Tab ladder  2 packets  4 plots  / filter",
    (PLOTS, 0): "←/→ walk  < > other plot  + - 0 zoom  L direction  ⏎ frame  ( ) span  e explain",
    (FINDINGS, 0): "⏎ first frame  * filter on it  / filter  Tab explanation  e in full",
}
"""(view, pane) -> its keys, the most used first."""
_SCROLLS: Final = "j/k scroll  Tab pane  \\ full and back  ⌫ back"
_ALWAYS: Final = "  ? help  q quit"
_SPELT: Final = {"⏎": "Enter", "⌫": "b", "←/→": "h/l", "↑": "Up"}
"""Key -> its name where signs are ASCII."""
_TIMES = {"r": "d", "d": "a", "a": "r"}
_HELP_COLUMNS: Final = 74
_SECOND: Final = 37
"""Where the second column of the help begins."""
_LAST: Final = 2
"""Keys at the end that are always told: help and quit."""
_ROOTS = {"j": 1, "down": 1, "k": -1, "up": -1}


def hints(browser: Browser, width: int) -> str:
    """Return the keys of the pane in focus, the most used first; on a narrow screen without those
    that the help tells.
    """
    loaded = browser.backend.loaded
    first = "p pause  F follow the end  " if loaded.live else ""
    if not loaded.ready:
        first = "Ctrl-C stop reading  "
    text = f"{first}{_HINTS.get((browser.view, browser.focus)) or _SCROLLS}{_ALWAYS}"
    if browser.prompt is not None:
        more = "Tab completes  ↑ typed before  " if browser.prompt.has_offers else ""
        text = f"⏎ takes it  {more}Esc leaves it as it was"
    elif browser.help:
        text = "Esc close  j k scroll"
    if browser.plain:
        for sign, name in _SPELT.items():
            text = text.replace(sign, name)
    words = text.split("  ")
    while len(words) > _LAST and cells("  ".join(words)) > width:
        del words[-_LAST - 1]
    return "  ".join(words)


def press(browser: Browser, key: str, character: str | None = None) -> None:
    """Take one key, by Textual's name and the character that it types."""
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
        if not (_moved(browser, name) or _done(browser, name)) and name != "escape":
            browser.say(f"{name}: no such key; ? lists them")


def _moved(browser: Browser, name: str) -> bool:
    pane = browser.pane
    last = max(0, len(pane) - 1)
    if name in _ROOTS:
        pane.move(_ROOTS[name])
    elif name in {"g", "home"}:
        pane.go(0)
    elif name in {"G", "end"}:
        pane.go(last)
    elif name in {"pagedown", "pageup"}:
        pane.move(pane.page if name == "pagedown" else -pane.page)
    elif name in {"ctrl+d", "ctrl+u"}:
        pane.move(pane.page // 2 if name == "ctrl+d" else -(pane.page // 2))
    elif name in {"h", "left", "l", "right"}:
        _sideways(browser, 1 if name in {"l", "right"} else -1)
    else:
        return False
    return True


def _sideways(browser: Browser, by: int) -> None:
    if browser.pane is browser.plots:
        browser.plots.step(by)
    elif browser.pane is browser.tree:
        browser.tree.fold(closed=by < 0)


def _done(browser: Browser, name: str) -> bool:
    action = ACTIONS.get(name)
    if action is None:
        return False
    action(browser)
    return True


def _view(number: int) -> Callable[[Browser], None]:
    return lambda browser: browser.open(number)


def _pane(by: int) -> Callable[[Browser], None]:
    def turn(browser: Browser) -> None:
        browser.focus = (browser.focus + by) % len(browser.panes)

    return turn


def _escape(browser: Browser) -> None:
    if browser.help:
        browser.help = False
    elif browser.expression:
        browser.filter("")
    elif browser.connection is not None:
        browser.scope(None)


def _quit(browser: Browser) -> None:
    if browser.help:
        browser.help = False
    else:
        browser.leaving = True


def _help(browser: Browser) -> None:
    browser.help, browser.explained = not browser.help, None
    browser.focus = 0


def _columns(browser: Browser) -> None:
    if browser.view == CONNECTIONS:
        browser.connections.traffic = not browser.connections.traffic
    elif browser.view == PACKETS:
        browser.packets.ends = not browser.packets.ends
    else:
        browser.say("connections and packets have other columns")


def _timed(browser: Browser) -> tuple[Plots | Units, int | None] | None:
    """Return what shows a span of the time, and the time under its cursor."""
    if browser.view == PLOTS:
        point = browser.plots.here()
        return browser.plots, None if point is None else point.time_ns
    if browser.view == TIME:
        unit = browser.units.unit()
        return browser.units, None if unit is None else unit.copies[0].time_ns
    browser.say("time and plots can be zoomed; 3 and 4 show them")
    return None


def _from_here(browser: Browser) -> None:
    here = _timed(browser)
    if here is None or here[1] is None:
        return
    here[0].began = here[1]
    browser.say("from here on; ) says where it ends")


def _to_here(browser: Browser) -> None:
    here = _timed(browser)
    if here is None or here[1] is None:
        return
    if here[0].began is None:
        browser.say("( says where the span begins")
        return
    browser.say(here[0].span(here[0].began, here[1]))
    here[0].began = None


def _decode(browser: Browser) -> None:
    row = browser.packets.row()
    port = ""
    if row is not None:
        party = browser.index.parties[browser.index.owners[row]]
        port = f"{party.transport}.port=={party.dst.rpartition(':')[2]},"

    def read_again(rule: str) -> None:
        if not rule:
            return
        try:
            browser.restarted = browser.backend.decoded_as(rule)
        except NetdissectError as error:
            browser.say(str(error))

    browser.typed("Decode ", read_again, port, browser.backend.protocols())


def _by_name(browser: Browser) -> None:
    def run(text: str) -> None:
        word = text.strip().lower()
        found = [key for key, name, _ in COMMANDS if name == word] or [
            key for key, name, _ in COMMANDS if word and name.startswith(word)
        ]
        if len(found) != 1:
            why = "several commands begin so" if found else "no such command"
            browser.say(f"{quoted(text)}: {why}; Tab completes")
            return
        browser.prompt = None
        _done(browser, found[0])

    names = [FieldInfo(name, "command", meaning) for _, name, meaning in COMMANDS]
    browser.typed(":", run, among=names)


def help_lines(width: int, *, plain: bool) -> list[Line]:
    """Return the help; where it is too wide its two columns one below the other."""
    lines: list[Line] = []
    for line in HELP.splitlines():
        # What stands for arrows in ASCII are letters of other keys.
        text = line.replace("↓ ↑", "   ").replace("← →", "   ") if plain else line
        if width >= _HELP_COLUMNS or not text:
            lines.append([(text, "")])
            continue
        name = text[1:9].strip() if text[8:9] == " " else ""
        said = text[9:] if text[8:9] == " " else text
        second = _SECOND - 9
        two = said[second - 2 : second] == "  "
        for part in (said[:second], said[second:]) if two else (said,):
            for row in textwrap.wrap(part.strip(), width - 10):
                lines.append([(f" {name:<7}{row}", "")])
                name = ""
    return lines


def _on_value(form: str) -> Callable[[Browser], None]:
    def ask(browser: Browser) -> None:
        found = taking.value_filter(browser)
        if found is None:
            browser.say("there is no value here that a filter can ask for")
            return
        wanted = form.format(found)
        before = browser.expression
        browser.filter(f"({before}) and {wanted}" if before else wanted)

    return ask


def _time(browser: Browser) -> None:
    browser.clock.style = _TIMES.get(browser.clock.style, "r")


def _to_frame(browser: Browser) -> None:
    def go(text: str) -> None:
        if text.isdecimal():
            browser.open(PACKETS, frame=int(text[:12]))

    browser.typed("Go to frame #", go)


def _to_time(browser: Browser) -> None:
    def go(text: str) -> None:
        try:
            since = float(text)
        except ValueError:
            browser.say(f"{quoted(text)} is no time in seconds")
            return
        if abs(since) < 1e12 and browser.index.rows:  # noqa: PLR2004 - fits 64 bits
            time_ns = max(0, (browser.clock.first_ns or 0) + int(since * 1e9))
            row = browser.index.at_time(time_ns)
            browser.open(PACKETS)
            browser.packets.go(browser.packets.place(row))

    browser.typed("Go to second @", go)


def _turn(by: int) -> Callable[[Browser], None]:
    def turn(browser: Browser) -> None:
        browser.plots.turn(by)

    return turn


def _zoom(by: int) -> Callable[[Browser], None]:
    def zoom(browser: Browser) -> None:
        here = _timed(browser)
        if here is not None and not here[0].zoom(by):
            browser.say("this is all there is" if by <= 0 else "no closer than this")

    return zoom


def _bits(browser: Browser) -> None:
    browser.octets.bitwise = not browser.octets.bitwise


def _full(browser: Browser) -> None:
    browser.full = not browser.full


def _pause(browser: Browser) -> None:
    if browser.backend.loaded.live or browser.packets.paused is not None:
        browser.pause()
    else:
        browser.say("only a capture that runs can be paused")


def _follow(browser: Browser) -> None:
    browser.packets.go(len(browser.packets) - 1)


def _reverse(browser: Browser) -> None:
    browser.connections.reverse = not browser.connections.reverse
    browser.connections.take(browser.connections.all)


def _copy(browser: Browser) -> None:
    browser.copied = taking.text_here(browser)
    browser.say("the line is copied, if the terminal allows it")


def _copy_filter(browser: Browser) -> None:
    browser.copied = browser.expression
    browser.say("the filter is copied, if the terminal allows it")


def _pend(letter: str) -> Callable[[Browser], None]:
    def wait(browser: Browser) -> None:
        browser.pending = letter
        browser.say("a letter or digit names the mark")

    return wait


ACTIONS: dict[str, Callable[[Browser], None]] = {
    **{str(number + 1): _view(number) for number in range(5)},
    "tab": _pane(1),
    "shift+tab": _pane(-1),
    "\\": _full,
    "enter": lambda browser: browser.deeper(),
    "backspace": lambda browser: browser.back(),
    "b": lambda browser: browser.back(),
    "n": lambda browser: walking.next_mark(browser, 1),
    "N": lambda browser: walking.next_mark(browser, -1),
    "]": lambda browser: walking.of_connection(browser, 1),
    "[": lambda browser: walking.of_connection(browser, -1),
    "u": lambda browser: walking.unacknowledged(browser, 1),
    "U": lambda browser: walking.unacknowledged(browser, -1),
    "o": walking.other_copy,
    "a": walking.acknowledgement,
    "v": lambda browser: browser.deciding(),
    "#": _to_frame,
    "@": _to_time,
    "/": lambda browser: browser.ask_filter(),
    "*": _on_value("{}"),
    "!": _on_value("not ({})"),
    "escape": _escape,
    "f": lambda browser: browser.typed("Search ", lambda text: walking.search(browser, text)),
    "p": _pause,
    "F": _follow,
    "x": _bits,
    "d": _time,
    "s": lambda browser: browser.sort(),
    "S": _reverse,
    "<": _turn(-1),
    ">": _turn(1),
    "+": _zoom(1),
    "-": _zoom(-1),
    "0": _zoom(0),
    "L": lambda browser: browser.plots.other(),
    "m": _pend("m"),
    "'": _pend("'"),
    "y": _copy,
    "Y": _copy_filter,
    "w": lambda browser: browser.typed(
        "Write what is shown to ", lambda path: taking.write(browser, path)
    ),
    "r": lambda browser: browser.typed(
        "Write the report to ", lambda path: taking.report(browser, path), "report.html"
    ),
    "c": _columns,
    "e": explain,
    "D": _decode,
    "(": _from_here,
    ")": _to_here,
    ":": _by_name,
    "?": _help,
    "q": _quit,
}
"""Key -> what it does."""

COMMANDS: Final = (
    ("1", "connections", "the connections, worst first"),
    ("2", "packets", "the packets, with tree and bytes"),
    ("3", "time", "lanes, slowest messages, ladder"),
    ("4", "plots", "pictures of the connection"),
    ("5", "findings", "what was found"),
    ("enter", "open", "one level deeper"),
    ("backspace", "back", "back to where you were"),
    ("tab", "next-pane", "the next pane"),
    ("shift+tab", "previous-pane", "the pane before"),
    ("\\", "full", "the pane full, and back"),
    ("n", "next", "the next mark"),
    ("N", "previous", "the mark before"),
    ("]", "next-of-connection", "the next packet of the connection"),
    ("[", "previous-of-connection", "the packet of the connection before"),
    ("u", "unacknowledged", "the next that was never acknowledged"),
    ("U", "unacknowledged-before", "the one before that was never acknowledged"),
    ("o", "copy-of", "another copy"),
    ("a", "acknowledgement", "its acknowledgement"),
    ("v", "deciding", "the frame that decides the verdict"),
    ("#", "frame", "go to a frame"),
    ("@", "second", "go to a time in seconds"),
    ("e", "explain", "what is under the cursor"),
    ("/", "filter", "show only what matches"),
    ("*", "filter-this", "filter on this value"),
    ("!", "filter-not-this", "filter on its opposite"),
    ("escape", "all", "take the filter, then the scope back"),
    ("f", "search", "search text"),
    ("x", "bits", "bits or hexadecimal"),
    ("d", "clock", "times: since the first, the previous, of day"),
    ("s", "sort", "another order"),
    ("S", "reverse", "the order reversed"),
    ("c", "columns", "other columns"),
    ("<", "plot-before", "the plot before"),
    (">", "plot-next", "the next plot"),
    ("L", "direction", "the plot of the other direction"),
    ("+", "zoom-in", "a quarter of the time"),
    ("-", "zoom-out", "four times as much of it"),
    ("0", "zoom-all", "all of it"),
    ("(", "from-here", "a span of lanes or plot begins"),
    (")", "to-here", "it ends, and is shown"),
    ("m", "mark", "remember this place under a letter"),
    ("'", "to-mark", "go to a mark"),
    ("D", "decode-as", "decode a port as a protocol"),
    ("p", "pause", "pause what runs, go on"),
    ("F", "follow", "follow the end"),
    ("y", "copy", "copy the line"),
    ("Y", "copy-filter", "copy the filter"),
    ("w", "write", "write what is shown"),
    ("r", "report", "write the report"),
    ("?", "help", "the keys"),
    ("q", "quit", "close this, then leave"),
)
"""(key, name, meaning) of all that `:` can do."""
