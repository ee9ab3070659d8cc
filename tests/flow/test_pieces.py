from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netdissect.flow.pieces import Added, PieceBuffer

_ADDITIONS = st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=20)), max_size=25)


@given(_ADDITIONS)
def test_a_buffer_is_a_dictionary_of_octets_where_the_first_stays(additions):
    buffer, model = PieceBuffer(), {}
    for number, (start, data) in enumerate(additions):
        held = {at: model[at][0] for at in range(start, start + len(data)) if at in model}
        differs = any(data[at - start] != octet for at, octet in held.items())
        assert buffer.add(start, data, number) == Added(len(data) - len(held), len(held), differs)
        for at, octet in enumerate(data, start):
            model.setdefault(at, (octet, number))
        assert buffer.octets == len(model)
        assert buffer.octets == 0 or buffer.first == min(model)
    drained = buffer.drain()
    assert [start for start, _, _ in drained] == sorted(start for start, _, _ in drained)
    octets = {s + i: (octet, frame) for s, data, frame in drained for i, octet in enumerate(data)}
    assert octets == model
    assert buffer.octets == len(buffer) == 0


@given(_ADDITIONS)
def test_pieces_come_out_by_offset(additions):
    one, other = PieceBuffer(), PieceBuffer()
    for start, data in additions:
        one.add(start, data, 1)
        other.add(start, data, 1)
    popped = [one.pop_first() for _ in range(len(one))]
    assert popped == other.drain()
    assert one.octets == 0
