"""Where the capture was taken, inferred from how quickly each side answers.

Next to a side its answers follow at once; the other side's answers take a network round trip.
"""

from __future__ import annotations

__all__ = ["Vantage"]

NEAR_NS = 5_000_000
"""A side that has answered within this time may be next to the capture."""
RATIO = 3
"""The far side's quickest answer takes at least so many times as long as the near side's."""


class Vantage:
    """Quickest answers of both sides and what follows from them."""

    __slots__ = ("client_ns", "near", "server_ns")

    def __init__(self) -> None:
        self.client_ns: int | None = None
        """Quickest answer of the client, ns; None without any."""
        self.server_ns: int | None = None
        self.near: tuple[bool | None, bool | None] = (None, None)
        """(client next to the capture, server next to the capture); None = not known."""

    def update(self, client_ns: int | None, server_ns: int | None) -> bool:
        """Take the quickest answers; return True where the conclusion has changed."""
        self.client_ns, self.server_ns = client_ns, server_ns
        near = self._conclude()
        changed = near != self.near
        self.near = near
        return changed

    def _conclude(self) -> tuple[bool | None, bool | None]:
        client, server = self.client_ns, self.server_ns
        if client is None or server is None:
            return (None, None)
        if client < NEAR_NS and server < NEAR_NS:
            return (True, True)
        if server > RATIO * client:
            return (True, False)
        if client > RATIO * server:
            return (False, True)
        if client >= NEAR_NS and server >= NEAR_NS:
            return (False, False)
        return (None, None)

    @property
    def word(self) -> str:
        """Return the contract's word: `client`, `server`, `middle` or `unknown`."""
        words = {(True, False): "client", (False, True): "server", (False, False): "middle"}
        return words.get((bool(self.near[0]), bool(self.near[1])), "unknown") if None not in self.near else "unknown"

    @property
    def basis(self) -> str:
        """Return one sentence: what the vantage rests on."""
        client, server = self.client_ns, self.server_ns
        if client is None and server is None:
            return "no answer of either side is in the capture"
        if client is None or server is None:
            side = "client" if client is not None else "server"
            return f"only answers of the {side} are in the capture"
        times = f"quickest answers: client {client / 1e6:.1f} ms, server {server / 1e6:.1f} ms"
        if self.near == (True, True):
            return f"{times}: no network between the two is visible"
        return times
