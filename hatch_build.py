"""Build hook: compiles the hot path where it can, and adds `top_level.txt` to the wheel.

The modules of `[tool.hatch.build.targets.wheel.hooks.custom] compiled` are typed Python that also
runs interpreted. Where a C compiler is found, mypyc compiles them into the wheel, which makes the
analysis two to three times faster; where there is none, where the compilation fails, where
`NETDISSECT_PURE=1` asks for it, and in editable installs, the wheel is plain Python.

    python hatch_build.py DIRECTORY     compile into a directory, to measure or to debug
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TOP_LEVEL = b"netdissect\n"
NEEDS = ["mypy>=1.18", "setuptools>=70"]
"""What compiles; asked for only where it will be used."""
WHOLE = ("-fvisibility=hidden", "-flto=auto")
"""Options of GCC and Clang that optimise across modules: a twentieth less time for all commands."""


class BuildHook(BuildHookInterface[Any]):
    """Compiles before the files are collected, and completes the finished wheel."""

    def dependencies(self) -> list[str]:
        """Return what the build itself needs."""
        return NEEDS if _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the hot path into a wheel that is not editable."""
        if version == "editable" or not _wanted():
            return
        root = Path(self.root)
        try:
            built = compiled(root, root / "build" / "compiled", self.config["compiled"])
        except (Exception, SystemExit) as fault:  # noqa: BLE001 - a compiler may fail in any way
            self.app.display_warning(f"not compiled, installing plain Python: {fault}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(path): name for name, path in built.items()})

    def finalize(self, _version: str, _data: dict[str, Any], artifact_path: str) -> None:
        """Rewrite the wheel (also an editable one) with one more file and line of its RECORD.

        Scapy's extension loader reads `top_level.txt`, hatchling writes none. Source: scapy
        `scapy.config.ExtsManager.load`, `distribution.read_text("top_level.txt")`.
        """
        path = Path(artifact_path)
        with zipfile.ZipFile(path) as wheel:
            members = [(item, wheel.read(item)) for item in wheel.infolist()]
        record = next(item.filename for item, _ in members if item.filename.endswith("/RECORD"))
        name = f"{record.removesuffix('/RECORD')}/top_level.txt"
        digest = base64.urlsafe_b64encode(hashlib.sha256(TOP_LEVEL).digest()).rstrip(b"=").decode()
        line = f"{name},sha256={digest},{len(TOP_LEVEL)}\n".encode()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(name, TOP_LEVEL)
            for item, data in members:
                wheel.writestr(item, data + line if item.filename == record else data)


def _wanted() -> bool:
    """Return True where the hot path is to be compiled, and can be."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    pure = os.environ.get("NETDISSECT_PURE", "0") != "0"
    return not pure and shutil.which(compiler) is not None and headers.is_file()


def compiled(root: Path, into: Path, patterns: list[str]) -> dict[str, Path]:
    """Compile modules; return {path inside the package folder's parent: compiled file}.

    Args:
        root: the checkout.
        into: directory for everything that is written.
        patterns: glob patterns below `src/netdissect`; packages' own files are left out.

    """
    from mypyc.build import mypycify  # noqa: PLC0415 - absent where nothing is compiled

    into = into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    with _in_directory(root / "src"):
        package = Path("netdissect")
        files = sorted({path for pattern in patterns for path in package.glob(pattern)})
        modules = mypycify(
            [
                "--config-file=", "--ignore-missing-imports", "--follow-imports=silent",
                "--cache-dir", str(into / "cache"),
                *(str(path) for path in files if path.name != "__init__.py"),
            ],
            opt_level="3", debug_level="0", multi_file=True, target_dir=str(into / "c"),
        )  # fmt: skip
        try:
            outputs = _built(modules, into, WHOLE)
        except Exception:  # noqa: BLE001 - a linker without a plugin for it
            outputs = _built(modules, into, ())
    return {str(path.relative_to(into / "lib")): path for path in outputs}


def _built(modules: list[Any], into: Path, options: Sequence[str]) -> list[Path]:
    """Run the C compiler and the linker with further options; return the files made."""
    from setuptools import Distribution  # noqa: PLC0415 - absent where nothing is compiled

    built = [copy(module) for module in modules]
    for module in built:
        module.extra_compile_args = [*module.extra_compile_args, *options]
        module.extra_link_args = [*module.extra_link_args, *options]
    command = Distribution({"name": "netdissect", "ext_modules": built}).get_command_obj(
        "build_ext"
    )
    command.build_lib, command.build_temp = str(into / "lib"), str(into / "temp")
    command.force = True
    command.ensure_finalized()
    command.run()
    return [Path(name) for name in command.get_outputs()]


@contextmanager
def _in_directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    import tomllib

    project = Path(__file__).resolve().parent
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    for name in compiled(project, Path(sys.argv[1]), hook["compiled"]):
        sys.stdout.write(f"{name}\n")
