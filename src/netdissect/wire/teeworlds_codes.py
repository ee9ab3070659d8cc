"""Teeworlds' rows of the catalogue as plain tuples, for the layers and for `protocols/teeworlds`.

(code, severity 0 chat 1 note 2 warn 3 error, group, title, meaning). *Source:* docs/protocols/
teeworlds.md.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ROWS"]

_NOTE, _WARN, _ERROR = 1, 2, 3

ROWS: Final[tuple[tuple[str, int, str, str, str], ...]] = (
    ("teeworlds-reserved-bits", _WARN, "protocol", "reserved header bits are set",
     ("Bits of the packet header that every known sender leaves zero are set. Receivers ignore"
     " them.")),
    ("teeworlds-oversize", _ERROR, "malformed", "datagram longer than 1400 octets",
     "No sender makes longer ones, and receivers drop them."),
    ("teeworlds-control-compressed", _WARN, "protocol", "control message with compression flag",
     ("Teeworlds 0.7.5 decodes it, DDNet drops it. Only 0.6.0 to 0.6.4 may send one, for a long"
     " close reason.")),
    ("teeworlds-control-missing", _ERROR, "malformed", "control packet without a message",
     "The control flag is set and no octet names the message. Receivers drop the packet."),
    ("teeworlds-control-unknown", _ERROR, "malformed", "unknown control message",
     "No release defines this control message in this dialect. Receivers ignore it."),
    ("teeworlds-connless-version", _ERROR, "malformed", "connless packet of an unknown version",
     "The version of a connectionless 0.7 packet is 1. Receivers drop others."),
    ("teeworlds-huffman", _ERROR, "malformed", "compressed payload cannot be decoded",
     ("The end symbol lies beyond the data, or the payload is longer than a packet may be."
     " Receivers drop the packet.")),
    ("teeworlds-huffman-tail", _WARN, "malformed", "octets after the end of compressed data",
     "Encoders write one octet after the end symbol at most."),
    ("teeworlds-sequence-copies", _WARN, "malformed", "the two copies of sequence bits differ",
     ("In 0.6 bits 6 and 7 of a sequence number are sent twice. Receivers combine both with OR, so"
     " they read another number than the sender may have meant.")),
    ("teeworlds-chunk-bits", _WARN, "protocol", "sequence bits in a chunk without sequence",
     "A chunk that is not vital has no sequence number, and senders leave its bits zero."),
    ("teeworlds-chunk-empty", _WARN, "malformed", "chunk without a message",
     "A chunk of size 0 holds not even a message id."),
    ("teeworlds-unknown-message", _WARN, "undecoded", "unknown message id",
     "No known release defines this message. Receivers ignore it."),
    ("teeworlds-unknown-uuid", _WARN, "undecoded", "unknown message UUID",
     ("A message that its sender names by UUID, and that is not in the table. Peers that do not"
     " know it ask with what-is@ddnet.tw or ignore it.")),
    ("teeworlds-wrong-direction", _WARN, "protocol", "message from the wrong side",
     "Only the other side sends this message. Receivers ignore it."),
    ("teeworlds-not-vital", _WARN, "protocol", "message that must be vital is not",
     "Receivers accept this message in a vital chunk only; this copy is ignored."),
    ("teeworlds-range", _NOTE, "protocol", "value outside its range",
     ("The value lies outside the range that the message table states. Receivers drop the message"
     " or clamp the value.")),
    ("teeworlds-sanitised", _NOTE, "security", "control characters in a string",
     "Receivers replace these characters by spaces. The string is shown as sent."),
    ("teeworlds-number-text", _NOTE, "malformed", "no number where one is expected",
     "Server info of 0.6 carries numbers as decimal text. This text is none."),
    ("teeworlds-extra", _NOTE, "protocol", "octets behind the fields of a message",
     ("Messages may grow at their end; receivers read what they know. DDNet servers send longer"
     " lists than vanilla ones.")),
    ("teeworlds-snap-part", _ERROR, "malformed", "impossible snapshot part",
     ("A part number that is not below the number of parts, more than 64 parts, or a size above 900"
     " octets.")),
    ("teeworlds-snap-crc", _ERROR, "checksum", "checksum of a snapshot differs",
     "The sum of all integers of the rebuilt snapshot is not the one that the server sent."),
    ("teeworlds-snap-data", _ERROR, "malformed", "snapshot data cannot be read",
     "The list of deleted and updated items ends early, or an item has no known size."),
    ("teeworlds-snap-base", _NOTE, "reassembly", "base of a snapshot is not known",
     ("The snapshot is a difference to one that is not in the capture (the capture starts later, or"
     " lost it). Its changes are shown, not its items.")),
    ("teeworlds-snap-incomplete", _NOTE, "reassembly", "snapshot with missing parts",
     ("Not all parts of the snapshot are in the capture. Servers never repeat them; they send the"
     " next difference against the last snapshot that the client acknowledged.")),
    ("teeworlds-input-size", _ERROR, "malformed", "impossible size of an input",
     "The size of an input in octets is a multiple of 4, and so many integers follow."),
    ("teeworlds-wrong-token", _WARN, "security", "token of another connection",
     ("The packet carries another token than the handshake agreed on. Its receiver ignores the"
     " chunks and control messages in it.")),
    ("teeworlds-token-missing", _WARN, "protocol", "packet without the agreed token",
     "Both sides agreed on a token, and this packet has none. Its receiver ignores it."),
    ("teeworlds-no-token", _WARN, "protocol", "token ff ff ff ff in established traffic",
     "This value means that no token is known yet. Established peers never send it."),
)  # fmt: skip
