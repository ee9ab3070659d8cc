"""Console blocks in documents: the commands in them are run and their output compared, or rewritten."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import version
from pathlib import Path

from click.testing import CliRunner

from netdissect.cli import cli

__all__ = ["ROOT", "SAME_CLICK", "refreshed", "run"]

SAME_CLICK = version("click").startswith("8.5.")
"""Whether click lays out help as the one that the pages were made with; other versions differ in detail."""

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def run(words: list[str], **extra: str) -> str:
    """Return what a command prints, standard error included, without colour."""
    env = {
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "TERMINAL_WIDTH": "100",
        "XDG_CONFIG_HOME": "/proc/nonexistent",
        **extra,
    }
    result = CliRunner().invoke(cli, words, env=env, prog_name="netdissect", catch_exceptions=False)
    return result.output


def refreshed(text: str) -> str:
    """Return a document with the output of every `$ netdissect ...` block brought up to date."""

    def block(match: re.Match[str]) -> str:
        commands = [line for line in match[1].splitlines() if line.startswith("$ ")]
        parts = []
        for line in commands:
            words = shlex.split(line[2:])
            if "--help" in words and not SAME_CLICK:
                return match[0]
            if words[0] != "netdissect" or "|" in words or ">" in words:
                return match[0]
            output = "\n".join(row.rstrip() for row in run(words[1:]).splitlines())
            parts.append(f"{line}\n{output}\n")
        return "```console\n" + "\n".join(parts) + "```\n"

    return _BLOCK.sub(block, text)
