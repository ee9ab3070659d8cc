"""Puts the diagnosis of a connection together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from netdissect.diagnosis import words
from netdissect.diagnosis.causes import badness, cause_of, deciding, ruled_out, settles
from netdissect.diagnosis.ends import ending_of
from netdissect.diagnosis.findings import Found, findings_of
from netdissect.diagnosis.measures import around_of, lag_of, loss_of
from netdissect.model.diagnosis import Cause, Diagnosis, Limits, Loss, SilenceLoss
from netdissect.model.reports import ConnectionReport

_DEFAULTS: Final = Limits()


def diagnose(report: ConnectionReport, limits: Limits = _DEFAULTS) -> Diagnosis:
    """Return how a connection ended, why, and how bad it was until then."""
    ending = ending_of(report)
    loss = (loss_of(report, 0), loss_of(report, 1))
    lag = lag_of(report)
    cause = cause_of(report, ending, loss, limits)
    # What was lost before a one-way span is not known: numbers were counted until its end.
    span = deciding(report) if cause.what == "silence" else None
    return Diagnosis(
        ending,
        cause,
        loss,
        None if span is None else around_of(report, span),
        lag,
        badness(report, ending, cause, loss),
        words.verdict(report, ending, cause, loss, limits),
        ruled_out(report, ending, cause, loss, limits),
        settles(report, cause, loss, limits),
        _names(report),
    )


def diagnose_joined(
    report: ConnectionReport,
    found: Diagnosis,
    cause: Cause,
    loss: tuple[Loss, Loss],
    around: SilenceLoss | None,
    limits: Limits,
) -> Diagnosis:
    """Return the diagnosis of one capture with the cause and the losses that two captures show."""
    return replace(
        found,
        cause=cause,
        loss=loss,
        around=around,
        badness=badness(report, found.ending, cause, loss),
        verdict=words.verdict(report, found.ending, cause, loss, limits),
        ruled_out=ruled_out(report, found.ending, cause, loss, limits),
        settles=None,
    )


def answer(report: ConnectionReport, limits: Limits) -> Iterator[Found]:
    """Write the diagnosis into a report; yield the findings about the whole connection."""
    report.diagnosis = found = diagnose(report, limits)
    yield from findings_of(report, found, limits)


def _names(report: ConnectionReport) -> tuple[str | None, str | None]:
    """Return the names of client and server that their payloads state."""
    identity = report.identity
    for key, text in (("player_name", "{}"), ("client_id", "id {}"), ("client_index", "index {}")):
        if identity.get(key) not in (None, ""):
            return text.format(identity[key]), None
    return None, None
