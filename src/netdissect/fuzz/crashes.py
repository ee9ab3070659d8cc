"""Reads stack traces in the output of a target: the fault, and where in its own code it happened.

Two crashes are of one kind if they have the same fault and the same three innermost frames in the
target's own code. Frames of sanitizers, the C library and language runtimes are skipped.
The traces of AddressSanitizer and its siblings, UBSan, Go, Rust, Java, .NET and Mono, Python and
Godot are known, and the messages of glibc and libstdc++. No output of a target makes this raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

OWN_FRAMES = 3
"""Number of innermost frames in the target's own code that identify a crash."""
FRAME_LIMIT = 256
"""Maximum number of frames read from one trace."""
LINE_LIMIT = 4096
"""Maximum number of characters read from a line."""
LINES_LIMIT = 20_000
"""Lines kept while a trace is incomplete; beyond this, the oldest are dropped."""
_APART = 64
"""Maximum number of lines by other threads between two frames of a sanitizer's stack."""
_NAME_LIMIT = 160
_NUMBER = re.compile(r"-?(0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]*([.][0-9]+)?)")


def without_numbers(text: str) -> str:
    """Return a text with `N` for each number: addresses, sizes and counts differ each time."""
    return _NUMBER.sub("N", text)


@dataclass(frozen=True, slots=True)
class Crash:
    """One stack trace."""

    fault: str
    """What went wrong, without numbers: `AddressSanitizer: heap-buffer-overflow`."""
    frames: tuple[str, ...] = ()
    """Up to three frames in the target's own code, innermost first: `read_name packet.cpp:10`."""
    counts: bool = True
    """True if the trace is a failure even when the process keeps running: a sanitizer's report, an
    uncaught exception. False for a trace that a healthy target may log."""
    ends: bool = False
    """True if the process usually ends soon after."""
    said: str = ""
    """The fault in the target's words, with its numbers."""
    looks_up: bool = False
    """True if the process looks up symbols while it prints, which may take seconds."""

    @property
    def kind(self) -> str:
        """Return a text that is the same for all crashes of one kind."""
        return self._at(self.fault)

    @property
    def text(self) -> str:
        """Return a description with the fault in the target's words."""
        return self._at(self.said or self.fault)

    def _at(self, fault: str) -> str:
        return fault + (f" in {' < '.join(self.frames)}" if self.frames else "")


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame of a stack."""

    name: str
    place: str = ""
    """File and line, or module and offset; with the full path, which shows whose code it is."""

    @property
    def text(self) -> str:
        place = self.place.rpartition("/")[2]
        return f"{self.name[:_NAME_LIMIT]} {place}".strip()


_Reader = Callable[[Sequence[str], int], "tuple[_Frame | None, int]"]
"""Reads the frame at a line; returns (frame, line after it), or (None, same line) if there is none.
"""


@dataclass(frozen=True, slots=True)
class _Format:
    """The format of one family of stack traces."""

    start: re.Pattern[str]
    """Matches the first line: group `fault` is the fault, `place` replaces missing frames."""
    prefix: str = ""
    frame: _Reader | None = None
    slack: int = 0
    """Maximum number of lines between the fault and the first frame."""
    foreign: re.Pattern[str] | None = None
    """Matches function names that are not the target's own."""
    foreign_place: re.Pattern[str] | None = None
    """Matches files and modules that are not the target's own."""
    cause: re.Pattern[str] | None = None
    """Matches a line that names a deeper cause, whose frames follow."""
    message: re.Pattern[str] | None = None
    """Matches a later line that says more about the fault."""
    framed: bool = False
    """True if it is a trace only with at least one frame."""
    numbered: bool = False
    """True if frames are numbered, so that the next one is found behind lines of other threads; an
    empty line ends the stack."""
    counts: re.Pattern[str] | None = None
    """Matches the first lines of traces that are failures even when the process keeps running;
    None = all."""
    ends: bool = True
    """False if the process usually keeps running."""


