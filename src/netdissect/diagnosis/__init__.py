"""The answer about one connection, from its report alone. Knows no protocol."""

from netdissect.diagnosis.answers import answer, diagnose, doubted, reworded

__all__ = ["answer", "diagnose", "doubted", "reworded"]
