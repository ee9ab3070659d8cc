"""Reassembles fragmented transfers, and reports what the reference receiver makes of them.

Here, fragments are joined by their reliable numbers. The reference receiver opens a transfer on its
first fragment, discards (but acknowledges) fragments that come earlier, and joins fragments in the
order of their arrival. Source: docs/protocols/knet.md section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.receiver import SHARED, Receiver
from netdissect.wire.varint import KNET_7_7_16, VarintError

MAX_OCTETS: Final = 16 * 1024 * 1024
"""Bytes of unfinished transfers (at most 256) per direction; beyond, the oldest is dropped."""
MAX_EARLY: Final = 4096
"""Fragments per direction that wait for the first fragment of their transfer."""
_MAX_LISTED: Final = 12
"""Missing fragments, and frames, that a note lists."""
_ANY: Final = -1
"""Stands for the reliable number of a first fragment where numbers do not tell transfers apart."""

_UNIT: Final = Ev.UNIT
_PLAIN_UNIT: Final = Ev.PLAIN_UNIT
_PART: Final = Ev.PART
_OUTCOMES: Final = {
    "early": ("knet-orphan-fragment", "early_fragments"),
    "misfiled": ("knet-fragment-misfiled", "misfiled_fragments"),
}
"""What the receiver does with a fragment -> (code, counter)."""


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
        """Identity among the transfers of its sender."""
        self.order: list[int] | None = None
        """Fragment numbers in the order in which the receiver joined them; None until it has."""
        self.count = count
        self.type_id = _message_id(content)
        self.first = content if _is_shared(base) else b""
        """The first fragment where it has no number of its own: only its bytes identify a copy."""
        self.parts: dict[int, bytes] = {0: content}
        self.octets = len(content)
        """Bytes of `parts`."""
        self.frames = [frame]
        self.complete = False


def _message_id(content: bytes) -> int | None:
    try:
        return KNET_7_7_16.read(content, 0, len(content))[0]
    except VarintError:
        return None


def _is_shared(number: int | None) -> bool:
    """Return whether a fragment has no reliable number of its own."""
    return number is None or number == SHARED


class _Sender:
    """The transfers of one direction."""

    __slots__ = ("begun", "early", "early_count", "octets", "open", "receiver", "waiting")

    def __init__(self) -> None:
        self.receiver = Receiver()
        self.begun = 0
        """First fragments without a number of their own, so far."""
        self.open: dict[int, _Transfer] = {}
        """Transfer number -> the transfer that it identifies now."""
        self.early: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        """(transfer number, reliable number) -> (fragment number, bytes, frame) of a fragment that
        waits for a first fragment. One without a number of its own has the key -1 - fragment
        number.
        """
        self.early_count = 0
        """Early fragments so far."""
        self.waiting: dict[int, dict[int, dict[tuple[int, int], int]]] = {}
        """Transfer number -> reliable number of the first fragment, or `_ANY` -> keys of `early`
        with their ordinal. A datagram may hold hundreds of first fragments, each of which looks
        only at the early fragments that may be its own.
        """
        self.octets = 0
        """Bytes of all transfers in `open`."""


class Transfers:
    """The transfers of both directions of one connection. Bounded."""

    def __init__(self) -> None:
        self._senders: list[_Sender | None] = [None, None]
        """By direction; created with its first fragment, since most sides never send one."""
        self._last: list[list[bytes]] = []
        """Messages that the last datagram completed, not joined: few callers need them."""

    @property
    def last(self) -> list[bytes]:
        """Return the messages that the last datagram completed: message ID and payload."""
        return [b"".join(parts) for parts in self._last]

    def feed(
        self, direction: int, frame: int, time_ns: int, events: Sequence[Event]
    ) -> list[Event]:
        """Process the fragments of one datagram; return further events of it."""
        del time_ns
        sender = self._senders[direction]
        if sender is None:
            sender = self._senders[direction] = _Sender()
        found: list[Event] = []
        self._last.clear()
        is_read = True
        for event in events:
            kind: int = event[0]
            if kind in (_UNIT, _PLAIN_UNIT) and event[2] == "datagram":
                is_read = sender.receiver.accept_datagram(event[3])
            if kind != _PART:
                continue
            _, transfer, index, count, number, content = event
            if transfer is None:
                sender.receiver.accept_number(number)
            elif index is None:
                self._begin(sender, transfer, count, number, content, frame, found, is_read=is_read)
            else:
                self._add(sender, transfer, index, number, content, frame, found, is_read=is_read)
        return found

    def finish(self) -> tuple[list[Event], list[Event]]:
        """Return the events for what stays incomplete, of each direction."""
        return _unfinished(self._senders[0]), _unfinished(self._senders[1])

    def _begin(
        self, sender: _Sender, name: int, count: int, number: int | None, content: bytes,
        frame: int, found: list[Event], *, is_read: bool,
    ) -> None:  # fmt: skip
        """Process a first fragment: of a new transfer, or another copy.

        Args:
            sender: the direction.
            name: transfer number.
            count: number of fragments.
            number: reliable number, if any.
            content: bytes of the fragment.
            frame: frame of the datagram.
            found: where to add events.
            is_read: whether the receiver reads the datagram.

        """
        old = sender.open.get(name)
        if old is not None:
            same = old.first == content if _is_shared(number) else old.base == number
            if same and old.count == count:
                if is_read and number is not None:
                    sender.receiver.begin(name, count, number, old.owner)
                return
            self._replace(sender, name, old, found)
        sender.begun += _is_shared(number)
        owner = -sender.begun if number is None or number == SHARED else number
        if is_read and number is not None:
            sender.receiver.begin(name, count, number, owner)
        transfer = _Transfer(number, count, content, frame, owner)
        sender.open[name] = transfer
        sender.octets += len(content)
        found.append((Ev.COUNTER, "transfers", 1))
        self._adopt_early(sender, name, transfer)
        self._check_complete(sender, name, transfer, found)
        self._enforce_bound(sender, found)

    def _replace(self, sender: _Sender, name: int, old: _Transfer, found: list[Event]) -> None:
        """Drop a transfer whose number is reused."""
        sender.octets -= old.octets
        if not old.complete:
            found.append((Ev.NOTE, "knet-transfer-replaced", f"transfer {name}: {_progress(old)}"))
            _add_incomplete(name, old, found)

    def _adopt_early(self, sender: _Sender, name: int, transfer: _Transfer) -> None:
        """Add to a transfer the fragments that came before its first one."""
        for key in _candidates(sender, name, transfer.base):
            index, content, frame = sender.early[key]
            if not _belongs(transfer, index, key[1] if key[1] >= 0 else None):
                continue
            _remove_early(sender, key, index)
            transfer.parts.setdefault(index, content)
            transfer.octets += len(content)
            sender.octets += len(content)
            transfer.frames.append(frame)

    def _add(
        self, sender: _Sender, name: int, index: int, number: int | None, content: bytes,
        frame: int, found: list[Event], *, is_read: bool,
    ) -> None:  # fmt: skip
        """Process a later fragment; arguments as for `_begin`, and its fragment number."""
        transfer = sender.open.get(name)
        is_ours = transfer is not None and _belongs(transfer, index, number)
        key = -1 - index if number is None or number == SHARED else number
        if number is None:
            if not is_ours and (name, key) not in sender.early:
                _add_outcome("early", name, index, found)
        elif is_read:
            owner = transfer.owner if transfer is not None and is_ours else None
            self._receive(sender, name, index, number, owner, found)
        if transfer is None or not is_ours:
            if (name, key) not in sender.early:
                sender.early[name, key] = (index, content, frame)
                sender.early_count += 1
                by_base = sender.waiting.setdefault(name, {})
                by_base.setdefault(_base(key, index), {})[name, key] = sender.early_count
            if len(sender.early) > MAX_EARLY:
                oldest = next(iter(sender.early))
                _remove_early(sender, oldest, sender.early[oldest][0])
            return
        if index >= transfer.count:
            found.append((Ev.NOTE, "knet-fragment-number", f"fragment {index} of {transfer.count}"))
        if index in transfer.parts:
            return
        transfer.parts[index] = content
        transfer.octets += len(content)
        transfer.frames.append(frame)
        sender.octets += len(content)
        self._check_complete(sender, name, transfer, found)
        self._enforce_bound(sender, found)

    def _receive(
        self, sender: _Sender, name: int, index: int, number: int, owner: int | None,
        found: list[Event],
    ) -> None:  # fmt: skip
        """Pass a later fragment to the receiver, and add events for the outcome."""
        receiver = sender.receiver
        outcome = receiver.add(name, index, number, owner if number == SHARED else number - index)
        if outcome is not None:
            _add_outcome(outcome, name, index, found)
        if receiver.delivered is None:
            return
        found.append((Ev.COUNTER, "transfers_assembled", 1))
        if receiver.foreign:
            found.append((Ev.COUNTER, "transfers_mixed", 1))
            text = f"transfer {name}: {receiver.foreign} fragments of other transfers"
            found.append((Ev.NOTE, "knet-transfer-mixed", text))
            return
        transfer = sender.open.get(name)
        if transfer is not None and transfer.owner == receiver.delivered[0]:
            transfer.order = receiver.delivered[1]

    def _check_complete(
        self, sender: _Sender, name: int, transfer: _Transfer, found: list[Event]
    ) -> None:
        """Add the events of a transfer that has become complete, and of what its receiver got."""
        if transfer.complete or len(transfer.parts) < transfer.count:
            return
        parts = transfer.parts
        whole = [parts[index] for index in range(transfer.count) if index in parts]
        if len(whole) < transfer.count:
            return
        transfer.complete = True
        size = sum([len(part) for part in whole])
        self._last.append(whole)
        found.append((Ev.COUNTER, "transfers_complete", 1))
        found.append((Ev.NOTE, "knet-transfer-complete", _facts(name, transfer, size)))
        order = transfer.order
        if transfer.base is None:
            pass  # Receivers of the published document join fragments by number, in any order.
        elif order is None:
            found.append((Ev.COUNTER, "transfers_never_delivered", 1))
            text = f"transfer {name}: its receiver has not got all fragments as its own"
            found.append((Ev.NOTE, "knet-transfer-undelivered", text))
        elif order != sorted(order):
            found.append((Ev.COUNTER, "transfers_scrambled", 1))
            misplaced = sum(index != place for place, index in enumerate(order))
            text = f"transfer {name}: {misplaced} of {transfer.count} fragments out of place"
            found.append((Ev.NOTE, "knet-transfer-scrambled", text))
        # The entry stays to recognise later copies, but holds no bytes.
        sender.octets -= transfer.octets
        transfer.octets = 0
        transfer.parts = dict.fromkeys(parts, b"")

    def _enforce_bound(self, sender: _Sender, found: list[Event]) -> None:
        """Drop the oldest unfinished transfers until the bound is kept."""
        while sender.octets > MAX_OCTETS:
            name = next((n for n, transfer in sender.open.items() if transfer.octets), None)
            if name is None:
                return
            transfer = sender.open.pop(name)
            sender.octets -= transfer.octets
            text = f"transfer {name}: {_progress(transfer)}"
            found.append((Ev.NOTE, "knet-transfer-limit", text))


def _base(number: int, index: int) -> int:
    """Return the reliable number of the first fragment, given that of an early one."""
    return number - index if number >= 0 else _ANY


def _candidates(sender: _Sender, name: int, base: int | None) -> list[tuple[int, int]]:
    """Return the keys of the early fragments that may belong to a transfer, the oldest first."""
    by_base = sender.waiting.get(name)
    if by_base is None:
        return []
    found: dict[tuple[int, int], int] = {}
    for each in by_base if base is None or base == SHARED else (base, _ANY):
        found.update(by_base.get(each, {}))
    return sorted(found, key=found.__getitem__)


def _remove_early(sender: _Sender, key: tuple[int, int], index: int) -> None:
    """Remove an early fragment, whose fragment number is `index`."""
    del sender.early[key]
    by_base, base = sender.waiting[key[0]], _base(key[1], index)
    del by_base[base][key]
    if not by_base[base]:
        del by_base[base]
    if not by_base:
        del sender.waiting[key[0]]


def _add_outcome(outcome: str, name: int, index: int, found: list[Event]) -> None:
    """Add the events for what the receiver does with a fragment."""
    code, counter = _OUTCOMES[outcome]
    found.append((Ev.COUNTER, counter, 1))
    found.append((Ev.NOTE, code, f"transfer {name} fragment {index}"))


def _unfinished(sender: _Sender | None) -> list[Event]:
    """Return the events for the incomplete transfers of a sender, and drop all its transfers."""
    found: list[Event] = []
    if sender is None:
        return found
    for number, transfer in sender.open.items():
        if not transfer.complete:
            _add_incomplete(number, transfer, found)
    if sender.early:
        found.append((Ev.COUNTER, "fragments_without_first", len(sender.early)))
    sender.open.clear()
    sender.early.clear()
    sender.waiting.clear()
    return found


def _belongs(transfer: _Transfer, index: int, number: int | None) -> bool:
    """Return whether a fragment may belong to a transfer, by their reliable numbers."""
    base = transfer.base
    if base is None or number is None or SHARED in (base, number):
        return True
    return base + index == number


def _present(transfer: _Transfer) -> int:
    """Return the number of its fragments that have come."""
    return sum(index < transfer.count for index in transfer.parts)


def _progress(transfer: _Transfer) -> str:
    return f"{_present(transfer)} of {transfer.count} fragments"


def _add_incomplete(name: int, transfer: _Transfer, found: list[Event]) -> None:
    """Add the events of a transfer that lacks fragments."""
    missing: list[int] = []
    index = 0
    while index < transfer.count and len(missing) <= _MAX_LISTED:
        if index not in transfer.parts:
            missing.append(index)
        index += 1
    more = ", ..." if len(missing) > _MAX_LISTED else ""
    listed = ", ".join(map(str, missing[:_MAX_LISTED]))
    facts = {
        "transfer": name,
        "message_id": transfer.type_id,
        "count": transfer.count,
        "present": _present(transfer),
        "missing": missing[:_MAX_LISTED],
        "frames": transfer.frames[:_MAX_LISTED],
        "message": f"transfer {name}: fragments {listed}{more} missing",
    }
    found.append((Ev.COUNTER, "transfers_incomplete", 1))
    found.append((Ev.NOTE, "knet-transfer-incomplete", facts))


def _facts(name: int, transfer: _Transfer, size: int) -> dict[str, object]:
    """Return the details of the note on a complete transfer."""
    return {
        "transfer": name,
        "message_id": transfer.type_id,
        "fragments": transfer.count,
        "octets": size,
        "frames": transfer.frames[:_MAX_LISTED],
        "message": f"transfer {name}: {transfer.count} fragments joined, {size} bytes",
    }
