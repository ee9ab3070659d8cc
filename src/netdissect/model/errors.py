"""The exceptions of misuse and of the environment. Input never raises: what cannot be read is an
`Annotation`.
"""

from __future__ import annotations

__all__ = ["AccessError", "CaptureFileError", "FilterError", "NetdissectError", "UsageError"]


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
