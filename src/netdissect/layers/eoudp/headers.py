"""The headers of all dialects. Numbers are big-endian; a datagram holds one message.

```
rfc01, rfc02   0 cmd | 1-4 f32 | 5-12 id | 13-20 size | 21.. content
rfc03          0 cmd | 1-8 f64 | 9-16 id | 17 bool | 18-25 size | 26.. content
exodia-early   0 cmd | 1-4 f32 | 5-12 id | 13-20 size | 21 zero | 22.. content
exodia-30      0 cmd | 1-4 f32 | 5-12 id | 13 important | 14-21 size | 22-29 zero | 30.. content
exodia-mid     0 cmd | 1-4 f32 | 5-12 id | 13 important | 14-21 size | 22.. content
exodia-late    0 cmd | 1-8 f64 | 9-16 id | 17 important | 18-25 size | 26.. content
late-long32    0 cmd | 1-8 f64 | 9-12 id | 13 important | 14-17 size | 18-25 zero | 26.. content
mid-long32     0 cmd | 1-4 f32 | 5-8 id | 9 important | 10-13 size | 14-21 zero | 22.. content
early-long32   0 cmd | 1-4 f32 | 5-8 id | 9-12 size | 13-21 zero | 22.. content
```
The zeros are unintended: the engine copies the content to a constant offset that is larger than the
header. *Source:* docs/protocols/eoudp.md; engine `Network/Header`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import takewhile
from typing import Any, ClassVar

from scapy.fields import ByteEnumField, Field, IntField, LongField
from scapy.packet import NoPayload

from netdissect.layers.base import Check, Gen, Layer, make_layer
from netdissect.layers.binding import by_bytes
from netdissect.layers.eoudp.contents import EoudpRaw, content_layer
from netdissect.layers.eoudp.documents import LAYERS
from netdissect.layers.eoudp.fields import Stamp, Truth, Zeros
from netdissect.layers.expr import E
from netdissect.wire import eoudp_names as eoudp
from netdissect.wire.eoudp import NO_NUL
from netdissect.wire.eoudp_names import (
    COMMANDS,
    DOCUMENTS,
    FAR_ID,
    FOREIGN,
    NEVER_HANDLED,
    canonical,
    command_name,
    time_limits,
    type_name,
)

__all__ = ["HEADERS", "EoudpHeader", "header_layer"]


class _Command(ByteEnumField):  # type: ignore[misc]
    """The command number; None = building takes it from the content."""

    shown = "command"


class EoudpHeader(Layer):
    """Base class of all headers.

    `EoudpHeader(octets)` gives the class of the dialect that the bytes are of, `EoudpHeader()`
    that of the last releases.
    """

    name = "EOUDP"
    pairing = b"eoudp"
    dialect: ClassVar[str] = ""
    """Name of the dialect."""
    length: ClassVar[int] = 0
    """Length in bytes."""
    shows = "content"
    fields_desc: list[Any] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the derived values and rules, which depend on the dialect alone."""
        super().__init_subclass__(**kwargs)
        dialect = cls.dialect
        # Scapy's metaclass has renamed `name` to this by now.
        cls._name = f"EOUDP {dialect}"
        cls.length = sum(int(field.sz) for field in cls.fields_desc)
        unit = "s" if dialect in DOCUMENTS else "ms"
        cls.generated = (
            Gen("command_name", lambda f: command_name(dialect, f["cmd"], f["size"])),
            Gen("important_raw", lambda f: f["important"] if f["important"] > 1 else None),
            Gen("timestamp_unit", lambda _f: unit),
            Gen("header_length", lambda _f: cls.length),
        )
        flagged = any(field.name == "important" for field in cls.fields_desc)
        cls.checks = _checks(dialect, flagged=flagged)

    dispatch_hook, chooser = by_bytes("eoudp")

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the name of the command; None if the header is cut short."""
        if cls.fields_desc[-1].name not in fields:
            return None
        return type_name(cls.dialect, fields["cmd"], fields["size"])

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        """Return the layer of the content."""
        command = command_name(self.dialect, self.cmd or 0, len(payload))
        how = content_layer(self.dialect, command, payload)
        known = how.legal and how.layer is not EoudpRaw
        return how.layer if known else self.bound_layer(payload, EoudpRaw)

    def payload_layer(self, shown: Mapping[str, Any], octets: bytes) -> type[Any]:
        """Return the layer of a content in the byte order and string form that the tree states.

        The bytes alone do not decide here: they are still being built.
        """
        content = shown["content"]
        if "raw_hex" in content:
            return EoudpRaw
        size = int(shown.get("content_length", len(octets)))
        name = shown.get("shown_as") or command_name(self.dialect, self.cmd or 0, size)
        form = shown.get("string_form")
        order = ">" if shown.get("content_byte_order") == "big" else "<"
        # Digits: without strings only the size counts, but a CONNECT_ACCEPT must be a number.
        if form is None or (form == NO_NUL and self.dialect not in DOCUMENTS):
            return content_layer(self.dialect, name, b"0" * size, order).layer
        sets = LAYERS[order, form]
        if "component" not in content:
            return sets.strings
        if name != "DELETE_COMPONENT":
            return sets.components
        return sets.deleted_data if "data_hex" in content else sets.deleted

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the command of the content and its size, unless they were given."""
        if self.cmd is None:
            pkt = bytes([self.command_number]) + pkt[1:]
        if self.size is None:
            fields = takewhile(lambda field: field.name != "size", self.fields_desc)
            at = sum(int(field.sz) for field in fields)
            width = self.get_field("size").sz
            pkt = pkt[:at] + len(pay).to_bytes(8, "big")[8 - width :] + pkt[at + width :]
        return pkt + pay

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        size = self.int_value("size")
        command = command_name(
            self.dialect, self.command_number, len(self.payload) if size is None else size
        )
        return f"EOUDP {command} {self.id}"

    def answers(self, other: Any) -> bool:
        """Return whether this is the ACK of `other`, or the answer to a CONNECT."""
        if not isinstance(other, EoudpHeader):
            return False
        command = self.command_number
        if command == eoudp.ACK:
            return bool(getattr(self.payload, "acked_id", None) == other.id)
        answers = command in (eoudp.CONNECT_ACCEPT, eoudp.CONNECT_REJECT)
        return answers and other.command_number == eoudp.CONNECT

    @property
    def command_number(self) -> int:
        """Return the command number: the given one, or that which building fills in."""
        given = self.int_value("cmd")
        if given is not None:
            return given
        numbers = getattr(self.payload, "commands", {})
        number = numbers.get(self.dialect, numbers.get(""))
        if number is None:
            # CONNECT is the usual command without a content.
            number = eoudp.CONNECT if isinstance(self.payload, NoPayload) else 0
        return int(number)


