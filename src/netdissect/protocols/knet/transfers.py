"""Rejoins fragmented transfers by number, and says what the reference receiver makes of them:
it opens a transfer on its first fragment, discards what comes before that (and acknowledges it),
and joins fragments in the order of their arrival. Source: docs/protocols/knet.md section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.receiver import SHARED, Receiver
from netdissect.wire.varint import KNET_7_7_16, VarintError

__all__ = ["MAX_OCTETS", "Transfers"]

MAX_OCTETS: Final = 16 * 1024 * 1024
"""Bytes of unfinished transfers (at most 256) per direction; beyond, the oldest is dropped."""
MAX_EARLY: Final = 4096
"""Fragments per direction that wait for their first fragment."""
_LISTED: Final = 12
"""Missing fragments named one by one."""

_DATAGRAMS: Final = (Ev.UNIT, Ev.PLAIN_UNIT)
_TAKEN: Final = {
    "early": ("knet-orphan-fragment", "early_fragments"),
    "misfiled": ("knet-fragment-misfiled", "misfiled_fragments"),
}
"""What the receiver does with a fragment -> code, counter."""


class _Transfer:
    """One transfer of one sender."""

    __slots__ = ("base", "complete", "count", "first", "frames", "octets", "order", "owner",
                 "parts", "type_id")  # fmt: skip

    def __init__(
        self, base: int | None, count: int, content: bytes, frame: int, owner: int
    ) -> None:
        self.base = base
        """Reliable number of the first fragment; those of the others follow it."""
        self.owner = owner
        """What tells it from other transfers of its sender."""
        self.order: list[int] | None = None
        """Its fragments in the order in which its receiver joined them; None = it has not."""
        self.count = count
        self.type_id = _message_id(content)
        self.first = content if _shared(base) else b""
        """The first fragment where it has no number: only this tells a copy from another one."""
        self.parts: dict[int, bytes] = {0: content}
        self.octets = len(content)
        self.frames = [frame]
        self.complete = False


def _message_id(content: bytes) -> int | None:
    try:
        return KNET_7_7_16.read(content, 0, len(content))[0]
    except VarintError:
        return None


def _shared(number: int | None) -> bool:
    """Return whether a fragment has no reliable number of its own."""
    return number is None or number == SHARED


class _Sender:
    """The transfers of one direction."""

    __slots__ = ("begun", "came", "early", "octets", "open", "receiver", "waiting")

    def __init__(self) -> None:
        self.receiver = Receiver()
        self.begun = 0
        """First fragments without a number of their own."""
        self.open: dict[int, _Transfer] = {}
        """Transfer number -> the transfer that uses it now."""
        self.early: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        """(transfer number, reliable number) -> (fragment number, bytes, frame); no first one.
        Where messages have no numbers: -1 less the number of the fragment.
        """
        self.came = 0
        """Early fragments so far."""
        self.waiting: dict[int, dict[int, dict[tuple[int, int], int]]] = {}
        """Transfer number -> reliable number of the first fragment, or -1 -> keys of `early`, with
        their order: a datagram may hold hundreds of first fragments, and each looks only at those
        that may be its own.
        """
        self.octets = 0


class Transfers:
    """Both directions of one connection. Bounded."""

    def __init__(self) -> None:
        self._senders: list[_Sender | None] = [None, None]
        """Of each direction, once it sends a fragment: most never do."""
        self._last: list[list[bytes]] = []
        """Messages that the last datagram completed, in pieces: to join them takes long, and few
        ask for them.
        """

    @property
    def last(self) -> list[bytes]:
        """Return the messages that the last datagram completed: message ID and payload."""
        return [b"".join(parts) for parts in self._last]

    def feed(
        self, direction: int, frame: int, time_ns: int, events: Sequence[Event]
    ) -> list[Event]:
        """Take the fragments of one datagram."""
        del time_ns
        sender = self._senders[direction]
        if sender is None:
            sender = self._senders[direction] = _Sender()
        found: list[Event] = []
        self._last.clear()
        heard = True
        for event in events:
            if event[0] in _DATAGRAMS and event[2] == "datagram":
                heard = sender.receiver.hears(event[3])
            if event[0] != Ev.PART:
                continue
            _, transfer, index, count, number, content = event
            if transfer is None:
                sender.receiver.number(number)
            elif index is None:
                self._begin(sender, transfer, count, number, content, frame, found, heard=heard)
            else:
                self._add(sender, transfer, index, number, content, frame, found, heard=heard)
        return found

    def finish(self) -> tuple[list[Event], list[Event]]:
        """Return what stays incomplete, of each direction."""
        return _left(self._senders[0]), _left(self._senders[1])

    def _begin(
        self, sender: _Sender, name: int, count: int, number: int | None, content: bytes,
        frame: int, found: list[Event], *, heard: bool,
    ) -> None:  # fmt: skip
        """Take a first fragment: a new transfer, or a further copy of one."""
        old = sender.open.get(name)
        if old is not None:
            same = old.first == content if _shared(number) else old.base == number
            if same and old.count == count:
                if heard and number is not None:
                    sender.receiver.begin(name, count, number, old.owner)
                return
            self._replace(sender, name, old, found)
        sender.begun += _shared(number)
        owner = -sender.begun if number is None or number == SHARED else number
        if heard and number is not None:
            sender.receiver.begin(name, count, number, owner)
        transfer = _Transfer(number, count, content, frame, owner)
        sender.open[name] = transfer
        sender.octets += len(content)
        found.append((Ev.COUNTER, "transfers", 1))
        self._adopt(sender, name, transfer)
        self._completed(sender, name, transfer, found)
        self._bound(sender, found)

    def _replace(self, sender: _Sender, name: int, old: _Transfer, found: list[Event]) -> None:
        """Forget a transfer whose number is used anew."""
        sender.octets -= old.octets
        if not old.complete:
            found.append((Ev.NOTE, "knet-transfer-replaced", f"transfer {name}: {_progress(old)}"))
            _incomplete(name, old, found)

    def _adopt(self, sender: _Sender, name: int, transfer: _Transfer) -> None:
        """Give a transfer the fragments that came before its first one."""
        for key in _candidates(sender, name, transfer.base):
            index, content, frame = sender.early[key]
            if not _belongs(transfer, index, key[1] if key[1] >= 0 else None):
                continue
            _unwait(sender, key, index)
            transfer.parts.setdefault(index, content)
            transfer.octets += len(content)
            sender.octets += len(content)
            transfer.frames.append(frame)

    def _add(
        self, sender: _Sender, name: int, index: int, number: int | None, content: bytes,
        frame: int, found: list[Event], *, heard: bool,
    ) -> None:  # fmt: skip
        """Take a later fragment."""
        transfer = sender.open.get(name)
        mine = transfer is not None and _belongs(transfer, index, number)
        key = -1 - index if number is None or number == SHARED else number
        if number is None:
            if not mine and (name, key) not in sender.early:
                _say("early", name, index, found)
        elif heard:
            owner = transfer.owner if transfer is not None and mine else None
            self._received(sender, name, index, number, owner, found)
        if transfer is None or not mine:
            if (name, key) not in sender.early:
                sender.early[name, key] = (index, content, frame)
                sender.came += 1
                lanes = sender.waiting.setdefault(name, {})
                lanes.setdefault(_base(key, index), {})[name, key] = sender.came
            if len(sender.early) > MAX_EARLY:
                oldest = next(iter(sender.early))
                _unwait(sender, oldest, sender.early[oldest][0])
            return
        if index >= transfer.count:
            found.append((Ev.NOTE, "knet-fragment-number", f"fragment {index} of {transfer.count}"))
        if index in transfer.parts:
            return
        transfer.parts[index] = content
        transfer.octets += len(content)
        transfer.frames.append(frame)
        sender.octets += len(content)
        self._completed(sender, name, transfer, found)
        self._bound(sender, found)

    def _received(
        self, sender: _Sender, name: int, index: int, number: int, owner: int | None,
        found: list[Event],
    ) -> None:  # fmt: skip
        """Let the receiver take a later fragment, and say what comes of it."""
        receiver = sender.receiver
        taken = receiver.add(name, index, number, owner if number == SHARED else number - index)
        if taken is not None:
            _say(taken, name, index, found)
        if receiver.delivered is None:
            return
        found.append((Ev.COUNTER, "transfers_assembled", 1))
        if receiver.mixed:
            found.append((Ev.COUNTER, "transfers_mixed", 1))
            text = f"transfer {name}: {receiver.mixed} fragments of other transfers"
            found.append((Ev.NOTE, "knet-transfer-mixed", text))
            return
        transfer = sender.open.get(name)
        if transfer is not None and transfer.owner == receiver.delivered[0]:
            transfer.order = receiver.delivered[1]

    def _completed(
        self, sender: _Sender, name: int, transfer: _Transfer, found: list[Event]
    ) -> None:
        """Say that a transfer is whole, and what its receiver got."""
        if transfer.complete or len(transfer.parts) < transfer.count:
            return
        if any(index not in transfer.parts for index in range(transfer.count)):
            return
        transfer.complete = True
        whole = [transfer.parts[index] for index in range(transfer.count)]
        size = sum([len(part) for part in whole])
        self._last.append(whole)
        found.append((Ev.COUNTER, "transfers_complete", 1))
        found.append((Ev.NOTE, "knet-transfer-complete", _facts(name, transfer, size)))
        kept = transfer.order
        if transfer.base is None:
            pass  # The published document joins by number, whatever came first.
        elif kept is None:
            found.append((Ev.COUNTER, "transfers_never_delivered", 1))
            text = f"transfer {name}: its receiver has not got all fragments as its own"
            found.append((Ev.NOTE, "knet-transfer-undelivered", text))
        elif kept != sorted(kept):
            found.append((Ev.COUNTER, "transfers_scrambled", 1))
            misplaced = sum(index != place for place, index in enumerate(kept))
            text = f"transfer {name}: {misplaced} of {transfer.count} fragments out of place"
            found.append((Ev.NOTE, "knet-transfer-scrambled", text))
        # The number is free again; what is kept recognises later copies.
        sender.octets -= transfer.octets
        transfer.octets = 0
        transfer.parts = dict.fromkeys(transfer.parts, b"")

    def _bound(self, sender: _Sender, found: list[Event]) -> None:
        """Drop the oldest unfinished transfers beyond the bound."""
        while sender.octets > MAX_OCTETS:
            name = next((n for n, transfer in sender.open.items() if transfer.octets), None)
            if name is None:
                return
            transfer = sender.open.pop(name)
            sender.octets -= transfer.octets
            text = f"transfer {name}: {_progress(transfer)}"
            found.append((Ev.NOTE, "knet-transfer-limit", text))


def _base(number: int, index: int) -> int:
    """Return the number that the first fragment of an early one would have; -1 = any."""
    return number - index if number >= 0 else -1


def _candidates(sender: _Sender, name: int, base: int | None) -> list[tuple[int, int]]:
    """Return the keys of the early fragments that may belong to a transfer, the oldest first."""
    lanes = sender.waiting.get(name)
    if lanes is None:
        return []
    found: dict[tuple[int, int], int] = {}
    for each in lanes if base is None or base == SHARED else (base, -1):
        found.update(lanes.get(each, {}))
    return sorted(found, key=found.__getitem__)


def _unwait(sender: _Sender, key: tuple[int, int], index: int) -> None:
    """Let an early fragment go."""
    del sender.early[key]
    lanes, base = sender.waiting[key[0]], _base(key[1], index)
    del lanes[base][key]
    if not lanes[base]:
        del lanes[base]
    if not lanes:
        del sender.waiting[key[0]]


def _say(taken: str, name: int, index: int, found: list[Event]) -> None:
    """Say what the receiver does with a fragment."""
    code, counter = _TAKEN[taken]
    found.append((Ev.COUNTER, counter, 1))
    found.append((Ev.NOTE, code, f"transfer {name} fragment {index}"))


def _left(sender: _Sender | None) -> list[Event]:
    """Name what one sender's transfers lack at the end."""
    found: list[Event] = []
    if sender is None:
        return found
    for number, transfer in sender.open.items():
        if not transfer.complete:
            _incomplete(number, transfer, found)
    if sender.early:
        found.append((Ev.COUNTER, "fragments_without_first", len(sender.early)))
    sender.open.clear()
    sender.early.clear()
    sender.waiting.clear()
    return found


