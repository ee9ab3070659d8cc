"""One line of input: the filter, a search text, a frame number, a file name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from netdissect.model.names import FieldInfo

MAX_TYPED = 1000
"""Characters that a line may have."""
_WORD = re.compile(r"[\w.]*\Z")
_NAME = re.compile(r"[\w.-]*\Z")


class Prompt:
    """A line being typed, and the function that takes it."""

    def __init__(
        self,
        label: str,
        done: Callable[[str], None],
        *,
        text: str = "",
        fields: Sequence[FieldInfo] = (),
        check: Callable[[str], tuple[str, int] | None] | None = None,
        history: Sequence[str] = (),
    ) -> None:
        """Take the label, and the function called with the text.

        Args:
            label: what stands before the text.
            done: called with the text when Enter is pressed.
            text: what stands there already.
            fields: names that Tab completes.
            check: returns what is wrong with a filter and where, or None. Only a filter has one,
                and only in a filter a minus sign ends a name.
            history: what was typed before, for Up and Down.

        """
        self.label = label
        self.done = done
        self.text = text
        self.at = len(text)
        """Position of the cursor."""
        self.fault: str | None = None
        """What is wrong with the text, until it is edited."""
        self._fields = fields
        self._check = check
        self._history = [*history, text]
        self._shown = len(self._history) - 1
        """Index of the line of the history that Up and Down show."""

    @property
    def has_offers(self) -> bool:
        """Whether what is typed can be completed."""
        return bool(self._fields)

    def offers(self) -> list[FieldInfo]:
        """Return the names that the word before the cursor may become."""
        word = self._word()
        if not word or not self._fields:
            return []
        found = [info for info in self._fields if info.name.startswith(word)]
        return found or [info for info in self._fields if word in info.name]

    def _word(self) -> str:
        match = (_WORD if self._check else _NAME).search(self.text[: self.at])
        return match[0] if match else ""

    def press(self, key: str, character: str | None) -> bool:
        """Process a key; return True if it ends the input (Enter or Esc)."""
        if key == "escape":
            return True
        if key == "enter":
            found = self._check(self.text) if self._check and self.text.strip() else None
            if found is not None:
                self.fault, self.at = found[0], min(found[1], len(self.text))
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
            self._shown += 1 if key == "down" else -1
            self._shown = max(0, min(len(self._history) - 1, self._shown))
            before, after = self._history[self._shown], ""
        elif key == "tab":
            before = self._completed(before)
        elif character and character.isprintable() and len(self.text) < MAX_TYPED:
            before += character
        self.text, self.at = before + after, len(before)
        self.fault = None

    def paste(self, text: str) -> None:
        """Insert pasted text without line breaks and control characters."""
        for character in text[:MAX_TYPED]:
            self._edit("", character)

    def _completed(self, before: str) -> str:
        """Return the text with its last word extended as far as all offered names agree; if they do
        not agree on more, with the first of them.
        """
        names = [info.name for info in self.offers()]
        if not names:
            return before
        word = self._word()
        shared = names[0]
        while not all(name.startswith(shared) for name in names):
            shared = shared[:-1]
        if len(shared) <= len(word):
            shared = names[0]
        return before[: len(before) - len(word)] + shared
