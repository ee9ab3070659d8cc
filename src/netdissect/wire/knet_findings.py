"""The findings of kNet, reported by its layers and by `scan`. Source: docs/protocols/knet.md section 12."""

from __future__ import annotations

from typing import Final

from netdissect.model.annotations import CodeRow, Severity

__all__ = ["CODES", "DROPS", "MALFORMED"]


def _row(code: str, severity: Severity, group: str, title: str, meaning: str) -> CodeRow:
    return CodeRow(code, severity, group, title, meaning)


CODES: Final = (
    _row("knet-header", Severity.ERROR, "malformed", "datagram shorter than the kNet header",
         "A message datagram has at least 3 octets. The reference receiver drops the connection"
         " object without a word on the wire."),
    _row("knet-no-base", Severity.ERROR, "malformed", "reliable datagram without ReliableBase",
         "The Reliable flag announces a ReliableBase, which is missing. The reference receiver"
         " accepts and acknowledges the datagram all the same."),
    _row("knet-zero-content", Severity.ERROR, "malformed", "message of length zero",
         "ContentLength is 0. The reference receiver has delivered the messages before it and drops"
         " the connection object. Eight zero octets from a client are its connect datagram instead."),
    _row("knet-fragment-count", Severity.ERROR, "malformed", "fragmented transfer of fewer than two",
         "A first fragment states a FragmentCount of 0 or 1. The reference receiver drops the"
         " connection object."),
    _row("knet-control-size", Severity.ERROR, "malformed", "control message of the wrong size",
         "A PacketAck has 7 octets of payload, pings 1, a FlowControlRequest 2. The reference receiver"
         " drops the connection object over a PacketAck and ignores the others."),
    _row("knet-tcp-length", Severity.ERROR, "malformed", "impossible length of a TCP message",
         "The length of a kNet message over TCP is 1 to 10485760. The receiver closes the connection;"
         " what follows cannot be told apart any more."),
    _row("knet-incomplete", Severity.NOTE, "reassembly", "stream ends inside a message",
         "The octets given end before the last message does. In a live stream the rest is still to"
         " come."),
    _row("knet-empty-datagram", Severity.WARN, "security", "empty datagram on a kNet connection",
         "A client takes an empty datagram for the end of the stream: it stops reading"
         " (ConnectionPeerClosed) and goes on sending and resending. A server ignores it."),
    _row("knet-no-messages", Severity.WARN, "protocol", "datagram without messages",
         "A header alone is valid and uses up its PacketID; no known sender makes one."),
    _row("knet-overlong-vle", Severity.WARN, "protocol", "number not in its shortest form",
         "A shorter encoding of the same value exists. Receivers accept it; kNet never writes it."),
    _row("knet-unused-bit", Severity.WARN, "protocol", "unused header bit is set",
         "Bit 11 of a message header is written 0 and ignored by receivers: a sign of another sender,"
         " of damage, or of the specification's own layout."),
    _row("knet-flag-mismatch", Severity.WARN, "protocol", "datagram flag and messages disagree",
         "The Reliable and InOrder flags of a datagram are the OR of its messages' flags. A reliable"
         " message in a datagram without the flag is numbered from base 0 and may be dropped as a"
         " duplicate."),
    _row("knet-unreliable-fragment", Severity.WARN, "protocol", "fragment that is not reliable",
         "kNet sends every fragment reliably. This one comes from another sender; without its first"
         " fragment a receiver discards it."),
    _row("knet-transfer-zero", Severity.WARN, "protocol", "transfer number 0",
         "Senders use transfer numbers 1 to 255. Receivers accept 0."),
    _row("knet-stray-fragment-bit", Severity.WARN, "protocol", "left-over Fragment bit ignored",
         "knet-2010 writes flags of unreliable control messages from left-over memory. A message that is"
         " not reliable is no fragment; it is read without the bit."),
    _row("knet-fragment-number", Severity.WARN, "protocol", "fragment number beyond the count",
         "FragmentNumber is not below the FragmentCount of its transfer. The reference receiver counts"
         " the fragment all the same."),
    _row("knet-orphan-fragment", Severity.WARN, "reassembly", "fragment before its first fragment",
         "The reference receiver discards a fragment whose first fragment it has not got, yet"
         " acknowledges it: it is never sent again, and the transfer can never complete there."),
    _row("knet-transfer-incomplete", Severity.WARN, "reassembly", "fragmented message incomplete",
         "Fragments of this transfer are missing from the capture; the message names them."),
    _row("knet-transfer-scrambled", Severity.WARN, "reassembly", "fragmented message delivered scrambled",
         "The reference receiver joins fragments in the order of their arrival. They arrived in another"
         " order, so the application got a scrambled message; netdissect joins them by number."),
    _row("knet-transfer-replaced", Severity.NOTE, "reassembly", "unfinished transfer thrown away",
         "A new first fragment reuses the number of a transfer that is not complete; a receiver throws"
         " the old one away."),
    _row("knet-transfer-limit", Severity.NOTE, "reassembly", "too many fragments to rejoin",
         "A bound of netdissect on the size or the number of unfinished transfers was reached; the"
         " oldest one was dropped."),
    _row("knet-ack-bits", Severity.WARN, "protocol", "PacketAck with bits 22-23 set",
         "The base matches no datagram; the PacketIDs named by the sequence bits are reduced to 22 bits"
         " and count. The specification keeps two more sequence bits there."),
    _row("knet-oversize", Severity.WARN, "protocol", "datagram above the size that kNet sends",
         "kNet stays below 1400 octets. A server discards datagrams above 1536 octets."),
    _row("knet-disconnect-payload", Severity.WARN, "protocol", "Disconnect with payload",
         "Disconnect and DisconnectAck are empty. Receivers honour them with a payload too."),
    _row("knet-disconnect-ack-alone", Severity.WARN, "security", "DisconnectAck without Disconnect",
         "A DisconnectAck out of the blue closes the connection of its receiver."),
    _row("knet-connect-again", Severity.NOTE, "protocol", "connect datagram on a live connection",
         "Eight zero octets on a live connection: a late copy of the connect datagram or a new client"
         " on the same address and port. The server drops its connection object either way, and makes"
         " a new one of the client's next datagram."),
    _row("knet-early-data", Severity.WARN, "protocol", "messages before the server answered",
         "Every datagram that arrives before the server application has accepted the client becomes a"
         " connection attempt of its own; its messages are swallowed. Ghost connections may follow."),
    _row("knet-server-restart", Severity.WARN, "protocol", "server begins anew",
         "The server opens the connection a second time: it had forgotten the client (silence timeout,"
         " malformed datagram, repeated connect datagram) and numbers from the start again. The client"
         " drops what collides with PacketIDs that it has already seen."),
    _row("knet-ghost", Severity.WARN, "protocol", "second opening of the server",
         "The server opens the connection more than once within a second: copies made by the network,"
         " or ghost connection objects made from the client's early datagrams."),
    _row("knet-after-disconnect", Severity.NOTE, "protocol", "datagram after its sender's Disconnect",
         "A sender of Disconnect sends nothing more. A copy, a reordered datagram or another connection"
         " object."),
)  # fmt: skip
"""Rows of the catalogue."""

DROPS: Final = {
    "knet-header": True,
    "knet-no-base": False,
    "knet-zero-content": True,
    "knet-fragment-count": True,
    "knet-tcp-length": True,
    "truncated": True,
    "length-beyond-end": True,
}
"""Code that makes a datagram malformed -> the reference receiver drops the connection object over it.
`knet-control-size` depends on the message.
"""
MALFORMED: Final = frozenset({*DROPS, "knet-control-size"})
"""Codes of what no sender builds and a receiver cannot read."""
