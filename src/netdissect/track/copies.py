"""Copies judged by the numbers that their sender used up, for spaces where each copy takes one.

There a copy keeps its old number, yet the counter moves on: the next new number shows how many
copies the sender has made since the last one. Copies beyond that are the network's.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["MAX_COUNTED", "CountedCopies"]

MAX_COUNTED = 1024
"""Copies between two new numbers judged one by one; further ones keep their first verdict."""


class CountedCopies:
    """Copies seen since the newest number."""

    __slots__ = ("copies",)

    def __init__(self) -> None:
        self.copies: list[tuple[int, bool, Callable[[bool], None]]] = []
        """(gap, first verdict, what changes it) of those that the next number will judge."""

    def add(self, gap_ns: int, turn: Callable[[bool], None], *, copied: bool) -> None:
        """Take one copy.

        Args:
            gap_ns: time since the copy before it.
            turn: called with the verdict where it differs from the first.
            copied: first verdict, by that time alone: made by the network.

        """
        if len(self.copies) < MAX_COUNTED:
            self.copies.append((gap_ns, copied, turn))

    def judge(self, skipped: int) -> None:
        """Judge all copies now that the next new number has come, `skipped` numbers on.

        Those that followed the copy before them the soonest are the likeliest to be the network's.
        """
        copies = sorted(self.copies, key=lambda copy: copy[0])
        self.copies = []
        made_by_network = len(copies) - skipped
        for index, (_, copied, turn) in enumerate(copies):
            verdict = index < made_by_network
            if verdict is not copied:
                turn(verdict)
