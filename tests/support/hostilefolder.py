"""A folder that somebody else has filled, with whatever a program might run by accident."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["MODULES", "PROGRAMS", "HostileFolder"]

PROGRAMS = (
    "tshark", "dumpcap", "tcpdump", "python", "python3", "sh", "bash", "gcc", "cc", "ld", "objdump",
    "ldconfig", "uname", "sudo", "less", "more", "git", "xdg-open", "stty", "tput", "getcap", "ip",
)  # fmt: skip
# Those that Python itself imports for `-m` (contextlib and what that imports) are not among them.
MODULES = (
    "__future__", "typing", "click", "rich", "scapy", "pyshark", "lxml", "zstandard", "asyncio",
    "signal", "enum", "subprocess", "tomllib", "json", "sitecustomize", "usercustomize", "config",
    "multiprocessing", "logging", "pickle", "dask", "distributed", "duckdb", "pyarrow",
)  # fmt: skip


class HostileFolder:
    """The folder; everything in it that is run leaves its name in a file beside the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path / "downloads"
        self.path.mkdir()
        self._mark = path / "run.txt"
        for name in PROGRAMS:
            self._program(self.path / name)
        for name in MODULES:
            self._module(self.path / f"{name}.py", name)
        for name in (".scapy_startup.py", ".scapy_prestart.py", "startup.py", "prestart.py"):
            self._module(self.path / name, name)
        trap = self._program(self.path / "trap")
        (self.path / "config.ini").write_text(
            f"[tshark]\ntshark_path = {trap}\n[dumpcap]\ndumpcap_path = {trap}\n"
        )
        (self.path / "netdissect.toml").write_text('[output]\ncolor = "never"\n')

    def _program(self, path: Path) -> Path:
        path.write_text(f"#!/bin/sh\necho program {path.name} >> {self._mark}\nexit 1\n")
        path.chmod(0o755)
        return path

    def _module(self, path: Path, name: str) -> None:
        path.write_text(f"open({str(self._mark)!r}, 'a').write('module {name}\\n')\n")

    @property
    def ran(self) -> list[str]:
        """Return what of the folder was run."""
        return self._mark.read_text().splitlines() if self._mark.exists() else []

    @property
    def environ(self) -> dict[str, str]:
        """Return an environment whose PATH names the folder in every way before the system's."""
        path = f".::./:{self.path}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path}
