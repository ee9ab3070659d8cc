"""Exceptions for misuse and for faults of the environment. Bytes of a capture never raise: what
cannot be decoded becomes an `Annotation`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from netdissect.model.text import quoted

_MAX_MISSPELT = 80
"""Longest word, in characters, for which a suggestion is sought: the search takes quadratic time.
"""


class NetdissectError(Exception):
    """Base class of exceptions whose text, one plain sentence, is shown to the user."""


class UsageError(NetdissectError):
    """A name or an option that does not exist or does not fit."""


class CaptureFileError(NetdissectError):
    """A file that is missing, unreadable or not a capture."""


class AccessError(NetdissectError):
    """No permission to capture, or no such interface."""


class FilterError(NetdissectError):
    """A display or capture filter that cannot be compiled."""

    def __init__(self, message: str, *, text: str = "", start: int = 0, end: int = 0) -> None:
        """Store the filter text and the range [start, end) of the fault, for underlining it."""
        super().__init__(message)
        self.text = text
        self.start = start
        self.end = max(end, start + 1)


def reason(error: Exception) -> str:
    """Return the cause of one of Python's exceptions in words for users."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error)
    # Python's own text advises to call that function.
    return "a number has too many digits" if "set_int_max_str_digits" in text else text


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """Return the error text for a name that does not exist, with a suggestion or, failing that, all
    known names: `no protocol is called 'knets'; did you mean 'knet'?`.
    """
    near = did_you_mean(name, known) or f"; known: {', '.join(known)}"
    return f"no {kind} is called {quoted(name)}{near}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'NAME'?` with the only known name that begins with a word, or else the
    one closest to it, or "" if none is close.
    """
    if len(word) > _MAX_MISSPELT:
        return ""
    names = {name.lower(): name for name in known}
    from difflib import get_close_matches  # noqa: PLC0415 - only after a mistake

    begun = [name for name in names if name.startswith(word.lower())]
    near = begun if len(begun) == 1 else get_close_matches(word.lower(), names, 1)
    return f"; did you mean {quoted(names[near[0]])}?" if near else ""
