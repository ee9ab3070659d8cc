# ruff: noqa: INP001 - a script beside the data, no package
"""Writes INDEX.md: one line for each capture, from its frames and its truth file.

python captures/make_index.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from netdissect.capture import open_capture

HERE = Path(__file__).resolve().parent
INDEX = HERE / "INDEX.md"

_HEAD = """\
# Captures

Real traffic of real implementations, each file with a `.truth.json` beside it: how it was
made, with which versions, and what the programs themselves counted. Made by
`python captures/make_index.py`; do not edit by hand.
"""


def dialects(truth: dict[str, Any]) -> str:
    """Return the dialects that a truth file names, for the whole file or for its connections."""
    named = truth.get("dialect")
    if isinstance(named, dict):
        return ", ".join(f"{side} {dialect}" for side, dialect in sorted(named.items()))
    if named is not None:
        return str(named)
    connections = truth.get("expect", {}).get("connections", [])
    found = {str(c["dialect"]) for c in connections if isinstance(c, dict) and c.get("dialect")}
    return ", ".join(sorted(found))


def cell(text: str) -> str:
    """Return text that stays in one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def row(path: Path) -> str:
    """Return the line of one capture."""
    truth = json.loads(path.with_name(f"{path.stem}.truth.json").read_text(encoding="utf-8"))
    with open_capture(path) as reader:
        for _ in reader.batches():
            pass
    info = reader.info
    link = f"{', '.join(info.link_types)}"
    name = f"[{path.stem}]({path.relative_to(HERE).as_posix()})"
    cells = [name, dialects(truth), f"{info.frames:,}", link, truth["what"]]
    return "| " + " | ".join(cell(text) for text in cells) + " |"


def index() -> str:
    """Return the text of the index."""
    parts = [_HEAD]
    for folder in sorted(path for path in HERE.iterdir() if path.is_dir()):
        captures = sorted(folder.glob("*.pcap*"))
        if not captures:
            continue
        parts.append(f"\n## {folder.name} ({len(captures)} captures)\n")
        parts.append("| Capture | Dialect | Packets | Link type | What it shows |")
        parts.append("|---|---|---:|---|---|")
        parts += [row(path) for path in captures]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
