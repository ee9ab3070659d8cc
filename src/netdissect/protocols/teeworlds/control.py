"""Control and connectionless packets of Teeworlds: handshakes, tokens, closes, server info."""

from __future__ import annotations

from typing import Final

from netdissect.dissect.readers import teeworlds as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.teeworlds.learnt import (
    ACCEPTED,
    ASKED,
    CLOSED,
    ONLINE,
    UNKNOWN,
    Learnt,
    learnt_of,
)
from netdissect.wire import teeworlds_forms as tw
from netdissect.wire.huffman import HuffmanError, decompress
from netdissect.wire.teeworlds import connless_row

__all__ = ["TIMEOUT_REASON", "control", "outside"]

TIMEOUT_REASON: Final = "Timeout"
"""Reason of the close that a vanilla peer sends when it gives its silent peer up."""
_REASON_LIMIT = 200
"""Characters of a close reason that are kept. Receivers cut it at 127."""


def outside(payload: bytes, dialect: str) -> list[Event]:
    """Return the events of a connectionless packet, or of what is too short to be any."""
    family = tw.form_of(dialect).family
    if not payload or not payload[0] & tw.CONNLESS_FLAG or len(payload) < tw.CONNLESS_HEAD[family]:
        return [(Ev.NOTE, "truncated", "shorter than a header")]
    if dialect == tw.D07 and payload[0] & 3 != tw.CONNLESS_VERSION:
        odd: list[Event] = []
        read.odd_Tw07Connless((payload[0] & 3,), None, odd)
        return odd
    row = connless_row(payload, family)
    # Not of a connection: what a token was asked for may have been this alone.
    return [] if row is None else [(Ev.STATE, "connless", None), (Ev.MESSAGE, row.type)]


def control(payload: bytes, direction: int, hints: Hints, *, compressed: bool) -> list[Event]:
    """Return the events of a packet with the control flag."""
    form = tw.form_of(hints.dialects[direction])
    start = form.head + (tw.TOKEN_OCTETS if payload[0] & form.token_flag else 0)
    header = payload[tw.HEADER : start] or None
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
    step = _Step(direction, hints, (form.dialect, header, body))
    events = step.events
    handler = _HANDLERS.get((name, direction))
    if handler is not None:
        handler(step)
    events.append((Ev.MESSAGE, f"control.{name}"))
    # A peer that gets a close applies its ack no more; connect and token carry none.
    if name == "keepalive":
        ack = (payload[0] & 3) << 8 | payload[1]
        token = step.known
        if token is None or _carried(step) in (token, None):
            events.append((Ev.ACK, "vital", ack, 0))
        else:
            events.append((Ev.NOTE, "teeworlds-wrong-token", ""))
    return events


def declined(offered: str | None) -> list[Event]:
    """Return what is told of a client whose dialect the server does not take up."""
    return [
        (Ev.IDENTITY, "offered_dialect", offered),
        (Ev.IDENTITY, "token_unsupported_by_server", True),
    ]


class _Step:
    """One control packet on its way to events."""

    __slots__ = ("body", "dialect", "direction", "events", "header", "hints", "learnt")

    def __init__(
        self, direction: int, hints: Hints, packet: tuple[str, bytes | None, bytes]
    ) -> None:
        """Take (dialect, token in the header if any, control id and what follows)."""
        self.events: list[Event] = []
        self.direction = direction
        self.hints = hints
        self.dialect, self.header, self.body = packet
        self.learnt = learnt_of(hints)

    @property
    def known(self) -> bytes | None:
        """Return the token that packets of this direction must carry."""
        return self.learnt.tokens[self.direction]

    def learn(self, learnt: Learnt, dialect: str | None = None) -> None:
        """Replace the hints."""
        self.learnt = learnt
        dialects = (dialect, dialect) if dialect else self.hints.dialects
        self.hints = Hints(dialects, learnt)
        self.events.append((Ev.HINTS, self.hints))

    def state(self, name: str, detail: str | None = None) -> None:
        """Add an input of the state machine."""
        self.events.append((Ev.STATE, name, detail))

    def identity(self, key: str, value: object) -> None:
        """Add a fact about the connection."""
        self.events.append((Ev.IDENTITY, key, value))

    def restart(self, scope: str) -> None:
        """Begin a new connection, or hold the packet that may."""
        self.events.insert(0, (Ev.RESTART, scope))


def _carried(step: _Step) -> bytes | None:
    """Return the token that a packet carries in its own dialect's place."""
    if step.header is not None:
        return step.header
    if step.dialect == tw.DDNET:
        return _close_parts(step.body)[1] if step.body[0] == tw.CLOSE else step.body[1:5] or None
    return None


# -- client ---------------------------------------------------------------------------------------


def _request(step: _Step) -> None:
    """0.7: the client asks for a token and tells its own, which names this attempt."""
    token = step.body[1:5]
    learnt = step.learnt
    if learnt.phase == CLOSED or _is_another(token, learnt):
        step.restart("*")
        learnt = Learnt()
    if learnt.phase == UNKNOWN:
        step.learn(Learnt(ASKED, (None, token), client_token=token))
    step.state("request")
    step.identity("client_token", token.hex())


def _is_another(token: bytes, learnt: Learnt) -> bool:
    """Return whether a 0.7 client's token names another attempt than the connection at hand."""
    if learnt.client_token is None:
        return learnt.phase in (ONLINE, CLOSED)
    return token != learnt.client_token


