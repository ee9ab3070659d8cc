"""Monitors as users name them: `exec:COMMAND`, `memory:200`, `rules`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from netdissect.fuzz.folder import free_path
from netdissect.fuzz.monitors import (
    CpuMonitor,
    ExistingProcessMonitor,
    LatencyMonitor,
    LogMonitor,
    MemoryMonitor,
    Monitor,
    Monitors,
    ProcessMonitor,
)
from netdissect.fuzz.rules import RulesMonitor
from netdissect.model.errors import UsageError
from netdissect.model.text import parse_count, quoted

__all__ = ["parse_monitors"]


def parse_monitors(texts: Sequence[str], folder: Path) -> Monitors:
    """Return the monitors that the command line names.

    `exec:COMMAND` runs the target, restarts it and sees it exit; `log:REGEX` searches what it
    prints, `log:FILE:REGEX` a file; `memory:MIB` limits its growth, `cpu:PERCENT` its use of one
    processor, `latency:MS` the time of its answers; `rules` holds them to the protocol's rules;
    `pid:N` watches a process that runs already.

    Raises:
        UsageError: no such monitor, or one without the process that it needs.
    """
    monitors: list[Monitor] = []
    process: ProcessMonitor | int | None = None
    # The process first: what watches its memory, processor or log asks for it.
    for text in sorted(texts, key=lambda each: not each.startswith(("exec:", "pid:"))):
        kind, _, value = text.partition(":")
        amount = parse_count(value)
        if kind == "exec" and value:
            process = ProcessMonitor(_words(value), free_path(folder, "target", ".log"))
            monitors.append(process)
        elif kind == "pid" and amount is not None:
            process = amount
            monitors.append(ExistingProcessMonitor(process))
        elif kind == "log" and value:
            monitors.append(_log_monitor(value, process))
        elif kind in _OF_PROCESS and amount is not None:
            if process is None:
                raise UsageError(f"{kind}: needs exec: or pid: beside it")
            monitors.append(_OF_PROCESS[kind](amount, process))
        elif kind == "latency" and amount is not None:
            monitors.append(LatencyMonitor(amount))
        elif text == "rules":
            monitors.append(RulesMonitor())
        else:
            raise UsageError(
                f"{quoted(text)} is no monitor: exec:COMMAND, pid:N, log:REGEX, log:FILE:REGEX, "
                "memory:MIB, cpu:PERCENT, latency:MS, rules"
            )
    return Monitors(monitors)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"exec:{command}: {error}") from error


_OF_PROCESS: dict[str, Callable[[int, ProcessMonitor | int], Monitor]] = {
    "memory": MemoryMonitor,
    "cpu": CpuMonitor,
}


def _log_monitor(value: str, process: ProcessMonitor | int | None) -> LogMonitor:
    file, colon, pattern = value.partition(":")
    if colon and Path(file).is_file():
        return LogMonitor(Path(file), pattern)
    if not isinstance(process, ProcessMonitor):
        raise UsageError("log:REGEX needs exec: beside it; a log of its own is log:FILE:REGEX")
    return LogMonitor(process.log, value)
