"""The minimal servers as Scapy answering machines.

`ServerMachine(server=make_server(protocol), dport=7777)()` in a Scapy shell.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from scapy.ansmachine import AnsweringMachine
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw
from scapy.sendrecv import send

from netdissect.fuzz.servers.base import Server


class ServerMachine(AnsweringMachine):  # type: ignore[misc]
    """Answers sniffed UDP datagrams to one port as a `Server` does. Needs the right to sniff."""

    function_name = "netdissect_server"
    filter = "udp"
    send_function = staticmethod(send)
    """Answers are IP packets: without this, Scapy sends them as frames."""
    send_options_list: ClassVar[list[str]] = [
        each for each in AnsweringMachine.send_options_list if each != "iface"
    ]
    """For IP packets the route names the interface; Scapy 2.7 warns where somebody else does."""

    def parse_options(self, server: Server | None = None, dport: int = 0) -> None:
        """Set which server answers, and at which port.

        Args:
            server: the state machine that answers.
            dport: UDP port to listen at.
        """
        self.server = server
        self.dport = dport

    def is_request(self, req: Any) -> bool:
        """Return whether a packet is a datagram to our port."""
        return bool(UDP in req and req[UDP].dport == self.dport and self.server is not None)

    def make_reply(self, req: Any) -> Any:
        """Return the answers as packets, the addresses turned around."""
        if self.server is None:
            return []
        ip = req[IPv6] if IPv6 in req else req[IP]
        back = type(ip)(src=ip.dst, dst=ip.src) / UDP(sport=self.dport, dport=req[UDP].sport)
        peer = (ip.src, req[UDP].sport)
        octets = bytes(req[UDP].payload)
        return [
            back / Raw(data) for data, _to in self.server.handle(octets, peer, time.monotonic())
        ]

    def send_reply(self, reply: Any, send_function: Any = None) -> None:
        """Send the answers one by one: with `iface=`, Scapy sends no lists."""
        for each in reply:
            super().send_reply(each, send_function)

    def print_reply(self, req: Any, reply: Any) -> None:
        """Print one line per request."""
        print(f"{req.summary()} ==> {len(reply)} answers")  # noqa: T201
