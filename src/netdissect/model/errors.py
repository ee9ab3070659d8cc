"""The exceptions of misuse and of the environment. Input never raises: what cannot be read is an
`Annotation`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from netdissect.model.text import quoted

__all__ = [
    "AccessError",
    "CaptureFileError",
    "FilterError",
    "NetdissectError",
    "UsageError",
    "did_you_mean",
    "reason",
    "unknown",
]

_LONGEST_NAME = 80
"""Characters of a word that a name may have been meant by; a longer one is compared with nothing.
"""


class NetdissectError(Exception):
    """Base of every exception that is meant for the user; its text is one plain sentence."""


class UsageError(NetdissectError):
    """A name or an option that does not exist or does not fit."""


class CaptureFileError(NetdissectError):
    """A file that is missing, unreadable or no capture."""


class AccessError(NetdissectError):
    """No permission to capture, or no such interface."""


class FilterError(NetdissectError):
    """A display or capture filter that cannot be compiled."""

    def __init__(self, message: str, *, text: str = "", start: int = 0, end: int = 0) -> None:
        """Keep the filter text and the half-open range of the fault, for the caret."""
        super().__init__(message)
        self.text = text
        self.start = start
        self.end = max(end, start + 1)


def reason(error: Exception) -> str:
    """Return what an exception of Python's says, as a user would."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error)
    # Python's own text names a function for programmers, and no place in the file.
    return "a number has too many digits" if "set_int_max_str_digits" in text else text


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """Return what to say of a name that does not exist, with the one that was meant, or all that
    there are: `no protocol is called 'knets'; did you mean 'knet'?`.
    """
    near = did_you_mean(name, known) or f"; known: {', '.join(known)}"
    return f"no {kind} is called {quoted(name)}{near}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'NAME'?` with the name closest to a misspelt word, "" where none is
    close.
    """
    if len(word) > _LONGEST_NAME:
        return ""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, 1)
    return f"; did you mean {quoted(names[near[0]])}?" if near else ""
