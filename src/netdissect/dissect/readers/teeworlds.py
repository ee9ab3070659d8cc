"""Derived readers of teeworlds: generated from the layers, do not edit.

`python -m netdissect.dissect.derive` regenerates them. `read_...` returns one value per field and
the next offset, or None if bytes are missing. `odd_...` appends a finding for each soft rule that
these values break; without a reader, its values are those that the rules name, in field order.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final

from netdissect.model.events import Ev, Event




def odd_TwControlEmpty(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if 1: found.append((Ev.NOTE, 'teeworlds-control-missing', 'no byte names the message'))


def odd_TwControlUnknown(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if values[0] is not None: found.append((Ev.NOTE, 'teeworlds-control-unknown', f'control message {values[0]}'))


def odd_Tw07Connless(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0) != 1: found.append((Ev.NOTE, 'teeworlds-connless-version', f'version {values[0]}'))


def odd_TwEmpty(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if 1: found.append((Ev.NOTE, 'teeworlds-chunk-empty', 'the chunk holds no message'))


def odd_TwUnknown(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if values[0] is not None: found.append((Ev.NOTE, 'teeworlds-unknown-message', f'message id {values[0]} (id << 1 | system) is not defined'))


def odd_TwUnknownUuid(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if values[0] is not None: found.append((Ev.NOTE, 'teeworlds-unknown-uuid', 'the UUID is not known'))
