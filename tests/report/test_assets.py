from __future__ import annotations

from importlib import resources

import pytest


@pytest.mark.parametrize("name", ["report.css", "report.js"])
def test_style_and_script_ask_for_nothing_from_elsewhere(name: str) -> None:
    text = resources.files("netdissect.report").joinpath(name).read_text("utf-8")
    for word in ("http:", "https:", "url(", "@import", "fetch(", "XMLHttpRequest", "import("):
        assert word not in text.replace("http://www.w3.org/2000/svg", "")
