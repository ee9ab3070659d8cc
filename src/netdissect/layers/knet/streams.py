"""kNet over TCP: from the first byte on, messages of a length, a message ID and a payload.

*Source:* docs/protocols/knet.md section 8; kNet `TCPMessageConnection::ExtractMessages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from netdissect.layers.base import Layer, make_layer
from netdissect.layers.binding import StreamLayer
from netdissect.layers.expr import E
from netdissect.layers.fields import Items
from netdissect.layers.knet.contents import KnetApplication, chooser, message_names
from netdissect.layers.knet.fields import BoundedVle, Content
from netdissect.layers.knet.pairs import is_answer
from netdissect.wire.knet import DIALECTS, TCP_LIMIT, message_type
from netdissect.wire.varint import KNET_7_7_16, VarintError

__all__ = ["STREAMS", "KnetStream", "KnetTcpBody", "KnetTcpMessage"]


class KnetTcpMessage(Layer):
    """A message in a stream. Building fills in the content length."""

    name = "kNet TCP message"
    is_item = True
    dialect: ClassVar[str] = "knet-tcp"
    fields_desc = [
        BoundedVle(
            "content_length", None, KNET_7_7_16, low=1, high=TCP_LIMIT, code="knet-tcp-length"
        ),
        Content(chooser("knet-tcp"), E("content_length"), default=KnetApplication()),
    ]

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the name of the message."""
        number = fields["content"].get("message_id")
        return None if number is None else message_type(number, cls.dialect)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the content length unless it was given."""
        if self.fields.get("content_length") is None and self.content is not None:
            content = bytes(self.content)
            pkt = KNET_7_7_16.write(len(content)) + content
        return pkt + pay


class KnetTcpBody(KnetTcpMessage):
    """A message without its length."""

    name = "kNet message"
    fields_desc = [Content(chooser("knet-tcp"), None, default=KnetApplication())]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Return the bytes: there is no length to fill in."""
        return pkt + pay


def _end(data: bytes, at: int) -> int | None:
    """Return the end of the message at `at`, which may be beyond the data.

    None = its length is cut short; 0 = no message can have this length.
    """
    try:
        size, start = KNET_7_7_16.read(data, at, len(data))
    except VarintError:
        return None
    return start + size if 1 <= size <= TCP_LIMIT else 0


def _unfinished(data: bytes) -> bool:
    """Return whether a stream ends inside its first message."""
    end = _end(data, 0)
    return end is None or end > len(data)


def _messages(item: type[KnetTcpMessage]) -> Items:
    return Items("messages", item, rest=("incomplete", _unfinished))


class KnetStream(StreamLayer):
    """Consecutive messages."""

    name = "kNet stream"
    pairing = b"knet"
    fields_desc: list[Any] = [_messages(KnetTcpMessage)]

    @classmethod
    def complete_length(cls, data: bytes) -> int:
        """Return the length of the complete messages at the start of `data`, in bytes."""
        at = 0
        while at < len(data):
            end = _end(data, at)
            if not end or end > len(data):
                break
            at = end
        return at

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`: the types of the messages."""
        return f"{self.name}: {message_names(self.messages)}"

    def answers(self, other: Any) -> bool:
        """Return whether a message in this stream answers one in `other`."""
        return isinstance(other, KnetStream) and is_answer(self.messages, other.messages)


def _named(name: str) -> tuple[type[KnetStream], type[KnetTcpBody]]:
    """Return the layers of a dialect whose application messages have names."""
    dialect = f"knet-{name}"

    def subclass(base: Any, *fields: Any, **more: Any) -> Any:
        title = base.__name__.replace("Knet", f"Knet{name.capitalize()}")
        return make_layer(globals(), title, base, base.__doc__, fields_desc=[*fields], **more)

    length, usual = KnetTcpMessage.fields_desc[0], KnetApplication()
    content = Content(chooser(dialect), E("content_length"), default=usual)
    message = subclass(KnetTcpMessage, length, content, dialect=dialect)
    body = subclass(KnetTcpBody, Content(chooser(dialect), None, default=usual), dialect=dialect)
    return subclass(KnetStream, _messages(message)), body


STREAMS: dict[str, tuple[type[KnetStream], type[KnetTcpBody]]] = {
    **dict.fromkeys(DIALECTS, (KnetStream, KnetTcpBody)),
    **{f"knet-{name}": _named(name) for name in ("tundra", "urho3d")},
}
"""Dialect -> (layer of a stream, layer of a message without its length)."""
__all__ += [name for name in globals() if name.startswith(("KnetTundra", "KnetUrho3d"))]
