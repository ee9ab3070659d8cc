"""Numbers and names of EOUDP: commands, dialects, keys, size limits.

Source: docs/protocols/eoudp.md; RFC_01, RFC_02 and RFC_03; the Exodia engine's
`Network/Header` and `Network/Network`.
"""

from __future__ import annotations

from typing import Final

DOCUMENTS: Final = ("rfc01", "rfc02", "rfc03")
"""Dialects of the three documents; the others are those of programs."""
DIALECTS: Final = (
    *DOCUMENTS,
    "exodia-early", "exodia-30", "exodia-mid", "exodia-late",
    "exodia-early-long32", "exodia-mid-long32", "exodia-late-long32",
)  # fmt: skip
"""All dialects, by their names in the reference."""

PORTS: Final = (8082, 8083)
"""The server's default port, and the client's. Source: engine `Network/Network`."""

PACKET_INFO: Final = 0x00
ACK: Final = 0x01
CONNECT_ACCEPT: Final = 0x02
CONNECT_REJECT: Final = 0x03
SYSTEM_LOAD: Final = 0x0B
COMPONENT_OF: Final = 0x0C
GAME_EVENT: Final = 0x0D
DELETE_ENTITY: Final = 0x0E
DELETE_COMPONENT: Final = 0x0F
IMPORTANT_EVENT: Final = 0x10
EVENT_11: Final = 0x11
CONNECT: Final = 0x81
DISCONNECT: Final = 0x82
EVENT_8A: Final = 0x8A
EVENT: Final = 0x8B
IMPORTANT_EVENT_8C: Final = 0x8C
"""Commands. Three changed their meaning; see `command_name`."""
EARLY_EVENT: Final = DISCONNECT
RFC01_DELETE_COMPONENT: Final = IMPORTANT_EVENT
"""Two of them in v1.0 and in RFC_01, by what they mean there."""
COMMANDS: Final = {
    PACKET_INFO: "PACKET_INFO", ACK: "ACK", CONNECT_ACCEPT: "CONNECT_ACCEPT",
    CONNECT_REJECT: "CONNECT_REJECT", SYSTEM_LOAD: "SYSTEM_LOAD", COMPONENT_OF: "COMPONENT_OF",
    GAME_EVENT: "GAME_EVENT", DELETE_ENTITY: "DELETE_ENTITY",
    DELETE_COMPONENT: "DELETE_COMPONENT", IMPORTANT_EVENT: "IMPORTANT_EVENT",
    EVENT_11: "EVENT_0x11", CONNECT: "CONNECT", DISCONNECT: "DISCONNECT", EVENT_8A: "EVENT_0x8a",
    EVENT: "EVENT", IMPORTANT_EVENT_8C: "IMPORTANT_EVENT_0x8c",
}  # fmt: skip
"""Command -> name."""
ID_OCTETS: Final = 8
"""Size of a message id and of an entity id, bytes."""
PAIR_OCTETS: Final = 8
"""Size of the two counters in a PACKET_INFO, received and sent, bytes."""

RFC01_ONLY: Final = frozenset({EVENT_11, EVENT_8A, IMPORTANT_EVENT_8C})
FOREIGN: Final = {
    "rfc01": frozenset({DELETE_COMPONENT}), "rfc02": RFC01_ONLY, "rfc03": RFC01_ONLY,
}  # fmt: skip
"""Document -> commands that only another one defines."""
NEVER_HANDLED: Final = RFC01_ONLY | {IMPORTANT_EVENT}
"""Commands of the documents that no release of the engine handles: they end the receiving process.
"""
_EVENT_SIZE: Final = 5
"""Size of the content of an event, bytes: key code, and whether it is pressed."""
_MIN_DELETE: Final = 12
"""Size of the shortest content of DELETE_COMPONENT, bytes: entity id, length of an empty name."""

SIZES: Final[dict[str, frozenset[int]]] = {
    "ACK": frozenset({8}), "CONNECT_ACCEPT": frozenset({8}), "CONNECT_REJECT": frozenset({0}),
    "CONNECT": frozenset({0}), "DISCONNECT": frozenset({0}), "EVENT": frozenset({5}),
    "IMPORTANT_EVENT": frozenset({5}), "IMPORTANT_EVENT_0x8c": frozenset({5}),
    "DELETE_ENTITY": frozenset({8}),
}  # fmt: skip
"""Bytes of the programs' contents that have a fixed size; an entity of long32 has 4."""
DOCUMENT_SIZES: Final[dict[str, frozenset[int]]] = {
    **{name: sizes for name, sizes in SIZES.items() if name != "DELETE_ENTITY"},
    "CONNECT_ACCEPT": frozenset({0, 8}), "CONNECT_REJECT": frozenset({0, 8}),
    "CONNECT": frozenset({0, 12}), "DISCONNECT": frozenset({0, 8}), "EVENT_0x8a": frozenset({4}),
    "EVENT_0x11": frozenset({0, 4, 8}),
}  # fmt: skip
"""The same of the documents, whose `Usage` gives the second sizes."""

