"""Joins more than two captures: each with the first of the earlier ones that it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netdissect.join.joined import Joined, join
from netdissect.join.pairing import NotJoinedError
from netdissect.pipeline import Options


@dataclass(frozen=True, slots=True)
class Link:
    """Two of several captures, joined."""

    first: int
    """Index of the earlier capture."""
    second: int
    """Index of the later capture."""
    joined: Joined


_Span = tuple[int | None, int | None]


def join_all(
    paths: Sequence[str], *, options: Options | None = None, span: _Span = (None, None)
) -> list[Link]:
    """Join each capture with the first of the earlier ones that it fits.

    Args:
        paths: two captures or more.
        options: decode-as rules and the like.
        span: (from, to) as for `join`, relative to the earlier capture of each two.

    Raises:
        CaptureError: a file is missing, unreadable or no capture.
        NotJoinedError: a capture fits none of the earlier ones.

    """
    links: list[Link] = []
    try:
        for second in range(1, len(paths)):
            links += [_link(paths, second, options, span)]  # kept if a later one fails
    except BaseException:
        close_all(links)
        raise
    return links


def _link(paths: Sequence[str], second: int, options: Options | None, span: _Span) -> Link:
    for first in range(second):
        try:
            joined = join(paths[first], paths[second], options=options, span=span)
            return Link(first, second, joined)
        except NotJoinedError:
            # The reason of the last try is shown: it is the capture before this one on the command
            # line.
            if first == second - 1:
                raise
    raise NotJoinedError(f"{paths[second]} has no other capture to be joined with")


def close_all(links: Sequence[Link]) -> None:
    """Close all joined captures."""
    for link in links:
        link.joined.close()
