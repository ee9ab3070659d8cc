"""A Riptide client: connects, acknowledges, keeps the heartbeat, numbers what it sends.

Source: docs/protocols/riptide.md sections 6 and 7.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect.layers.base import Layer
from netdissect.layers.lsb import LsbBits
from netdissect.layers.riptide import DIALECTS, bits, octets
from netdissect.layers.riptide.frames import message_layer
from netdissect.wire.riptide import TYPES_20, TYPES_21, type_name

SPAN = 1 << 16
"""Modulus of all sequence ids."""
RELIABLE_FROM = 7
"""Types from here on carry a sequence id and are acknowledged, also those that do not exist."""
HEARTBEAT_SECONDS = 1.0  # as real clients
FAR_MS = 250
"""Round trip that we say we have. Servers repeat a message after 1.2 times that, or after 50 ms
where they know none, and end the connection after 15 copies: within 0.75 s of a busy machine."""
REPEAT_SECONDS = 0.5
"""Between two Connects, or two copies of our Welcome; real clients take 1 s for the former."""
_ACK_BITS = 16  # width of `ack_bits` in every release
FILL_FROM, FILL_SECONDS = 128, 0.1
"""Distance from which on ids that were never acknowledged are sent again, and the seconds between
two times: a mutant that is too large does not arrive, and for the id that is missing the server
ends the connection later."""
_FILLS = 64
"""Maximum number of ids that are sent again at once: more than are sent for the first time."""
GAP_LIMIT = 900
"""Ids that a session may leave out. The newest servers end a connection when an id that they never
received is 1,024 behind the newest; what is left out is sent later, and may be overtaken again."""


class Messages:
    """The layers of one dialect under one set of names."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self._prefix = {"riptide-2.0": "Riptide20", "riptide-2.1dev": "Riptide21dev"}.get(
            dialect, "Riptide"
        )
        self._module: Any = bits if self._prefix == "Riptide" else octets

    def build(self, type_name: str, **fields: Any) -> bytes:
        """Return the bytes of a message."""
        name = f"{self._prefix}{type_name}"
        if self.dialect == "riptide-2.1" and type_name == "Ack":
            name = "Riptide21Ack"
        return bytes(getattr(self._module, name)(**fields))

    def read(self, data: bytes) -> Layer | None:
        """Return the message, None if not all of its fields can be read."""
        packet = message_layer(data, self.dialect)(data)
        return packet if packet.fault is None and data else None

    def type_of(self, packet: Any) -> str:
        """Return the name of a message's type."""
        return type_name(packet.type_id, TYPES_20 if self.dialect == "riptide-2.0" else TYPES_21)

    def ack(self, received: Received, acked: int) -> bytes:
        """Return the acknowledgement of one received sequence id."""
        window = {"last_received": received.newest, "ack_bits": received.bits}
        extra = acked != received.newest
        if self.dialect == "riptide-2.0":
            if extra:
                return self.build("AckExtra", acked_sequence_id=acked, **window)
            return self.build("Ack", **window)
        if self.dialect == "riptide-2.1dev":
            return self.build("Ack", acked_sequence_id=acked if extra else None, **window)
        if extra:
            return self.build("Ack", extra_flag=1, extra_seq_field=acked, **window)
        return self.build("Ack", **window)

    def acknowledged(self, packet: Any) -> list[int]:
        """Return the sequence ids that an acknowledgement names, the one that it is for first."""
        newest = packet.last_received
        named = getattr(packet, "acked_sequence_id", None)
        if getattr(packet, "extra_flag", 0):
            named = packet.extra_seq_field
        bits = [at for at in range(_ACK_BITS) if packet.ack_bits >> at & 1]
        return [newest if named is None else named, *((newest - 1 - at) % SPAN for at in bits)]