RECEIVE_LIMIT: Final = 1468
"""Bytes that a receiver reads of one datagram. Source: engine `UDPSocket`, buffer size."""

FAR_ID: Final = 1 << 31
"""The programs count in a signed 32-bit number from 0 on: an id from here on is odd."""

KEYS: Final = {
    32: "SPACE", 39: "'", 44: ",", 45: "-", 46: ".", 47: "/", 59: ";", 61: "=", 91: "[", 92: "\\",
    93: "]", 96: "`", 256: "ESCAPE", 257: "ENTER", 258: "TAB", 259: "BACKSPACE", 260: "INSERT",
    261: "DELETE", 262: "RIGHT", 263: "LEFT", 264: "DOWN", 265: "UP", 266: "PAGE_UP",
    267: "PAGE_DOWN", 268: "HOME", 269: "END", 280: "CAPS_LOCK", 281: "SCROLL_LOCK",
    282: "NUM_LOCK", 283: "PRINT_SCREEN", 284: "PAUSE", 330: "KP_DECIMAL", 331: "KP_DIVIDE",
    332: "KP_MULTIPLY", 333: "KP_SUBTRACT", 334: "KP_ADD", 335: "KP_ENTER", 336: "KP_EQUAL",
    340: "LEFT_SHIFT", 341: "LEFT_CONTROL", 342: "LEFT_ALT", 343: "LEFT_SUPER",
    344: "RIGHT_SHIFT", 345: "RIGHT_CONTROL", 346: "RIGHT_ALT", 347: "RIGHT_SUPER", 348: "MENU",
    **{code: chr(code) for code in (*range(48, 58), *range(65, 91))},
    **{289 + number: f"F{number}" for number in range(1, 26)},
    **{320 + number: f"KP_{number}" for number in range(10)},
}  # fmt: skip
"""GLFW key codes. Source: GLFW `glfw3.h`."""

FIRST_CLOCK_MS: Final = 1.0e12
END_CLOCK_MS: Final = 2.2e12
"""Limits of a plausible time stamp of programs, Unix milliseconds: 2001 to 2039.
Source: docs/protocols/eoudp.md, recognition.
"""
_FIRST_SECOND: Final = 1e-6
_END_SECOND: Final = 1e11
"""Limits of a plausible time stamp of documents other than 0, seconds."""


def canonical(dialect: str) -> str:
    """Return a dialect's name without the optional prefix `eoudp-`."""
    return dialect.removeprefix("eoudp-")


def command_name(dialect: str, command: int, size: int) -> str:
    """Return the name of a command; `UNKNOWN_0x42` for one that no revision defines.

    `size` is that of the content, bytes. It tells apart the meanings of two commands: 0x82 is the
    key event of v1.0 and the disconnect of all later releases; 0x10 is an important event in RFC_02
    and deletes a component in RFC_01.
    """
    if command == EARLY_EVENT and size and dialect.startswith("exodia-early"):
        return "EVENT"
    if command == IMPORTANT_EVENT and dialect in DOCUMENTS:
        deletes = size >= _MIN_DELETE or (dialect == "rfc01" and size != _EVENT_SIZE)
        return "DELETE_COMPONENT" if deletes else "IMPORTANT_EVENT"
    if command == EVENT_11 and dialect not in DOCUMENTS:
        return "UNKNOWN_0x11"
    return COMMANDS.get(command) or f"UNKNOWN_0x{command:02x}"


def type_name(dialect: str, command: int, size: int) -> str:
    """Return the type of a message: the name of its command, or its number."""
    return command_name(dialect, command, size).removeprefix("UNKNOWN_")


def key_name(code: int) -> str | None:
    """Return the name of a key code; None for a code that GLFW does not define."""
    return KEYS.get(code)


def plausible_timestamp(dialect: str, value: float) -> bool:
    """Return whether a sender of `dialect` could have written this time stamp.

    Programs write Unix milliseconds. The documents leave the origin open, so any number of seconds
    from 0 up is plausible. NaN, infinities, negative and denormal numbers never are.
    """
    low, high = time_limits(dialect)
    return low <= value < high or (value == 0 and dialect in DOCUMENTS)


def time_limits(dialect: str) -> tuple[float, float]:
    """Return the limits of plausible time stamps, lower included, upper excluded; 0 is separate."""
    if dialect in DOCUMENTS:
        return _FIRST_SECOND, _END_SECOND
    return FIRST_CLOCK_MS, END_CLOCK_MS


def oversize(size: int) -> tuple[str, str]:
    """Return (code, sentence) for a datagram above RECEIVE_LIMIT."""
    return "eoudp-oversize", f"{size} bytes, receivers read {RECEIVE_LIMIT}"


def size_mismatch(stated: int, size: int) -> tuple[str, str]:
    """Return (code, sentence) for a size field that is not the size of the content."""
    return "eoudp-size-mismatch", f"size field {stated}, {size} bytes of content"


def wrong_size(command: str, size: int) -> tuple[str, str]:
    """Return (code, sentence) for a content of a size that its command never has."""
    return "eoudp-content-size", f"{size} bytes are no content of {command}"
