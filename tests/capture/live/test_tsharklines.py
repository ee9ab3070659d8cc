from __future__ import annotations

import pytest

from netdissect.capture.live.tsharklines import frame_of_line
from netdissect.flow import Decapsulator

UDP = (
    b"7\t1795271908.895263912\teth:ethertype:ip:udp:data\t127.0.0.1\t127.0.0.2\t\t\t35362\t59020\t3031"
    b"\t\t\t\t\t\t\t\t"
)


def test_a_line_becomes_a_frame_of_the_innermost_packet() -> None:
    frame = frame_of_line(UDP)
    assert frame is not None
    assert frame[:3] == (7, 1795271908895263912, 101)
    (packet,) = Decapsulator().packets([frame])
    assert packet[1] == 7
    assert packet[3].hex() == "7f0000017f0000028a22e68c"
    assert packet[4] == b"01"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\t" * 17,
        UDP[:-1],
        UDP.replace(b":ip:", b":ip:icmp:ip:"),
        UDP.replace(b"59020", b"99999"),
        UDP.replace(b"3031", b"3x"),
    ],
)
def test_other_lines_are_left_out(line: bytes) -> None:
    assert frame_of_line(line) is None
