"""Live capture: frames from an interface, through dumpcap, tcpdump, an AF_PACKET socket or tshark.

A source is opened with the rights of the process, which `drop_rights` then gives up. `Pump` reads
the frames and puts them into a file and a queue, so that slow parsing loses no packet of the file.
"""

from __future__ import annotations

from netdissect.capture.live.choice import Verdict, choose
from netdissect.capture.live.interfaces import Interface, find_interface, interfaces
from netdissect.capture.live.source import LiveRequest, LiveSource
from netdissect.model.errors import AccessError, UsageError

__all__ = [
    "Interface", "LiveRequest", "LiveSource", "find_interface", "interfaces", "open_live",
]  # fmt: skip


def open_live(request: LiveRequest) -> LiveSource:
    """Return a source that is capturing.

    If no backend is requested and the system refuses the best one, the next one is tried.

    Raises:
        AccessError: no right to capture, or no such interface.
        FilterError: a bad capture filter.
        CaptureError: the file to replay is missing, unreadable or not a capture.
        UsageError: the requested backend is not installed, or cannot do what is requested.

    """
    if request.interface is None:
        return _replay(request)
    interface = find_interface(request.interface)
    refused: AccessError | None = None
    for backend in choose(request.backend):
        try:
            return _open(backend, interface, request)
        except AccessError as error:
            refused = refused or error
    raise refused or AccessError(f"cannot capture on {interface.name}: no backend is installed")


def _replay(request: LiveRequest) -> LiveSource:
    if request.backend not in {None, "tshark"} or request.capture_filter:
        raise UsageError("-f and --backend are for an interface; a file is read with -Y")
    if request.backend == "tshark":
        from netdissect.capture.live.tsharklines import TsharkSource  # noqa: PLC0415

        if request.file == "-":
            raise UsageError("--backend tshark reads a file or an interface, not standard input")
        return TsharkSource(choose("tshark")[0], None, request)
    from netdissect.capture.live.replay import ReplaySource  # noqa: PLC0415

    return ReplaySource(request)


def _open(backend: Verdict, interface: Interface, request: LiveRequest) -> LiveSource:
    if backend.name == "af_packet":
        from netdissect.capture.live.ring import RingSource  # noqa: PLC0415

        return RingSource(backend, interface, request)
    if backend.name == "tshark":
        from netdissect.capture.live.tsharklines import TsharkSource  # noqa: PLC0415

        return TsharkSource(backend, interface.name, request)
    from netdissect.capture.live.process import ProcessSource  # noqa: PLC0415

    return ProcessSource(backend, interface.name, request)
