"""The lines of `follow`: one reliable message each, one colour per side."""

from __future__ import annotations

from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.render.console import Screen
from netdissect.render.hexdump import hex_rows
from netdissect.render.tree import value_text
from netdissect.render.units import Clock, arrow_of, counted, direction_style

_HANG = 15
"""Indentation of the further rows of a message, which is shown whole: it is what users look for."""


class FollowView:
    """Prints messages as they are delivered."""

    def __init__(self, screen: Screen, clock: Clock, form: str) -> None:
        """Take the screen and the form: `line`, `hex` or `tree`."""
        self.screen = screen
        self.clock = clock
        self.form = form

    def show(self, record: DatagramRecord, item: MessageRecord) -> None:
        """Print one message."""
        style = direction_style(record.direction)
        facts = item.reliability
        number = "" if facts is None else f"{facts.space} {facts.seq}"
        self.screen.line(
            (f"{self.clock.show(record.time_ns):>11}  ", "time"),
            (f"{arrow_of(record.direction)} {number:<14} ", style),
            (f"{f'#{record.frame}':<6} ", "frame"),
            (item.summary or item.type, style),
            hang=_HANG,
        )
        if self.form == "hex":
            tree = record.dissection
            data = tree.buffers[item.buffer].data if tree else record.payload
            octets = data[item.offset : item.offset + item.length]
            self.screen.lines(hex_rows(octets, width=self.screen.width))
            whole = item.fields.get("reassembled")
            payload = whole.get("payload") if isinstance(whole, dict) else None
            if isinstance(payload, bytes):  # What the application gets, of all its fragments.
                self.screen.line((f"reassembled, {counted(len(payload), 'byte')}", "name"))
                self.screen.lines(hex_rows(payload, width=self.screen.width))
        elif self.form == "tree":
            for name, value in item.fields.items():
                self.screen.line((f"{'':>13}{name}", "name"), (f" = {value_text(value)}", ""))