def gap(sequence: int, newest: int) -> int:
    """Return how far `sequence` is ahead of `newest`, negative behind. Source: section 7.3."""
    return (sequence - newest + SPAN // 2) % SPAN - SPAN // 2


class Received:
    """The newest sequence id of one direction and the ids before it. Source: section 7.3."""

    def __init__(self, size: int = _ACK_BITS) -> None:
        self._mask = (1 << size) - 1
        self.newest = 0
        """Newest id; 0 before the first."""
        self.bits = 0
        """Bit i stands for id newest - 1 - i."""

    def take(self, sequence: int) -> bool:
        """Note a copy; return whether it is the first one of its id."""
        ahead = gap(sequence, self.newest)
        if ahead > 0:
            self.bits = (self.bits << ahead | 1 << (ahead - 1)) & self._mask
            self.newest = sequence
            return True
        if ahead == 0:
            return False
        bit = 1 << (-ahead - 1)
        new = not self.bits & bit
        self.bits |= bit & self._mask
        return new


@cache
def bit_slots(layer: Any) -> dict[str, tuple[int, int]]:
    """Return field -> (first bit, bits) of the fields of fixed size that a message starts with."""
    slots: dict[str, tuple[int, int]] = {}
    at = 0
    for outer in layer.fields_desc:
        field = getattr(outer, "fld", outer)
        size = field.size if isinstance(field, LsbBits) else int(8 * (getattr(field, "sz", 0) or 0))
        if not size:
            break
        slots[field.name] = (at, size)
        at += size
        if field is not outer:
            # An optional field: what follows it has no fixed place.
            break
    return slots


def read_bits(data: bytes, slot: tuple[int, int]) -> int:
    """Return the number that stands in some of the bits."""
    at, size = slot
    return int.from_bytes(data, "little") >> at & (1 << size) - 1


def patch(data: bytes, slot: tuple[int, int], value: int) -> bytes:
    """Return `data` with a number written into some of its bits; too short data stays as it is."""
    at, size = slot
    if at + size > 8 * len(data):
        return data
    mask = (1 << size) - 1
    number = int.from_bytes(data, "little")
    number = number & ~(mask << at) | (value & mask) << at
    return number.to_bytes(len(data), "little")


class RiptideDriver(Driver):
    """One Riptide connection."""

    protocol = "riptide"
    dialects = DIALECTS
    traits = Traits(
        live_fields={
            "sequence_id": "sequence",
            "last_received": "ack",
            "ack_bits": "ack",
            "acked_sequence_id": "ack",
        },
        span=SPAN,
        stages=("fresh", "connecting", CONNECTED),
        controls=frozenset({"Reliable"}),
        closing=frozenset({"Disconnect"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._messages = Messages(self.dialect)
        self._received = Received()
        self._notified = Received(8)
        self._sequence = 1
        self._notify = 1
        self._ping = 0
        self._pongs = 0
        self._repeat_at = 0.0
        self._heartbeat_at = 0.0
        self._fill_at = 0.0
        self._unacked: dict[int, None] = {}
        """Ids before `_sequence` that the server has not acknowledged, also those that were never
        sent, because a mutant of an order left them out; oldest first."""
        self.client_id: int | None = None
        """The number that the server's Welcome gave us."""

    def _put(self, message: bytes) -> None:
        """Send a message of the driver's own."""
        self.link.send(message)

    def begin(self) -> None:
        """Send Connect. The Welcome is confirmed, and the confirmation acknowledged."""
        self._put(self._messages.build("Connect"))
        self._repeat_at = self.clock() + REPEAT_SECONDS

    def ends(self, octets: bytes) -> bool:
        """Return whether this is a Disconnect."""
        return message_layer(octets, self.dialect).__name__.endswith("Disconnect")

    def risks(self, step: Step) -> bool:
        """Return whether this is a Disconnect, or leaves a gap of sequence ids or claims a loss for
        which servers end a connection.
        """
        return self.ends(step.octets) or self._breaks(step)

    def _breaks(self, step: Step) -> bool:
        return self._leaves_gap(step) or self._claims_loss(step)

    def _claims_loss(self, step: Step) -> bool:
        """Return whether this is a Notify that acknowledges what the server never sent: it takes
        the ids between for lost, and ends a connection that loses so many.
        """
        layer: Any = message_layer(step.octets, self.dialect)
        slot = bit_slots(layer).get("last_received")
        if (
            slot is None
            or not layer.__name__.endswith("Notify")
            or sum(slot) > 8 * len(step.octets)
        ):
            return False
        newest = self._notified.newest
        held = read_bits(step.octets, slot) if "ack" in step.hold else newest
        ahead = gap((held + dict(step.shift).get("ack", 0)) % SPAN, newest)
        # Half way round is ahead to servers, and what follows then seems to be ahead as well.
        return ahead > 0 or ahead == -SPAN // 2

    def _leaves_gap(self, step: Step) -> bool:
        layer: Any = message_layer(step.octets, self.dialect)
        slot = bit_slots(layer).get("sequence_id")
        if slot is None or layer.__name__.endswith("Notify") or sum(slot) > 8 * len(step.octets):
            return False
        held = "sequence" in step.hold
        number = read_bits(step.octets, slot) if held else self._sequence
        number += 0 if held else dict(step.shift).get("sequence", 0)
        ahead = gap(number % SPAN, self._sequence)
        # A mutant that was not taken may have left an older id out.
        missing = gap(self._sequence, next(iter(self._unacked), self._sequence))
        # The newest id that the server has may be ahead of ours by as much: half way round, what is
        # far behind is far ahead.
        return ahead > GAP_LIMIT - max(0, missing) or ahead < 2 * GAP_LIMIT - SPAN // 2

    def handle(self, data: bytes, now: float) -> None:
        """Answer one message of the server."""
        packet: Any = self._messages.read(data)
        if packet is None:
            self.received["unreadable", self.state] += 1
            return
        kind = self._messages.type_of(packet)
        self.answered(kind)
        if packet.type_id >= RELIABLE_FROM and packet.sequence_id is not None:
            self._received.take(packet.sequence_id)
            self._put(self._messages.ack(self._received, packet.sequence_id))
        if kind == "Welcome" and self.client_id is None:
            self._welcome(packet, now)
        elif kind in ("Ack", "AckExtra"):
            self._acknowledged(packet)
        elif kind == "Heartbeat":
            self._pongs += packet.ping_id == (self._ping - 1) & 0xFF
        elif kind == "Notify":
            self._notified.take(packet.sequence_id)
        elif kind == "Reject":
            # Full, or not now: the server lives.
            self.end(f"refused: Reject {packet.reason}")
        elif kind == "Disconnect":
            self.end(f"Disconnect {packet.reason}")

    def tick(self, now: float) -> None:
        """Repeat Connect or Welcome until they are answered; send heartbeats once connected."""
        if self.state == "connecting" and now >= self._repeat_at:
            self._repeat_at = now + REPEAT_SECONDS
            if self.client_id is None:
                self._put(self._messages.build("Connect"))
            else:
                self._confirm()
        elif self.state == CONNECTED and now >= self._heartbeat_at:
            self.probe(now)
        if self.state == CONNECTED and now >= self._fill_at:
            self._fill(now)

    def _fill(self, now: float) -> None:
        """Send something under the oldest ids that were never acknowledged, as clients do."""
        self._fill_at = now + FILL_SECONDS
        for number in list(islice(self._unacked, _FILLS)):
            if gap(self._sequence, number) <= FILL_FROM:
                break
            self.forget_mutant(number)
            self._put(self._messages.build("Reliable", sequence_id=number))

    def probe(self, now: float) -> None:
        """Send a heartbeat; a server answers it at once. Before that, a Connect."""
        if self.state != CONNECTED:
            self._put(self._messages.build("Connect"))
            return
        self._heartbeat_at = now + HEARTBEAT_SECONDS
        self._put(self._messages.build("Heartbeat", ping_id=self._ping, rtt_ms=FAR_MS))
        self._ping = (self._ping + 1) & 0xFF

    def proofs(self) -> int:
        """Return how many heartbeats were answered: a server answers those of its clients only."""
        return self._pongs if self.state == CONNECTED else self.answers

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Insert the next sequence id, and the newest received id into acknowledgements."""
        data = step.octets
        if not data:
            return data, None
        layer: Any = message_layer(data, self.dialect)
        slots = bit_slots(layer)
        notify = layer.__name__.endswith("Notify")
        shift = dict(step.shift)
        if "ack" not in step.hold and "last_received" in slots:
            window = self._notified if notify else self._received
            data = patch(data, slots["last_received"], window.newest + shift.get("ack", 0))
            data = patch(data, slots["ack_bits"], window.bits)
        slot = slots.get("sequence_id")
        if "sequence" in step.hold or slot is None or sum(slot) > 8 * len(data):
            return data, None
        live = self._notify if notify else self._sequence
        number = (live + shift.get("sequence", 0)) % SPAN
        if notify:
            self._notify = (live + step.advance) % SPAN
        else:
            self._sequence = (live + step.advance) % SPAN
            if step.advance:
                self._unacked.pop(live, None)
                self._unacked[live] = None
        return patch(data, slot, number), None if notify or step.shift else number

    def retire(self) -> bool:
        """Finish a handshake that the server has taken up: it forgets those who do not after ten
        seconds only.
        """
        if self.state == self.traits.stages[0] and self.client_id is not None:
            self.state = "connecting"
            self._confirm()
        return self.state != "connecting"

    def leave(self) -> None:
        """Send Disconnect, once, as clients do."""
        self._put(self._messages.build("Disconnect"))

    def _welcome(self, packet: Any, now: float) -> None:
        self.client_id = packet.client_id
        # 1 is that of our Welcome.
        self._sequence = 2
        self._repeat_at = now + REPEAT_SECONDS
        if self.state == "connecting":
            self._confirm()

    def _confirm(self) -> None:
        self._put(self._messages.build("Welcome", sequence_id=1, client_id=self.client_id))

    def _acknowledged(self, packet: Any) -> None:
        newest = packet.last_received
        if GAP_LIMIT < gap(newest, self._sequence) < SPAN // 2:
            # The server has followed a jump: what we would send next is old to it.
            self._sequence = (newest + 1) % SPAN
            self._unacked.clear()
        for number in self._messages.acknowledged(packet):
            self.acknowledged(number)
            self._unacked.pop(number, None)
            if number == 1 and self.state == "connecting" and self.client_id is not None:
                self.state = CONNECTED
