"""The page around a report: head, style sheet and script, with a content security policy that
allows these two by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pkgutil import get_data

from netdissect.plot.chart import Chart
from netdissect.plot.markup import Child, Html, join, tag
from netdissect.plot.svg import hatch, legend, picture, style

# Read at once: whoever makes a report of a running capture may not be able to read files of root.
_CSS, _SCRIPT = (
    (get_data("netdissect.report", name) or b"").decode() for name in ("report.css", "report.js")
)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page(title: str, *body: Child, css: str = "") -> str:
    """Return a complete document.

    Args:
        title: its title.
        body: its content.
        css: rules added to those of every report.

    """
    css = style() + _CSS + css
    policy = (
        f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(_SCRIPT)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(css)),
    )
    defs = tag("svg", hatch(), class_="defs", aria_hidden="true", width=0, height=0)
    content = tag("body", defs, *body, tag("script", Html(_SCRIPT)))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{content}</html>\n'


def figure(chart: Chart, name: str, *, most: int) -> Html:
    """Return a chart as a figure: title, a box that scrolls, legend."""
    drawn = picture(chart, name, most=most)
    about = " · ".join([chart.about, *chart.notes])
    return tag(
        "figure",
        tag("figcaption", tag("h3", chart.title), tag("p", about)),
        tag("div", drawn, class_="scroll", tabindex="0", role="group",
            aria_label=f"{chart.title}, scrolls sideways"),
        legend(chart),
        data_zero=chart.zero_ns,
        data_group="seq" if chart.kind == "seq" else f"time-{chart.connection}",
    )  # fmt: skip


def plots(found: Sequence[Chart], heading: str) -> str:
    """Return charts as a page of their own."""
    figures = [figure(chart, f"p{index}", most=4000) for index, chart in enumerate(found)]
    main = tag("main", tag("h1", heading), tag("section", zoom_tools(), *figures), id="main")
    return page(f"netdissect: {heading}", main)


def zoom_tools() -> Html:
    """Return the buttons for the plots that follow; they are hidden until the script shows them."""
    buttons = [
        tag("button", label, type="button", data_zoom=what, class_="zoom")
        for what, label in (
            ("in", "Zoom in"), ("out", "Zoom out"), ("left", "Earlier"), ("right", "Later"),
            ("all", "All"),
        )
    ]  # fmt: skip
    hint = tag("span", "or drag over a plot", class_="dim")
    read = tag("output", class_="read")
    return tag("p", *buttons, hint, read, class_="tools zoomtools", hidden=True)
