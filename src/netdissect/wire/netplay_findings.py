"""The findings about Netplay as plain rows, for the layers and for `protocols/netplay` alike.

Source: docs/protocols/netplay.md, "Findings".
"""

from __future__ import annotations

from typing import Final

__all__ = ["FINDINGS"]

FINDINGS: Final = (
    (
        "frame-length-below-3", "ERROR", "malformed", "frame length below 3",
        ("A frame holds at least options and type. A real server closes the connection, a client "
        "stops reading; in bin3 the length is only logged. The octets that it claims are skipped."),
    ),
    (
        "frame-above-receiver-buffer", "NOTE", "receive", "frame above the receiver's 1024 octets",
        ("The sender is fine, but the receivers of bin1 and bin2 hold 1024 octets: a larger frame "
        "makes them throw octets away and misread what follows, with no sign on the wire."),
    ),
    (
        "incomplete-frame-at-close", "WARN", "malformed", "stream ends inside a frame",
        ("The connection was closed, or the octets given end, before the frame was whole. Usual "
        "causes: a killed program, or a client whose socket buffer was full (the library drops "
        "what does not fit)."),
    ),
    (
        "incomplete-message-at-close", "WARN", "malformed", "stream ends inside a text message",
        "The class line or the body line has no end. Usual causes as for incomplete frames.",
    ),
    (
        "desync-suspected", "WARN", "malformed", "frames make no sense any more",
        ("Several frames in a row have reserved option bits or impossible lengths: the stream is "
        "cut at the wrong places. The library writes lengths modulo 65536 and drops the tail of "
        "messages when a socket buffer is full; both end like this."),
    ),
    (
        "octets-skipped", "WARN", "malformed", "octets between messages were skipped",
        ("The capture lacks octets of the stream, or starts inside it. Reading goes on where whole "
        "messages follow each other again."),
    ),
    (
        "unknown-type", "NOTE", "undecoded", "message type is not in the schema",
        ("The type id belongs to the application. Give a schema to decode its payload. A real "
        "receiver without this type logs it and goes on."),
    ),
    (
        "compressed-flag-not-zlib", "WARN", "malformed", "flagged as compressed, but no zlib",
        ("Bit 0 of the options is set and the payload has no zlib header: the receiver logs "
        '"incorrect header check" and drops the message. The public constructor of the library '
        "sets the bit without compressing. The schema is tried on the octets as they stand."),
    ),
    (
        "gzip-payload", "WARN", "protocol", "payload is gzip, not zlib",
        ("The published document says gzip; every release uses zlib (RFC 1950) and refuses gzip. "
        "It is inflated here for reading."),
    ),
    (
        "zlib-truncated", "ERROR", "security", "zlib stream stops early",
        "A real receiver loops for ever on it, and its whole server with it.",
    ),
    (
        "zlib-preset-dictionary", "ERROR", "security", "zlib stream wants a preset dictionary",
        "A real receiver loops for ever on it, and its whole server with it.",
    ),
    (
        "zlib-checksum-error", "WARN", "malformed", "zlib checksum is wrong",
        ('The receiver logs "incorrect data check" and drops the message. What could be inflated '
        'is shown.'),
    ),
    (
        "zlib-data-error", "WARN", "malformed", "zlib stream is damaged",
        "The receiver logs an error and drops the message. What could be inflated is shown.",
    ),
    (
        "zlib-trailing-bytes", "NOTE", "malformed", "octets after the end of the zlib stream",
        "Receivers ignore them.",
    ),
    (
        "decompression-limit", "WARN", "security", "inflating stopped at the limit",
        ("The payload inflates to more than the bound (1 MiB, and 200 times its size, unless set "
        "otherwise). What was inflated until then is shown; reading goes on with the next "
        "message."),
    ),
    (
        "encrypted-flag-set", "NOTE", "protocol", "encrypted bit is set",
        ("No release contains any encryption: the bit says what the application likes. The schema "
        "is tried on the payload; where it does not fit, the application has transformed the "
        "octets."),
    ),
    (
        "reserved-option-bits", "WARN", "protocol", "reserved option bits are set",
        "Bits 2 to 7 are never set by the library and ignored by its receivers.",
    ),
    (
        "payload-underrun", "WARN", "malformed", "payload ends before its last value",
        ("The receiver logs an EOFException and drops the message. Or the schema is of another "
        "program."),
    ),
    (
        "payload-trailing-bytes", "WARN", "malformed", "octets after the last value",
        "Receivers ignore them. Or the schema is of another program.",
    ),
    (
        "invalid-utf8", "WARN", "malformed", "text is not UTF-8",
        ("Receivers put U+FFFD in place of what they cannot read; Java and Python put different "
        "numbers of them. Compare octets, not text."),
    ),
    (
        "non-canonical-boolean", "NOTE", "protocol", "boolean is neither 0 nor 1",
        "Receivers take any value but 0 as true; senders write 0 and 1.",
    ),
    (
        "non-canonical-presence", "NOTE", "protocol", "presence byte is neither 0 nor 1",
        "Receivers take any value but 0 as present; senders write 0 and 1.",
    ),
    (
        "chunk-header-invalid", "ERROR", "malformed", "undefined chunk header",
        "A chunk begins with 00, 40, 80 or c0.",
    ),
    (
        "chunk-header-unexpected", "WARN", "malformed", "chunk header does not fit its place",
        "The header says first, middle or last where the frame's length says otherwise.",
    ),
    (
        "chunk-coalesced", "NOTE", "receive", "chunk shares its TCP segment",
        ("The real receiver takes whatever one read returns as one chunk: with two messages in a "
        "read the second is lost without a sign. What one read returned is not visible on the "
        "wire; segments are the best estimate."),
    ),
    (
        "chunk-split", "NOTE", "receive", "chunk spans TCP segments",
        ("The real receiver takes whatever one read returns as one chunk: a piece of one is "
        "misread. What one read returned is not visible on the wire; segments are the best "
        "estimate."),
    ),
    (
        "utf8-split-across-segments", "NOTE", "receive", "character spans TCP segments",
        ("The wire is right. The real receiver decodes each read on its own, so the character "
        "becomes U+FFFD there if the read ends with the segment."),
    ),
    (
        "unknown-class", "NOTE", "undecoded", "class is not in the schema",
        "The class belongs to the application. A receiver without this class logs it and goes on.",
    ),
    (
        "class-line-not-identifier", "WARN", "malformed", "class line is no class name",
        ("The first line of a message is a Java class name. Usual causes: another serializer whose "
        "bodies contain line feeds, a truncated message before, or another protocol."),
    ),
    (
        "class-line-has-cr", "WARN", "protocol", "class line ends with a carriage return",
        "Receivers do not strip it: the class is unknown to them.",
    ),
    (
        "empty-class-line", "WARN", "protocol", "class line is empty",
        "An anonymous class, or a stray line feed: see pair-shift-suspected.",
    ),
    (
        "empty-body-line", "WARN", "protocol", "body line is empty",
        "The handler of a real receiver gets null.",
    ),
    (
        "json-invalid", "WARN", "malformed", "body is not strict JSON",
        ("The default serializer writes strict JSON. Receivers are lenient (unquoted names, single "
        "quotes, comments), and the serializer can be replaced."),
    ),
    (
        "json-not-object", "NOTE", "protocol", "body is JSON, but no object",
        "Legal for arrays, strings, numbers and null sent as messages.",
    ),
    (
        "json-duplicate-key", "WARN", "protocol", "an object states a key twice",
        "The last value wins, here and in most receivers.",
    ),
    (
        "json-lone-surrogate", "WARN", "protocol", "half of a surrogate pair in a string",
        "The escape stands for no character.",
    ),
    (
        "pair-shift-suspected", "WARN", "malformed", "class and body lines have changed places",
        ("The class line holds JSON or nothing and the body line a class name: a stray line feed "
        "came before. Receivers never find back."),
    ),
    (
        "message-too-long", "WARN", "malformed", "text message without an end",
        "More octets without a line feed than netdissect holds (16 MiB). They are skipped.",
    ),
)  # fmt: skip
"""(code, severity, group, title, meaning)."""
