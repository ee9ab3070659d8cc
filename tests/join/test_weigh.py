"""Equal datagrams: which of them arrived when."""

from __future__ import annotations

from time import process_time

from netdissect.join.weigh import Delays, Priors, weigh

MS = 1_000_000


def test_what_cannot_be_told_is_not_weighed_at_length() -> None:
    """Fifteen equal datagrams, one each 200 ms, in a network that delays by up to two seconds."""
    delays = Delays([each * 10 * MS for each in range(7, 210)], 3000 * MS, 70 * MS)
    priors = Priors(delays, Delays([MS], 100 * MS), 0.03, 0.02, 1e-6, 0.5, MS)
    sent = [200 * MS * each for each in range(15)]
    arrived = [then + 1000 * MS for then in sent]
    began = process_time()
    for _ in range(10):
        found = weigh(sent, arrived, priors)
        assert all(found.doubtful_sent)
        assert all(found.doubtful_arrived)
    assert process_time() - began < 3.0
