"""netdissect: decode and track the reliability layers of game networks.

`open_capture` reads a capture, `analyze` tracks its connections; the Scapy layers live in
`netdissect.layers`. Importing this package imports neither scapy, rich nor click.
"""

from netdissect._version import __version__

TYPE_CHECKING = False
"""As in `typing`, which is not imported here: `__main__` says why."""
if TYPE_CHECKING:
    from typing import Any

    from netdissect.capture import open_capture
    from netdissect.lookup import decode_payload
    from netdissect.pipeline import analyze
    from netdissect.pipeline.iterate import iter_records

__all__ = [
    "__version__",
    "analyze",
    "decode_payload",
    "iter_records",
    "open_capture",
    "scapy_ext",
]

_LAZY = {
    "analyze": "netdissect.pipeline",
    "decode_payload": "netdissect.lookup",
    "iter_records": "netdissect.pipeline.iterate",
    "open_capture": "netdissect.capture",
}


def __getattr__(name: str) -> "Any":
    """Import an entry point of the library on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - start-up stays free of heavy imports

    return getattr(import_module(_LAZY[name]), name)


def scapy_ext(extension: "Any") -> None:
    """Register the layers with a Scapy shell: `conf.exts.load("netdissect")`.

    Source: scapy `scapy.config.ExtsManager.load`, which calls this function with itself.
    """
    from netdissect.layers.extension import register  # noqa: PLC0415
    from netdissect.lookup import layer_files  # noqa: PLC0415

    register(extension, layer_files())