_UNUSED = eoudp.EVENT_11
"""A command that the documents define and the programs do not."""


def _set(commands: Iterable[int]) -> str:
    """Return a set literal for an expression."""
    return f"{{{', '.join(map(str, sorted(commands)))}}}"


def _checks(dialect: str, *, flagged: bool) -> tuple[Check, ...]:
    """Return the soft rules of a header."""
    document = dialect in DOCUMENTS
    known = set(COMMANDS) if document else set(COMMANDS) - {_UNUSED}
    low, high = time_limits(dialect)
    rules = [
        Check(
            E(f"cmd not in {_set(known)}"),
            "eoudp-unknown-command",
            "command",
            "command {cmd:#04x} is not defined: a connected receiver's process ends",
        ),
        Check(
            E(f"not {low} <= timestamp < {high}" + " and timestamp != 0" * document),
            "eoudp-timestamp",
            "timestamp",
            "time stamp {timestamp} cannot be a sender's clock",
        ),
        Check(
            E(f"id >= {FAR_ID}"),
            "eoudp-far-id",
            "id",
            "id {id}: senders count from 0 in a signed 32-bit number",
        ),
    ]
    if not document:
        unhandled = Check(
            E(f"cmd in {_set(NEVER_HANDLED - {_UNUSED})}"),
            "eoudp-unhandled-command",
            "command",
            "command {cmd:#04x} has no handler in any release: the receiving process ends",
        )
        rules.insert(1, unhandled)
    if dialect in FOREIGN:
        # Not an `E`, so that `scan` does not note it: it assigns such a flow to the other document.
        foreign = Check(
            lambda f: f["cmd"] in FOREIGN[dialect],
            "eoudp-foreign-command",
            "command",
            f"command {{cmd:#04x}} belongs to another document than {dialect}",
        )
        rules.insert(1, foreign)
    if flagged:
        text = "important flag is {important}, read as true"
        rules.append(Check(E("important > 1"), "eoudp-important-value", "important", text))
    return tuple(rules)