def _belongs(transfer: _Transfer, index: int, number: int | None) -> bool:
    """Return whether a fragment is one of a transfer: its reliable number follows the first's."""
    base = transfer.base
    if base is None or number is None or SHARED in (base, number):
        return True
    return base + index == number


def _progress(transfer: _Transfer) -> str:
    here = sum(index < transfer.count for index in transfer.parts)
    return f"{here} of {transfer.count} fragments"


def _incomplete(name: int, transfer: _Transfer, found: list[Event]) -> None:
    """Name what a transfer lacks."""
    missing: list[int] = []
    index = 0
    while index < transfer.count and len(missing) <= _LISTED:
        if index not in transfer.parts:
            missing.append(index)
        index += 1
    more = ", ..." if len(missing) > _LISTED else ""
    listed = ", ".join(map(str, missing[:_LISTED]))
    facts = {
        "transfer": name,
        "message_id": transfer.type_id,
        "count": transfer.count,
        "present": sum(index < transfer.count for index in transfer.parts),
        "missing": missing[:_LISTED],
        "frames": transfer.frames[:_LISTED],
        "message": f"transfer {name}: fragments {listed}{more} missing",
    }
    found.append((Ev.COUNTER, "transfers_incomplete", 1))
    found.append((Ev.NOTE, "knet-transfer-incomplete", facts))


def _facts(name: int, transfer: _Transfer, size: int) -> dict[str, object]:
    return {
        "transfer": name,
        "message_id": transfer.type_id,
        "fragments": transfer.count,
        "octets": size,
        "frames": transfer.frames[:_LISTED],
        "message": f"transfer {name}: {transfer.count} fragments joined, {size} bytes",
    }
