"""Which application speaks: Urho3D and Tundra by their message IDs. Source: section 10."""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from netdissect.model.claims import Hints
from netdissect.protocols.knet.state import DecoderState, Phase

__all__ = ["DATAGRAMS_LOOKED_AT", "STRANGERS", "Heard", "learn"]

DATAGRAMS_LOOKED_AT: Final = 24
"""Datagrams with application messages after which nothing more is looked for."""
STRANGERS: Final = 3
"""Messages of neither engine that end the search while nothing speaks for one."""
_CONTROLS, _SCENE, _LOADED, _UPDATES, _LOGIN, _LOGIN_REPLY = (1 << bit for bit in range(6))
_URHO3D: Final = (
    _CONTROLS | _UPDATES, _CONTROLS | _SCENE, _LOADED | _SCENE, _LOADED | _UPDATES,
)  # fmt: skip
"""Sets of evidence of which each is enough for Urho3D: something of each direction."""
_TUNDRA: Final = _LOGIN | _LOGIN_REPLY
_ANGLES: Final = Struct("<Iff").unpack_from
_MIN_CONTROLS: Final = 13  # buttons, yaw, pitch and the first byte of what is extra
_MAX_ANGLE: Final = 1e6  # other bytes make a float of any size
_UNDECIDED: Final = ("knet-2.x",)
_ENGINES_END: Final = 23
_TUNDRA_FIRST: Final = 100
_TUNDRA_LAST: Final = 124
"""Urho3D uses IDs below the first, Tundra those from the second to the third. Section 10."""


Heard: TypeAlias = tuple[int, bool, bytes]
"""A message that is no later fragment: its ID, whether it is reliable, what follows the ID."""


def learn(messages: list[Heard], direction: int, hints: Hints) -> Hints:
    """Return the hints after one more datagram; the same object where nothing was learnt."""
    state: DecoderState = hints.extra
    if hints.dialects[0] not in _UNDECIDED or hints.dialects[1] not in _UNDECIDED:
        return Hints(hints.dialects, state.replace(Phase.OPEN))
    evidence, others, strangers = state.evidence, 0, state.foreign
    for number, is_reliable, content in messages:
        if number > 4 and number < 0x3FFFFFFB:  # noqa: PLR2004 - an application's own
            others += 1
            if _foreign(number, direction):
                return Hints(hints.dialects, state.replace(Phase.OPEN))
            strangers += not (number < _ENGINES_END or _TUNDRA_FIRST <= number <= _TUNDRA_LAST)
            evidence |= _hint(number, content, direction, is_reliable=is_reliable)
    if not others:
        return hints
    if any(evidence & wanted == wanted for wanted in _URHO3D):
        return Hints(("knet-urho3d", "knet-urho3d"), state.replace(Phase.OPEN))
    if evidence & _TUNDRA == _TUNDRA:
        return Hints(("knet-tundra", "knet-tundra"), state.replace(Phase.OPEN))
    looked = state.examined + 1
    enough = looked >= DATAGRAMS_LOOKED_AT or (strangers >= STRANGERS and not evidence)
    phase = Phase.OPEN if enough else state.phase
    learnt = DecoderState(
        phase, state.disconnect, evidence, looked, strangers, state.first_checksum,
        state.contradictions,
    )
    return Hints(hints.dialects, learnt)


def _foreign(number: int, direction: int) -> bool:
    """Return whether neither engine sends this ID in this direction."""
    if direction:
        return number < 9  # noqa: PLR2004 - MSG_PACKAGEDATA is the first of a server
    return 8 < number < 20  # noqa: PLR2004 - 9 to 19 are the server's


def _hint(  # noqa: PLR0911 - one way out per message
    number: int, payload: bytes, direction: int, *, is_reliable: bool
) -> int:
    """Return the evidence of one message."""
    if direction:
        if number == 10:  # noqa: PLR2004 - MSG_LOADSCENE
            return _SCENE if is_reliable and payload else 0
        if 12 <= number <= 18:  # noqa: PLR2004 - nodes and components
            return _UPDATES
        return _LOGIN_REPLY if number == 101 else 0  # noqa: PLR2004 - LoginReply
    if number == 6 and not is_reliable and len(payload) >= _MIN_CONTROLS:  # noqa: PLR2004 - MSG_CONTROLS
        _, yaw, pitch = _ANGLES(payload)
        return _CONTROLS if abs(yaw) < _MAX_ANGLE and abs(pitch) < _MAX_ANGLE else 0
    if number == 7 and is_reliable and len(payload) == 4:  # noqa: PLR2004 - a checksum
        return _LOADED
    if number == 100 and len(payload) >= 2:  # noqa: PLR2004 - Login
        return _LOGIN if int.from_bytes(payload[:2], "little") == len(payload) - 2 else 0
    return 0
