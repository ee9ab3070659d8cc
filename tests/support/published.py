"""What a published capture says, to be compared with what the original says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from netdissect.cli import cli
from netdissect.model.dissection import TEXT, FieldNode
from netdissect.pipeline.iterate import iter_records

__all__ = ["nodes", "reports", "run", "texts"]

SAID = frozenset(
    {
        "client", "server", "src", "dst", "name", "player_name", "connect_data", "stream_sha256",
        "connect_payload", "reason", "reject_reason",
    }
)
"""Facts that are addresses or what people wrote."""
TYPE = re.compile(r"[\w.$]+(?:\[\])*")
"""The name of a type of message."""


def run(*words: object, status: tuple[int, ...] = (0,)) -> Result:
    result = CliRunner().invoke(cli, [str(word) for word in words], prog_name="netdissect")
    assert result.exit_code in status, result.stderr
    return result


def plain(value: Any, key: str = "") -> Any:
    """Return a report without what must differ."""
    if isinstance(value, dict):
        if key in {"c2s", "s2c"} and not all(map(TYPE.fullmatch, value)):
            return sorted(map(str, value.values()))  # types that are bodies gone astray
        return {name: plain(item, name) for name, item in value.items() if name not in SAID}
    if isinstance(value, list):
        return [plain(item, key) for item in value]
    return "said" if key in {"c2s", "s2c"} and isinstance(value, str) else value


def reports(path: Path) -> list[Any]:
    found = []
    for line in run("connections", path, "--json", status=(0, 4)).stdout.splitlines():
        reason = (json.loads(line).get("close") or {}).get("reason")
        # Sentences quote it.
        found.append(plain(json.loads(line.replace(json.dumps(reason)[1:-1], "said") if reason else line)))
    return found


def nodes(node: FieldNode) -> list[FieldNode]:
    return [node, *(inner for child in node.children for inner in nodes(child))]


def texts(path: Path) -> set[str]:
    """Return what people wrote in a capture, as its layers say."""
    return {
        str(node.value)
        for record in iter_records(path)
        if record.dissection is not None
        for node in nodes(record.dissection.root)
        if node.private == TEXT and isinstance(node.value, str) and len(node.value.strip()) > 3
    }
