"""Teeworlds packets whose compressed part is not what their flag says."""

from __future__ import annotations

from netdissect.fuzz.chance import Chance
from netdissect.fuzz.drivers.teeworlds_form import FORMS
from netdissect.wire import huffman

__all__ = ["bad_code"]


def bad_code(data: bytes, chance: Chance) -> tuple[bytes, str] | None:
    """Return a packet that says that it is compressed, and holds something else."""
    form = FORMS["teeworlds-0.7" if len(data) > 7 and not data[0] & 0xC0 else "teeworlds-0.6"]  # noqa: PLR2004
    if len(data) <= form.head or data[0] & (form.connless | form.control):
        return None
    head = bytes([data[0] | form.compressed]) + data[1 : form.head]
    plain = data[form.head :]
    if data[0] & form.compressed:
        try:
            plain = huffman.decompress(plain, 1400)
        except huffman.HuffmanError as fault:
            plain = bytes(fault.args[1]) if len(fault.args) > 1 else b""
    code = huffman.compress(plain)
    # Octet 0 takes one bit: the code with the highest ratio.
    made = {
        "not compressed": plain,
        "no end": code[: max(1, len(code) // 2)],
        "too much": huffman.compress(
            bytes(chance.choice((1391, 1392, 1395, 1400, 2048, 8000, 10000)))
        ),
        "endless": bytes([0xFF]) * chance.choice((16, 175, 1300)),
        "octets behind the end": code + chance.octets(chance.between(1, 8)),
        "noise": chance.octets(chance.between(1, 64)),
        "empty": b"",
    }
    note = chance.choice(list(made))
    return head + made[note][:1400], note
