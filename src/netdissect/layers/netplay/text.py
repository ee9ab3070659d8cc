"""Text Netplay: a class line and a body line for each message.

Source: docs/protocols/netplay.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdissect.layers.base import Layer
from netdissect.layers.fields import FieldFault, NulString
from netdissect.model.dissection import JSON
from netdissect.wire.netplay import CLASS_LINE, endless

__all__ = ["Line", "NetplayText"]


class Line(NulString):
    """Bytes up to a line feed, which is not part of the value; shown as UTF-8 text."""

    mark = b"\n"
    code = "incomplete-message-at-close"

    def unterminated(self, octets: bytes) -> FieldFault:
        """Return what is wrong with bytes that have no line feed."""
        return FieldFault(*endless(self.name, len(octets)), self.plain(octets))

    def plain(self, value: bytes) -> str:
        """Return the text; bytes that are no UTF-8 read as U+FFFD, as in the receiver."""
        return value.decode("utf-8", "replace")


class NetplayText(Layer):
    """One message: the simple name of its Java class, and its body, by default one line of JSON."""

    name = "Netplay text message"
    is_item = True
    fields_desc = [Line("class_name", private=CLASS_LINE), Line("body", b"{}", private=JSON)]

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the class line."""
        return fields["class_name"].decode("utf-8", "replace") if "body" in fields else None
