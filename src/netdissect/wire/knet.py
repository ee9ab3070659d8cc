"""Names and numbers of kNet that both the layers and `scan` need.

Source: docs/protocols/knet.md; kNet `include/kNet/MessageConnection.h`; Urho3D
`Network/Protocol.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CURRENT: Final = "knet-2.x"
LEGACY: Final = "knet-2010"
UNDECIDED: Final = "knet-2010/2.x"
"""One of the two before: nothing has told them apart yet."""
PERHAPS_2010: Final = (LEGACY, UNDECIDED)
"""Their fragments have no numbers of their own, or perhaps none."""
SPECIFICATION: Final = "knet-spec"
TUNDRA: Final = "knet-tundra"
DIALECTS: Final = (
    CURRENT, LEGACY, UNDECIDED, "knet-urho3d", "knet-tundra", "knet-tcp", SPECIFICATION,
)  # fmt: skip
"""All dialects; the first is the default."""

PING_REQUEST: Final = "PingRequest"
PING_REPLY: Final = "PingReply"
FLOW_CONTROL: Final = "FlowControlRequest"
PACKET_ACK: Final = "PacketAck"
DISCONNECT: Final = "Disconnect"
DISCONNECT_ACK: Final = "DisconnectAck"

_ENDS: Final = {0x3FFFFFFF: DISCONNECT, 0x3FFFFFFE: DISCONNECT_ACK}
_CONTROLS: Final = {
    1: PING_REQUEST, 2: PING_REPLY, 3: FLOW_CONTROL, 4: PACKET_ACK, **_ENDS,
}  # fmt: skip
HANDSHAKE: Final = {
    0x3FFFFFFD: "ConnectSyn", 0x3FFFFFFC: "ConnectSynAck", 0x3FFFFFFB: "ConnectAck",
}  # fmt: skip
"""Message IDs that the document reserves and no program handles. Sections 4.1 and 11, item 8."""
CONTROLS: Final[Mapping[str, Mapping[int, str]]] = {
    **dict.fromkeys(DIALECTS, _CONTROLS),
    LEGACY: {0: PING_REQUEST, 1: PING_REPLY, 2: FLOW_CONTROL, 3: PACKET_ACK, **_ENDS},
    UNDECIDED: _ENDS,
    SPECIFICATION: {**_CONTROLS, **HANDSHAKE},
}
"""Dialect -> message ID -> name of the control message. Section 4.1. The undecided one has only
those that mean the same in both.
"""

_URHO3D: Final = {
    5: "MSG_IDENTITY", 6: "MSG_CONTROLS", 7: "MSG_SCENELOADED", 8: "MSG_REQUESTPACKAGE",
    9: "MSG_PACKAGEDATA", 10: "MSG_LOADSCENE", 11: "MSG_SCENECHECKSUMERROR", 12: "MSG_CREATENODE",
    13: "MSG_NODEDELTAUPDATE", 14: "MSG_NODELATESTDATA", 15: "MSG_REMOVENODE",
    16: "MSG_CREATECOMPONENT", 17: "MSG_COMPONENTDELTAUPDATE", 18: "MSG_COMPONENTLATESTDATA",
    19: "MSG_REMOVECOMPONENT", 20: "MSG_REMOTEEVENT", 21: "MSG_REMOTENODEEVENT",
    22: "MSG_PACKAGEINFO",
}  # fmt: skip
_TUNDRA: Final = {
    100: "Login", 101: "LoginReply", 102: "ClientJoined", 103: "ClientLeft",
    105: "ObserverPosition", 109: "EditEntityProperties", 110: "CreateEntity",
    111: "CreateComponents", 112: "CreateAttributes", 113: "EditAttributes",
    114: "RemoveAttributes", 115: "RemoveComponents", 116: "RemoveEntity",
    117: "CreateEntityReply", 118: "CreateComponentsReply", 119: "RigidBodyUpdate",
    120: "EntityAction", 121: "AssetDiscovery", 122: "AssetDeleted", 123: "RegisterComponentType",
    124: "SetEntityParent",
}  # fmt: skip
APPLICATIONS: Final[Mapping[str, Mapping[int, str]]] = {
    **{dialect: {} for dialect in DIALECTS}, "knet-urho3d": _URHO3D, "knet-tundra": _TUNDRA,
}  # fmt: skip
"""Dialect -> message ID -> name that the application gives the message. Section 10."""

PORTS: Final = (2345,)
"""Port of Tundra and of the Urho3D samples. Section 2."""
PING_MS: Final = 3500.0
"""Interval of a side's pings, and of its check for silence, milliseconds. Sections 5.5 and 6.7."""
NULL_CONNECT: Final = bytes(8)
"""Connect datagram of a client whose application provides no data. Section 5.1."""
FIRST_IDS: Final[Mapping[str, int]] = {
    dialect: int(dialect not in (LEGACY, SPECIFICATION))
    for dialect in DIALECTS
    if dialect != UNDECIDED
}
"""Dialect -> first PacketID of a sender. Section 6.1; the document says 0."""
PACKET_ID_BITS: Final = 22
PACKET_SPAN: Final = 1 << PACKET_ID_BITS
"""Modulus of PacketIDs."""
ACK_BITS: Final = 32
"""PacketIDs after its base that a PacketAck can acknowledge."""
CONTROL_SIZES: Final = {
    PING_REQUEST: 1, PING_REPLY: 1, FLOW_CONTROL: 2, PACKET_ACK: 7, DISCONNECT: 0,
    DISCONNECT_ACK: 0,
}  # fmt: skip
"""Control message -> size without its message ID, bytes."""
MIN_FRAGMENTS: Final = 2
"""Smallest number of fragments of a transfer."""
EMPTY_DATAGRAM: Final = ("knet-empty-datagram", "no bytes")
"""(code, sentence) for an empty datagram."""
LARGEST_SENT: Final = 1400
"""Size that the datagrams of a sender stay below, bytes. Section 2."""
SERVER_LIMIT: Final = 1536
"""Size of the largest datagram that a server accepts, bytes. Section 2."""
TCP_LIMIT: Final = 10 * 1024 * 1024
"""Size of the largest TCP message, bytes: message ID and payload. Section 8."""

