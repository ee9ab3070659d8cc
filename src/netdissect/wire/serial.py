"""Serial-number arithmetic, for counters that wrap around. Source: RFC 1982."""

from __future__ import annotations


def distance(new: int, old: int, bits: int) -> int:
    """Return by how much `new` is ahead of `old`, in the range (-2**(bits-1), 2**(bits-1)].

    A distance of exactly half the modulus counts as ahead. Source: RFC 1982 section 3.
    """
    modulus = 1 << bits
    ahead = (new - old) & (modulus - 1)
    return ahead - modulus if ahead > modulus >> 1 else ahead


def extend(wire: int, bits: int, near: int) -> int:
    """Return the number closest to `near` whose low `bits` bits equal `wire`.

    Of two numbers at the same distance, the higher one. The result may be negative if `near` is
    below half the modulus. Source: RFC 1982 section 3; RFC 9000 A.3.
    """
    return near + distance(wire, near & ((1 << bits) - 1), bits)
