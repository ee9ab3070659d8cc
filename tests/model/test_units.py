from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(("space", "again"), [("tcp", True), ("message", True), ("state", False)])
def test_what_a_stream_lacks_would_have_been_sent_again(space: str, again: bool) -> None:
    """When the kernel's timer would have ended is not known."""
    one = unit(
        space=space, copies=[Copy(5, START, "original")], outcome="unacked", acked_frame=None,
        acked_time_ns=None,
    )  # fmt: skip
    assert one.best_effort is not again
    assert one.failed is again
