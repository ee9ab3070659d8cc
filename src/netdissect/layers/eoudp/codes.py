"""EOUDP's rows of the catalogue. Source: docs/protocols/eoudp.md, "Findings"."""

from __future__ import annotations

from netdissect.model.annotations import CodeRow, Severity

__all__ = ["CODES"]

CODES: tuple[CodeRow, ...] = (
    CodeRow(
        "eoudp-size-mismatch", Severity.ERROR, "malformed", "size field and datagram disagree",
        "The header states another content size than the datagram has. Real receivers drop it: no "
        "ACK, not counted. Happens to datagrams above 1468 octets, and to those of another dialect.",
    ),
    CodeRow(
        "eoudp-content-size", Severity.WARN, "malformed", "content has an illegal size",
        "The content does not have the size that this command needs. Real receivers acknowledge it "
        "where it is flagged, then ignore it.",
    ),
    CodeRow(
        "eoudp-unknown-command", Severity.ERROR, "malformed", "command that no revision defines",
        "A connected peer that receives it acknowledges it where it is flagged; then its process "
        "ends.",
    ),
    CodeRow(
        "eoudp-unhandled-command", Severity.WARN, "protocol", "command without a handler",
        "A document names this command and no release handles it: the receiving process ends.",
    ),
    CodeRow(
        "eoudp-foreign-command", Severity.NOTE, "protocol", "command of another document revision",
        "This number belongs to another revision than the dialect chosen: 0x11, 0x8a and 0x8c are "
        "RFC_01's, 0x0f is RFC_02's.",
    ),
    CodeRow(
        "eoudp-important-value", Severity.WARN, "protocol", "important flag is neither 0 nor 1",
        "Receivers take any value but 0 as true and acknowledge the message.",
    ),
    CodeRow(
        "eoudp-bool-value", Severity.WARN, "protocol", "truth value is neither 0 nor 1",
        "Receivers take any value but 0 as true.",
    ),
    CodeRow(
        "eoudp-negative-count", Severity.WARN, "protocol", "negative packet count",
        "A PACKET_INFO counter below zero. Receivers accept it; their loss figures become nonsense.",
    ),
    CodeRow(
        "eoudp-timestamp", Severity.WARN, "protocol", "implausible time stamp",
        "Not a number, infinite, negative, denormal, or outside of 2001 to 2039. Receivers accept "
        "it. Without a hint such a datagram is not taken for EOUDP.",
    ),
    CodeRow(
        "eoudp-far-id", Severity.WARN, "sequence", "id above what a sender can count",
        "Senders count in a signed 32-bit number that starts at 0: an id from 2^31 up is no id of "
        "theirs.",
    ),
    CodeRow(
        "eoudp-oversize", Severity.WARN, "protocol", "larger than the receive buffer",
        "Receivers read at most 1468 octets. The rest is cut, the size check fails, the datagram "
        "is never acknowledged, and a re-sending peer repeats it for ever.",
    ),
    CodeRow(
        "eoudp-component-layout", Severity.WARN, "undecoded", "component data of another layout",
        "The data does not fit the known layout of this component. Its octets are shown.",
    ),
    CodeRow(
        "eoudp-name-encoding", Severity.NOTE, "protocol", "text that is not UTF-8",
        "Receivers take names and texts as octets and accept it.",
    ),
    CodeRow(
        "eoudp-game-event-0x0c", Severity.WARN, "protocol", "game event sent as 0x0c",
        "The content is no component and reads as strings: the Usage section of RFC_02 sends game "
        "events this way.",
    ),
    CodeRow(
        "eoudp-big-endian-content", Severity.CHAT, "protocol", "content read as big-endian",
        "The documents name no byte order. The little-endian reading is impossible or absurd here "
        "and the big-endian one is neither.",
    ),
    CodeRow(
        "eoudp-ambiguous-dialect", Severity.NOTE, "protocol", "dialect not decided",
        "These octets mean the same in several dialects and nothing else of the flow decides.",
    ),
)  # fmt: skip
