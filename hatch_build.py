"""Adds `top_level.txt` to the wheel: Scapy's extension loader reads it, hatchling writes none.

Source: scapy `scapy.config.ExtsManager.load`, `distribution.read_text("top_level.txt")`.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONTENT = b"netdissect\n"


class TopLevelHook(BuildHookInterface[Any]):
    """Appends the file, and its line of RECORD, to a finished (also editable) wheel."""

    def finalize(self, _version: str, _data: dict[str, Any], artifact_path: str) -> None:
        """Rewrite the wheel's RECORD with one more line."""
        path = Path(artifact_path)
        with zipfile.ZipFile(path) as wheel:
            members = [(item, wheel.read(item)) for item in wheel.infolist()]
        record = next(item.filename for item, _ in members if item.filename.endswith("/RECORD"))
        name = f"{record.removesuffix('/RECORD')}/top_level.txt"
        digest = base64.urlsafe_b64encode(hashlib.sha256(CONTENT).digest()).rstrip(b"=").decode()
        line = f"{name},sha256={digest},{len(CONTENT)}\n".encode()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(name, CONTENT)
            for item, data in members:
                wheel.writestr(item, data + line if item.filename == record else data)
