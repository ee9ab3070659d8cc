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


def test_a_delay_somewhat_longer_than_the_longest_of_the_sample_leaves_a_doubt() -> None:
    """Two equal datagrams, the first of which was held back: which of them came first?"""
    usual = [(10 * MS + each * MS // 50) for each in range(500)]
    held = [each * 2 * MS for each in range(30, 36)]
    lags = Delays([], 10_000 * MS, 1)
    priors = Priors(Delays(usual + held, 10_000 * MS), lags, 0.01, 1e-3, 1e-3, 0.5, MS)
    for longer_ms in (1, 3, 6):
        found = weigh([0, 61 * MS], [(69 + longer_ms) * MS, (72 + longer_ms) * MS], priors)
        assert all(found.doubtful_sent)
        assert all(found.doubtful_arrived)
    # Far beyond it there is none.
    found = weigh([0, 200 * MS], [15 * MS, 212 * MS], priors)
    assert found.sender == [0, 1]
    assert not any(found.doubtful_sent)


def test_a_rare_delay_between_two_known_ones_leaves_a_doubt() -> None:
    """A stall delays some by 8 to 55 ms: was the first of two held back, or lost?"""
    usual = [each * MS // 1000 for each in range(4600)]
    stalls = [9 * MS, 12 * MS, 17 * MS, 31 * MS, 55 * MS]
    lags = Delays([], 1_000 * MS, 1)
    priors = Priors(Delays(usual + stalls, 1_000 * MS), lags, 0.01, 0.05, 1e-3, 0.5, MS // 10)
    found = weigh([0, 14 * MS], [14 * MS + 10_000], priors)
    assert all(found.doubtful_sent)
    assert found.sender == [1]


def test_of_two_long_delays_the_shorter_is_more_likely() -> None:
    """No delay as long as any of these is known, so that 160 ms is no better than 135 and 25."""
    known = [each * MS // 25 for each in range(300)]
    lags = Delays([], 1_000 * MS, 1)
    priors = Priors(Delays(known, 1_000 * MS), lags, 0.01, 0.04, 1e-5, 0.5, MS // 10)
    found = weigh([0, 135 * MS], [135 * MS - 70_000, 160 * MS], priors)
    assert all(found.doubtful_sent)
    assert all(found.doubtful_arrived)


def test_an_arrival_far_sooner_than_any_of_many_leaves_a_doubt() -> None:
    """It seems to come 59 us before the second of two equal datagrams was sent, and a copy of the
    first one, which was held back, much later.
    """
    usual = [5_000 + 10 * each for each in range(2000)]
    held = [each * MS for each in range(10, 400, 3)]
    lags = Delays([MS], 10_000 * MS, 400 * MS)
    priors = Priors(Delays(usual + held, 10_000 * MS), lags, 0.1, 0.02, 1e-3, 0.5, MS // 10)
    found = weigh([0, 19_595_000], [19_536_000, 303_077_000], priors)
    assert all(found.doubtful_sent)
    assert all(found.doubtful_arrived)
    # As soon as some of the others, it is beyond doubt.
    found = weigh([0, 19_595_000], [19_601_000, 303_077_000], priors)
    assert found.sender[0] == 1
    assert not found.doubtful_arrived[0]
