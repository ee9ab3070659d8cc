"""Plug-ins for tests: modules on disk with the entry point of a distribution beside them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["install"]

_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"


def install(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Write a distribution as pip would leave it; return the folder for `PYTHONPATH`.

    Args:
        folder: where to; it may hold others.
        name: the protocol's; its entry point names the module `<name>_plugin`.
        files: path -> text.

    """
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    about = folder / f"{name}_plugin-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(_METADATA.format(name=f"{name}-plugin"))
    (about / "entry_points.txt").write_text(
        f"[netdissect.protocols]\n{name} = {name}_plugin\n"
    )
    return folder
