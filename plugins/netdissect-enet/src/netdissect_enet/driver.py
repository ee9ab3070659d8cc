"""An ENet client for the fuzzer: it connects, acknowledges, pings, and numbers per channel."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect_enet import rules as enet
from netdissect_enet.commands import read_datagram
from netdissect_enet.layers import COMMANDS, EnetPacket, EnetPacketCrc, checksum

PING_SECONDS = 0.5
"""Time between two pings, and between two CONNECTs."""


class EnetDriver(Driver):
    """One ENet connection."""

    protocol = "enet"
    dialects = (enet.PLAIN, enet.CRC)
    traits = Traits(
        live_fields={"peer": "session", "session": "session", "time_sent": "time",
                     "reliable_seq": "sequence", "checksum": "checksum"},
        stages=("fresh", "connecting", CONNECTED),
        controls=frozenset({"send_reliable", "ping", "throttle_configure"}),
        closing=frozenset({"disconnect", "connect"}),
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connect_id = secrets.randbits(32)
        self._peer, self._session = enet.NOBODY, 0
        self._numbers: Counter[int] = Counter()
        self._due = 0.0
        self._pongs = 0

    def begin(self) -> None:
        """Send CONNECT; VERIFY_CONNECT answers it."""
        self._numbers[enet.PEER] = 0
        self._put(enet.CONNECT, connect_id=self._connect_id, channel_count=4)

    def handle(self, octets: bytes, now: float) -> None:
        """Acknowledge commands that request it; process acknowledgements."""
        read = read_datagram(octets, self.dialect)
        if read is None or not read[1]:
            self.received["unreadable", self.state] += 1
            return
        head, commands, _ = read
        for command in commands:
            requests_ack, _, _, number, channel, seq, *body, _end = command
            self.answered(enet.NAMES[number])
            if number == enet.VERIFY:
                self._peer, self._session = body[0], body[2]
                self.state = CONNECTED if self.state == "connecting" else self.state
            if requests_ack:
                self._put(enet.ACK, timed=False, channel=channel, reliable_seq=seq,
                          received_seq=seq, received_sent_time=head.sent_time)  # fmt: skip
            if number == enet.ACK:
                self._pongs += channel == enet.PEER
                self.acknowledged(f"{channel}/{body[0]}")
            elif number == enet.DISCONNECT:
                self.end(f"disconnect {body[0]}")
        del now

    def tick(self, now: float) -> None:
        """Retransmit CONNECT until it is answered, then ping."""
        if now >= self._due and self.state == "connecting":
            self.begin()
        elif now >= self._due and self.state == CONNECTED:
            self.probe(now)

    def probe(self, now: float) -> None:
        """Send a ping, which a server acknowledges; a CONNECT before it has answered one."""
        if self.state == CONNECTED:
            self._put(enet.PING)
        else:
            self.begin()
        self._due = now + PING_SECONDS

    def proofs(self) -> int:
        """Return the number of acknowledged pings, or of answers before the connection."""
        return self._pongs if self.state == CONNECTED else self.answers

    def ends(self, octets: bytes) -> bool:
        """Return whether a datagram ends the connection, or begins another one."""
        read = read_datagram(octets, self.dialect)
        ending = {enet.CONNECT, enet.DISCONNECT}
        return read is not None and any(command[3] in ending for command in read[1])

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Set peer, session, time, and the next number in each command's channel."""
        data, hold = bytearray(step.octets), step.hold
        if len(data) < 4:  # noqa: PLR2004 - head with sent time
            return bytes(data), None
        if "session" not in hold:
            data[0] = data[0] & 0xC0 | self._session << 4 | self._peer >> 8
            data[1] = self._peer & 0xFF
        if data[0] & 0x80 and "time" not in hold:
            data[2:4] = self._now().to_bytes(2, "big")
        read = read_datagram(bytes(data), self.dialect)
        key: Key | None = None
        if read is not None and not read[0].compressed and "sequence" not in hold:
            at = read[0].start
            for command in read[1]:
                if command[0]:
                    number = self._next(command[4], step)
                    data[at + 2 : at + 4] = number.to_bytes(2, "big")
                    key = key or f"{command[4]}/{number}"
                at = command[-1]
            key = None if step.shift or hold or read[2] else key
        if self.dialect == enet.CRC and "checksum" not in hold and read is not None:
            self._set_checksum(data, read[0].start - 4)
        return bytes(data), key

    def leave(self) -> None:
        """Send DISCONNECT, once, as `enet_peer_disconnect_now` does."""
        self._put(enet.DISCONNECT, timed=False, acknowledge=0, is_unsequenced=1)

    def _next(self, channel: int, step: Step) -> int:
        live = self._numbers[channel] + 1
        self._numbers[channel] += step.advance
        return (live + dict(step.shift).get("sequence", 0)) % self.traits.span

    def _now(self) -> int:
        return int(self.clock() * 1000) & 0xFFFF

    def _set_checksum(self, data: bytearray, at: int) -> None:
        # The connectID in it is 0 as long as the receiver has not assigned a peer number.
        nobody = int.from_bytes(data[:2], "big") & enet.NOBODY == enet.NOBODY
        known = 0 if nobody else self._connect_id
        data[at : at + 4] = checksum(bytes(data), at, known).to_bytes(4, "big")

    def _put(self, number: int, *, timed: bool = True, **fields: Any) -> None:
        """Send a command of the driver's own."""
        layer = COMMANDS[number]
        if number != enet.ACK:
            self._numbers[enet.PEER] += 1
            fields["reliable_seq"] = self._numbers[enet.PEER] % self.traits.span
        header: Any = EnetPacketCrc if self.dialect == enet.CRC else EnetPacket
        data = bytearray(bytes(header(
            has_sent_time=int(timed), time_sent=self._now(), peer=self._peer,
            session=self._session, commands=[layer(**fields)],
        )))  # fmt: skip
        if self.dialect == enet.CRC:
            self._set_checksum(data, 4 if timed else 2)
        self.link.send(bytes(data))
        self._due = self.clock() + PING_SECONDS
