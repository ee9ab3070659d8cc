"""Parses monitors as given on the command line: `exec:COMMAND`, `memory:200`, `rules`."""

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


def parse_monitors(texts: Sequence[str], folder: Path) -> Monitors:
    """Return the monitors given on the command line.

    `exec:COMMAND` runs the target, notices its exit and restarts it; `pid:N` watches a process that
    is already running. `log:REGEX` searches the target's output, `log:FILE:REGEX` a file.
    `memory:MIB` limits growth, `cpu:PERCENT` the share of one processor, `latency:MS` answer times;
    `rules` checks that answers follow the rules of the protocol.

    Raises:
        UsageError: an unknown monitor, or one without the process that it needs.
    """
    monitors: list[Monitor] = []
    process: ProcessMonitor | int | None = None
    # The process first: monitors of its memory, processor and log refer to it.
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
                raise UsageError(f"{kind}: also needs exec: or pid:")
            monitors.append(_OF_PROCESS[kind](amount, process))
        elif kind == "latency" and amount is not None:
            monitors.append(LatencyMonitor(amount))
        elif text == "rules":
            monitors.append(RulesMonitor())
        else:
            raise UsageError(
                f"--monitor: {quoted(text)} is not a monitor: exec:COMMAND, pid:N, log:REGEX, "
                "log:FILE:REGEX, memory:MIB, cpu:PERCENT, latency:MS, rules"
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
        raise UsageError("log:REGEX also needs exec:; use log:FILE:REGEX to search a file")
    return LogMonitor(process.log, value)
