from __future__ import annotations

import shutil
from struct import pack

import pytest

from netdissect.capture.live import bpf
from netdissect.model.errors import FilterError

needs_both = pytest.mark.skipif(
    shutil.which("tcpdump") is None or bpf._library() is None, reason="takes tcpdump and libpcap"
)


@needs_both
@pytest.mark.parametrize("link", ["EN10MB", "RAW"])
@pytest.mark.parametrize("text", ["udp port 8303", "tcp or ip6", "host 10.0.0.1 and greater 100"])
def test_tcpdump_and_libpcap_make_the_same_program(
    text: str, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_tcpdump = bpf.compile_filter(text, link, 2000)
    monkeypatch.setattr(bpf, "find", lambda _: None)
    assert bpf.compile_filter(text, link, 2000) == by_tcpdump
    assert len(by_tcpdump) % 8 == 0


@needs_both
@pytest.mark.parametrize("missing", [False, True])
def test_a_bad_filter_is_named(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing:
        monkeypatch.setattr(bpf, "find", lambda _: None)
    with pytest.raises(FilterError, match="bad capture filter"):
        bpf.compile_filter("udp prt 5", "EN10MB", 2000)


def test_no_filter_takes_everything() -> None:
    assert bpf.compile_filter("", "EN10MB", 96) == pack("HBBI", 6, 0, 0, 96)


def test_without_a_compiler_the_message_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bpf, "find", lambda _: None)
    monkeypatch.setattr(bpf, "_library", lambda: None)
    with pytest.raises(FilterError, match="tcpdump or libpcap"):
        bpf.compile_filter("udp", "EN10MB", 96)