# --- frames ---------------------------------------------------------------------------------------


def _by(pattern: str, second: str | None = None) -> _Reader:
    """Return a reader of frames with groups `name` and `place` on one line, or on two."""
    first, then = re.compile(pattern), re.compile(second) if second else None

    def read(lines: Sequence[str], at: int) -> tuple[_Frame | None, int]:
        found = first.match(lines[at])
        if found is None:
            return None, at
        groups = found.groupdict()
        name, place = groups.get("name") or "", groups.get("place") or ""
        if groups.get("line"):
            place = f"{place}:{groups['line']}"
        if then is not None and at + 1 < len(lines) and (more := then.match(lines[at + 1])):
            return _Frame(name, more["place"]), at + 2
        return _Frame(name.strip(), place), at + 1

    return read


_NATIVE = re.compile(r"\s+#(?P<number>\d+) (?:0x[0-9a-f]+ )?(?:in )?(?P<rest>\S.*)$")
_NATIVE_PLACES = (
    re.compile(r"(?P<name>.*?) (?P<place>[^\s()]+:\d+)(?::\d+)?(?: \(.*\))?$"),
    re.compile(r"(?P<name>.*?) ?\((?P<place>[^()]*\+0x[0-9a-f]+)\)(?: \(BuildId.*\))?$"),
)


def _native(lines: Sequence[str], at: int) -> tuple[_Frame | None, int]:
    """Read a frame printed by a sanitizer."""
    found = _NATIVE.match(lines[at])
    if found is None:
        return None, at
    rest = found["rest"]
    for form in _NATIVE_PLACES:
        if placed := form.match(rest):
            name = placed["name"].replace("<null>", "").strip()
            return _Frame(name, placed["place"]), at + 1
    return _Frame(rest), at + 1


_NATIVE_FOREIGN = re.compile(
    r"(__(asan|ubsan|tsan|msan|lsan|hwasan|sanitizer|interceptor|GI|libc|gnu|cxa|assert|pthread)_?"
    r"|_start$|abort$|raise$|gsignal$|start_thread$|clone3?$|operator (new|delete)|std::"
    r"|pthread_|(mem|str|wcs)\w+$|(m|c|re)alloc$|free$|<unknown module>)"
)
_NATIVE_FOREIGN_PLACE = re.compile(
    r"(/usr/(include|lib)/|/lib(32|64)?/|\.\./|\./(csu|nptl|stdlib|string|malloc|sysdeps)/"
    r"|.*/libsanitizer/|.*/compiler-rt/|lib(stdc\+\+|c\+\+|[acmtu]san|c|pthread|m)\.so)"
)
_MANAGED = re.compile(
    r"\s+at (?:[\w.@-]*/+)?(?P<name>[\w$.<>/+`|\[\],*-]+(?: ?\(wrapper [^)]*\) ?)?\S*?) ?\("
    r"(?P<inside>.*?)\)(?: \[(?P<offset>0x[0-9a-f]+)\])?"
    r"(?: in (?P<file>.+?):(?:line )?(?P<line>\d+)\s*)?$"
)
_MANAGED_SOURCE = re.compile(r"[\w$-]+\.\w+:\d+$")


def _managed(lines: Sequence[str], at: int) -> tuple[_Frame | None, int]:
    """Read a frame of Java, .NET or Mono."""
    found = _MANAGED.match(lines[at])
    if found is None:
        return None, at
    place = ""
    if found["file"] and found["line"] != "0":
        place = f"{found['file']}:{found['line']}"
    elif found["offset"]:
        place = found["offset"]
    elif _MANAGED_SOURCE.match(found["inside"]):
        place = found["inside"]
    return _Frame(found["name"], place), at + 1


# --- formats --------------------------------------------------------------------------------------

