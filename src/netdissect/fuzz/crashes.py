"""What a target printed when it crashed: the fault, and where in the target's own code it happened.

Two failures are of one kind when the fault and the three innermost frames of the target's own are
the same. Frames of the sanitizers, of the C library and of the language's runtime are passed over.
Read are traces of AddressSanitizer and its siblings, UBSan, Go, Rust, Java, .NET and Mono, Python,
Godot, and the messages of glibc and libstdc++. Nothing here raises, whatever a target prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Crash", "CrashReader", "without_numbers"]

OWN_FRAMES = 3
"""Innermost frames of the target's own that tell two failures apart."""
FRAME_LIMIT = 256
"""Frames of one trace that are read."""
LINE_LIMIT = 4096
"""Characters of a line that are read."""
LINES_LIMIT = 20_000
"""Lines that wait for the end of a trace; of more, the oldest are dropped."""
_APART = 64
"""Lines at most that other threads print between two lines of a sanitizer's stack."""
_NAME_LIMIT = 160
_NUMBER = re.compile(r"-?(0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]*([.][0-9]+)?)")


def without_numbers(text: str) -> str:
    """Return a sentence with `N` for every number: addresses, sizes and counts differ each time."""
    return _NUMBER.sub("N", text)


@dataclass(frozen=True, slots=True)
class Crash:
    """One trace."""

    fault: str
    """What went wrong, without numbers: `AddressSanitizer: heap-buffer-overflow`."""
    frames: tuple[str, ...] = ()
    """At most three frames of the target's own, innermost first: `read_name packet.cpp:10`."""
    counts: bool = True
    """True for what is a failure although the process goes on: a sanitizer's report, an exception
    that nobody caught. False for a trace that a target may print when all is well."""
    ends: bool = False
    """True for what usually ends the process, a moment later: dumps take a while."""
    said: str = ""
    """The fault in the target's words, numbers and all."""
    looks_up: bool = False
    """True where the process looks the names of its stack up while it prints: this takes seconds.
    """

    @property
    def kind(self) -> str:
        """Return what equal crashes have in common."""
        return self._at(self.fault)

    @property
    def text(self) -> str:
        """Return the same for people: with the target's words."""
        return self._at(self.said or self.fault)

    def _at(self, fault: str) -> str:
        return fault + (f" in {' < '.join(self.frames)}" if self.frames else "")


@dataclass(frozen=True, slots=True)
class _Frame:
    """One line of a stack."""

    name: str
    place: str = ""
    """File and line, or module and offset; the full path, by which foreign code is told."""

    @property
    def text(self) -> str:
        place = self.place.rpartition("/")[2]
        return f"{self.name[:_NAME_LIMIT]} {place}".strip()


_Reader = Callable[[Sequence[str], int], "tuple[_Frame | None, int]"]
"""Reads a frame at a line: (the frame, the line after it), (None, the same line) where none is."""


@dataclass(frozen=True, slots=True)
class _Format:
    """How one family of traces is written."""

    start: re.Pattern[str]
    """The line that names the fault, as group `fault`; `place` stands in for missing frames."""
    prefix: str = ""
    frame: _Reader | None = None
    slack: int = 0
    """Lines at most between the fault and the first frame."""
    foreign: re.Pattern[str] | None = None
    """Matches the names of frames that are not the target's own."""
    foreign_place: re.Pattern[str] | None = None
    """Matches their files and modules."""
    cause: re.Pattern[str] | None = None
    """A line that names a deeper fault, whose frames follow."""
    message: re.Pattern[str] | None = None
    """A line after the fault that says more about it."""
    framed: bool = False
    """True: without a frame it is no trace."""
    numbered: bool = False
    """True: frames have numbers, by which the next is known behind what other threads print; an
    empty line ends them."""
    counts: re.Pattern[str] | None = None
    """Matches the first lines of traces that count although the process goes on; None = all."""
    ends: bool = True
    """False: the process usually goes on."""


