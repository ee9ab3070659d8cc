"""The findings about Riptide as plain rows, for the layers and for `protocols/riptide` alike.

Source: docs/protocols/riptide.md, "Findings"; sections 9 and 11 of the reference behind it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FINDINGS"]

FINDINGS: Final = (
    (
        "riptide-invalid-type", "ERROR", "malformed", "undefined Riptide message type",
        (
            "No release defines this type. Real receivers acknowledge every type from 7 up as a "
            "reliable message, then discard it with a warning."
        ),
    ),
    (
        "riptide-missing-message-id", "WARN", "malformed", "user message without message id",
        (
            "The message ends before its message id. Real receivers read id 0 and log an error; a "
            "Reliable one is acknowledged."
        ),
    ),
    (
        "riptide-wrong-direction", "WARN", "protocol", "message from the wrong side",
        (
            "This message, or this part of it, is sent by the other side only. Real receivers "
            "warn; reliable ones are acknowledged."
        ),
    ),
    (
        "riptide-heartbeat-form", "WARN", "protocol", "heartbeat in the other side's form",
        (
            "A client's heartbeat has 4 octets (ping id, RTT), a server's answer 2 (ping id)."
        ),
    ),
    (
        "riptide-implausible-rtt", "WARN", "protocol", "negative RTT in a heartbeat",
        (
            "Only -1 (nothing measured yet) is a valid negative RTT. The server takes any value "
            "and clamps its smoothed RTT to 1 ms."
        ),
    ),
    (
        "riptide-misencoded-stop", "NOTE", "protocol", "ServerStopped sent mis-encoded",
        (
            "A stopping server of 2.1.0 to 2.2.0 sends the raw bytes 05 05, which read as reason "
            '80. Clients log "unknown reason". It means ServerStopped (5).'
        ),
    ),
    (
        "riptide-oversize", "WARN", "protocol", "message above the default size limit",
        (
            "Larger than 1230 (2.0) or 1231 octets. Unless the application raised the limit, 2.0 "
            "receivers raise an exception and later ones cut the message."
        ),
    ),
    (
        "riptide-empty-datagram", "WARN", "security", "empty datagram to a Riptide port",
        (
            "A zero-length datagram stops the receive loop of a peer for good (seen with every "
            "tested release on Mono/Linux)."
        ),
    ),
    (
        "riptide-tcp-length", "ERROR", "malformed", "impossible TCP frame length",
        (
            "A frame length below 1 or above the message limit. Releases up to 2.2.1 do not check "
            "it and lose synchronisation; later ones close the connection."
        ),
    ),
    (
        "riptide-elements-missing", "WARN", "protocol", "array elements missing (2.1.x)",
        (
            "2.1.0 to 2.1.2 write only the count of short and ushort arrays. The receiver reads "
            "zeros, or whatever field follows."
        ),
    ),
    (
        "riptide-connect-again", "NOTE", "protocol", "Connect on a live connection",
        (
            "A server ignores a Connect from an endpoint that is already connected. A Welcome "
            "with sequence id 1 after it would begin a new connection."
        ),
    ),
    (
        "riptide-welcome-again", "NOTE", "protocol", "Welcome with another client id",
        (
            "A Welcome after the handshake that names another client id is acknowledged and "
            "ignored."
        ),
    ),
)  # fmt: skip
"""(code, name of the severity, group, title, meaning)."""
