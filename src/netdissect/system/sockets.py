"""What the system knows of the other end of a TCP connection within this machine."""

from __future__ import annotations

import socket
import struct
from typing import Any

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
"""The netlink family, its request, and the flag of a request. Source: linux/sock_diag.h."""
_ANY_STATE, _NO_COOKIE = 0xFFFF_FFFF, b"\xff" * 8
_LISTEN = 10
_HEAD, _ANSWER = struct.Struct("=IHHII"), struct.Struct("=BB54xI8xI")
"""`nlmsghdr`, and the state, unread bytes and inode in `inet_diag_msg`. Source: linux/inet_diag.h.
"""


def is_read(server: tuple[str, int], client: tuple[str, int]) -> bool | None:
    """Return whether the program at `server` has accepted a TCP connection of this machine, and
    read all that has arrived; None if the system does not tell.
    """
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    ends = [socket.inet_pton(family, host).ljust(16, b"\0") for host, _port in (server, client)]
    asked = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, _ANY_STATE)
    asked += struct.pack("!HH", server[1], client[1]) + b"".join(ends) + bytes(4) + _NO_COOKIE
    kind: Any = getattr(socket, "AF_NETLINK", None)
    if kind is None:
        return None
    try:
        with socket.socket(kind, socket.SOCK_RAW, _SOCK_DIAG) as link:
            link.send(_HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
            answer = link.recv(1 << 12)
    except OSError:
        return None
    if _HEAD.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    _family, state, unread, inode = _ANSWER.unpack_from(answer, _HEAD.size)
    # Without the connection, the system answers for the socket that listens.
    return None if state == _LISTEN else bool(inode) and not unread
