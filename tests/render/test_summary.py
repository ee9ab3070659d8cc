from __future__ import annotations

import samples
from netdissect.model.dissection import FieldNode, MessageView
from netdissect.render.summary import datagram_summary, message_summary


def test_fields_are_named_and_octets_counted() -> None:
    record = samples.datagram()
    assert message_summary(record, record.messages[0]) == "Reliable sequence_id=12 payload=2B"


def test_a_protocols_own_line_wins() -> None:
    record = samples.datagram(dissection=samples.dissection(summary="hello"))
    assert datagram_summary(record, record.messages) == "hello"
    record.messages[0].summary = "mine"
    assert message_summary(record, record.messages[0]) == "mine"


def test_nodes_give_names_for_numbers_and_skip_what_is_generated() -> None:
    node = FieldNode(
        "m",
        None,
        0,
        32,
        children=[
            FieldNode("type_id", 5, 0, 4, "Disconnect (5)"),
            FieldNode("reason", 3, 4, 8, "TimedOut (3)"),
            FieldNode("inner", None, 12, 4, children=[FieldNode("x", 1, 12, 4)]),
            FieldNode("items", None, 16, 8, children=[FieldNode("a", 1, 16, 8)], is_list=True),
            FieldNode("text", "y" * 200, 24, 8),
            FieldNode("concluded", 9, 0, 0, generated=True),
        ],
    )
    tree = samples.dissection(messages=[MessageView("Disconnect", 0, 4, {}, node)])
    record = samples.datagram(dissection=tree)
    record.messages[0].type = "Disconnect"
    text = message_summary(record, record.messages[0])
    assert text.startswith('Disconnect reason=TimedOut x=1 items=[1] text="yyy')
    assert "concluded" not in text
    assert len(text) < 130


def test_many_fields_are_cut() -> None:
    record = samples.datagram()
    record.messages[0].fields = {f"f{index}": index for index in range(20)}
    assert message_summary(record, record.messages[0]).endswith("f7=7…")


def test_an_unknown_datagram_says_its_size() -> None:
    record = samples.datagram(protocol=None, messages=[])
    assert datagram_summary(record, []) == "6 bytes"
