"""Control and connectionless packets of Teeworlds as events."""

from __future__ import annotations

from typing import Final

from netdissect.dissect.readers import teeworlds as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.teeworlds.state import DecoderState, Phase, state_of
from netdissect.wire import teeworlds_forms as tw
from netdissect.wire.huffman import HuffmanError, decompress
from netdissect.wire.teeworlds import connless_row

_TIMEOUT_REASON: Final = "Timeout"
"""Reason of the close that a vanilla peer sends when its own peer has been silent for too long."""
_MAX_REASON: Final = 200
"""Characters of a close reason that are kept. Receivers cut it at 127."""
_BEFORE_ACCEPTED: Final = (Phase.UNKNOWN, Phase.REQUESTED)


def connless_events(payload: bytes, dialect: str) -> list[Event]:
    """Return the events of a connectionless packet, or of one too short for any header."""
    family = tw.form_of(dialect).family
    if not payload or not payload[0] & tw.CONNLESS_FLAG or len(payload) < tw.CONNLESS_HEAD[family]:
        return [(Ev.NOTE, "truncated", "shorter than a header")]
    if dialect == tw.D07 and payload[0] & 3 != tw.CONNLESS_VERSION:
        odd: list[Event] = []
        read.odd_Tw07Connless((payload[0] & 3,), None, odd)
        return odd
    row = connless_row(payload, family)
    # The state machine must know: a token may have been requested for this packet alone.
    return [] if row is None else [(Ev.STATE, "connless", None), (Ev.MESSAGE, row.type)]


def control_events(
    payload: bytes, direction: int, hints: Hints, *, compressed: bool
) -> list[Event]:
    """Return the events of a packet with the control flag."""
    form = tw.form_of(hints.dialects[direction])
    start = form.head + (tw.TOKEN_OCTETS if payload[0] & form.token_flag else 0)
    token = payload[tw.HEADER : start] or None
    body = payload[start:]
    if len(payload) < start:
        return [(Ev.NOTE, "truncated", "shorter than a header")]
    if compressed:
        try:
            body = decompress(body, form.limit)
        except HuffmanError as fault:
            return [(Ev.NOTE, "teeworlds-huffman", str(fault))]
    odd: list[Event] = []
    if not body:
        read.odd_TwControlEmpty((), None, odd)
        return odd
    name = tw.CONTROL_NAMES[form.family].get(body[0])
    if name is None:
        read.odd_TwControlUnknown((body[0],), None, odd)
        return [(Ev.MESSAGE, "control.unknown"), *odd]
    packet = _Packet(direction, hints, form.dialect, token, body)
    events = packet.events
    handler = _HANDLERS.get((name, direction))
    if handler is not None:
        handler(packet)
    events.append((Ev.MESSAGE, f"control.{name}"))
    # Connect and token carry no ack, and a peer no longer applies that of a close.
    if name == "keepalive":
        ack = (payload[0] & 3) << 8 | payload[1]
        expected = packet.expected_token
        # Receivers drop a packet with another token, and its acknowledgement with it.
        if expected is None or _carried_token(packet) in (expected, None):
            events.append((Ev.ACK, "vital", ack, 0))
        else:
            events.append((Ev.NOTE, "teeworlds-wrong-token", ""))
    return events


def declined(offered: str | None) -> list[Event]:
    """Return the facts about a connection whose server ignores the token that the client offers."""
    return [
        (Ev.IDENTITY, "offered_dialect", offered),
        (Ev.IDENTITY, "token_unsupported_by_server", True),
    ]


