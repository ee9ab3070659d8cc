from __future__ import annotations

import re
from pathlib import Path

import pytest

import console_docs
from netdissect import lookup
from netdissect.cli import COMMANDS, cli
from netdissect.cli.man import page

ROOT = console_docs.ROOT
PAGES = sorted((ROOT / "docs" / "commands").glob("*.md"))


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    assert {page.stem for page in PAGES} == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_output_in_the_pages_is_real(page: Path, update_expected: bool) -> None:
    text = page.read_text()
    current = console_docs.refreshed(text)
    if update_expected:
        page.write_text(current)
    assert page.read_text() == current
    assert f"$ netdissect {page.stem} --help" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_begin_with_the_answer_and_an_example_and_end_with_the_options(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0] == f"# netdissect {page.stem}"
    assert lines[1] == ""
    assert lines[2][0].isalpha()
    heads = [line for line in lines if line.startswith("## ")]
    assert (heads[0], heads[-1]) == ("## Example", "## Options")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_help(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert (command.help or "").strip()
    assert COMMANDS[name][1].endswith(".")
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def anomalies_page() -> str:
    rows = lookup.catalogue().values()
    lines = [
        "# Findings",
        "",
        "Written by `python -m pytest tests/test_docs.py --update-expected` from the catalogue; `netdissect explain CODE`",
        "prints the same.",
        "",
    ]
    for row in rows:
        lines += [
            f"## {row.code}",
            "",
            f"{row.severity.label}, {row.group}: {row.title}.",
            "",
            row.meaning,
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def test_the_catalogue_of_findings_is_current(update_expected: bool) -> None:
    page = ROOT / "docs" / "anomalies.md"
    if update_expected:
        page.write_text(anomalies_page())
    assert page.read_text() == anomalies_page()


_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in _LINK.findall(document.read_text()):
            where = document.parent / target
            assert where.exists(), f"{document.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize("name", [None, *sorted(COMMANDS)])
def test_the_name_of_a_manual_page_is_a_whole_sentence(name: str | None) -> None:
    line = page(name).split(".SH NAME\n")[1].split("\n")[0]
    assert line.endswith(".")
    assert "  " not in line


@pytest.mark.parametrize("name", [None, *sorted(COMMANDS)])
def test_every_command_has_a_current_manual_page(name: str | None, update_expected: bool) -> None:
    path = ROOT / "docs" / "man" / (f"netdissect-{name}.1" if name else "netdissect.1")
    text = page(name)
    if update_expected:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text or not console_docs.SAME_CLICK
    assert text.startswith('.TH "NETDISSECT')
    assert "\b" not in text
    wanted = ["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"]
    assert [head for head in wanted if f".SH {head}\n" not in text] == []


def test_every_variable_that_is_asked_for_is_documented() -> None:
    """But those that only pass on to programs, and PATH."""
    asked = set()
    for path in (ROOT / "src" / "netdissect").rglob("*.py"):
        asked |= set(re.findall(r"""environ(?:\.get\(|\[)"([A-Z_]+)\"""", path.read_text()))
    told = page(None).split(".SH ENVIRONMENT\n")[1].split(".SH ")[0]
    assert {"PAGER", "SUDO_UID", "XDG_CACHE_HOME"} <= asked
    assert sorted(name for name in asked if name not in told.replace("\\", "")) == []


PICTURES = {
    "timeline.svg": ["timeline", "captures/riptide/udp_2.2.1_lossy_clientleg.pcap", "-c", "16"],
    "ladder.svg": [
        "ladder",
        "captures/riptide/udp_2.2.1_lossy_clientleg.pcap",
        "1",
        "--from",
        "1.80s",
        "--to",
        "1.84s",
    ],
}
"""Pictures of real output, and the commands that they show."""

PICTURE_WIDTH = "100"


def screenshot(words: list[str]) -> str:
    """Return the picture of a command's coloured output as Rich draws a terminal."""
    import io

    from rich.console import Console
    from rich.text import Text

    output = console_docs.run([*words, "--width", PICTURE_WIDTH, "--color", "always"])
    console = Console(record=True, width=int(PICTURE_WIDTH), file=io.StringIO())
    console.print(Text.from_ansi(output))
    return console.export_svg(title=f"netdissect {' '.join(words)}", unique_id="netdissect")


def texts(svg: str) -> str:
    """Return the words of a picture, without what depends on Rich's version."""
    from xml.etree import ElementTree as ET

    root = ET.fromstring(svg)  # noqa: S314 - our own file
    words = "".join(node.text or "" for node in root.iter() if node.tag.endswith("text"))
    return "".join(words.split())


PLOTS = {"acks.svg": ["acks", "captures/riptide/udp_2.2.1_lossy_clientleg.pcap"]}
"""Pictures that `plot` writes, and its words."""


@pytest.mark.parametrize("name", sorted(PLOTS))
def test_the_plots_are_current(name: str, update_expected: bool, tmp_path: Path) -> None:
    path = ROOT / "docs" / "images" / name
    console_docs.run(["plot", *PLOTS[name], "-o", str(tmp_path / name)])
    if update_expected:
        path.write_text((tmp_path / name).read_text())
    assert path.read_text() == (tmp_path / name).read_text()


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_the_pictures_show_real_output(name: str, update_expected: bool) -> None:
    path = ROOT / "docs" / "images" / name
    if update_expected:
        path.write_text(screenshot(PICTURES[name]))
    plain = console_docs.run([*PICTURES[name], "--width", PICTURE_WIDTH, "--color", "never"])
    assert "".join(plain.split()) in texts(path.read_text())


_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_python_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = _PYTHON.findall((ROOT / "README.md").read_text())
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})  # noqa: S102 - our own text
    assert "retransmissions" in capsys.readouterr().out


def test_the_readme_names_every_protocol_and_dialect() -> None:
    text = (ROOT / "README.md").read_text().lower()
    for protocol in lookup.loaded_protocols():
        assert protocol.title.lower() in text or protocol.name in text


_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_promise_names_tests_that_exist() -> None:
    found = _TEST.findall((ROOT / "docs" / "security.md").read_text())
    assert len(found) > 30
    for path, name in found:
        text = (ROOT / path).read_text()
        assert not name or f"def {name}(" in text, f"{path} has no {name}"
