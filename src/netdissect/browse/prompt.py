"""One line to type into: the filter, a search, a frame, a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from netdissect.model.names import FieldInfo

__all__ = ["MAX_TYPED", "Prompt"]

MAX_TYPED = 1000
"""Characters that are taken."""
_WORD = re.compile(r"[\w.]*\Z")
_NAME = re.compile(r"[\w.-]*\Z")


class Prompt:
    """What is typed, and what is to be done with it."""

    def __init__(
        self,
        label: str,
        done: Callable[[str], None],
        *,
        text: str = "",
        fields: Sequence[FieldInfo] = (),
        check: Callable[[str], str | None] | None = None,
        history: Sequence[str] = (),
    ) -> None:
        """Take what stands before it, and what is called with the text; of a filter also how it is
        checked, as only there a minus is no part of a name.
        """
        self.label = label
        self.done = done
        self.text = text
        self.at = len(text)
        """Place of the cursor."""
        self.fault: str | None = None
        self._fields = fields
        self._check = check
        self._history = [*history, text]
        self._place = len(self._history) - 1

    @property
    def has_offers(self) -> bool:
        """Return whether what is typed can be completed."""
        return bool(self._fields)

    def offers(self) -> list[FieldInfo]:
        """Return the fields that the word at the cursor may become."""
        word = self._word()
        if not word or not self._fields:
            return []
        found = [info for info in self._fields if info.name.startswith(word)]
        return found or [info for info in self._fields if word in info.name]

    def _word(self) -> str:
        match = (_WORD if self._check else _NAME).search(self.text[: self.at])
        return match[0] if match else ""

    def press(self, key: str, character: str | None) -> bool:
        """Take a key; return True where typing ends, by Enter or Esc."""
        if key == "escape":
            return True
        if key == "enter":
            self.fault = self._check(self.text) if self._check and self.text.strip() else None
            if self.fault is not None:
                return False
            self.done(self.text.strip())
            return True
        self._edit(key, character)
        return False

    def _edit(self, key: str, character: str | None) -> None:
        before, after = self.text[: self.at], self.text[self.at :]
        if key == "backspace":
            before = before[:-1]
        elif key == "delete":
            after = after[1:]
        elif key == "ctrl+u":
            before = ""
        elif key in {"left", "right"}:
            self.at = max(0, min(len(self.text), self.at + (1 if key == "right" else -1)))
            return
        elif key in {"home", "end"}:
            self.at = 0 if key == "home" else len(self.text)
            return
        elif key in {"up", "down"}:
            self._place += 1 if key == "down" else -1
            self._place = max(0, min(len(self._history) - 1, self._place))
            before, after = self._history[self._place], ""
        elif key == "tab":
            before = self._completed(before)
        elif character and character.isprintable() and len(self.text) < MAX_TYPED:
            before += character
        self.text, self.at = before + after, len(before)
        self.fault = None

    def paste(self, text: str) -> None:
        """Take text that is pasted, without line breaks and controls."""
        for character in text[:MAX_TYPED]:
            self._edit("", character)

    def _completed(self, before: str) -> str:
        """Return the text with its last word as long as all offers agree; one alone whole."""
        names = [info.name for info in self.offers()]
        if not names:
            return before
        word = self._word()
        shared = names[0]
        for name in names:
            while not name.startswith(shared):
                shared = shared[:-1]
        if len(shared) <= len(word):
            shared = names[0]
        return before[: len(before) - len(word)] + shared
