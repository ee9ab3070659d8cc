"""Two captures of one conversation, joined: what the network between them did to each datagram.

`join("client.pcap", "server.pcap")` gives a `Joined`, to be closed: its `report` holds everything
in figures, `fate(capture, frame)` says what became of one frame, `fates(capture)` of all, and
`common_ns` takes a time to the first capture's clock. `join_all` takes more than two captures,
`write_joined` writes them into one file.
"""

from __future__ import annotations

from netdissect.join.joined import Joined, join
from netdissect.join.many import Link, close_all, join_all
from netdissect.join.pairing import NotJoinedError
from netdissect.join.write import write_joined
from netdissect.model.joined import Fate, FateRow, JoinReport

__all__ = [
    "Fate",
    "FateRow",
    "JoinReport",
    "Joined",
    "Link",
    "NotJoinedError",
    "close_all",
    "join",
    "join_all",
    "write_joined",
]
