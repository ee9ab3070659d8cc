"""Teeworlds packets whose compressed part is not what their flag says."""

from __future__ import annotations

from netdissect.fuzz.chance import Chance
from netdissect.wire import huffman
from netdissect.wire.teeworlds_forms import CONNLESS_FLAG, D06, D07, FORMS, MAX_PACKET

_TOO_MUCH = (
    FORMS[D07].limit, FORMS[D07].limit + 1, FORMS[D06].limit + 1, MAX_PACKET, 2048, 8000, 10000,
)  # fmt: skip


def bad_code(data: bytes, chance: Chance) -> tuple[bytes, str] | None:
    """Return a packet that says that it is compressed, and holds something else."""
    form = FORMS[D07]
    if len(data) <= form.head or data[0] & form.reserved:
        form = FORMS[D06]
    if len(data) <= form.head or data[0] & (CONNLESS_FLAG | form.control):
        return None
    head = bytes([data[0] | form.compressed]) + data[1 : form.head]
    plain = data[form.head :]
    if data[0] & form.compressed:
        try:
            plain = huffman.decompress(plain, MAX_PACKET)
        except huffman.HuffmanError as fault:
            # What was decompressed before the fault.
            plain = bytes(fault.args[1]) if len(fault.args) > 1 else b""
    code = huffman.compress(plain)
    # Byte 0 takes one bit: the code with the highest ratio.
    made = {
        "not compressed": plain,
        "no end": code[: max(1, len(code) // 2)],
        "too much": huffman.compress(bytes(chance.choice(_TOO_MUCH))),
        "endless": bytes([0xFF]) * chance.choice((16, 175, 1300)),
        "bytes behind the end": code + chance.octets(chance.between(1, 8)),
        "noise": chance.octets(chance.between(1, 64)),
        "empty": b"",
    }
    note = chance.choice(list(made))
    return head + made[note][:MAX_PACKET], note
