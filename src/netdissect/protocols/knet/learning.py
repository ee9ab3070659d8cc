"""Recognises the application by its messages: Urho3D or Tundra. Source: section 10."""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from netdissect.model.claims import Hints
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import CURRENT, UNDECIDED

MAX_EXAMINED: Final = 24
"""Datagrams with application messages that are examined."""
MAX_FOREIGN: Final = 3
"""Messages of neither application after which the search ends if there is no evidence."""
_CONTROLS, _SCENE, _LOADED, _UPDATES, _LOGIN, _LOGIN_REPLY = (1 << bit for bit in range(6))
"""Bits of evidence: the messages of the two applications that have a recognisable form."""
_URHO3D: Final = (
    _CONTROLS | _UPDATES, _CONTROLS | _SCENE, _LOADED | _SCENE, _LOADED | _UPDATES,
)  # fmt: skip
"""Sets of evidence that each prove Urho3D: a message of each direction."""
_TUNDRA: Final = _LOGIN | _LOGIN_REPLY
"""Evidence that proves Tundra."""
_ANGLES: Final = Struct("<Iff").unpack_from
_MIN_CONTROLS: Final = 13
"""Size of buttons, yaw, pitch and the first byte of extra data in MSG_CONTROLS, bytes."""
_MAX_ANGLE: Final = 1e6
"""Largest plausible angle; arbitrary bytes make a float of any magnitude."""
_POSSIBLE: Final = (CURRENT, UNDECIDED)
"""Dialects that may turn out to be those of an application."""
_URHO3D_END: Final = 23
"""Urho3D uses message IDs below this. Source: section 10."""
_TUNDRA_FIRST: Final = 100
_TUNDRA_LAST: Final = 124
"""Tundra uses message IDs from the first to the last. Source: section 10."""

Candidate: TypeAlias = tuple[int, bool, bytes]
"""(message ID, is reliable, payload) of a message or first fragment."""


def learn(messages: list[Candidate], direction: int, hints: Hints) -> Hints:
    """Return the hints after one more datagram; the same object if it teaches nothing."""
    state: DecoderState = hints.extra
    # Another dialect was recognised or asked for; nothing is to be found out.
    if hints.dialects[0] not in _POSSIBLE or hints.dialects[1] not in _POSSIBLE:
        return Hints(hints.dialects, state.replace(Phase.OPEN))
    evidence, application, foreign = state.evidence, 0, state.foreign
    for message_id, is_reliable, payload in messages:
        if message_id > 4 and message_id < 0x3FFFFFFB:  # noqa: PLR2004 - no control message
            application += 1
            if _is_impossible(message_id, direction):
                return Hints(hints.dialects, state.replace(Phase.OPEN))
            foreign += not (
                message_id < _URHO3D_END or _TUNDRA_FIRST <= message_id <= _TUNDRA_LAST
            )
            evidence |= _evidence(message_id, payload, direction, is_reliable=is_reliable)
    if not application:
        return hints
    if any(evidence & proof == proof for proof in _URHO3D):
        return Hints(("knet-urho3d", "knet-urho3d"), state.replace(Phase.OPEN))
    if evidence & _TUNDRA == _TUNDRA:
        return Hints(("knet-tundra", "knet-tundra"), state.replace(Phase.OPEN))
    examined = state.examined + 1
    ends = examined >= MAX_EXAMINED or (foreign >= MAX_FOREIGN and not evidence)
    learned = DecoderState(
        Phase.OPEN if ends else state.phase, state.disconnect, evidence, examined, foreign,
        state.first_checksum, state.contradictions, state.silent, state.connect, state.pings,
    )  # fmt: skip
    return Hints(hints.dialects, learned)


def _is_impossible(message_id: int, direction: int) -> bool:
    """Return whether neither application sends this message ID in this direction."""
    if direction:
        return message_id < 9  # noqa: PLR2004 - a server's first is MSG_PACKAGEDATA
    return 8 < message_id < 20  # noqa: PLR2004 - 9 to 19 are the server's


def _evidence(  # noqa: PLR0911 - one return per message
    message_id: int, payload: bytes, direction: int, *, is_reliable: bool
) -> int:
    """Return the evidence of one message."""
    if direction:
        if message_id == 10:  # noqa: PLR2004 - MSG_LOADSCENE
            return _SCENE if is_reliable and payload else 0
        if 12 <= message_id <= 18:  # noqa: PLR2004 - nodes and components
            return _UPDATES
        return _LOGIN_REPLY if message_id == 101 else 0  # noqa: PLR2004 - LoginReply
    if message_id == 6 and not is_reliable and len(payload) >= _MIN_CONTROLS:  # noqa: PLR2004 - MSG_CONTROLS
        _, yaw, pitch = _ANGLES(payload)
        return _CONTROLS if abs(yaw) < _MAX_ANGLE and abs(pitch) < _MAX_ANGLE else 0
    if message_id == 7 and is_reliable and len(payload) == 4:  # noqa: PLR2004 - MSG_SCENELOADED, a checksum
        return _LOADED
    if message_id == 100 and len(payload) >= 2:  # noqa: PLR2004 - Login
        return _LOGIN if int.from_bytes(payload[:2], "little") == len(payload) - 2 else 0
    return 0
