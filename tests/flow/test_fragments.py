from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.flow import Decapsulator
from netdissect.flow.fragments import (
    FRAGMENT_TIMEOUT_NS,
    MAX_FRAGMENT_DATAGRAMS,
    MAX_FRAGMENT_OCTETS,
    Fragment,
    FragmentTable,
)
from netdissect.flow.stats import FlowStats
from packetbuild import fragments4, fragments6, frame, ipv4, udp

PAYLOAD = bytes(range(251)) * 12


def run(packets, **options):
    flow = Decapsulator()
    found = list(flow.packets(frame(n, p, **options) for n, p in enumerate(packets, 1)))
    return found, flow.stats


def piece(offset, data, *, more=True, identity=b"a"):
    return Fragment(identity, offset, more, data, 17, ())


def table():
    stats = FlowStats()
    return FragmentTable(stats), stats


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
    st.sampled_from([fragments4, fragments6]),
)
def test_any_order_and_any_duplicates_give_the_datagram_once(sizes, rng, cut):
    pieces = cut(udp(PAYLOAD), [size * 8 for size in sizes])
    order = list(range(len(pieces)))
    rng.shuffle(order)
    # Copies of all but the fragment that completes it: behind that they would begin anew.
    copies = [rng.choice(order[:-1]) for _ in range(rng.randrange(4))]
    mixed = [*order[:-1], *copies]
    rng.shuffle(mixed)
    found, stats = run([pieces[i] for i in [*mixed, order[-1]]])
    assert [p[4:] for p in found] == [(PAYLOAD, None, ())]
    assert stats.fragments_duplicate == len(copies)
    assert stats.fragments_unfinished == 0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_overlaps_with_equal_octets_give_the_same_octets(overlaps, rng):
    whole = PAYLOAD[:400]
    parts = [piece(0, whole[:200]), piece(200, whole[200:], more=False)]
    for start, size in overlaps:
        data = whole[start * 8 : min((start + size) * 8, 392)]
        if data:
            parts.append(piece(start * 8, data))
    rng.shuffle(parts)
    fragments, stats = table()
    joined = [found for part in parts if (found := fragments.add(part, 0)) is not None]
    assert joined[0].data == whole
    assert stats.fragments_joined == len(joined)


def test_an_overlap_keeps_the_first_copy_and_says_so():
    fragments, stats = table()
    assert fragments.add(piece(0, b"A" * 16), 0) is None
    assert fragments.add(piece(8, b"B" * 16), 0) is None
    joined = fragments.add(piece(24, b"C", more=False), 0)
    assert joined.data == b"A" * 16 + b"B" * 8 + b"C"
    assert joined.faults == ("ip-fragment-overlap",)
    assert stats.fragments_overlapping == 1


def test_a_changed_duplicate_is_an_overlap():
    fragments, stats = table()
    fragments.add(piece(0, b"A" * 8), 0)
    fragments.add(piece(0, b"B" * 8), 0)
    assert fragments.add(piece(8, b"C", more=False), 0).faults == ("ip-fragment-overlap",)
    assert stats.fragments_duplicate == 0


@pytest.mark.parametrize(
    "stray",
    [
        piece(16, b"S" * 8),
        piece(8, b"S" * 8),
        piece(0, b"S", more=False),
        piece(16, b"S", more=False),
    ],
)
def test_fragments_past_the_stated_end_are_left_out(stray):
    fragments, _ = table()
    fragments.add(piece(8, b"B" * 4, more=False), 0)
    fragments.add(stray, 0)
    joined = fragments.add(piece(0, b"A" * 8), 0)
    assert joined.data == b"A" * 8 + b"B" * 4
    assert joined.faults == ("ip-fragment-overlap",)


def test_an_end_before_what_was_seen_is_no_end():
    fragments, stats = table()
    fragments.add(piece(0, b"A" * 32), 0)
    assert fragments.add(piece(8, b"B", more=False), 0) is None
    assert fragments.add(piece(32, b"C", more=False), 0).data == b"A" * 32 + b"C"
    assert stats.fragments_overlapping == 1


@pytest.mark.parametrize(
    "bad",
    [piece(0, b"1234567"), piece(0, b""), piece(65_528, b"x" * 8), piece(65_535, b"x", more=False)],
)
def test_impossible_fragments_are_set_aside(bad):
    fragments, stats = table()
    assert fragments.add(bad, 0) is None
    assert stats.fragments_bad == 1


def test_a_snapped_fragment_is_set_aside():
    pieces = fragments4(udp(PAYLOAD), [1480])
    found, stats = run(pieces, cut=100)
    assert found == []
    assert stats.fragments_bad == 2


def test_the_same_number_of_other_addresses_or_protocols_is_another_datagram():
    first = fragments4(udp(b"1" * 100), [48])
    other = fragments4(udp(b"2" * 100), [48], src=bytes([9, 9, 9, 9]))
    mixed = [first[0], other[0], first[1], other[1], ipv4(b"x" * 8, 6, ident=7, bits=0x2000)]
    found, stats = run(mixed)
    assert [p[4] for p in found] == [b"1" * 100, b"2" * 100]
    assert stats.fragments_unfinished == 1


def test_an_unfinished_datagram_is_given_up_in_time():
    fragments, stats = table()
    fragments.add(piece(0, b"old" + bytes(5)), 0)
    fragments.add(piece(0, b"x" * 8, identity=b"b"), FRAGMENT_TIMEOUT_NS - 1)
    assert stats.fragments_timed_out == 0
    assert fragments.add(piece(8, b"new", more=False), FRAGMENT_TIMEOUT_NS) is None
    assert stats.fragments_timed_out == 1


def test_unfinished_datagrams_are_bounded_in_number():
    fragments, stats = table()
    for number in range(MAX_FRAGMENT_DATAGRAMS + 10):
        fragments.add(piece(0, bytes(8), identity=number.to_bytes(4, "big")), 0)
    assert stats.fragments_evicted == 10
    assert fragments.add(piece(8, b"", more=False, identity=(10).to_bytes(4, "big")), 0) is not None
    assert fragments.add(piece(8, b"", more=False, identity=(9).to_bytes(4, "big")), 0) is None


def test_unfinished_datagrams_are_bounded_in_octets():
    fragments, stats = table()
    count = 400
    for number in range(count):
        fragments.add(piece(8, bytes(65_000), identity=number.to_bytes(4, "big")), 0)
    kept = count - stats.fragments_evicted
    assert 0 < kept * 65_000 <= MAX_FRAGMENT_OCTETS < (kept + 1) * 65_600
    fragments.finish()
    assert stats.fragments_unfinished == kept


def test_many_tiny_fragments_count_for_what_they_cost():
    fragments, stats = table()
    for number in range(100_000):
        offset = (number % 4000) * 16
        fragments.add(piece(offset, bytes(8), identity=(number // 4000).to_bytes(4, "big")), 0)
    assert stats.fragments_evicted > 0
