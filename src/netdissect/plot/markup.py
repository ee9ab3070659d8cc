"""Markup that is built, not pasted: every text is escaped, and what is no text is marked as such.

Strings from a capture reach an HTML or SVG document only through `tag` and `text`.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import TypeAlias

from netdissect.render.safe import safe

__all__ = ["Child", "Html", "join", "tag", "text"]

_VOID = frozenset({"meta", "input", "br", "link"})


class Html(str):
    """Markup that is done."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | None"
"""What may stand in an element: markup, text that is escaped, or nothing."""


def text(value: object) -> Html:
    """Return text as markup: what hides or reorders is spelt out, what is markup is escaped."""
    if isinstance(value, int):
        return Html(value)
    return Html(escape(safe(str(value)), quote=True))


def join(*children: Child) -> Html:
    """Return children one after the other."""
    return Html(
        "".join(
            child if isinstance(child, Html) else text(child)
            for child in children
            if child is not None
        )
    )


@cache
def _spelt(key: str) -> str:
    """Return an attribute as HTML spells it: only our own source names one."""
    return key.rstrip("_").replace("_", "-")


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: its name.
        children: text, or markup that is done.
        attributes: text, or markup that is done, such as a long path. `class_` and the like lose
            the underscore at the end, others become hyphens; None and False are left out, True
            stands alone.

    """
    head = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = value if isinstance(value, Html) else text(value)
        head += f" {_spelt(key)}" if value is True else f' {_spelt(key)}="{shown}"'
    if name in _VOID:
        return Html(f"<{head}>")
    return Html(f"<{head}>{join(*children)}</{name}>")
