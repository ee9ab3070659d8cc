"""What the keys of the dashboard do, which knows neither a terminal nor a capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from netdissect.model.live import ORDERS

_MAX_TEXT = 200
"""Maximum length of a search text or filter."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The state of the dashboard that the user controls with keys."""

    order: str = ORDERS[0]
    text: str = ""
    """Search text: a part of endpoints, dialect or state."""
    expression: str = ""
    """Display filter."""
    typing: str = ""
    """The key whose text is being typed: `f` or `/`; "" = none is."""
    typed: str = ""
    """What has been typed of it."""
    fault: str = ""
    """What is wrong with it."""
    selected: int | None = None
    """Number of the selected connection."""
    detail: bool = False
    """Whether only the selected connection is shown."""
    paused: bool = False
    quits: bool = False


def press(wanted: Wanted, key: str, shown: list[int]) -> Wanted:
    """Return the state after a key; `shown`: the numbers of the connections on screen."""
    if wanted.typing:
        return _typed(wanted, key)
    here = wanted.selected if wanted.selected in shown else None
    if key in {"up", "down", "j", "k"} and shown:
        step = 1 if key in {"down", "j"} else -1
        at = 0 if here is None else shown.index(here) + step
        return replace(wanted, selected=shown[max(0, min(at, len(shown) - 1))])
    changed: dict[str, dict[str, Any]] = {
        "s": {"order": ORDERS[(ORDERS.index(wanted.order) + 1) % len(ORDERS)]},
        "f": {"typing": "f", "typed": "", "detail": False},
        "/": {"typing": "/", "typed": wanted.expression, "detail": False},
        "p": {"paused": not wanted.paused},
        "escape": {"detail": False} if wanted.detail
        else {"expression": ""} if wanted.expression else {"text": ""},
        "q": {"quits": True},
    }
    if shown:
        selected = shown[0] if here is None else here
        changed["enter"] = {"selected": selected, "detail": not wanted.detail}
    return replace(wanted, **changed.get(key, {}))


def _typed(wanted: Wanted, key: str) -> Wanted:
    if key in {"enter", "escape"}:
        name = "text" if wanted.typing == "f" else "expression"
        taken: dict[str, Any] = {name: wanted.typed.strip()} if key == "enter" else {}
        return replace(wanted, typing="", typed="", fault="", **taken)
    if key == "backspace":
        return replace(wanted, typed=wanted.typed[:-1], fault="")
    typed = wanted.typed + key if len(key) == 1 and key.isprintable() else wanted.typed
    return replace(wanted, typed=typed[:_MAX_TEXT], fault="")


@dataclass(frozen=True, slots=True)
class Controls:
    """What the keys do to the capture."""

    end: Callable[[], None] = lambda: None
    """Ends it."""
    choose: Callable[[str], str] = lambda _: ""
    """Filters what comes from now on; returns what is wrong with the filter, or ""."""