# --- frames ---------------------------------------------------------------------------------------


def _by(pattern: str, second: str | None = None) -> _Reader:
    """Return a reader for frames of one line with groups `name` and `place`, or of two lines."""
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
    """Read a frame of a sanitizer."""
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
_FORMATS: tuple[_Format, ...] = (
    _Format(
        re.compile(r"(?:==\d+==)?(?:ERROR|WARNING): (?P<fault>(?!Leak)\w+Sanitizer: .+)"),
        frame=_native, numbered=True, foreign=_NATIVE_FOREIGN, foreign_place=_NATIVE_FOREIGN_PLACE,
    ),
    _Format(
        re.compile(r"Direct (?P<fault>leak) of \d+ byte"), prefix="LeakSanitizer: ", ends=False,
        frame=_native, numbered=True, foreign=_NATIVE_FOREIGN, foreign_place=_NATIVE_FOREIGN_PLACE,
    ),
    _Format(
        re.compile(r"(?P<place>\S+:\d+:\d+): runtime error: (?P<fault>.+)"),
        prefix="UBSan: ", ends=False,
        frame=_native, numbered=True, foreign=_NATIVE_FOREIGN, foreign_place=_NATIVE_FOREIGN_PLACE,
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
        prefix="panic: ", message=re.compile(r"(?P<fault>.+)"), slack=3,
        frame=_by(r"\s+\d+: +(?:0x[0-9a-f]+ - )?(?P<name>\S.*)$",
                  r"\s+at (?P<place>\S+?:\d+)(?::\d+)?$"),
        foreign=re.compile(r"(core|std|alloc)::|<?(core|std|alloc)::|_*rust"),
        foreign_place=re.compile(r"/rustc/|.*/\.cargo/registry/|.*/rustlib/"),
    ),
    _Format(
        re.compile(r"thread '.*?' panicked at '(?P<fault>.*)', (?P<place>\S+:\d+):\d+$"),
        prefix="panic: ", slack=2,
        frame=_by(r"\s+\d+: +(?:0x[0-9a-f]+ - )?(?P<name>\S.*)$",
                  r"\s+at (?P<place>\S+?:\d+)(?::\d+)?$"),
        foreign=re.compile(r"(core|std|alloc)::|<?(core|std|alloc)::|_*rust"),
        foreign_place=re.compile(r"/rustc/|.*/\.cargo/registry/|.*/rustlib/"),
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
"""How Mono begins when it prints what ends the program a second time."""
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
    """Return the innermost frames of the target's own; of all, where none is."""
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
        # What follows the name of the fault are addresses.
        end = _FAULT_END.search(rest)
        text = prefix + colon + rest[: end.start() if end else None]
    return form.prefix + without_numbers(text.strip()[:_NAME_LIMIT])


def _read(form: _Format, lines: Sequence[str], at: int) -> tuple[Crash | None, int]:
    """Read a trace at a line; return it and the line after it, (None, the line) where none is."""
    found = form.start.match(lines[at])
    if found is None:
        return None, at
    groups = found.groupdict()
    fault, first = groups.get("fault") or "", lines[at]
    for deeper in _INNER.finditer(first) if form.cause is not None else ():
        fault = deeper["fault"]
    if form.frame is None:
        fault, at = _said(form, fault, lines, at + 1)
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
    """Read frames and what stands between them; return (fault, frames, the line after them)."""
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
    """Read the frames of a sanitizer's stack; return them and the line after them."""
    frames: list[_Frame] = []
    while at < len(lines) and len(frames) < FRAME_LIMIT:
        later = _onward(lines, at, len(frames))
        frame, after = (None, at) if later is None else _native(lines, later)
        if frame is None:
            break
        frames.append(frame)
        at = after
    return frames, at


def _said(form: _Format, fault: str, lines: Sequence[str], at: int) -> tuple[str, int]:
    """Look for the message of a fault without frames; return the fault and the line after it."""
    for behind in range(at, min(at + form.slack, len(lines))):
        if _starts(lines[behind]):
            break
        more = _with_message(form, fault, lines[behind])
        if more != fault:
            return more, behind + 1
    return fault, at


def _onward(lines: Sequence[str], at: int, number: int) -> int | None:
    """Return the line of the frame with a number, None where the stack ends before it."""
    if number and not lines[at].strip():
        return None
    for later in range(at, min(at + _APART, len(lines))):
        found = _NATIVE.match(lines[later])
        if found is not None:
            return later if int(found["number"]) == number else None
        if _starts(lines[later]):
            return None
    return None


def _to_come(lines: Sequence[str], at: int, after: int) -> int:
    """Return how many more lines may belong to a trace that was found at a line."""
    form = next((form for form in _FORMATS if form.start.match(lines[at])), None)
    if form is None:
        # Behind a traceback may stand that another exception came of it.
        return _CHAIN_LINES if lines[at] == _PYTHON_START else 0
    if form.frame is None:
        return form.slack if after == at + 1 else 0
    # An empty line behind a numbered frame ends the stack: nothing more of it comes.
    ended = after < len(lines) and not lines[after].strip() and _NATIVE.match(lines[after - 1])
    return _APART if form.numbered and not ended else 0


def _with_message(form: _Format, fault: str, line: str) -> str:
    """Return a fault with what a later line says about it."""
    more = form.message.match(line) if form.message is not None else None
    if more is None or (fault and ": " in fault):
        return fault
    return f"{fault}: {more['fault']}" if fault else more["fault"]


def _starts(line: str) -> bool:
    """Return whether another trace starts at a line."""
    return line == _PYTHON_START or any(
        form.start.match(line) for form in _FORMATS if not form.framed
    )


def _read_python(lines: Sequence[str], at: int) -> tuple[Crash | None, int]:
    """Read a traceback: the innermost frame stands last, the exception behind it."""
    if lines[at] != _PYTHON_START:
        return None, at
    start: int | None = at
    # A loop, as a target may print a chain of any length.
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
        fault, start = name["fault"], _chained(lines, at + 1)
    own = _own(frames[::-1], None, _PYTHON_FOREIGN)
    said = f"Python: {lines[at][:_NAME_LIMIT]}"
    return Crash(f"Python: {fault}", own, counts, said=said), at + 1


def _chained(lines: Sequence[str], at: int) -> int | None:
    """Return where the traceback begins that came of the one before a line; None without one."""
    after = next((n for n in range(at, min(at + _CHAIN_LINES, len(lines))) if lines[n]), None)
    if after is None or not _PYTHON_CHAIN.match(lines[after]):
        return None
    return next((n for n in range(after, len(lines)) if lines[n] == _PYTHON_START), None)


def _crash_at(lines: Sequence[str], at: int) -> tuple[Crash | None, int]:
    """Return the trace that starts at a line (or None), and the line after it."""
    crash, after = _read_python(lines, at)
    for form in _FORMATS:
        if crash is not None:
            break
        crash, end = _read(form, lines, at)
        after = end if crash is not None else max(after, end)
    # A trace that the lines end in may still become one.
    return crash, after if crash is not None or after >= len(lines) else at + 1


class CrashReader:
    """Finds the traces in what a target prints, piece by piece."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = b""
        self._previous = ""
        self.open: Crash | None = None
        """The trace that more lines may belong to, as far as it was read."""

    def feed(self, octets: bytes, *, final: bool = False) -> list[Crash]:
        """Return the traces that are complete.

        Args:
            octets: what was printed since the last call.
            final: nothing will follow, for a while at least: what was left open is complete.
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
            more = 0 if crash is None else _to_come(lines, at, after)
            if after + more >= len(lines) and not closed:
                self.open = crash
                # The line before a traceback says whether it counts.
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
