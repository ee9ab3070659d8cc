"""What coverage-guided fuzzing calls: bytes in, plain values out, and nothing raised but what is meant.

`python tests/support/guided.py TARGET [libFuzzer's options and folders]` fuzzes one (needs atheris);
`python tests/support/guided.py --digest FOLDER` prints a digest of what each kept input gives.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1] / "fuzz"
CORPUS = HERE / "corpus"
"""Target -> inputs that reach much; `found` in it has what once failed."""
CAPTURES = HERE.parents[1] / "captures"
MAX_OCTETS = 4096
_PROTOCOLS = ("riptide", "teeworlds", "knet", "eoudp", "netplay")


def readers(octets: bytes) -> Any:
    """A capture file, whatever its format and compression."""
    from netdissect.capture import CaptureError, open_capture

    try:
        with open_capture(io.BytesIO(octets)) as reader:
            frames = [(*frame[:3], bytes(frame[3]), frame[4]) for frame in reader]
            return [frames, reader.info.truncated_at, reader.info.damage]
    except CaptureError as error:
        return str(error)


def decode(octets: bytes) -> Any:
    """One payload of a protocol; the first byte chooses that, the way and the transport."""
    from netdissect.export.json import decoded, dump
    from netdissect.lookup import decode_payload, transports

    choice, payload = (octets or b"\0")[0], octets[1:]
    protocol = _PROTOCOLS[choice % 5]
    ways = transports(protocol)
    tree = decode_payload(
        protocol, payload, direction=choice // 5 % 2, transport=ways[choice // 10 % len(ways)]
    )
    assert "dissector-bug" not in {note.code for note in tree.annotations}, tree.annotations
    return dump(decoded(tree))


def _capture(octets: bytes, *, tcp: bool) -> io.BytesIO:
    """Payloads of one conversation: for each a length, of which the top bit is the way."""
    out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 228)  # raw IPv4
    at, time_ms, sent = 0, 0, [1, 1]
    while at < len(octets):
        head, at = octets[at], at + 1
        payload, at = octets[at : at + (head & 0x7F)], at + (head & 0x7F)
        ends = ((1, 4000), (2, 7777)) if head < 0x80 else ((2, 7777), (1, 4000))
        ports, way = struct.pack(">HH", ends[0][1], ends[1][1]), head >> 7
        if tcp:
            rest = struct.pack(">IIHHHH", sent[way], sent[1 - way], 0x5018, 500, 0, 0)
            sent[way] += len(payload)
        else:
            rest = struct.pack(">HH", 8 + len(payload), 0)
        body = ports + rest + payload
        packet = struct.pack(
            ">BBHHHBBHII", 0x45, 0, 20 + len(body), 1, 0, 64, 6 if tcp else 17, 0,
            0x0A000000 + ends[0][0], 0x0A000000 + ends[1][0],
        ) + body  # fmt: skip
        time_ms += 7
        seconds, milliseconds = divmod(time_ms, 1000)
        out += struct.pack("<IIII", seconds, milliseconds * 1000, len(packet), len(packet)) + packet
    return io.BytesIO(out)


def scan(octets: bytes) -> Any:
    """A conversation of a protocol that the first byte names: recognised, tracked, told."""
    from netdissect.export.json import anomaly, connection, dump
    from netdissect.lookup import transports
    from netdissect.pipeline import analyze
    from netdissect.pipeline.options import Options, decode_as

    choice, rest = (octets or b"\0")[0], octets[1:]
    protocol, tcp = _PROTOCOLS[choice % 5], bool(choice & 0x40)
    carrier = "tcp" if tcp else "udp"
    named = choice & 0x80 and carrier in transports(protocol)
    rules = (decode_as(f"{carrier}.port==7777,{protocol}"),) if named else ()
    told = analyze(_capture(rest, tcp=tcp), options=Options(decode_as=rules, strict=True))
    return [
        *(dump(connection(report)) for report in told.connections),
        *(dump(anomaly(item)) for item in told.anomalies),
    ]


@cache
def _records() -> list[Any]:
    from netdissect.pipeline.iterate import iter_records

    found = []
    for name in ("riptide/udp_2.2.1_clean.pcap", "teeworlds/tw07_banned.pcap"):
        found += list(iter_records(str(CAPTURES / name)))[:12]
    return found


def filters(octets: bytes) -> Any:
    """The text of a display filter, asked about some datagrams."""
    from netdissect.cli.request import Match, filter_names
    from netdissect.filters import compile_filter
    from netdissect.model.errors import FilterError

    try:
        match = Match(compile_filter(octets.decode("utf-8", "surrogateescape"), filter_names()))
    except FilterError as error:
        assert 0 <= error.start <= error.end
        return [str(error), error.start, error.end]
    return [bool(match.datagram(record, 0)) for record in _records()]


def schemas(octets: bytes) -> Any:
    """A schema, in JSON or TOML by its first byte, and a payload that it is applied to."""
    from netdissect.dissect.schema import SchemaError
    from netdissect.export.json import decoded, dump
    from netdissect.lookup import decode_payload, load_schemas
    from netdissect.model.errors import UsageError

    text, _, payload = octets[1:].partition(b"\0")
    with tempfile.NamedTemporaryFile(suffix=".toml" if octets[:1] == b"t" else ".json") as file:
        file.write(text)
        file.flush()
        try:
            loaded = load_schemas([file.name])
        except (UsageError, SchemaError) as error:
            return str(error).replace(file.name, "")
    return [
        dump(decoded(decode_payload(name, payload, schema=schema)))
        for name, schema in loaded.items()
    ]


def configuration(octets: bytes) -> Any:
    """A file of settings."""
    from netdissect.cli.settings import _read
    from netdissect.model.errors import UsageError

    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(octets)
        file.flush()
        try:
            return sorted((name, str(value)) for name, value in _read(Path(file.name)).items())
        except UsageError as error:
            return str(error).replace(file.name, "")


def encode(octets: bytes) -> Any:
    """A line as `decode --json` prints it, or FIELD=VALUE words; what can be built is decoded."""
    from click.testing import CliRunner

    from netdissect.cli import cli

    protocol, rest = _PROTOCOLS[(octets or b"\0")[0] % 5], octets[1:]
    text = rest.decode("utf-8", "surrogateescape")
    words, given = (["-"], text) if text.startswith("{") else (text.split("\n"), None)
    if any(word.startswith("-") and word != "-" for word in words):
        return None
    result = CliRunner().invoke(
        cli, ["encode", protocol, *words], input=given and given.encode("utf-8", "surrogateescape")
    )
    assert result.exit_code in {0, 2}, result.output
    assert "unexpected" not in result.stderr
    if result.exit_code == 0:
        for line in result.stdout.split():
            decode(bytes([_PROTOCOLS.index(protocol)]) + bytes.fromhex(line))
    return [result.exit_code, result.stdout]


TARGETS: dict[str, Callable[[bytes], Any]] = {
    each.__name__: each for each in (readers, decode, scan, filters, schemas, configuration, encode)
}


def kept(folder: Path = CORPUS) -> Iterable[tuple[str, Path]]:
    """Every input in the folders of the targets, with its target."""
    for name in TARGETS:
        for file in sorted((folder / name).rglob("*")):
            if file.is_file():
                yield name, file


def digest(folder: Path) -> dict[str, str]:
    """A digest of what each input of a folder gives."""
    return {
        str(file.relative_to(folder)): sha256(repr(TARGETS[name](file.read_bytes())).encode(
            "utf-8", "backslashreplace")).hexdigest()
        for name, file in kept(folder)
    }  # fmt: skip


def main(words: list[str]) -> None:
    if words[0] == "--digest":
        import netdissect.flow.decapsulate as hot

        sys.stdout.write(json.dumps([hot.__file__, digest(Path(words[1]))]))
        return
    import atheris

    target = TARGETS[words[0]]
    with atheris.instrument_imports(include=["netdissect"]):
        for name, file in kept():
            if name == words[0]:
                target(file.read_bytes())  # imports what it needs

    def one(octets: bytes) -> None:
        target(octets)

    atheris.Setup([sys.argv[0], f"-max_len={MAX_OCTETS}", *words[1:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
