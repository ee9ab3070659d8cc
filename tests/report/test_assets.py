from __future__ import annotations

import re
from importlib import resources

import pytest


@pytest.mark.parametrize("name", ["report.css", "report.js"])
def test_style_and_script_ask_for_nothing_from_elsewhere(name: str) -> None:
    text = resources.files("netdissect.report").joinpath(name).read_text("utf-8")
    for word in ("http:", "https:", "url(", "@import", "fetch(", "XMLHttpRequest", "import("):
        assert word not in text.replace("http://www.w3.org/2000/svg", "")


def test_rows_that_the_script_folds_away_are_not_laid_out_before() -> None:
    files = resources.files("netdissect.report")
    script, style = (files.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("js", "css"))
    shown = re.search(r"const shown = (\d+);", script)
    hidden = re.search(
        r"@media \(scripting:enabled\)\{\.sorts:not\(\.ready\) .*?\(n\+(\d+)\)", style
    )
    assert shown is not None
    assert hidden is not None
    assert int(hidden[1]) == int(shown[1]) + 1
    assert "classList.add('ready')" in script
