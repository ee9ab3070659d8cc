"""The findings about kNet as plain rows, for the layers and for `protocols/knet` alike.

Source: docs/protocols/knet.md section 12.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DROPS", "FINDINGS", "MALFORMED"]


FINDINGS: Final = (
    (
        "knet-header", "ERROR", "malformed", "datagram shorter than the kNet header",
        "A message datagram has at least 3 octets. The reference receiver drops the"
        " connection object without a word on the wire.",
    ),
    (
        "knet-no-base", "ERROR", "malformed", "reliable datagram without ReliableBase",
        "The Reliable flag announces a ReliableBase, which is missing. The reference receiver"
        " accepts and acknowledges the datagram all the same.",
    ),
    (
        "knet-zero-content", "ERROR", "malformed", "message of length zero",
        "ContentLength is 0. The reference receiver has delivered the messages before it and"
        " drops the connection object. Eight zero octets from a client are its connect"
        " datagram instead.",
    ),
    (
        "knet-fragment-count", "ERROR", "malformed", "fragmented transfer of fewer than two",
        "A first fragment states a FragmentCount of 0 or 1. The reference receiver drops the"
        " connection object.",
    ),
    (
        "knet-control-size", "ERROR", "malformed", "control message of the wrong size",
        "A PacketAck has 7 octets of payload, pings 1, a FlowControlRequest 2. The reference"
        " receiver drops the connection object over a PacketAck and ignores the others.",
    ),
    (
        "knet-dialect-revised", "NOTE", "protocol", "another dialect than assumed",
        "Control messages have the numbers of another dialect: those before it were read in the"
        " wrong one, so acknowledgements and pings of this direction until here are unknown.",
    ),
    (
        "knet-tcp-length", "ERROR", "malformed", "impossible length of a TCP message",
        "The length of a kNet message over TCP is 1 to 10485760. The receiver closes the"
        " connection; what follows cannot be told apart any more.",
    ),
    (
        "knet-incomplete", "NOTE", "reassembly", "stream ends inside a message",
        "The octets given end before the last message does. In a live stream the rest is"
        " still to come.",
    ),
    (
        "knet-empty-datagram", "WARN", "security", "empty datagram on a kNet connection",
        "A client takes an empty datagram for the end of the stream: it stops reading"
        " (ConnectionPeerClosed) and goes on sending and resending. A server ignores it.",
    ),
    (
        "knet-no-messages", "NOTE", "protocol", "datagram without messages",
        "A header alone is valid and uses up its PacketID. kNet sends one where every message"
        " that was due has been replaced by newer data in the meantime (content IDs).",
    ),
    (
        "knet-overlong-vle", "WARN", "protocol", "number not in its shortest form",
        "A shorter encoding of the same value exists. Receivers accept it; kNet never writes"
        " it.",
    ),
    (
        "knet-unused-bit", "WARN", "protocol", "unused header bit is set",
        "Bit 11 of a message header is written 0 and ignored by receivers: a sign of another"
        " sender, of damage, or of the specification's own layout.",
    ),
    (
        "knet-flag-mismatch", "WARN", "protocol", "datagram flag and messages disagree",
        "The Reliable and InOrder flags of a datagram are the OR of its messages' flags. A"
        " reliable message in a datagram without the flag is numbered from base 0 and may be"
        " dropped as a duplicate.",
    ),
    (
        "knet-unreliable-fragment", "WARN", "protocol", "fragment that is not reliable",
        "kNet sends every fragment reliably. This one comes from another sender; without its"
        " first fragment a receiver discards it.",
    ),
    (
        "knet-transfer-zero", "WARN", "protocol", "transfer number 0",
        "Senders use transfer numbers 1 to 255. Receivers accept 0.",
    ),
    (
        "knet-stray-fragment-bit", "WARN", "protocol", "left-over Fragment bit ignored",
        "knet-2010 writes flags of unreliable control messages from left-over memory. A"
        " message that is not reliable is no fragment; it is read without the bit.",
    ),
    (
        "knet-fragment-number", "WARN", "protocol", "fragment number beyond the count",
        "FragmentNumber is not below the FragmentCount of its transfer. The reference"
        " receiver counts the fragment all the same.",
    ),
    (
        "knet-orphan-fragment", "WARN", "reassembly", "fragment before its first fragment",
        "The reference receiver discards a fragment whose first fragment it has not got, yet"
        " acknowledges it: it is never sent again, and the transfer can never complete there.",
    ),
    (
        "knet-fragment-misfiled", "WARN", "reassembly", "fragment filed under an old transfer",
        "The first fragment of this transfer has not arrived, while the receiver still waits"
        " for an older transfer of the same number: it takes the fragment for one of that.",
    ),
    (
        "knet-transfer-complete", "CHAT", "reassembly", "fragmented message rejoined",
        "All fragments of a transfer are in the capture; they are joined by their numbers.",
    ),
    (
        "knet-transfer-undelivered", "WARN", "reassembly", "fragmented message never delivered",
        "All fragments were seen, but the reference receiver has discarded those that came"
        " before the first one, and acknowledged them: it never completes the message.",
    ),
    (
        "knet-transfer-incomplete", "WARN", "reassembly", "fragmented message incomplete",
        "Fragments of this transfer are missing from the capture; the message names them.",
    ),
    (
        "knet-transfer-scrambled", "WARN", "reassembly", "fragmented message delivered scrambled",
        "The reference receiver joins fragments in the order of their arrival. They arrived"
        " in another order, so the application got a scrambled message; netdissect joins them"
        " by number.",
    ),
    (
        "knet-transfer-mixed", "WARN", "reassembly", "message joined of several transfers",
        "The reference receiver knows transfers by their number alone: fragments of the next"
        " transfer of that number have filled one that lacked some, and the application got the"
        " mixture.",
    ),
    (
        "knet-transfer-replaced", "NOTE", "reassembly", "unfinished transfer thrown away",
        "A new first fragment reuses the number of a transfer that is not complete; a"
        " receiver throws the old one away.",
    ),
    (
        "knet-transfer-limit", "NOTE", "reassembly", "too many fragments to rejoin",
        "A bound of netdissect on the size or the number of unfinished transfers was reached;"
        " the oldest one was dropped.",
    ),
    (
        "knet-ack-bits", "WARN", "protocol", "PacketAck with bits 22-23 set",
        "The base matches no datagram; the PacketIDs named by the sequence bits are reduced"
        " to 22 bits and count. The specification keeps two more sequence bits there.",
    ),
    (
        "knet-oversize", "WARN", "protocol", "datagram above the size that kNet sends",
        "kNet stays below 1400 octets. A server discards datagrams above 1536 octets.",
    ),
    (
        "knet-disconnect-payload", "WARN", "protocol", "Disconnect with payload",
        "Disconnect and DisconnectAck are empty. Receivers honour them with a payload too.",
    ),
    (
        "knet-disconnect-ack-alone", "WARN", "security", "DisconnectAck without Disconnect",
        "A DisconnectAck out of the blue closes the connection of its receiver.",
    ),
    (
        "knet-connect-again", "NOTE", "protocol", "connect datagram on a live connection",
        "Eight zero octets on a live connection: a late copy of the connect datagram or a new"
        " client on the same address and port. The server drops its connection object either"
        " way, and makes a new one of the client's next datagram.",
    ),
    (
        "knet-early-data", "WARN", "protocol", "messages before the server answered",
        "Every datagram that arrives before the server application has accepted the client"
        " becomes a connection attempt of its own; its messages are swallowed. Ghost"
        " connections may follow.",
    ),
    (
        "knet-after-disconnect", "NOTE", "protocol", "datagram after its sender's Disconnect",
        "A sender of Disconnect sends nothing more. A copy, a reordered datagram or another"
        " connection object.",
    ),
)  # fmt: skip
"""(code, severity, group, title, meaning)."""

DROPS: Final = {
    "knet-header": True,
    "knet-no-base": False,
    "knet-zero-content": True,
    "knet-fragment-count": True,
    "knet-tcp-length": True,
    "truncated": True,
    "length-beyond-end": True,
}
"""Code that makes a datagram malformed -> the reference receiver drops the connection object.
`knet-control-size` depends on the message.
"""
MALFORMED: Final = frozenset({*DROPS, "knet-control-size"})
"""Codes of what no sender builds and a receiver cannot read."""