class _Packet:
    """A control packet, and the events collected for it so far."""

    __slots__ = ("body", "dialect", "direction", "events", "hints", "state", "token")

    def __init__(
        self, direction: int, hints: Hints, dialect: str, token: bytes | None, body: bytes
    ) -> None:
        self.events: list[Event] = []
        self.direction = direction
        self.hints = hints
        self.dialect = dialect
        self.token = token
        """Token in the header."""
        self.body = body
        """Control id and what follows it."""
        self.state = state_of(hints)

    @property
    def expected_token(self) -> bytes | None:
        """Return the token that packets of this direction must carry."""
        return self.state.tokens[self.direction]

    def update(self, state: DecoderState, dialect: str | None = None) -> None:
        """Replace the decoder state and, where one is given, the dialect of both directions."""
        self.state = state
        dialects = (dialect, dialect) if dialect else self.hints.dialects
        self.hints = Hints(dialects, state)
        self.events.append((Ev.HINTS, self.hints))

    def signal(self, name: str, detail: str | None = None) -> None:
        """Add an input of the state machine."""
        self.events.append((Ev.STATE, name, detail))

    def identity(self, key: str, value: object) -> None:
        """Add a fact about the connection."""
        self.events.append((Ev.IDENTITY, key, value))

    def restart(self, scope: str) -> None:
        """Put a RESTART first: this packet begins ("*"), or may begin ("?"), a new connection."""
        self.events.insert(0, (Ev.RESTART, scope))


def _carried_token(packet: _Packet) -> bytes | None:
    """Return the token that a packet carries, wherever its dialect puts it."""
    if packet.token is not None:
        return packet.token
    body = packet.body
    if packet.dialect == tw.DDNET:
        return _close_parts(body)[1] if body[0] == tw.CLOSE else body[1:5] or None
    return None


# -- client ----------------------------------------------------------------------------------------


def _request(packet: _Packet) -> None:
    """Handle a 0.7 token request: it names the client's token, which identifies this attempt."""
    token = packet.body[1:5]
    state = packet.state
    if state.phase == Phase.CLOSED or _is_other_attempt(token, state):
        packet.restart("*")
        state = DecoderState()
    if state.phase == Phase.UNKNOWN:
        packet.update(DecoderState(Phase.REQUESTED, (None, token), client_token=token))
    packet.signal("request")
    packet.identity("client_token", token.hex())


def _is_other_attempt(token: bytes, state: DecoderState) -> bool:
    """Return whether a 0.7 client's token belongs to another attempt than this connection."""
    if state.client_token is None:
        return state.phase in (Phase.ONLINE, Phase.CLOSED)
    return token != state.client_token


def _connect(packet: _Packet) -> None:
    """Handle a connect. On a live connection it is that of a new client, or a late copy."""
    if packet.dialect == tw.D07:
        _connect_07(packet)
        return
    state, body = packet.state, packet.body
    token = body[5:9] if packet.dialect == tw.D065 and len(body) > 9 else None  # noqa: PLR2004 - id, room for the server's token, the client's
    other = token is not None and state.client_token is not None and token != state.client_token
    if state.phase == Phase.CLOSED or other:
        packet.restart("*")
        state = DecoderState()
    elif state.phase == Phase.ONLINE or state.client_sent_data:
        packet.restart("?")
        packet.update(state._replace(reconnecting=True))
        packet.signal("connect")
        return
    if state.phase == Phase.UNKNOWN:
        current = packet.hints.dialects[0]
        if body[1:5] == tw.TOKEN_MAGIC:
            offered = tw.DDNET
        elif len(body) == 1 + tw.PADDED_OCTETS or tw.padded(body[9:]):
            offered = tw.D065
            token = body[5:9]
        else:
            offered = tw.D06
        state = DecoderState(Phase.REQUESTED, client_token=token, offered=offered)
        packet.update(state, offered if offered != current else None)
        if token is not None:
            packet.identity("client_token", token.hex())
    packet.signal("connect")


def _connect_07(packet: _Packet) -> None:
    """Handle a 0.7 connect with the server's token; the capture may lack the token request."""
    state, token = packet.state, packet.body[1:5]
    if state.phase not in _BEFORE_ACCEPTED and _is_other_attempt(token, state):
        if state.phase != Phase.CLOSED:
            # DDNet 20 repeats its connect with another token, which servers ignore.
            packet.restart("?")
            packet.update(state._replace(reconnecting=True))
            packet.signal("connect")
            return
        packet.restart("*")
        state = DecoderState()
    is_new = packet.token not in (None, tw.NO_TOKEN, state.tokens[0])
    if is_new and state.phase in _BEFORE_ACCEPTED:
        packet.update(
            state._replace(
                phase=Phase.REQUESTED, tokens=(packet.token, token), client_token=token
            )
        )
        packet.identity("client_token", token.hex())
        packet.identity("server_token", (packet.token or b"").hex())
    packet.signal("connect")


