from __future__ import annotations

from netdissect.model.units import Copy
from samples import MS, START, unit


def test_what_the_network_duplicated_was_sent_once() -> None:
    copies = [Copy(5, START, "original"), Copy(6, START + MS, "duplicate")]
    one = unit(copies=copies, outcome="unacked", acked_frame=None, acked_time_ns=None)
    assert one.best_effort
    assert not one.failed
    copies[1].kind = "retransmission"
    assert not one.best_effort
    assert one.failed
