"""HTML and SVG built from escaped parts.

Strings from a capture reach a document only through `tag` and `text`, which escape them.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import TypeAlias

from netdissect.render.safe import safe

_VOID = frozenset({"meta", "input", "br", "link"})


class Html(str):
    """Finished markup, which is not escaped again."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | None"
"""Content of an element: markup, text to be escaped, or nothing."""


def text(value: object) -> Html:
    """Return text as markup: escaped, with invisible and reordering characters spelt out."""
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
    """Return an attribute as HTML spells it. Names come from our own source only."""
    return key.rstrip("_").replace("_", "-")


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: its name.
        children: text, or finished markup.
        attributes: text, or finished markup such as a long path. A trailing underscore (`class_`)
            is dropped, others become hyphens. None and False leave the attribute out; True leaves
            its value out.

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
