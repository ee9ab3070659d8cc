"""The answer about one connection, from its report alone. Knows no protocol."""

from netdissect.diagnosis.answers import answer, diagnose, reworded
from netdissect.diagnosis.neighbours import About, Neighbours

__all__ = ["About", "Neighbours", "answer", "diagnose", "reworded"]
