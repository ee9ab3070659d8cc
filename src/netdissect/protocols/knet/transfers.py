"""Rejoins fragmented transfers by number, and says what the reference receiver makes of them.

The receiver opens a transfer on its first fragment, discards what comes before that (and
acknowledges it), and joins fragments in the order of their arrival.
Source: docs/protocols/knet.md section 7; kNet `FragmentedTransferManager`,
`UDPMessageConnection::ExtractMessages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.events import Ev, Event
from netdissect.wire.varint import KNET_7_7_16, VarintError

__all__ = ["MAX_OCTETS", "MAX_TRANSFERS", "Transfers"]

MAX_TRANSFERS: Final = 256
"""Unfinished transfers per direction: all transfer numbers."""
MAX_OCTETS: Final = 16 * 1024 * 1024
"""Octets of unfinished transfers per direction; beyond, the oldest transfer is dropped."""
MAX_EARLY: Final = 4096
"""Fragments per direction that wait for their first fragment."""
_LISTED: Final = 12
"""Missing fragments named one by one."""

_PART: Final = int(Ev.PART)
_NOTE: Final = int(Ev.NOTE)
_COUNTER: Final = int(Ev.COUNTER)
_RESTART: Final = int(Ev.RESTART)


class _Transfer:
    """One transfer of one sender."""

    __slots__ = ("arrivals", "base", "complete", "count", "discarded", "first", "frames", "octets",
                 "parts", "received", "type_id")  # fmt: skip

    def __init__(self, base: int | None, count: int, content: bytes, frame: int) -> None:
        self.base = base
        """Reliable number of the first fragment; those of the others follow it."""
        self.count = count
        self.type_id = _message_id(content)
        self.first = content if base is None else b""
        """The first fragment where it has no number: only this tells a copy from another one."""
        self.parts: dict[int, bytes] = {0: content}
        self.arrivals = [0]
        """Fragment numbers as the receiver got and kept them."""
        self.received = {0}
        """What the receiver has: not what came before the first fragment."""
        self.discarded = 0
        self.octets = len(content)
        self.frames = [frame]
        self.complete = False


def _message_id(content: bytes) -> int | None:
    try:
        return KNET_7_7_16.read(content, 0, len(content))[0]
    except VarintError:
        return None


class _Sender:
    """The transfers of one direction."""

    __slots__ = ("early", "octets", "open")

    def __init__(self) -> None:
        self.open: dict[int, _Transfer] = {}
        """Transfer number -> the transfer that uses it now."""
        self.early: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        """(transfer number, reliable number) -> (fragment number, octets, frame); no first one.
        Where messages have no numbers: -1 less the number of the fragment.
        """
        self.octets = 0


class Transfers:
    """Both directions of one connection. Bounded."""

    def __init__(self) -> None:
        self._senders = (_Sender(), _Sender())
        self.last: list[bytes] = []
        """Messages that the last datagram completed: message ID and payload."""

    def feed(
        self, direction: int, frame: int, time_ns: int, events: Sequence[Event]
    ) -> list[Event]:
        """Take the fragments of one datagram."""
        del time_ns
        sender = self._senders[direction]
        found: list[Event] = []
        self.last = []
        for event in events:
            if event[0] != _PART:
                continue
            _, transfer, index, count, number, content = event
            if index is None:
                self._begin(sender, transfer, count, number, content, frame, found)
            else:
                self._add(sender, transfer, index, number, content, frame, found)
        return found

    def finish(self) -> tuple[list[Event], list[Event]]:
        """Return what stays incomplete, of each direction."""
        return _left(self._senders[0]), _left(self._senders[1])

    def _begin(
        self, sender: _Sender, name: int, count: int, number: int | None, content: bytes,
        frame: int, found: list[Event],
    ) -> None:  # fmt: skip
        """Take a first fragment: a new transfer, or a further copy of one."""
        old = sender.open.get(name)
        if old is not None:
            same = old.first == content if number is None else old.base == number
            if same and old.count == count:
                return
            self._replace(sender, name, old, found)
        transfer = _Transfer(number, count, content, frame)
        sender.open[name] = transfer
        sender.octets += len(content)
        found.append((_COUNTER, "transfers", 1))
        self._adopt(sender, name, transfer)
        self._completed(sender, name, transfer, found)
        self._bound(sender, found)

    def _replace(self, sender: _Sender, name: int, old: _Transfer, found: list[Event]) -> None:
        """Forget a transfer whose number is used anew."""
        sender.octets -= old.octets
        if not old.complete:
            found.append((_NOTE, "knet-transfer-replaced", f"transfer {name}: {_progress(old)}"))
            _incomplete(name, old, found)

    def _adopt(self, sender: _Sender, name: int, transfer: _Transfer) -> None:
        """Give a transfer the fragments that came before its first one."""
        for key in [key for key in sender.early if key[0] == name]:
            index, content, frame = sender.early[key]
            if not _belongs(transfer, index, key[1] if key[1] >= 0 else None):
                continue
            del sender.early[key]
            transfer.parts.setdefault(index, content)
            transfer.octets += len(content)
            sender.octets += len(content)
            transfer.frames.append(frame)
            transfer.discarded += 1

    def _add(
        self, sender: _Sender, name: int, index: int, number: int | None, content: bytes,
        frame: int, found: list[Event],
    ) -> None:  # fmt: skip
        """Take a later fragment."""
        transfer = sender.open.get(name)
        if transfer is None or not _belongs(transfer, index, number):
            self._wait(sender, name, index, number, content, frame, found)
            return
        if index >= transfer.count:
            found.append((_NOTE, "knet-fragment-number", f"fragment {index} of {transfer.count}"))
        if index not in transfer.received:
            transfer.received.add(index)
            transfer.arrivals.append(index)
        if index in transfer.parts:
            return
        transfer.parts[index] = content
        transfer.octets += len(content)
        transfer.frames.append(frame)
        sender.octets += len(content)
        self._completed(sender, name, transfer, found)
        self._bound(sender, found)

    def _wait(
        self, sender: _Sender, name: int, index: int, number: int | None, content: bytes,
        frame: int, found: list[Event],
    ) -> None:  # fmt: skip
        """Keep a fragment until its first one comes."""
        key = number if number is not None else -1 - index
        if (name, key) in sender.early:
            return
        sender.early[name, key] = (index, content, frame)
        old = sender.open.get(name)
        if number is not None and old is not None and len(old.received) < old.count:
            # The receiver still waits for the old transfer, and looks at no reliable numbers.
            old.received.add(index)
            code, counter = "knet-fragment-misfiled", "misfiled_fragments"
        else:
            code, counter = "knet-orphan-fragment", "early_fragments"
        found.append((_COUNTER, counter, 1))
        found.append((_NOTE, code, f"transfer {name} fragment {index}"))
        if len(sender.early) > MAX_EARLY:
            del sender.early[next(iter(sender.early))]

    def _completed(
        self, sender: _Sender, name: int, transfer: _Transfer, found: list[Event]
    ) -> None:
        """Say that a transfer is whole, and what its receiver got."""
        if transfer.complete or len(transfer.parts) < transfer.count:
            return
        if any(index not in transfer.parts for index in range(transfer.count)):
            return
        transfer.complete = True
        whole = b"".join(transfer.parts[index] for index in range(transfer.count))
        self.last.append(whole)
        found.append((_COUNTER, "transfers_complete", 1))
        found.append((_NOTE, "knet-transfer-complete", _facts(name, transfer, len(whole))))
        kept = [index for index in transfer.arrivals if index < transfer.count]
        if transfer.base is None:
            pass  # The published document joins by number, whatever came first.
        elif len(kept) < transfer.count:
            found.append((_COUNTER, "transfers_never_delivered", 1))
            text = f"transfer {name}: its receiver has discarded {transfer.discarded} fragments"
            found.append((_NOTE, "knet-transfer-undelivered", text))
        elif kept != sorted(kept):
            found.append((_COUNTER, "transfers_scrambled", 1))
            misplaced = sum(index != place for place, index in enumerate(kept))
            text = f"transfer {name}: {misplaced} of {transfer.count} fragments out of place"
            found.append((_NOTE, "knet-transfer-scrambled", text))
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
            found.append((_NOTE, "knet-transfer-limit", f"transfer {name}: {_progress(transfer)}"))


def _left(sender: _Sender) -> list[Event]:
    """Name what one sender's transfers lack at the end."""
    found: list[Event] = []
    for number, transfer in sender.open.items():
        if not transfer.complete:
            _incomplete(number, transfer, found)
    if sender.early:
        found.append((_COUNTER, "fragments_without_first", len(sender.early)))
    sender.open.clear()
    sender.early.clear()
    return found


def _belongs(transfer: _Transfer, index: int, number: int | None) -> bool:
    """Return whether a fragment is one of a transfer: its reliable number follows the first's."""
    return transfer.base is None or number is None or transfer.base + index == number


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
    found.append((_COUNTER, "transfers_incomplete", 1))
    found.append((_NOTE, "knet-transfer-incomplete", facts))


def _facts(name: int, transfer: _Transfer, size: int) -> dict[str, object]:
    return {
        "transfer": name,
        "message_id": transfer.type_id,
        "fragments": transfer.count,
        "octets": size,
        "frames": transfer.frames[:_LISTED],
        "message": f"transfer {name}: {transfer.count} fragments joined, {size} octets",
    }
