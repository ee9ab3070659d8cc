"""What the system says of the other end of a connection on loopback."""

from __future__ import annotations

import socket
import sys

import pytest

from netdissect.system.sockets import is_read

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_is_read_once_it_is_accepted_and_nothing_waits(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        ends = listener.getsockname()[:2], client.getsockname()[:2]
        assert is_read(*ends) is False
        server = listener.accept()[0]
        assert is_read(*ends) is True
        client.sendall(b"hello")
        assert is_read(*ends) is False
        server.recv(4)
        assert is_read(*ends) is False
        server.recv(4)
        assert is_read(*ends) is True
        server.close()
        client.close()
        assert is_read(ends[0], (host, 1)) is None
