"""The findings about EOUDP as plain rows, for the layers and for `protocols/eoudp` alike.

Source: docs/protocols/eoudp.md, "Findings".
"""

from __future__ import annotations

from typing import Final

__all__ = ["FINDINGS"]

FINDINGS: Final = (
    (
        "eoudp-size-mismatch", "ERROR", "malformed", "size field and datagram disagree",
        (
            "The header states another content size than the datagram has. Real receivers drop "
            "it: no ACK, not counted. Happens to datagrams above 1468 octets, and to those of "
            "another dialect."
        ),
    ),
    (
        "eoudp-content-size", "WARN", "malformed", "content has an illegal size",
        (
            "The content does not have the size that this command needs. Real receivers "
            "acknowledge it where it is flagged, then ignore it."
        ),
    ),
    (
        "eoudp-unknown-command", "ERROR", "malformed", "command that no revision defines",
        (
            "A connected peer that receives it acknowledges it where it is flagged; then its "
            "process ends."
        ),
    ),
    (
        "eoudp-unhandled-command", "WARN", "protocol", "command without a handler",
        (
            "A document names this command and no release handles it: the receiving process "
            "ends."
        ),
    ),
    (
        "eoudp-foreign-command", "NOTE", "protocol", "command of another document revision",
        (
            "This number belongs to another revision than the dialect chosen: 0x11, 0x8a and "
            "0x8c are RFC_01's, 0x0f is RFC_02's."
        ),
    ),
    (
        "eoudp-wrong-direction", "WARN", "protocol", "message of the other side",
        (
            "Only servers accept connections. A CONNECT_ACCEPT from a client changes nothing."
        ),
    ),
    (
        "eoudp-important-value", "WARN", "protocol", "important flag is neither 0 nor 1",
        "Receivers take any value but 0 as true and acknowledge the message.",
    ),
    (
        "eoudp-bool-value", "WARN", "protocol", "truth value is neither 0 nor 1",
        "Receivers take any value but 0 as true.",
    ),
    (
        "eoudp-negative-count", "WARN", "protocol", "negative packet count",
        (
            "A PACKET_INFO counter below zero. Receivers accept it; their loss figures become "
            "nonsense."
        ),
    ),
    (
        "eoudp-timestamp", "WARN", "protocol", "implausible time stamp",
        (
            "Not a number, infinite, negative, denormal, or outside of 2001 to 2039. Receivers "
            "accept it. Without a hint such a datagram is not taken for EOUDP."
        ),
    ),
    (
        "eoudp-far-id", "WARN", "sequence", "id above what a sender can count",
        (
            "Senders count in a signed 32-bit number that starts at 0: an id from 2^31 up is no "
            "id of theirs. It is tracked all the same where it goes on from the one before."
        ),
    ),
    (
        "eoudp-oversize", "WARN", "protocol", "larger than the receive buffer",
        (
            "Receivers read at most 1468 octets. The rest is cut, the size check fails, the "
            "datagram is never acknowledged, and a re-sending peer repeats it for ever."
        ),
    ),
    (
        "eoudp-component-layout", "WARN", "undecoded", "component data of another layout",
        "The data does not fit the known layout of this component. Its octets are shown.",
    ),
    (
        "eoudp-name-encoding", "NOTE", "protocol", "text that is not UTF-8",
        "Receivers take names and texts as octets and accept it.",
    ),
    (
        "eoudp-game-event-0x0c", "WARN", "protocol", "game event sent as 0x0c",
        (
            "The content is no component and reads as strings: the Usage section of RFC_02 "
            "sends game events this way."
        ),
    ),
    (
        "eoudp-big-endian-content", "CHAT", "protocol", "content read as big-endian",
        (
            "The documents name no byte order. The little-endian reading is impossible or "
            "absurd here and the big-endian one is neither."
        ),
    ),
    (
        "eoudp-ambiguous-dialect", "NOTE", "protocol", "dialect not decided",
        (
            "These octets mean the same in several dialects and nothing else of the flow "
            "decides."
        ),
    ),
    (
        "eoudp-connect-again", "NOTE", "protocol", "CONNECT repeated",
        (
            "A client asks once per second until it is accepted, each time with a new id and "
            "the first time stamp. A server that knows the endpoint answers with an ACK only, "
            "numbers afresh and joins the client again as a new player: where the only "
            "CONNECT_ACCEPT was lost this never ends."
        ),
    ),
    (
        "eoudp-reject-ignored", "NOTE", "protocol", "CONNECT_REJECT on an accepted connection",
        "Clients of the programs ignore it and go on; in the documents it ends the session.",
    ),
    (
        "eoudp-timeout-notice", "NOTE", "protocol", "server announces a timeout",
        (
            "When a server gives one client up it sends DISCONNECT to all of them, and on every "
            "tick of 16 ms again. Clients ignore it. Only the client that has been silent for 5 "
            "s is the one given up."
        ),
    ),
    (
        "eoudp-pairs", "CHAT", "protocol", "PACKET_INFO with the counters of several clients",
        (
            "A server with several clients appends pair after pair to one buffer: the last is "
            "the receiver's own. Real receivers take no PACKET_INFO but one of 8 octets."
        ),
    ),
    (
        "eoudp-other-dialect", "NOTE", "protocol", "datagram of another dialect",
        (
            "It fits another dialect than the rest of this direction. Receivers of one dialect "
            "drop those of another for their size."
        ),
    ),
)  # fmt: skip
"""(code, name of its severity, group, title, meaning)."""
