"""Reports that are written for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

import gallery
from netdissect.cli import cli
from netdissect.cli.plot_data import collect_plot_data
from netdissect.cli.report import MAX_DETAILED, capture_of
from netdissect.cli.session import Session
from netdissect.report.document import document
from netdissect.report.subject import Capture

EVIL = "</script><img src=x onerror='window.pwned=1'>\"\x1b]0;x\x07\u202e"


def report(name: str, folder: Path, *words: str, second: str | None = None) -> Path:
    """Write the report of a shipped capture and return its path."""
    path = folder / "report.html"
    files = [gallery.path(each) for each in (name, second) if each is not None]
    command = ["report", *files, "-o", str(path), *words]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return path


def capture(name: str, *, redact: bool = False) -> Capture:
    """Return what a report of a shipped capture says."""
    with Session(gallery.path(name), quiet=True) as session:
        found = collect_plot_data(session, remember=True)
        numbers = [report.connection for report in session.reports][:MAX_DETAILED]
        return capture_of(session, found, numbers, redact=redact)


def hostile_report(folder: Path) -> tuple[Path, str]:
    """Write a report in which every text is an attack, and return its path and the attack as it is
    to be read.
    """
    told = capture(gallery.LOSSY)
    for subject in told.subjects:
        subject.report = replace(
            subject.report, client=EVIL, server=EVIL, protocol=EVIL, dialects=(EVIL, EVIL)
        )
        found = subject.diagnosis
        cause = replace(found.cause, text=EVIL)
        subject.diagnosis = replace(
            found, verdict=EVIL, cause=cause, ruled_out=(EVIL,), settles=EVIL, names=(EVIL, EVIL)
        )
        assert subject.history is not None
        for unit in subject.history.slowest():
            unit.type, unit.space = EVIL, EVIL
        for record in subject.scene:
            record.src = record.dst = EVIL
            for item in record.messages:
                item.summary = item.type = EVIL
            if record.dissection is not None:
                record.dissection.summary = EVIL
                for node in record.dissection.root.children:
                    node.value, node.display, node.name = EVIL, EVIL, EVIL
    told.name = EVIL
    path = folder / "hostile.html"
    path.write_text(document(told), encoding="utf-8")
    return path, "</script><img src=x onerror='window.pwned=1'>\"\\x1b]0;x\\x07\\u202e"
