"""Numbers as text, in a fraction of the instructions that `str` and format specifiers take."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64

_THOUSAND: Final = 1000
_MILLION: Final = 1_000_000
_EXACT: Final = 1 << 49
"""Below this, a quotient has so many binary digits that its tenths are right."""
_SMALL: Final = [str(number) for number in range(_THOUSAND)]
_DECIMALS: Final = [f".{str(1000 + number)[1:].rstrip('0') or '0'}" for number in range(_THOUSAND)]
"""Thousandths, without zeros at their end."""


def digits(value: int) -> str:
    """Return `str(value)`; most integers are counts that are small."""
    return _SMALL[value] if 0 <= value < _THOUSAND else str(value)


def decimal(millionths: i64) -> str:
    """Return a number of millionths, 0 or more, as a decimal fraction without zeros at its end."""
    whole, part = millionths // _MILLION, millionths % _MILLION
    if not part % _THOUSAND:  # time stamps are in microseconds, as a rule
        return f"{digits(whole)}{_DECIMALS[part // _THOUSAND]}"
    scale: i64 = _MILLION
    while part % 10 == 0:
        part //= 10
        scale //= 10
    return f"{digits(whole)}.{str(scale + part)[1:]}"


def tenths(value: int, unit: int) -> str:
    """Return `f"{value / float(unit):.1f}"`; the unit is a power of ten."""
    if 0 <= value < _EXACT:
        number = 10 * i64(value)
        whole, part = number // unit, number % unit
        if 2 * part != unit:  # a tie is rounded by the binary form of the quotient
            whole += 2 * part > unit
            return f"{digits(whole // 10)}{_DECIMALS[whole % 10 * 100]}"
    return f"{value / float(unit):.1f}"  # compiled, the quotient of two `int`s is less exact