_OMITTED = re.compile(r"\s+\.\.\. \d+ more")
_FAULT_END = re.compile(r" on (unknown )?address| on 0x| \(pid| \(0x|: | in thread|, |$")
_EXCEPTION = r"(?:[\w$.`+]+\.)?[\w$]*(?:Exception|Error|Throwable)"
_INNER = re.compile(rf" ---> (?P<fault>{_EXCEPTION})")
_SANITIZER: dict[str, Any] = {
    "frame": _native, "numbered": True,
    "foreign": _NATIVE_FOREIGN, "foreign_place": _NATIVE_FOREIGN_PLACE,
}  # fmt: skip
_RUST: dict[str, Any] = {
    "prefix": "panic: ",
    "frame": _by(r"\s+\d+: +(?:0x[0-9a-f]+ - )?(?P<name>\S.*)$",
                 r"\s+at (?P<place>\S+?:\d+)(?::\d+)?$"),
    "foreign": re.compile(r"(core|std|alloc)::|<?(core|std|alloc)::|_*rust"),
    "foreign_place": re.compile(r"/rustc/|.*/\.cargo/registry/|.*/rustlib/"),
}  # fmt: skip
_FORMATS: tuple[_Format, ...] = (
    _Format(
        re.compile(r"(?:==\d+==)?(?:ERROR|WARNING): (?P<fault>(?!Leak)\w+Sanitizer: .+)"),
        **_SANITIZER,
    ),
    _Format(
        re.compile(r"Direct (?P<fault>leak) of \d+ byte"), prefix="LeakSanitizer: ", ends=False,
        **_SANITIZER,
    ),
    _Format(
        re.compile(r"(?P<place>\S+:\d+:\d+): runtime error: (?P<fault>.+)"),
        prefix="UBSan: ", ends=False,
        **_SANITIZER,
    ),
    _Format(
        re.compile(r"(?P<fault>panic: .+|fatal error: .+|unexpected fault address .+)"),
        frame=_by(r"(?P<name>(?!goroutine )[\w./*()\[\]·…-]+)\(.*\)$",
                  r"\t(?P<place>\S+\.go:\d+)"),
        slack=6, framed=True, foreign=re.compile(r"(runtime|testing|reflect)\.|panic$"),
        foreign_place=re.compile(r"(/usr/(local|lib)/go(-[\d.]+)?|.*/(goroot|sdk/go[\d.]+))/"),
    ),
    _Format(
        re.compile(r"thread '.*?'(?: \(\d+\))? panicked at (?P<place>\S+:\d+):\d+:$"),
        message=re.compile(r"(?P<fault>.+)"), slack=3, **_RUST,
    ),
    _Format(
        re.compile(r"thread '.*?' panicked at '(?P<fault>.*)', (?P<place>\S+:\d+):\d+$"),
        slack=2, **_RUST,
    ),
    _Format(
        re.compile(
            r'(?:Exception in thread "[^"]*" |\[ERROR\] FATAL UNHANDLED EXCEPTION: '
            rf"|Unhandled [Ee]xception[.:]\s*)?(?P<fault>{_EXCEPTION})(?::.*| --->.*)?$"
        ),
        frame=_managed, slack=4, framed=True,
        foreign=re.compile(r"(java|javax|jdk|sun|com\.sun|kotlin|System|Microsoft|Mono)\.|\(wrapper"),
        cause=re.compile(rf"(?:Caused by: |\s+---> )(?P<fault>{_EXCEPTION})"),
        counts=re.compile(r"Exception in thread|\[ERROR\] FATAL|Unhandled"),
    ),
    _Format(
        re.compile(r"# A (?P<fault>fatal error) has been detected by the Java Runtime"),
        prefix="Java: ", slack=16, frame=_by(r"# [CJVvAj]\s+\[?(?P<name>[^\]]+)\]?.*$"),
        message=re.compile(r"#\s+(?P<fault>SIG\w+|Internal Error|Out of Memory)"),
    ),
    _Format(
        re.compile(r"Fatal Python error: (?P<fault>[^:]+)"), prefix="Python: ", slack=6,
        frame=_by(r'  File "(?P<place>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$'),
        foreign_place=re.compile(r".*/lib/python[\d.]+/"),
    ),
    _Format(re.compile(r"\*\*\* (?P<fault>.+ detected) \*\*\*"), prefix="glibc: "),
    _Format(
        re.compile(
            r"(?P<fault>(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): .+"
            r"|double free or corruption.*|corrupted (?:size vs|double-linked).*)"
        ),
        prefix="glibc: ",
    ),
    _Format(
        re.compile(r"\S+: (?P<place>[^:\s]+:\d+): .+: (?P<fault>Assertion [`'].+' failed)"),
        prefix="glibc: ",
    ),
    _Format(
        re.compile(r"terminate called after throwing an instance of '(?P<fault>.+)'"),
        prefix="uncaught ", message=re.compile(r"  what\(\):  (?P<fault>.+)"), slack=8,
    ),
    _Format(
        re.compile(r"(?:handle_crash: )?Program crashed with (?P<fault>signal \d+)"),
        prefix="Godot: ", slack=8,
        frame=_by(r"\[\d+\] (?P<name>.+?)(?: \[0x[0-9a-f]+\])?(?: \((?P<place>[^()]*)\))?$"),
        foreign=re.compile(r"/lib/|/usr/lib/"),
    ),
    _Format(
        re.compile(r"(?:SCRIPT |USER )*ERROR: (?P<fault>.+)"), prefix="Godot: ", slack=1,
        framed=True, frame=_by(r"\s+at: (?P<name>.+?) \((?P<place>[^()]+:\d+)\)"),
        counts=re.compile("SCRIPT ERROR"),
    ),
)  # fmt: skip
_MONO_AGAIN = "[ERROR] FATAL UNHANDLED EXCEPTION"
"""Mono prints a fatal exception twice; the second time starts with this."""
_CHAIN_LINES = 3
_PYTHON_START = "Traceback (most recent call last):"
_PYTHON_CHAIN = re.compile(
    r"(The above exception was the direct cause|During handling of the above exception)"
)
_PYTHON_FRAME = re.compile(r'  File "(?P<place>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_PYTHON_FAULT = re.compile(r"(?P<fault>[A-Za-z_][\w.]*)(?::.*)?$")
_PYTHON_FOREIGN = re.compile(r"(.*/lib/python[\d.]+/|<frozen )")


def _own(
    frames: Sequence[_Frame], foreign: re.Pattern[str] | None, place: re.Pattern[str] | None
) -> tuple[str, ...]:
    """Return the innermost frames in the target's own code; if there are none, of all."""
    own = [
        frame
        for frame in frames
        if not (foreign and frame.name and foreign.match(frame.name))
        and not (place and frame.place and place.match(frame.place))
    ]
    return tuple(frame.text for frame in (own or frames)[:OWN_FRAMES])


def _fault(form: _Format, text: str) -> str:
    prefix, colon, rest = text.partition("Sanitizer: ")
    if colon:
        # The name of the fault is followed by addresses.
        end = _FAULT_END.search(rest)
        text = prefix + colon + rest[: end.start() if end else None]
    return form.prefix + without_numbers(text.strip()[:_NAME_LIMIT])


def _read(form: _Format, lines: Sequence[str], at: int) -> tuple[Crash | None, int]:
    """Read the trace at a line; return (trace, line after it), or (None, line) if there is none."""
    found = form.start.match(lines[at])
    if found is None:
        return None, at
    groups = found.groupdict()
    fault, first = groups.get("fault") or "", lines[at]
    # .NET prints inner exceptions on the first line; the last one is the cause.
    for deeper in _INNER.finditer(first) if form.cause is not None else ():
        fault = deeper["fault"]
    if form.frame is None:
        fault, at = _frameless(form, fault, lines, at + 1)
        frames: list[_Frame] = []
    elif form.numbered:
        frames, at = _numbered(lines, at + 1)
    else:
        fault, frames, at = _stack(form, form.frame, fault, lines, at + 1)
    if form.framed and not frames:
        return None, at
    own = _own(frames, form.foreign, form.foreign_place)
    if not own and groups.get("place"):
        own = (_Frame("", groups["place"]).text,)
    counts = form.counts is None or bool(form.counts.match(first))
    # Sanitizers that only warn, threads of Java and scripts of Godot leave the process running.
    ends = form.ends and not re.match(r"\S*WARNING|Exception in thread|SCRIPT", first)
    said = form.prefix + fault.strip()[:_NAME_LIMIT]
    return Crash(_fault(form, fault), own, counts, ends and counts, said, form.numbered), at


def _stack(
    form: _Format, read: _Reader, fault: str, lines: Sequence[str], at: int
) -> tuple[str, list[_Frame], int]:
    """Read the frames and the lines between them; return (fault, frames, line after them)."""
    frames: list[_Frame] = []
    left = form.slack
    while at < len(lines) and len(frames) < FRAME_LIMIT:
        frame, after = read(lines, at)
        if frame is not None:
            frames.append(frame)
            at = after
            continue
        inner = form.cause.match(lines[at]) if form.cause is not None else None
        if inner is not None:
            fault, frames, left = inner["fault"], [], form.slack
        elif (frames and not (form.cause and _OMITTED.match(lines[at]))) or (
            not frames and (left == 0 or _starts(lines[at]))
        ):
            break
        else:
            fault = _with_message(form, fault, lines[at])
            left -= not frames
        at += 1
    return fault, frames, at


def _numbered(lines: Sequence[str], at: int) -> tuple[list[_Frame], int]:
    """Read the numbered frames of a sanitizer's stack; return (frames, line after them)."""
    frames: list[_Frame] = []
    while at < len(lines) and len(frames) < FRAME_LIMIT:
        later = _numbered_line(lines, at, len(frames))
        frame, after = (None, at) if later is None else _native(lines, later)
        if frame is None:
            break
        frames.append(frame)
        at = after
    return frames, at


def _frameless(form: _Format, fault: str, lines: Sequence[str], at: int) -> tuple[str, int]:
    """Look for the message of a fault without frames; return (fault, line after it)."""
    for behind in range(at, min(at + form.slack, len(lines))):
        if _starts(lines[behind]):
            break
        more = _with_message(form, fault, lines[behind])
        if more != fault:
            return more, behind + 1
    return fault, at


def _numbered_line(lines: Sequence[str], at: int, number: int) -> int | None:
    """Return the line of frame `number`; None if the stack ends before it."""
    if number and not lines[at].strip():
        return None
    for later in range(at, min(at + _APART, len(lines))):
        found = _NATIVE.match(lines[later])
        if found is not None:
            return later if int(found["number"]) == number else None
        if _starts(lines[later]):
            return None
    return None


def _lines_missing(lines: Sequence[str], at: int, after: int) -> int:
    """Return how many further lines may belong to the trace found at line `at`."""
    form = next((form for form in _FORMATS if form.start.match(lines[at])), None)
    if form is None:
        # A line after a traceback may say that another exception followed from it.
        return _CHAIN_LINES if lines[at] == _PYTHON_START else 0
    if form.frame is None:
        return form.slack if after == at + 1 else 0
    # An empty line after a numbered frame ends the stack.
    ended = after < len(lines) and not lines[after].strip() and _NATIVE.match(lines[after - 1])
    return _APART if form.numbered and not ended else 0


def _with_message(form: _Format, fault: str, line: str) -> str:
    """Return the fault, extended by what a later line says about it."""
    more = form.message.match(line) if form.message is not None else None
    if more is None or (fault and ": " in fault):
        return fault
    return f"{fault}: {more['fault']}" if fault else more["fault"]


def _starts(line: str) -> bool:
    """Return whether a trace starts at a line."""
    return line == _PYTHON_START or any(
        form.start.match(line) for form in _FORMATS if not form.framed
    )


def _read_python(lines: Sequence[str], at: int) -> tuple[Crash | None, int]:
    """Read a Python traceback, which ends with the innermost frame and the exception."""
    if lines[at] != _PYTHON_START:
        return None, at
    start: int | None = at
    # A loop, not recursion: a target may print a chain of any length.
    while start is not None:
        frames: list[_Frame] = []
        counts = start > 0 and lines[start - 1].startswith("Exception in thread")
        at = start + 1
        while at < len(lines):
            line = lines[at]
            found = _PYTHON_FRAME.match(line)
            if found is not None:
                frames.append(_Frame(found["name"] or "", f"{found['place']}:{found['line']}"))
            elif not line.startswith("  "):
                break
            at += 1
        name = _PYTHON_FAULT.match(lines[at]) if at < len(lines) else None
        if name is None:
            return None, at
        # The last exception of a chain is the one that was not caught.
        fault, start = name["fault"], _chained(lines, at + 1)
    own = _own(frames[::-1], None, _PYTHON_FOREIGN)
    said = f"Python: {lines[at][:_NAME_LIMIT]}"
    return Crash(f"Python: {fault}", own, counts, said=said), at + 1


def _chained(lines: Sequence[str], at: int) -> int | None:
    """Return the first line of the traceback chained to the one before `at`; None without one."""
    after = next((n for n in range(at, min(at + _CHAIN_LINES, len(lines))) if lines[n]), None)
    if after is None or not _PYTHON_CHAIN.match(lines[after]):
        return None
    return next((n for n in range(after, len(lines)) if lines[n] == _PYTHON_START), None)


def _crash_at(lines: Sequence[str], at: int) -> tuple[Crash | None, int]:
    """Return (trace that starts at a line or None, line after it)."""
    crash, after = _read_python(lines, at)
    for form in _FORMATS:
        if crash is not None:
            break
        crash, end = _read(form, lines, at)
        after = end if crash is not None else max(after, end)
    # If the lines end within what may be a trace, wait for more of them.
    return crash, after if crash is not None or after >= len(lines) else at + 1


class CrashReader:
    """Finds stack traces in output that arrives in pieces."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = b""
        self._previous = ""
        self.open: Crash | None = None
        """The trace at the end of the output, which may be incomplete."""

    def feed(self, octets: bytes, *, final: bool = False) -> list[Crash]:
        """Return the traces that are complete.

        Args:
            octets: the output since the last call.
            final: no more output is expected soon, so an open trace counts as complete.
        """
        *lines, self._rest = (self._rest + octets).split(b"\n")
        if final or len(self._rest) > LINE_LIMIT:
            lines.append(self._rest)
            self._rest = b""
        self._lines += [line[:LINE_LIMIT].decode("utf-8", "replace").rstrip("\r") for line in lines]
        del self._lines[:-LINES_LIMIT]
        return self._take(closed=final)

    def _take(self, *, closed: bool) -> list[Crash]:
        found: list[Crash] = []
        at = floor = 0
        lines = self._lines
        self.open = None
        while at < len(lines):
            crash, after = _crash_at(lines, at)
            more = 0 if crash is None else _lines_missing(lines, at, after)
            if after + more >= len(lines) and not closed:
                self.open = crash
                # The line before a traceback decides `counts`.
                at = max(floor, at - 1)
                break
            if crash is None:
                at += 1
                continue
            if not (lines[at].startswith(_MONO_AGAIN) and crash.kind == self._previous):
                found.append(crash)
            self._previous = crash.kind
            at = floor = after
        self._lines = lines[at:]
        return found


def last_line(log: bytes) -> str:
    """Return the words that quote the last line of a log; "" if it has none."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    return f" after: {lines[-1].strip()[:200]}" if lines else ""
