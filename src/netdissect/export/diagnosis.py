"""The answer about a connection as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from netdissect.model.diagnosis import Diagnosis, Late, Loss
from netdissect.model.packets import Direction
from netdissect.model.reports import QuietSpan

__all__ = ["diagnosis", "label", "pair", "quiet"]

_LABELS: Final = (Direction.C2S.label, Direction.S2C.label)


def label(direction: int | None) -> str | None:
    """Return the word for a direction."""
    return None if direction is None else _LABELS[direction]


def pair(values: Sequence[Any]) -> dict[str, Any]:
    """Return two values by direction."""
    return {"c2s": values[0], "s2c": values[1]}


def quiet(span: QuietSpan) -> dict[str, Any]:
    """Return a span in which a side was not heard, or not answered."""
    return {
        "kind": span.kind,
        "direction": label(span.direction),
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "frames": [span.from_frame, span.to_frame],
        "basis": span.basis,
        "asked": span.asked,
    }


def diagnosis(found: Diagnosis) -> dict[str, Any]:
    """Return the answer about a connection as data."""
    ending, cause, lag = found.ending, found.cause, found.lag
    return {
        "verdict": found.verdict,
        "ended": {
            "by": ending.by,
            "how": ending.how,
            "reason": ending.reason,
            "frame": ending.frame,
            "time_ns": ending.time_ns,
            "confidence": ending.confidence,
        },
        "cause": {
            "what": cause.what,
            "direction": label(cause.direction),
            "from_ns": cause.from_ns,
            "to_ns": cause.to_ns,
            "frames": [cause.from_frame, cause.to_frame],
            "confidence": cause.confidence,
            "text": cause.text,
        },
        "loss": _losses(found.loss),
        "around": None
        if found.around is None
        else {"before": _losses(found.around.before), "inside": _losses(found.around.inside)},
        "lag": {
            "path_ms": lag.path_ms,
            "p95_ms": lag.p95_ms,
            "added": pair([_late(late) for late in lag.added]),
        },
        "badness": found.badness,
        "ruled_out": list(found.ruled_out),
        "second_capture": found.settles,
        "names": pair(found.names),
    }


def _losses(parts: Sequence[Loss]) -> dict[str, Any]:
    return pair(
        [
            {"sent": part.sent, "lost": part.lost, "share": part.share, "basis": part.basis}
            for part in parts
        ]
    )


def _late(late: Late) -> dict[str, Any]:
    return {
        "units": late.units,
        "p50_ms": late.p50,
        "p95_ms": late.p95,
        "max_ms": late.maximum,
        "late": late.beyond,
        "worst": [
            {
                "space": each.space,
                "seq": each.seq,
                "frame": each.frame,
                "added_ms": each.added_ms,
                "copies": each.copies,
            }
            for each in late.worst
        ],
    }
