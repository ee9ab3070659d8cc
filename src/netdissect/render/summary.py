"""The one-line summary of a datagram."""

from __future__ import annotations

from operator import is_

from netdissect.model.records import DatagramRecord, MessageRecord


def datagram_summary(record: DatagramRecord, items: list[MessageRecord]) -> str:
    """Return the summary of a datagram: its own if the protocol provides one and all messages are
    shown, otherwise those of the messages. Not yet made safe for a terminal.
    """
    if record.protocol is None:
        return f"{record.length} bytes"
    tree, messages = record.dissection, record.messages
    if (
        tree is not None
        and tree.summary
        and (items is messages or (len(items) == len(messages) and all(map(is_, items, messages))))
    ):
        return tree.summary
    return " | ".join([item.summary or item.type for item in items])
