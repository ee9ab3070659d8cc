"""Text Netplay: a class line and a body line for each message.

Source: docs/protocols/netplay.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scapy.fields import StrField
from scapy.volatile import RandBin, RandNum

from netdissect.layers.base import Layer
from netdissect.layers.fields import FieldFault
from netdissect.model.dissection import JSON
from netdissect.wire.netplay import CLASS_LINE, endless

__all__ = ["Line", "NetplayText"]


class Line(StrField):  # type: ignore[misc]
    """Bytes up to a line feed, which is not part of the value; shown as UTF-8 text."""

    __slots__ = ["private"]

    def __init__(self, name: str, default: bytes = b"", *, private: str = "") -> None:
        StrField.__init__(self, name, default)
        self.private = private

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        """Read up to the line feed; FieldFault `incomplete-message-at-close` without one."""
        end = s.find(b"\n")
        if end < 0:
            raise FieldFault(*endless(self.name, len(s)), self.plain(s))
        return s[end + 1 :], s[:end]

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        """Append the bytes and a line feed."""
        return s + bytes(self.i2m(pkt, val)) + b"\n"

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Take text as UTF-8."""
        return x.encode() if isinstance(x, str) else x

    def plain(self, value: bytes) -> str:
        """Return the text; bytes that are no UTF-8 read as U+FFFD, as in the receiver."""
        return value.decode("utf-8", "replace")

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step of the dissector for Wireshark."""
        del tools
        return {"k": "until_", "mark": 10, "code": "incomplete-message-at-close"}

    def derive(self, writer: Any) -> None:
        """Write the derived reader's code."""
        writer.put("k = buf.find(b'\\n', p, end)")
        writer.put("if k < 0: return None")
        writer.put(f"{writer.name(self)} = buf[p:k]")
        writer.put("p = k + 1")

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the length in bytes with the line feed."""
        return len(x or b"") + 1

    def randval(self) -> Any:
        """Return random bytes."""
        return RandBin(RandNum(0, 40))


class NetplayText(Layer):
    """One message: the simple name of its Java class, and its body, by default one line of JSON."""

    name = "Netplay text message"
    fields_desc = [Line("class_name", private=CLASS_LINE), Line("body", b"{}", private=JSON)]

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the class line."""
        return fields["class_name"].decode("utf-8", "replace") if "body" in fields else None
