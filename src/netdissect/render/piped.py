"""Rich's console as this program uses it."""

from __future__ import annotations

from rich.console import Console

__all__ = ["Piped"]


class Piped(Console):
    """A console that leaves a closed output to the command, which ends well there."""

    def on_broken_pipe(self) -> None:
        """Raise what a command ends well on."""
        raise BrokenPipeError
