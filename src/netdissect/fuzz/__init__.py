"""Fuzzing with sessions that stay valid: seeds, mutants, drivers, monitors, replay, minimising.

Nothing here sends to another machine unless the caller says that it owns it.
"""

from __future__ import annotations

from netdissect.fuzz.cases import CONNECTED, Case, Step
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.drivers import Driver, driven, driver_class
from netdissect.fuzz.engine import RunOptions
from netdissect.fuzz.generator import Generator, Traits
from netdissect.fuzz.report import FuzzReport
from netdissect.fuzz.runs import (
    collect_seeds,
    full_dialect,
    fuzz_target,
    minimise_failure,
    replay_failure,
    replay_tries,
)
from netdissect.fuzz.seeds import Seed, SeedPool, seeds_from_capture, seeds_from_layers
from netdissect.fuzz.store import Failure, load_failure
from netdissect.fuzz.target import Link, Target

__all__ = [
    "CONNECTED",
    "Case",
    "Chance",
    "Driver",
    "Failure",
    "FuzzReport",
    "Generator",
    "Link",
    "RunOptions",
    "Seed",
    "SeedPool",
    "Step",
    "Target",
    "Traits",
    "collect_seeds",
    "driven",
    "driver_class",
    "full_dialect",
    "fuzz_target",
    "load_failure",
    "minimise_failure",
    "replay_failure",
    "replay_tries",
    "seeds_from_capture",
    "seeds_from_layers",
]
