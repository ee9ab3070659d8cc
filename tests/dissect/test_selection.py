"""Which layer reads what, found out by asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from netdissect.dissect.selection import NoTableError, samples, selection_table


def table(choose: Callable[[bytes], str], *more: bytes) -> dict[Any, Any]:
    return selection_table([choose], [*samples([]), *more], str)


def test_one_byte_and_the_size_choose_a_layer() -> None:
    assert table(lambda octets: "Long" if octets[1:2] == b"\7" and len(octets) > 3 else "Short") == {
        7: [[1, "Short"], [4, "Long"]], "at": 1, "other": [[1, "Short"]],
    }  # fmt: skip
    assert table(lambda _: "Alone") == {"at": 0, "other": [[1, "Alone"]]}


def test_what_hangs_on_more_has_no_table() -> None:
    with pytest.raises(NoTableError, match="more than one byte"):
        table(lambda octets: "Long" if octets[:2] == b"\1\1" else "Short")
    with pytest.raises(NoTableError, match="more than one byte"):
        table(lambda octets: "Long" if octets[:2] == b"\7\6" else "Short", b"\7\6and more")
    with pytest.raises(NoTableError, match="what came before"):
        table(lambda _: {}["kind"])


def test_layers_are_asked_about_as_they_are_built() -> None:
    class Needy:
        def __init__(self, value: int) -> None:
            raise AssertionError(value)

    assert samples([lambda: b"built", Needy])[4:] == [b"built"]
