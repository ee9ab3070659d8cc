"""Reports the bounds of the tracker that a connection has reached."""

from __future__ import annotations

from netdissect.model.bounds import reached
from netdissect.track.findings import Findings


def report_bounds(findings: Findings, end_ns: int) -> None:
    """Report where each bound was first reached, and what became unknown there."""
    reported: set[tuple[int, str]] = set()
    for (direction, space, name), bound in list(findings.bounds.items()):
        where = f"{space}: " if space else ""
        findings.add(
            # One finding for each bound and direction is kept even if there are too many findings.
            "limit-hit", bound.frame or None, bound.time_ns or None, direction,
            f"{where}bound {name} was reached {reached(name, bound.times)}",
            {"bound": name, "space": space or None, "times": bound.times},
            concluded_ns=end_ns, always=(direction, name) not in reported,
        )  # fmt: skip
        reported.add((direction, name))
