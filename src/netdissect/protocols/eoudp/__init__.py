"""EOUDP (Exodia On UDP), in the dialects of the Exodia engine and of the published documents."""

from __future__ import annotations

from types import MappingProxyType

from netdissect.model.annotations import code_rows
from netdissect.model.claims import Claim, Hints
from netdissect.protocols.base import DialectRow, Protocol, Reading
from netdissect.protocols.eoudp.dialects import DIALECT_TITLES, REAL_COMMANDS, row_of
from netdissect.protocols.eoudp.recognition import decided, recognise
from netdissect.protocols.eoudp.rules import POLICIES
from netdissect.protocols.eoudp.scan import scan
from netdissect.protocols.eoudp.scanner import EoudpScanner
from netdissect.protocols.eoudp.state import DecoderState
from netdissect.wire.eoudp_names import COMMANDS, DOCUMENTS, PORTS


def _types(dialect: str) -> tuple[str, ...]:
    known = COMMANDS if dialect in DOCUMENTS else REAL_COMMANDS
    return tuple(COMMANDS[command] for command in sorted(known))


class Eoudp(Protocol):
    """EOUDP. Source: docs/protocols/eoudp.md."""

    name = "eoudp"
    title = "EOUDP (Exodia On UDP)"
    dialects = tuple(
        DialectRow(name, title, _types(name)) for name, title in DIALECT_TITLES.items()
    )
    transports = ("udp",)
    default_ports = PORTS
    codes = code_rows("eoudp")
    policies = POLICIES
    drivers = MappingProxyType({"udp": "netdissect.fuzz.drivers.eoudp:EoudpDriver"})
    servers = MappingProxyType({"udp": "netdissect.fuzz.servers.eoudp:EoudpServer"})

    recognise = staticmethod(recognise)

    def may_stand_alone(self, payload: bytes) -> bool:
        """Return whether the datagram fits any dialect."""
        return decided(payload)[0] is not None

    # Not wrapped in a method, which would take a tenth of its time.
    scan = staticmethod(scan)
    scanner = staticmethod(EoudpScanner)

    def initial_hints(self, claim: Claim) -> Hints:
        """Return the hints of a new connection.

        A side that has not spoken yet is taken to use the dialect of the other side.
        """
        default = self.dialects[0].name
        first, second = claim.dialects
        pair = (first or second or default, second or first or default)
        undecided = claim.doubtful
        if claim.client == 1:
            pair, undecided = pair[::-1], undecided[::-1]
        state = DecoderState(undecided=undecided)
        return Hints((row_of(pair[0]).name, row_of(pair[1]).name), state)

    def next_hints(self, hints: Hints) -> Hints:
        """Return hints that know of no earlier datagram."""
        return Hints(hints.dialects, DecoderState())

    def informed(self, hints: Hints, reading: Reading) -> Hints:
        """Return the hints with the byte order of contents that the user states."""
        state = hints.extra or DecoderState()
        return Hints(hints.dialects, state.replace(order=reading.byte_order))

    def dialect_row(self, name: str) -> DialectRow | None:
        """Return the row of a dialect by its name, with or without the prefix `eoudp-`."""
        return super().dialect_row(name.removeprefix("eoudp-"))


PROTOCOL = Eoudp()
