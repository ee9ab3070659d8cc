"""What happened to a connection, concluded from its report alone. Knows no protocol.

Method. `ends` reads from the state, the close and the timeouts of a report who ended the connection
and how. `measures` reduces its spaces and probes to the loss and the lag of each direction, each
with what it is based on. `causes` picks the one cause that explains most: a refusal, a silence, a
loss, a program that did not read. `words` writes all sentences, `findings` raises the findings that
are about whole connections. `neighbours` then revises the answer by what the other connections of
the same server show. A cause is called certain only if the capture leaves no other explanation.
"""

from netdissect.diagnosis.answers import answer, diagnose, diagnose_joined
from netdissect.diagnosis.causes import cause_without_loss
from netdissect.diagnosis.neighbours import About, Neighbours

__all__ = ["About", "Neighbours", "answer", "cause_without_loss", "diagnose", "diagnose_joined"]
