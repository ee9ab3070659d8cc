"""A Teeworlds client of any dialect: handshake, login, input, acknowledgements, resends.

A mutant in a vital chunk may never be accepted, and a server takes nothing behind a missing number.
So when the server asks for what it misses, a harmless message goes out under the mutant's number:
the connection lives on, and only the mutant counts as not accepted.
Source: docs/protocols/teeworlds.md sections 6 and 8.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.drivers.teeworlds_form import (
    ChunkHead,
    Opened,
    chunk_heads,
    chunk_of,
    number_chunks,
)
from netdissect.fuzz.drivers.teeworlds_lies import bad_code
from netdissect.fuzz.generator import Traits
from netdissect.layers import teeworlds as layers
from netdissect.layers.teeworlds.messages import connless_layer, message_layer
from netdissect.wire import teeworlds_forms as tw

KEEP_SECONDS = 0.5
"""Silence after which a keepalive goes out; real clients wait 1 s."""
REPEAT_SECONDS = 0.5
INPUT_SECONDS = 0.1
RESEND_SECONDS = 0.05
"""Between two answers to requests for a resend: the server repeats its request in every packet."""
FRESH_SECONDS = 0.12
"""A server in a game sends 25 snapshots a second: one heard of so lately is alive."""
STALL_SECONDS = 0.3
"""A resend without request, when nothing was acknowledged for so long."""
BACKROOM = 512  # half of all numbers: what is further back is ahead
PACKET_LIMIT = 1200  # of chunks, below 1400: header and token come on top
_CHUNKS_LIMIT = 255  # of a packet: their number is a byte
_OUTBOX_LIMIT = 400  # below 512, or the oldest would count as the newest
_HARMLESS = "SysPingReply"
"""Goes out under the number of a mutant: servers take it and do nothing."""
_FILLERS = 100
"""Harmless messages in one packet."""
_VERSIONS = {"0.6": b"0.6 626fce9a778df4d4", "0.7": b"0.7 802f1be60a05665f"}
_PREFIX = {"0.6": "Tw06", "0.7": "Tw07"}


def _type_of(layer: Any, other: str) -> str:
    """Return the type under which `decode` counts a message, or another word."""
    row = getattr(layer, "row", None)
    return other if row is None else str(row.type)


class TeeworldsDriver(Driver):
    """One connection."""

    protocol = "teeworlds"
    dialects = (tw.D07, *(name for name in tw.FORMS if name != tw.D07))
    traits = Traits(
        live_fields={
            "token": "token",
            "token_flag": "token",
            "ack": "ack",
            "sequence_high": "sequence",
            "sequence_low": "sequence",
        },
        span=tw.SPAN,
        stages=("fresh", "connecting", CONNECTED),
        controls=frozenset(
            {"game.cl_say", "game.cl_emoticon", "game.cl_set_team", "game.cl_kill", "game.cl_vote"}
        ),
        closing=frozenset({"control.*"}),
        lies=(bad_code,),
    )
    patient_seconds = 0.8
    """A server that took a false acknowledgement ignores us until its next flush, in up to 0.5 s.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._form = tw.FORMS[self.dialect]
        self._chance = Chance("token", self.link.local[1])
        self._my_token = self._chance.octets(4)
        self._token = tw.NO_TOKEN
        self._token_used = self._form.head > tw.HEADER
        self._received = 0
        self._number = 0
        self._acked = 0
        self._want_resend = False
        self._outbox: dict[int, tuple[bytes, Key | None]] = {}
        self._step = "fresh"
        self._tick = -1
        self._heard = self._sent = self._resent = self._inputs = self._repeated = 0.0
        self._progress = 0.0
        self._pongs = 0
        self._units = 0
        self._fillers: list[int] = []
        self._unsent: dict[bytes, list[int]] = {}
        """Packet of a case -> its numbers, until it is sent."""

    # --- messages -----------------------------------------------------------------------------

    def _message(self, name: str, **fields: Any) -> bytes:
        return bytes(getattr(layers, _PREFIX[self._form.family] + name)(**fields))

    def _put(self, head: bytes, payload: bytes) -> None:
        if self._form.tail and self._token_used:
            payload += self._token
        self._sent = self.clock()
        self.link.send(head + payload)

    def _head(self, flags: int, chunks: int) -> bytes:
        opened = Opened(self._form, bytearray(self._form.head), bytearray(), False, False)
        opened.head[0] = flags | (self._form.resend if self._want_resend and chunks else 0)
        opened.ack = self._received
        opened.head[2] = chunks
        if self._form.token_flag and self._token_used:
            opened.head[0] |= self._form.token_flag
            opened.head += bytes(tw.TOKEN_OCTETS)
        if self._form.head > tw.HEADER or self._form.token_flag:
            opened.token = self._token
        return bytes(opened.head)

    def _control(self, number: int, body: bytes = b"") -> None:
        self._put(self._head(self._form.control, 0), bytes([number]) + body)

    def _chunk(self, message: bytes, number: int | None = None, flags: int = 0) -> bytes:
        return chunk_of(message, self._form, number, flags)

    def _say(self, message: bytes, *, vital: bool = True) -> None:
        number = self._next() if vital else None
        if number is not None:
            self._outbox[number] = (message, None)
        self._put(self._head(0, 1), self._chunk(message, number))

    def _next(self) -> int:
        self._number = (self._number + 1) % tw.SPAN
        return self._number

    # --- session ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Shake hands; then log in and enter the game."""
        self._step = "token" if self._form.head > tw.HEADER else "connect"
        self._repeat(self.clock())

    def reached(self, stage: str) -> bool:
        """Return whether the state is reached; `connecting` begins with the handshake's end."""
        if stage == "connecting":
            return self._step == "online"
        return super().reached(stage)

    def ends(self, octets: bytes) -> bool:
        """Return whether this is a control message that closes, or is part of a handshake: servers
        begin anew, or take a token from it. For an empty one they take what the packet before has
        left in their buffer, of whatever session: teeworlds-server 0.7.5 closed on another's close.
        """
        opened = (
            None if octets[:1] and octets[0] & tw.CONNLESS_FLAG else Opened.of(octets, self._form)
        )
        return opened is not None and opened.is_control and opened.payload[:1] != b"\0"

    def _repeat(self, now: float) -> None:
        """Send the message of the handshake that is due."""
        self._repeated = now
        # Servers answer only padded requests, so that spoofed ones do not amplify traffic.
        padded = self._my_token + bytes(tw.PADDED_OCTETS - tw.TOKEN_OCTETS)
        if self._step == "token":
            self._control(tw.TOKEN, padded)
        elif self._step == "connect" and self._form.family == "0.7":
            self._control(tw.CONNECT, padded)
        elif self._step == "connect" and self._form.tail:
            self._put(
                self._head(self._form.control, 0),
                bytes([tw.CONNECT]) + tw.TOKEN_MAGIC + tw.NO_TOKEN,
            )
        elif self._step == "connect" and self._form.token_flag:
            self._control(tw.CONNECT, bytes(tw.TOKEN_OCTETS) + padded[: -tw.TOKEN_OCTETS])
        elif self._step == "connect":
            self._control(tw.CONNECT)

    def handle(self, data: bytes, now: float) -> None:
        """Take one packet of the server."""
        if data[:1] and data[0] & tw.CONNLESS_FLAG:
            body = data[tw.CONNLESS_HEAD[self._form.family] :]
            self.answered(_type_of(connless_layer(body, self._form.family), "connless"))
            return
        opened = Opened.of(data, self._form)
        if opened is None or opened.sealed:
            self.received["unreadable", self.state] += 1
            return
        self._heard = now
        if opened.is_control:
            self._handle_control(bytes(opened.payload), opened)
            return
        if self.state == CONNECTED and not opened.ack and self._is_behind(opened.ack):
            self.end("reset by a handshake")
            return
        self._acknowledge(opened.ack)
        for head in chunk_heads(opened.payload, opened.head[2], self._form):
            self._handle_chunk(head)
        # Last, so that it acknowledges what has just come: servers ignore what is behind.
        if opened.head[0] & self._form.resend:
            self._resend(now)

    def _handle_control(self, body: bytes, opened: Opened) -> None:
        number = body[0] if body else tw.KEEPALIVE
        self.answered(f"control.{tw.CONTROL_NAMES[self._form.family].get(number, 'unknown')}")
        if number == tw.CLOSE:
            reason = body[1:].split(b"\0")[0].decode("utf-8", "replace")
            self.end(f"refused: {reason}" if self.state != CONNECTED else f"closed: {reason}")
        elif number == tw.TOKEN and self._step == "token":
            self._token, self._step = body[1:5].ljust(4, b"\0"), "connect"
            self._repeat(self.clock())
        elif number == tw.ACCEPTED and self._step == "connect":
            self._learn_token(body, opened)
            self._accepted()
        elif number == tw.ACCEPTED and self._step == "fresh":
            # A mutant opened a connection that only its token can close.
            self._learn_token(body, opened)
        elif number == tw.ACCEPTED and self.state == CONNECTED:
            # A mutant was taken for a connect: the server's numbers start again.
            self.end("reset by a handshake")

    def _learn_token(self, body: bytes, opened: Opened) -> None:
        if self._form.tail and body[1:5] == tw.TOKEN_MAGIC:
            self._token, self._token_used = body[5:9], True
        elif self._form.token_flag and opened.head[0] & self._form.token_flag:
            self._token, self._token_used = body[1:5], True

    def _accepted(self) -> None:
        self._step = "online"
        if self._form.family == "0.6" and not self._form.token_flag:
            self._control(tw.ACCEPT)
        fields: dict[str, Any] = {"version": _VERSIONS[self._form.family]}
        if self._form.family == "0.7":
            fields["client_version"] = 0x0705
        self._say(self._message("SysInfo", **fields))

    def _handle_chunk(self, head: ChunkHead) -> None:
        if head.vital:
            ahead = (head.number - self._received) % tw.SPAN
            if ahead != 1:
                # A number of the last 512 was here before; any other lies behind a gap.
                self._want_resend |= ahead != 0 and ahead < tw.SPAN - BACKROOM
                return
            self._received, self._want_resend = head.number, False
        message = head.message
        layer = message_layer(message, self._form.family)
        self.answered(_type_of(layer, "unknown"))
        name = str(getattr(getattr(layer, "row", None), "name", ""))
        if name == "ping_reply":
            self._pongs += 1
        elif name.startswith("snap"):
            tick: int | None = getattr(layer(message), "tick", None)
            self._tick = max(self._tick, tick or 0)
        else:
            self._answer(name)

    def _answer(self, name: str) -> None:
        """Answer a message of the server as clients do: on the way into the game, and pings."""
        if name == "map_change":
            self._say(self._message("SysReady"))
        elif name == "con_ready":
            more = {"skin": b"default"} if self._form.family == "0.6" else {}
            self._say(self._message("GameClStartInfo", name_=b"netdissect", **more))
        elif name == "sv_ready_to_enter":
            self._say(self._message("SysEnterGame"))
            if self.state == "connecting":
                self.state = CONNECTED
        elif name == "ping":
            self._say(self._message("SysPingReply"), vital=False)

    # --- reliability --------------------------------------------------------------------------

    def _is_behind(self, ack: int) -> bool:
        """Return whether an acknowledgement is older than the newest one."""
        return 0 < (self._acked - ack) % tw.SPAN <= BACKROOM

    def _acknowledge(self, number: int) -> None:
        if not self._is_behind(number):
            self._progress = self._progress if number == self._acked else self.clock()
            self._acked = number
        for sent in list(self._outbox):
            if (number - sent) % tw.SPAN <= BACKROOM:
                _message, key = self._outbox.pop(sent)
                if key is not None:
                    self.acknowledged(key)

    def _waiting(self) -> set[int]:
        """Return the numbers that were sent and are not acknowledged."""
        return self._outbox.keys() - set(chain.from_iterable(self._unsent.values()))

    def _resend(self, now: float) -> None:
        """Send what is not acknowledged again; a harmless message in place of each mutant."""
        waiting = self._waiting()
        if now - self._resent < RESEND_SECONDS or not waiting:
            return
        self._resent = now
        ordered = sorted(waiting, key=lambda number: (number - self._acked) % tw.SPAN)
        chunks: list[bytes] = []
        for number in ordered:
            message, key = self._outbox[number]
            if key is not None and self.forget_mutant(key):
                message = self._message(_HARMLESS)
                self._outbox[number] = (message, None)
            chunk = self._chunk(message, number, tw.RESEND)
            full = sum(map(len, chunks)) + len(chunk) > PACKET_LIMIT
            if full or len(chunks) == _CHUNKS_LIMIT:
                self._put(self._head(0, len(chunks)), b"".join(chunks))
                chunks = []
            chunks.append(chunk)
        self._put(self._head(0, len(chunks)), b"".join(chunks))

    def tick(self, now: float) -> None:
        """Repeat the handshake, send inputs, resend what is old, keep the connection alive."""
        if self._step in ("token", "connect"):
            if now - self._repeated >= REPEAT_SECONDS:
                self._repeat(now)
            return
        if self._step != "online":
            return
        if self._fillers:
            self._fill()
        if self.state == CONNECTED and now - self._inputs >= INPUT_SECONDS:
            self._inputs = now
            fields = {"ack_game_tick": self._tick, "intended_tick": self._tick + 3}
            self._say(self._message("SysInput", **fields), vital=False)
        if self._outbox and now - max(self._resent, self._progress) >= STALL_SECONDS:
            self._resend(now)
        if self._want_resend and now - self._sent >= RESEND_SECONDS:
            self._put(self._head(self._form.resend, 0), b"")
        elif now - self._sent >= KEEP_SECONDS:
            self._control(tw.KEEPALIVE)

    def probe(self, now: float) -> None:
        """Send what a living server answers: a ping in a connection, else the handshake."""
        del now
        if self._step == "online":
            self._say(self._message("SysPing"), vital=False)
        else:
            self.begin()

    def proofs(self) -> int:
        """Return how many pings were answered."""
        return self._pongs if self._step == "online" else self.answers

    def alive(self, timeout: float, *, certain: bool = False) -> bool:
        """Return whether the server answers; in a game its snapshots are answer enough."""
        self.pump()
        if not self.is_open:
            return False
        if not certain and self.state == CONNECTED and self.clock() - self._heard < FRESH_SECONDS:
            return True
        return super().alive(timeout, certain=certain)

    def silence(self, now: float) -> float:
        """Return 0 while snapshots come, else how long pings are not answered."""
        fresh = self.state == CONNECTED and now - self._heard < FRESH_SECONDS
        return 0.0 if fresh else super().silence(now)

    def leave(self) -> None:
        """Send a close without a reason."""
        self._control(tw.CLOSE)

    # --- steps --------------------------------------------------------------------------------

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Insert the token, ack and the numbers of vital chunks."""
        data = step.octets
        if data[:1] and data[0] & tw.CONNLESS_FLAG:
            return self._stamp_connless(data, step), None
        opened = Opened.of(data, self._form)
        if opened is None:
            return data, None
        shift = dict(step.shift)
        if "ack" not in step.hold:
            opened.ack = (self._received + shift.get("ack", 0)) % tw.SPAN
        if "token" not in step.hold:
            if self._token_used:
                opened.token = self._token
            else:
                opened.drop_token()
        if "sequence" in step.hold or len(self._outbox) >= _OUTBOX_LIMIT:
            return opened.octets(), None
        return self._stamp_chunks(opened, step, shift.get("sequence", 0))

    def _stamp_chunks(self, opened: Opened, step: Step, shift: int) -> tuple[bytes, Key | None]:
        base = self._number
        heads = number_chunks(opened, self._next)
        numbers = [head.number for head in heads]
        if not step.advance:
            self._number = base
        for head in heads if shift else ():
            head.number = (head.number + shift) % tw.SPAN
        if not numbers or not step.advance:
            return opened.octets(), None
        for number in numbers:
            self._outbox[number] = (self._message(_HARMLESS), None)
        # With a false token or acknowledgement, the whole packet is dropped.
        refused = {"ack", "token"} & {*step.hold, *dict(step.shift)}
        if shift or refused or not opened.is_whole:
            # The server will not take it: what follows must not wait behind its numbers.
            self._fillers += numbers
            return opened.octets(), None
        self._units += 1
        key = f"{self._units}:{numbers[-1]}"
        self._outbox[numbers[-1]] = (heads[-1].message, key)
        octets = opened.octets()
        self._unsent[octets] = numbers
        return octets, key

    def send(
        self, octets: bytes, key: Key | None = None, kind: str = "mutant", note: str = ""
    ) -> None:
        """Send what `stamp` returned; from now on it is also sent again."""
        if not self._waiting():
            # The server has its time from now on, not from what it acknowledged last.
            self._progress = self.clock()
        self._unsent.pop(octets, None)
        super().send(octets, key, kind, note)

    def _fill(self) -> None:
        """Send something harmless under the numbers of messages that were not taken."""
        numbers, self._fillers = self._fillers, []
        waiting = [number for number in numbers if number in self._outbox]
        chunks = [self._chunk(self._outbox[number][0], number, tw.RESEND) for number in waiting]
        for at in range(0, len(chunks), _FILLERS):
            part = chunks[at : at + _FILLERS]
            self._put(self._head(0, len(part)), b"".join(part))

    def _stamp_connless(self, data: bytes, step: Step) -> bytes:
        if self._form.head == tw.HEADER or "token" in step.hold or len(data) < 9:  # noqa: PLR2004 - flags and two tokens
            return data
        return data[:1] + self._token + self._my_token + data[9:]
