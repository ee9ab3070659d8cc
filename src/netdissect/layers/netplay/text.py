"""Text Netplay: every message is a line with a class name and a line with a body.

*Source:* docs/protocols/netplay.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdissect.layers.base import Layer
from netdissect.layers.fields import FieldFault, NulString
from netdissect.model.dissection import JSON
from netdissect.wire.netplay import CLASS_LINE, endless


class Line(NulString):
    """Text up to a line feed, which is not part of the value."""

    mark = b"\n"
    code = "incomplete-message-at-close"

    def unterminated(self, octets: bytes) -> FieldFault:
        """Return the fault of bytes without line feed."""
        return FieldFault(*endless(self.name, len(octets)), self.plain(octets))

    def plain(self, value: bytes) -> str:
        """Return the text; as in a receiver, bytes that are not UTF-8 become U+FFFD."""
        return value.decode("utf-8", "replace")


class NetplayText(Layer):
    """A message: the simple name of its Java class, and its body, by default in JSON."""

    name = "Netplay text message"
    is_item = True
    fields_desc = [Line("class_name", private=CLASS_LINE), Line("body", b"{}", private=JSON)]

    @property
    def _title(self) -> str:
        """Return the name with that of the class; control characters are escaped."""
        value = self.class_name
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        return f"{self.name} {text!r}"

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the class line."""
        return fields["class_name"].decode("utf-8", "replace") if "body" in fields else None