def _confirm(packet: _Packet) -> None:
    packet.signal("confirm")


# -- server ----------------------------------------------------------------------------------------


def _token(packet: _Packet) -> None:
    """Handle a 0.7 token answer: it names the token that packets to the server must carry."""
    token, state = packet.body[1:5], packet.state
    if state.phase in _BEFORE_ACCEPTED:
        client = packet.token if packet.token != tw.NO_TOKEN else None
        packet.update(
            state._replace(
                phase=Phase.REQUESTED,
                tokens=(token, client),
                client_token=state.client_token or client,
            )
        )
        packet.identity("server_token", token.hex())
    packet.signal("token")


def _accept_07(packet: _Packet) -> None:
    state, token = packet.state, packet.token
    if state.reconnecting and token != packet.expected_token:
        packet.restart("*")
        return
    if state.phase in _BEFORE_ACCEPTED:
        # The server answers with the token of the connect, which may not be that of the request.
        client = state.tokens[1] if token in (None, tw.NO_TOKEN) else token
        packet.update(
            state._replace(
                phase=Phase.ACCEPTED, tokens=(state.tokens[0], client), client_token=client
            )
        )
    packet.signal("accept")


def _connect_accept(packet: _Packet) -> None:
    """Handle a connect_accept of the 0.6 family, which takes up the offered token or not."""
    state = packet.state
    if state.reconnecting:
        packet.restart("*")
        return
    if state.phase in _BEFORE_ACCEPTED:
        dialect, token = _settled(packet)
        if state.offered not in (None, dialect):
            packet.events += declined(state.offered)
        if token is not None:
            packet.identity("server_token", token.hex())
        changed = dialect if dialect != packet.hints.dialects[1] else None
        packet.update(state._replace(phase=Phase.ACCEPTED, tokens=(token, token)), changed)
    packet.signal("accept")


def _settled(packet: _Packet) -> tuple[str, bytes | None]:
    """Return the dialect that a connect_accept settles, and the server's token."""
    body = packet.body
    if body[1:5] == tw.TOKEN_MAGIC and len(body) >= 9:  # noqa: PLR2004 - id, magic and token
        return tw.DDNET, body[5:9]
    if packet.token is not None and len(body) >= 5:  # noqa: PLR2004 - id and token
        return tw.D065, body[1:5]
    return tw.D06, None


# -- both ------------------------------------------------------------------------------------------


def _close_parts(body: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the reason of a close and its DDNet token."""
    rest = body[1:]
    if not rest:
        return None, None
    if tw.is_bare_token(rest):
        return None, rest
    stop = rest.find(b"\0")
    if stop < 0:
        return rest, None
    token = rest[stop + 1 : stop + 5]
    return rest[:stop], token if len(token) == tw.TOKEN_OCTETS else None


def _close(packet: _Packet) -> None:
    """Handle a close; one that carries the token of another connection ends nothing."""
    if packet.dialect == tw.DDNET:
        reason, token = _close_parts(packet.body)
    else:
        stop = packet.body.find(b"\0", 1)
        reason = packet.body[1:stop] if stop > 0 else packet.body[1:] or None
        token = packet.token
    expected = packet.expected_token
    if expected is not None and token not in (None, expected):
        packet.events.append((Ev.NOTE, "teeworlds-wrong-token", "a close with another token"))
        return
    text = None
    if reason:
        text = reason.decode("utf-8", "surrogateescape")[:_MAX_REASON]
    packet.signal("give_up" if text == _TIMEOUT_REASON else "close", text)
    packet.update(packet.state._replace(phase=Phase.CLOSED))


_HANDLERS: Final = {
    ("token", 0): _request,
    ("connect", 0): _connect,
    ("accept", 0): _confirm,
    ("token", 1): _token,
    ("accept", 1): _accept_07,
    ("connect_accept", 1): _connect_accept,
    ("close", 0): _close,
    ("close", 1): _close,
}
"""(control message, direction) -> handler."""
