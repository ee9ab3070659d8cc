from __future__ import annotations

from html.parser import HTMLParser

import pytest

import hostile
from netdissect.plot.markup import Html, join, tag, text

EVIL = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "\x1b]0;title\x07",
    "\u202eright to left",
    "\x00\x85\u2028\ufeff",
    "\ud800 lone",
    "&lt;already&gt;",
]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.parametrize("evil", EVIL)
def test_text_stays_text_in_elements_and_attributes(evil: str) -> None:
    made = tag("p", evil, title=evil, class_=evil)
    reader = _Reader()
    reader.feed(made)
    ((name, attributes),) = reader.tags
    assert (name, set(attributes)) == ("p", {"title", "class"})
    assert hostile.is_safe(reader.words)
    assert hostile.is_safe(str(attributes["title"]))


def test_finished_markup_is_not_escaped_again() -> None:
    assert tag("b", tag("i", "x")) == "<b><i>x</i></b>"
    assert join("<", Html("<br>"), None, 3) == "&lt;<br>3"
    assert text("a<b") == "a&lt;b"


def test_attributes_are_spelt_as_in_markup() -> None:
    made = tag("input", data_v=1, aria_label="a", hidden=True, disabled=False, title=None)
    assert made == '<input data-v="1" aria-label="a" hidden>'


def test_a_long_path_is_whole() -> None:
    path = Html("M0 0" * 3000)
    assert path in tag("path", d=path)
