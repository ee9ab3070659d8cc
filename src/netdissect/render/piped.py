"""Rich's console with this program's handling of a closed output."""

from __future__ import annotations

from rich.console import Console


class Piped(Console):
    """A console that does not exit on a closed output, which is not a failure here."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, for which commands exit with status 0."""
        raise BrokenPipeError
