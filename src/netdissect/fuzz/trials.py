"""Divides the time after a failure into trials and calm.

In a trial, everything is sent, and the target is checked after each case, so that it is known what
ends it. In calm, only what the target has survived before is sent, so that a session lasts.
"""

from __future__ import annotations

TRIAL_CASES = 200
"""Cases of a trial, counted from the last failure."""
CALM_SECONDS = 40.0
"""Time of calm between two trials."""
_TRIAL_SECONDS = 5.0
"""Trials may take this long, ..."""
_TRIAL_SHARE = 0.25
"""... and this share of the run, with the failures and restarts that they bring."""
_STARVED = 20
"""Cases held back for each one sent, beyond those of a trial, by which a calm is starved."""


class Trials:
    """Tells whether this is a trial, calm, or before the first failure."""

    def __init__(self, now: float) -> None:
        self._began = self._seen = now
        self._spent = 0.0
        self._left = 0
        self._calm_until = 0.0
        self._hunger = 0
        self._failed = False

    @property
    def trying(self) -> bool:
        """Return whether this is a trial."""
        return self._left > 0

    @property
    def calm(self) -> bool:
        """Return whether only what the target has survived before is to be sent."""
        return self._failed and not self._left

    def failed(self, now: float, *, known: bool) -> None:
        """Note a failure: a trial begins, if there is time for one. `known`: of a kind that is to
        be avoided; there is no calm before the first such one.
        """
        if not self._left:
            # The time of calm was none of a trial.
            self._seen = now
        self._failed |= known
        self._left = TRIAL_CASES
        self._check_time(now)

    def advance(self, now: float, sent: int = 0) -> None:
        """Note the time and the number of cases sent meanwhile: a trial may begin or end."""
        if self._left:
            self._left = max(0, self._left - sent)
            self._check_time(now)
        elif self._failed:
            self._hunger = max(0, self._hunger - _STARVED * sent)
            starved = self._hunger > _STARVED * TRIAL_CASES
            if starved:
                # Too little is known to be survived: the time of calm is better spent on trials.
                self._began, self._spent = now, 0.0
            if starved or now >= self._calm_until:
                self._left, self._seen = TRIAL_CASES, now

    def hold_back(self) -> None:
        """Note a case that is not sent because it may be lethal."""
        self._hunger += self.calm

    def _check_time(self, now: float) -> None:
        self._spent += now - self._seen
        self._seen = now
        if self._failed and self._spent > _TRIAL_SECONDS + _TRIAL_SHARE * (now - self._began):
            self._left = 0
        if not self._left:
            self._calm_until, self._hunger = now + CALM_SECONDS, 0
