"""Objects of the JSON that many records share."""

from __future__ import annotations

from typing import Any


class Lasting(dict[str, Any]):
    """An object that nobody changes and that occurs again and again, such as an item that is the
    same in consecutive snapshots: it is written as JSON once.
    """

    # Not set in an `__init__`, which would not be compiled, and take as long as the writing.
    json: str | None = None
    """The object as JSON; None until it is written for the first time."""
