"""`docs/python.md`: its scripts run as they are printed, and the reference is made from docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.utils import wrpcap

from agreement import CAPTURES
from netdissect.layers import PROTOCOLS
from netdissect.layers.base import Layer
from netdissect.lookup import hot_path
from netdissect.model.errors import UsageError
from netdissect.pytest_plugin import CheckedCapture

ROOT = CAPTURES.parent
PAGE = ROOT / "docs" / "python.md"
REFERENCE = ROOT / "docs" / "python-reference.md"
SCRIPTS = re.findall(r"^## (\d+\. .*?)$.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
PRINTED = {
    "1": r"(\w+ \d+ \d+\n){3}",
    "2": r"(?s).*count.*sum.*",
    "3": r"\d\d+ round trips, \d\d+ marks\n",
    "4": r"\d+ retransmissions and duplicates; the first: \(\d+, \('reliable', \d+\), \d+\)\n",
    "5": r"(?s).*'x': 5.*'y': 6.*",
    "6": r"\['Riptide .*'\]\n",
    "7": r"\('127\.0\.0\.1', 50000\) Riptide Welcome\n",
    "8": r"was number \d+ is number 2 acknowledged: True\n",
    "9": r"200 cases, 0 failures\n",
}  # fmt: skip
MODULES = (
    "netdissect", "netdissect.scapy_session", "netdissect.pytest_plugin", "netdissect.fuzz",
    "netdissect.fuzz.automata", "netdissect.fuzz.exchange", "netdissect.fuzz.servers",
    "netdissect.dissect.schema", "netdissect.layers", *(f"netdissect.layers.{each}" for each in PROTOCOLS),
)  # fmt: skip


def test_there_are_ten_scripts() -> None:
    assert [title.partition(".")[0] for title, _code in SCRIPTS] == [str(n) for n in range(1, 11)]


@pytest.mark.parametrize(("title", "code"), SCRIPTS[:9], ids=[title for title, _ in SCRIPTS[:9]])
def test_a_script_runs_as_it_is_printed(title: str, code: str) -> None:
    for extra in ("pandas", "matplotlib"):
        if f"import {extra}" in code:
            pytest.importorskip(extra)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTED[title.partition(".")[0]], done.stdout), done.stdout


def test_polars_takes_the_rows_that_pandas_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    rows, _, _ = SCRIPTS[1][1].replace("import pandas\n", "").partition("frame =")
    exec(rows, names)  # noqa: S102 - a script of the page
    frame = polars.DataFrame(names["rows"])
    assert frame.columns == ["time", "type", "length", "number"]
    assert frame.height == len(names["rows"]) > 900


def test_the_last_script_is_a_test_and_the_fixture_finds_losses(tmp_path: Path) -> None:
    (tmp_path / "captures").symlink_to(CAPTURES)
    lossy = SCRIPTS[9][1].replace("udp_2.2.1_clean", "udp_2.2.1_lossy_clientleg").replace("is_good", "is_bad")
    (tmp_path / "test_lan.py").write_text(
        "from netdissect.pytest_plugin import netdissect_capture\n" + SCRIPTS[9][1] + lossy
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "17 of 156 of the client lost" in done.stdout


def test_findings_can_be_asserted_by_code() -> None:
    capture = CheckedCapture(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap")
    assert capture.losses() == []
    capture.assert_no_anomalies()
    capture.assert_no_anomalies("timeout")
    with pytest.raises(UsageError, match="did you mean 'high-loss'"):
        capture.assert_no_anomalies("high-los")


def test_a_capture_without_a_connection_proves_nothing(tmp_path: Path) -> None:
    wrpcap(str(tmp_path / "other.pcap"), [IP() / UDP() / b"nothing of ours"])
    with pytest.raises(AssertionError, match="holds no connection"):
        CheckedCapture(tmp_path / "other.pcap").assert_no_anomalies()


def reference() -> str:
    lines = ["# Reference of the Python names", "",
             "Written by `python -m pytest tests/test_python_docs.py --update-expected` from the docstrings.", ""]  # fmt: skip
    for name in MODULES:
        module = importlib.import_module(name)
        lines += [f"## {name}", "", inspect.getdoc(module) or "", ""]
        layers = []
        for public in sorted(module.__all__, key=str.lower):
            found = getattr(module, public)
            if isinstance(found, type) and issubclass(found, Layer):
                layers.append(found)
                continue
            if not callable(found):
                continue
            shown = _signature(found)
            lines += [f"### {public}{shown}", "", "```text", inspect.getdoc(found) or "", "```", ""]
        if layers:
            lines += ["| layer | what it is | fields |", "|---|---|---|", *map(_row, layers), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(layer: type[Layer]) -> str:
    text = " ".join((inspect.getdoc(layer) or "").split("\n\n")[0].split())
    fields = ", ".join(f"`{field.name}`" for field in layer.fields_desc)
    return f"| `{layer.__name__}` | {text} | {fields} |"


def _signature(found: object) -> str:
    try:
        text = str(inspect.signature(found))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    return re.sub(r"<(\w+) (?:<\w+>|[^<>])*>", r"<\1>", text).replace("'", "")


@pytest.mark.skipif(hot_path() == "compiled", reason="compiled functions have no signature")
def test_the_reference_is_current(update_expected: bool) -> None:
    if update_expected:
        REFERENCE.write_text(reference())
    assert REFERENCE.read_text() == reference()