def _connect(step: _Step) -> None:
    """Ask for a connection; on a live one it may come from a new program, or be a late copy."""
    learnt = step.learnt
    if step.dialect == tw.D07:
        _connect_07(step)
        return
    token = step.body[5:9] if step.dialect == tw.D065 and len(step.body) > 9 else None  # noqa: PLR2004 - type, place of the server's token, token
    other = token is not None and learnt.client_token is not None and token != learnt.client_token
    if learnt.phase == CLOSED or other:
        step.restart("*")
        learnt = Learnt()
    elif learnt.phase == ONLINE:
        step.restart("?")
        step.learn(learnt._replace(knocking=True))
        step.state("connect")
        return
    if learnt.phase == UNKNOWN:
        offered = step.hints.dialects[0]
        if step.body[1:5] == tw.TOKEN_MAGIC:
            offered = tw.DDNET
        elif len(step.body) == 1 + tw.PADDED_OCTETS or tw.padded(step.body[9:]):
            offered = tw.D065
            token = step.body[5:9]
        else:
            offered = tw.D06
        dialect = offered if offered != step.hints.dialects[0] else None
        step.learn(Learnt(ASKED, client_token=token, offered=offered), dialect)
        if token is not None:
            step.identity("client_token", token.hex())
    step.state("connect")


def _connect_07(step: _Step) -> None:
    """Ask with the server's token; the capture may not have the request for it."""
    learnt = step.learnt
    if learnt.phase not in (UNKNOWN, ASKED) and _is_another(step.body[1:5], learnt):
        step.restart("*")
        learnt = Learnt()
    if step.header not in (None, tw.NO_TOKEN, learnt.tokens[0]) and learnt.phase in (
        UNKNOWN,
        ASKED,
    ):
        token = step.body[1:5]
        step.learn(learnt._replace(phase=ASKED, tokens=(step.header, token), client_token=token))
        step.identity("client_token", token.hex())
        step.identity("server_token", (step.header or b"").hex())
    step.state("connect")


def _confirm(step: _Step) -> None:
    step.state("confirm")


# -- server ---------------------------------------------------------------------------------------


def _token(step: _Step) -> None:
    """0.7: the server answers with the token that packets to it must carry."""
    token, learnt = step.body[1:5], step.learnt
    if learnt.phase in (UNKNOWN, ASKED):
        client = step.header if step.header != tw.NO_TOKEN else None
        step.learn(
            learnt._replace(
                phase=ASKED, tokens=(token, client), client_token=learnt.client_token or client
            )
        )
        step.identity("server_token", token.hex())
    step.state("token")


def _accept_07(step: _Step) -> None:
    learnt = step.learnt
    if learnt.phase in (UNKNOWN, ASKED):
        step.learn(learnt._replace(phase=ACCEPTED))
    step.state("accept")


def _connect_accept(step: _Step) -> None:
    """0.6 family: the server accepts, and takes up the offered tokens or not."""
    learnt = step.learnt
    if learnt.knocking:
        step.restart("*")
        return
    if learnt.phase in (UNKNOWN, ASKED):
        dialect, token = _answered(step)
        offered = learnt.offered
        if offered not in (None, dialect):
            step.events += declined(offered)
        if token is not None:
            step.identity("server_token", token.hex())
        tokens = (token, token)
        changed = dialect if dialect != step.hints.dialects[1] else None
        step.learn(learnt._replace(phase=ACCEPTED, tokens=tokens), changed)
    step.state("accept")


def _answered(step: _Step) -> tuple[str, bytes | None]:
    """Return the dialect that a connect_accept settles, and the server's token."""
    body = step.body
    if body[1:5] == tw.TOKEN_MAGIC and len(body) >= 9:  # noqa: PLR2004 - magic and token
        return tw.DDNET, body[5:9]
    if step.header is not None and len(body) >= 5:  # noqa: PLR2004 - token
        return tw.D065, body[1:5]
    return tw.D06, None


# -- both -----------------------------------------------------------------------------------------


def _close_parts(body: bytes) -> tuple[bytes | None, bytes | None]:
    """Return (reason, DDNet token) of a close."""
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


def _close(step: _Step) -> None:
    """End the connection, unless the packet carries another connection's token."""
    if step.dialect == tw.DDNET:
        reason, token = _close_parts(step.body)
    else:
        stop = step.body.find(b"\0", 1)
        reason = step.body[1:stop] if stop > 0 else step.body[1:] or None
        token = step.header
    known = step.known
    if known is not None and token not in (None, known):
        step.events.append((Ev.NOTE, "teeworlds-wrong-token", "a close with another token"))
        return
    text = None
    if reason:
        text = reason.decode("utf-8", "surrogateescape")[:_REASON_LIMIT]
    step.state("give_up" if text == TIMEOUT_REASON else "close", text)
    step.learn(step.learnt._replace(phase=CLOSED))


_HANDLERS = {
    ("token", 0): _request,
    ("connect", 0): _connect,
    ("accept", 0): _confirm,
    ("token", 1): _token,
    ("accept", 1): _accept_07,
    ("connect_accept", 1): _connect_accept,
    ("close", 0): _close,
    ("close", 1): _close,
}
"""(control message, direction) -> what it means."""