def _fields(stamp: str, word: str, *, flagged: bool = True, zeros: int = 0) -> list[Any]:
    """Return the fields of a header.

    Args:
        stamp: `struct` format of the time stamp: `f` or `d`.
        word: `struct` format of id and size: `Q` or `I`.
        flagged: there is an important flag.
        zeros: number of zero bytes at the end.

    """
    return [
        _Command("cmd", None, COMMANDS),
        Stamp("timestamp", f"!{stamp}"),
        {"Q": LongField, "I": IntField}[word]("id", 0),
        *([Truth("important", 0, "B")] if flagged else []),
        Field("size", None, f"!{word}"),  # None = building fills it in
        *([Zeros("padding", zeros)] if zeros else []),
    ]


HEADERS: dict[str, type[EoudpHeader]] = {
    dialect: make_layer(
        globals(), name, EoudpHeader, text, dialect=dialect, fields_desc=fields
    )
    for name, dialect, fields, text in (
        ("EoudpRfc01", "rfc01", _fields("f", "Q", flagged=False),
         'RFC_01 and the section "Details" of RFC_02: as RFC_02 with other command numbers.'),
        ("EoudpRfc02", "rfc02", _fields("f", "Q", flagged=False),
         "RFC_02, the first document; time stamp in seconds."),
        ("EoudpRfc03", "rfc03", _fields("d", "Q"),
         "RFC_03: 64-bit time stamp in seconds, and the important flag."),
        ("EoudpEarly", "exodia-early", _fields("f", "Q", flagged=False, zeros=1),
         "Releases v1.0: no flag, milliseconds as f32 (a resolution of 131 s), a zero at the end."),
        ("Eoudp30", "exodia-30", _fields("f", "Q", zeros=8),
         "The build of 31 December 2023: flag, and eight zeros at the end."),
        ("EoudpMid", "exodia-mid", _fields("f", "Q"),
         "Releases v1.1: flag, milliseconds as f32."),
        ("EoudpLate", "exodia-late", _fields("d", "Q"),
         "Releases v1.2 and v1.3: flag, milliseconds as f64."),
        ("EoudpEarlyLong32", "exodia-early-long32", _fields("f", "I", flagged=False, zeros=9),
         "exodia-early where C `long` has four bytes."),
        ("EoudpMidLong32", "exodia-mid-long32", _fields("f", "I", zeros=8),
         "exodia-mid where C `long` has four bytes."),
        ("EoudpLateLong32", "exodia-late-long32", _fields("d", "I", zeros=8),
         "exodia-late where C `long` has four bytes, also in the entity ids of contents."),
    )
}  # fmt: skip
"""Dialect -> header."""
__all__ += [layer.__name__ for layer in HEADERS.values()]


@cache
def header_layer(dialect: str) -> type[EoudpHeader]:
    """Return the header of a dialect; for an unknown one that of exodia-late, the last release."""
    return HEADERS.get(canonical(dialect), HEADERS["exodia-late"])
