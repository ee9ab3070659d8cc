"""Traffic of no known protocol, much of it shaped like one: what recognition has to leave alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from struct import pack

__all__ = ["STREAMS", "UDP", "datagrams", "lines"]

SECOND = 1_000_000_000

Row = tuple[int, int, bytes]
"""(side, time in ns, bytes)."""


def little_counters(rng: random.Random) -> Iterator[bytes]:
    """A counter of one to four bytes and a few small ones behind it."""
    width, size = rng.choice((1, 2, 3, 4)), rng.randrange(1, 12)
    first, top = rng.randrange(4), rng.choice((2, 4, 8, 16, 32))
    for number in range(first, first + 80):
        tail = bytes(rng.randrange(top) for _ in range(size))
        yield number.to_bytes(width, "little") + tail


def one_small_message(rng: random.Random) -> Iterator[bytes]:
    """A counter, a flag, a length that fits and a small body: the shape of many home-made games."""
    order = rng.choice(("little", "big"))
    for number in range(rng.randrange(3), 80):
        body = bytes(rng.randrange(6) for _ in range(rng.randrange(1, 9)))
        yield number.to_bytes(2, order) + bytes([rng.randrange(3), len(body)]) + body


def game_counters(rng: random.Random) -> Iterator[bytes]:
    """Type, sequence, acknowledgement, bit field, position: what games tend to send."""
    seq, ack = rng.randrange(65536), rng.randrange(65536)
    for _ in range(80):
        seq, ack = (seq + 1) & 0xFFFF, (ack + rng.randrange(3)) & 0xFFFF
        head = pack("<BHHI", rng.randrange(8), seq, ack, 0xFFFFFFFF)
        yield head + pack("<fff", rng.random() * 90, rng.random() * 9, rng.random() * 90)


def acknowledged_counters(rng: random.Random) -> Iterator[bytes]:
    """Three bytes of type and number that the other side repeats."""
    kind = rng.randrange(16)
    for number in range(40):
        yield bytes([kind]) + number.to_bytes(2, "little") + bytes(rng.randrange(5))
        yield bytes([kind ^ 1]) + number.to_bytes(2, "little")


def numbers_of_both(rng: random.Random) -> Iterator[bytes]:
    """A type, the sender's number and the other one's, and a few small bytes."""
    kind = rng.randrange(1, 12)
    own = [0, 0]
    for place in range(80):
        own[place % 2] += rng.randrange(3) > 0
        numbers = pack("<HH", own[place % 2], own[1 - place % 2])
        yield bytes([kind]) + numbers + bytes(rng.randrange(4) for _ in range(rng.randrange(6)))


def copied_counters(rng: random.Random) -> Iterator[bytes]:
    """A type, a number and a few bytes; the network copies some and changes the order of others."""
    kind = rng.randrange(12)
    made = [bytes([kind]) + pack("<H", number) + rng.randbytes(rng.randrange(2, 9)) for number in range(60)]
    for place in range(0, 60, 6):
        late = rng.randrange(4)
        made.insert(place + late, made[place] if rng.random() < 0.5 else made.pop(place))
    yield from made


def rtp(rng: random.Random) -> Iterator[bytes]:
    seq, stamp, source = rng.randrange(65536), rng.randrange(1 << 31), rng.randrange(1 << 32)
    for _ in range(80):
        seq, stamp = (seq + 1) & 0xFFFF, stamp + 160
        yield pack(">BBHII", 0x80, 0, seq, stamp, source) + rng.randbytes(160)


def quic(rng: random.Random) -> Iterator[bytes]:
    name = rng.randbytes(8)
    yield b"\xc3\x00\x00\x00\x01\x08" + name + b"\x00\x00\x44\x9e" + rng.randbytes(1180)
    for _ in range(79):
        yield bytes([0x40 | rng.randrange(64)]) + name + rng.randbytes(rng.randrange(20, 1200))


def dns(rng: random.Random) -> Iterator[bytes]:
    for _ in range(40):
        number = rng.randrange(65536)
        name = bytes([6]) + rng.randbytes(6).hex()[:6].encode() + b"\x03com\x00\x00\x01\x00\x01"
        yield pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + name
        answer = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x01\x2c\x00\x04" + rng.randbytes(4)
        yield pack(">HHHHHH", number, 0x8180, 1, 1, 0, 0) + name + answer


def ascii_lines(rng: random.Random) -> Iterator[bytes]:
    words = ("PING", "PONG", "status", "ok", "move 3 4", "MSG hello there", "rcon say hi")
    for number in range(80):
        yield f"{rng.choice(words)} {number}\n".encode()


def zeros(rng: random.Random) -> Iterator[bytes]:
    size = rng.randrange(1, 30)
    for _ in range(80):
        yield bytes(size)


def small_octets(rng: random.Random) -> Iterator[bytes]:
    for _ in range(80):
        yield bytes(rng.randrange(8) for _ in range(rng.randrange(1, 24)))


def random_octets(rng: random.Random) -> Iterator[bytes]:
    for _ in range(80):
        yield rng.randbytes(rng.choice((1, 2, 4, 5, 7, 12, rng.randrange(1, 200))))


def enet(rng: random.Random) -> Iterator[bytes]:
    """Peer, sent time, then commands with a channel and numbers that count up, and their answers."""
    peer, sent = rng.randrange(32), rng.randrange(65536)
    for number in range(1, 40):
        sent = (sent + rng.randrange(50)) & 0xFFFF
        body = rng.randbytes(rng.randrange(1, 60))
        command = pack(">BBHH", 0x86, rng.randrange(3), number, len(body)) + body
        yield pack(">HH", 0x8000 | peer, sent) + command
        yield pack(">HHBBHHH", 0x8000 | peer, sent, 0x01, 0xFF, number, number, sent)


def stun_checks(rng: random.Random) -> Iterator[bytes]:
    """Connectivity checks: binding requests of both sides, each with its answer."""
    for number in range(40):
        head = pack(">I", 0x2112A442) + rng.randbytes(12)
        user = pack(">HH", 6, 12) + rng.randbytes(12) + pack(">HHI", 0x24, 4, number)
        yield pack(">HH", 1, len(user)) + head + user
        yield pack(">HH", 0x101, 12) + head + pack(">HHBBH", 0x20, 8, 0, 1, 5) + rng.randbytes(4)


UDP: dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    make.__name__: make
    for make in (
        little_counters, one_small_message, game_counters, acknowledged_counters, numbers_of_both,
        copied_counters, rtp, quic, dns, enet, stun_checks, ascii_lines, zeros, small_octets,
        random_octets,
    )
}  # fmt: skip
"""Name -> what makes the payloads of one flow."""


def datagrams(name: str, seed: int) -> list[Row]:
    """Return one flow of a kind; a third of them are heard from one side alone."""
    rng = random.Random(f"{name} {seed}")
    sides = rng.choice(((0, 1), (0, 1), (0, 0)))
    gap = rng.choice((1, 20, 50, 1000)) * 1_000_000
    return [
        (sides[number % 2], number * gap + rng.randrange(gap), payload)
        for number, payload in enumerate(UDP[name](rng))
    ]


def json_scalars(rng: random.Random) -> Iterator[bytes]:
    """One JSON value a line, scalars and names among them."""
    values = ("true", "false", "null", "1", "0", "12.5", '"ok"', "[]", "{}")
    for _ in range(60):
        yield rng.choice(values).encode() + b"\n"


def words_and_scalars(rng: random.Random) -> Iterator[bytes]:
    """A name on one line and a number on the next, as many metrics and command protocols do."""
    names = ("get", "load", "temperature", "x", "count", "OK", "status", "next", "queue")
    for number in range(30):
        yield rng.choice(names).encode() + b"\n"
        yield rng.choice((str(number), "0", "1.5", "true", "null", '"up"')).encode() + b"\n"


def json_objects(rng: random.Random) -> Iterator[bytes]:
    for number in range(40):
        yield json.dumps({"id": number, "method": rng.choice(("add", "get"))}).encode() + b"\n"


def chat(rng: random.Random) -> Iterator[bytes]:
    words = ("HELLO", "250 ok", "hello", "bye", "yes", "no", "QUIT", "1", "42")
    for _ in range(60):
        yield rng.choice(words).encode() + b"\n"


def short_lengths(rng: random.Random) -> Iterator[bytes]:
    """Frames with a length of two bytes before them, of another protocol."""
    for _ in range(40):
        body = rng.randbytes(rng.randrange(1, 30))
        yield pack(">H", len(body)) + body


def counted_answers(rng: random.Random) -> Iterator[bytes]:
    """A length of one byte, a kind and a counter, and the same counter in the answer."""
    first = rng.randrange(3, 200)
    for number in range(first, first + 40):
        yield bytes([2, 1, number])
        yield bytes([2, 2, number])


def noise(rng: random.Random) -> Iterator[bytes]:
    for _ in range(40):
        yield rng.randbytes(rng.randrange(1, 200))


def wide_text(rng: random.Random) -> Iterator[bytes]:
    """Binary heads, each with a list of names in two bytes a character, as file servers send it."""
    for _ in range(12):
        names = "".join(f"{rng.randrange(1000):>14}.dat  " for _ in range(rng.randrange(2, 30)))
        yield b"\xfeSMB@\0" + rng.randbytes(40) + names.encode("utf-16-be") + b"\xff" * 64


def sized_from_the_third(rng: random.Random) -> Iterator[bytes]:
    """Two zeros, a length of four bytes, little endian, and what it says: fieldbuses, chats."""
    for _ in range(40):
        size = rng.randrange(24, 60)
        yield b"\0\0" + pack("<I", size) + rng.randbytes(size)


def small_dns(rng: random.Random) -> Iterator[bytes]:
    """DNS over TCP whose identifiers are 0 throughout: questions and answers in turn."""
    for number in range(40):
        name = b"".join(
            bytes([len(part)]) + part for part in (b"game%d" % number, b"example", b"org")
        )
        answer = number % 2
        head = pack(">HHHHHH", 0, 0x8180 if answer else 0x0100, 1, 0, 0, 0)
        octets = head + name + b"\0\0\1\0\1" + bytes(rng.randrange(4) * answer)
        yield pack(">H", len(octets)) + octets


def stun(rng: random.Random) -> Iterator[bytes]:
    """STUN behind a length of two bytes, as media sessions send it over TCP (RFC 4571)."""
    name = rng.randbytes(12)
    for number in range(40):
        user = rng.randbytes(rng.randrange(8, 20) & ~3)
        body = pack(">HH", 6, len(user)) + user + pack(">HH", 0x8028, 4) + rng.randbytes(4)
        head = pack(">HHI", number % 2 << 8 | 1, len(body), 0x2112A442) + name
        yield pack(">H", len(head) + len(body)) + head + body


def polled_registers(rng: random.Random) -> Iterator[bytes]:
    """Modbus: a number that passes 0x0201, two zeros, a length, and the same in the answer."""
    unit = rng.randrange(1, 12)
    for number in range(0x1FE, 0x226):
        octets = pack(">HHHBBHH", number, 0, 6, unit, 6, rng.randrange(4), rng.randrange(4096))
        yield octets
        yield octets


def the_same_again(rng: random.Random) -> Iterator[bytes]:
    """TPKT: 03 00 and a length, the same request and empty confirmation again and again."""
    size = rng.choice((103, 57, 46, 38))
    request = pack(">HH", 0x300, size) + b"\x02\xf0\x80" + rng.randbytes(size - 7)
    for _ in range(40):
        yield request
        yield pack(">HH", 0x300, 7) + b"\x02\xf0\0"


def prefixed_counters(rng: random.Random) -> Iterator[bytes]:
    """A little-endian length, a type, a counter and a body: the shape of many home-made streams."""
    width, kind, first = rng.choice((2, 4)), rng.randrange(256), rng.randrange(65536)
    size = rng.randrange(8, 600)
    for number in range(first, first + 40):
        body = bytes([kind]) + pack("<H", number & 0xFFFF) + rng.randbytes(rng.randrange(4, size))
        yield len(body).to_bytes(width, "little") + body


STREAMS: dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    make.__name__: make
    for make in (
        json_scalars, words_and_scalars, json_objects, chat, short_lengths, counted_answers, noise,
        wide_text, sized_from_the_third, small_dns, stun, polled_registers, the_same_again,
        prefixed_counters,
    )
}  # fmt: skip
"""Name -> what makes the pieces of one stream."""


def lines(name: str, seed: int) -> list[Row]:
    """Return the pieces of a TCP connection of a kind, sent by both sides in turn or by one."""
    rng = random.Random(f"{name} {seed}")
    other = rng.randrange(2)
    return [
        (number % 2 * other, number * SECOND // 50, octets)
        for number, octets in enumerate(STREAMS[name](rng))
    ]