HEADER_OCTETS: Final = 3
"""Size of a datagram's header without the reliable base, bytes."""
RELIABLE_BASE: Final = 0x40
"""Flag in the first byte of a datagram: its header has a reliable base."""
_LONG_BASE: Final = 0x80
_MASK: Final = PACKET_SPAN - 1
_FIRST_HEX_ID: Final = 0x10000
"""First message ID that is written in hexadecimal."""


def size_fault(size: int) -> tuple[str, str] | None:
    """Return (code, sentence) for a size that no datagram has, None for a legal one."""
    if not size:
        return EMPTY_DATAGRAM
    if size <= LARGEST_SENT:
        return None
    text = f"{size} bytes; kNet sends less than {LARGEST_SENT}, a server takes {SERVER_LIMIT}"
    return "knet-oversize", text


def header_fault(size: int, *, document: bool = False) -> tuple[str, str]:
    """Return (code, sentence) for a datagram that ends inside its header.

    What a receiver does depends on where it ends.

    Args:
        size: size of the datagram, bytes.
        document: the datagram has the layout of the published document.

    """
    if size < HEADER_OCTETS:
        return "knet-header", f"header needs {HEADER_OCTETS} bytes"
    if document:
        return "knet-header", "the lists of the header are cut short"
    return "knet-no-base", "reliable base missing"


def header_octets(payload: bytes) -> int:
    """Return the size of the header of a datagram by its first bytes; more than these if they end
    inside it.
    """
    if not payload[:1] or not payload[0] & RELIABLE_BASE:
        return HEADER_OCTETS
    # The reliable base has two bytes, or four with the top bit of the second one set.
    short = HEADER_OCTETS + 2
    return short if len(payload) < short or payload[short - 1] < _LONG_BASE else short + 2


def message_type(message_id: int, dialect: str) -> str:
    """Return the type of a message ID: `PacketAck`, `msg_20`, `msg_0x100000`."""
    name = CONTROLS[dialect].get(message_id)
    if name is not None:
        return name
    return f"msg_{message_id}" if message_id < _FIRST_HEX_ID else f"msg_{message_id:#x}"


def acknowledged(base: int, bits: int) -> list[int]:
    """Return the PacketIDs that a PacketAck acknowledges.

    A base with bit 22 or 23 set matches no datagram; the PacketIDs of the bits are reduced to 22
    bits. Source: section 4.1; section 11, item 7.
    """
    found = [base] if base <= _MASK else []
    index = 0
    while bits:
        if bits & 1:
            found.append((base + 1 + index) & _MASK)
        bits >>= 1
        index += 1
    return found
