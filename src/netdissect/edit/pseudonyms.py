"""Pseudonyms for addresses and texts: under one key, equal input has equal pseudonyms of equal
length.

Addresses keep their prefixes (J. Xu and others, "Prefix-Preserving IP Address Anonymization"): the
pseudonyms of two addresses share as many leading bits as the addresses do. Addresses that identify
nobody (loopback, multicast, broadcast, unspecified) stay. So does the kind of network (private,
link-local): no address changes into or out of one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import ip_network
from struct import iter_unpack

from netdissect.model.errors import UsageError

MAX_KNOWN = 65_536
"""Addresses and texts whose pseudonyms are cached."""
KEY_OCTETS = 32
_FIXED = ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "ff00::/8")
_KINDS = (
    "10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
    "fe80::/64", "fc00::/7", "::ffff:0:0/96", "ff02::1:ff00:0/104",
)  # fmt: skip
_MAPPED = bytes(10) + b"\xff\xff"  # ::ffff:0:0/96, an IPv4 address as one of IPv6
_MULTICAST_V6 = b"\x33\x33"
_SOLICITED = b"\x33\x33\xff"
_GROUP, _LOCAL = 1, 2  # bits of the first byte of a hardware address. Source: IEEE 802
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_SCRIPTS = {2: (0x100, 0x80), 3: (0x4E00, 0x5000), 4: (0x20000, 0xA000)}
"""Bytes of a character in UTF-8 -> the first replacement of that length, and how many there are:
extended Latin and two blocks of Han.
"""
_WORD = re.compile(rb"(?:[0-9A-Za-z]|[\xc2-\xf4][\x80-\xbf]+){3,}")
_SHORT = 16
"""Characters of a text that another might become equal to by chance, at most."""
_SPACE, _DELETE = 0x20, 0x7F
_NO_ADDRESS, _EVERYBODY = bytes(6), b"\xff" * 6


def new_key() -> bytes:
    """Return a random key."""
    import secrets  # noqa: PLC0415 - rarely wanted

    return secrets.token_bytes(KEY_OCTETS)


class Pseudonyms:
    """The pseudonyms under one key."""

    def __init__(self, key: bytes) -> None:
        """Take a key of any length.

        Raises:
            UsageError: the package that encrypts is not installed.

        """
        self._key = hashlib.blake2b(key, person=b"netdissect anon").digest()
        self._encrypt = _aes(self._key[:16])
        self._pad = self._encrypt(self._key[16:32])
        self.address = lru_cache(MAX_KNOWN)(self._address)
        """Return the pseudonym of an address of 4 or 16 bytes."""
        self.mac = lru_cache(MAX_KNOWN)(self._mac)
        """Return the pseudonym of a hardware address of 6 bytes."""
        self._written = lru_cache(MAX_KNOWN)(self._replace)
        self._palette: dict[Sequence[int], dict[int, bytes]] = {}

    # -- addresses ---------------------------------------------------------------------------------

    def _address(self, octets: bytes) -> bytes:
        if octets.startswith(_MAPPED) and len(octets) == len(_MAPPED) + 4:
            return _MAPPED + self.address(octets[len(_MAPPED) :])
        width = 8 * len(octets)
        number = int.from_bytes(octets, "big")
        closed, stays = _tree(width)
        if stays(number):
            return octets
        pad = int.from_bytes(self._pad, "big")
        flips = 0
        for size in range(width):
            prefix = number >> (width - size)
            if (size, prefix) in closed:
                continue
            # One bit from the encryption of the prefix, filled up with the pad.
            seed = prefix << (128 - size) | pad & ((1 << (128 - size)) - 1)
            bit = self._encrypt(seed.to_bytes(16, "big"))[0] >> 7
            flips |= bit << (width - 1 - size)
        return (number ^ flips).to_bytes(len(octets), "big")

    def _mac(self, octets: bytes) -> bytes:
        if octets in (_NO_ADDRESS, _EVERYBODY):
            return octets
        if octets[0] & _GROUP:
            # A solicited-node address ends like the address it asks for: it changes alike.
            if not octets.startswith(_SOLICITED):
                return octets
            group = bytes.fromhex("ff0200000000000000000001ff") + octets[3:]
            return _MULTICAST_V6 + self.address(group)[-4:]
        made = self._stream(b"mac", octets, len(octets))
        # Locally administered and not a group: it does not name a manufacturer.
        return bytes([made[0] & ~_GROUP | _LOCAL]) + made[1:]

    # -- texts -------------------------------------------------------------------------------------

    def text(self, octets: bytes, costs: Sequence[int] | None = None, *, flat: int = 0) -> bytes:
        """Return bytes in which each visible character is replaced by a letter or digit.

        Spaces, control characters and bytes that are no UTF-8 stay. With `costs` the sum of the
        costs of the new bytes equals that of the old ones, wherever letters and digits make that
        possible. Of every eight characters the last `flat` become one and the same letter.
        """
        if not flat:
            return self._written(octets, costs)
        parts = []
        index = 0
        for character in self._written(octets, costs).decode("utf-8", "surrogateescape"):
            same = character
            if _is_visible(character):
                if index % 8 >= 8 - flat:
                    size = len(character.encode())
                    same = chr(_LETTERS[0] if size == 1 else _SCRIPTS[size][0])
                index += 1
            parts.append(same)
        return "".join(parts).encode("utf-8", "surrogateescape")

    def words(self, octets: bytes) -> bytes:
        """Return bytes of unknown meaning, with other words: runs of letters and digits."""
        return _WORD.sub(lambda match: self._written(match[0], None), octets)

    def _replace(self, octets: bytes, costs: Sequence[int] | None) -> bytes:
        places = _visible(octets)
        if not places:
            return octets
        if costs is None:
            return self._alike(octets)
        palette = self._palette.get(costs)
        if palette is None:
            palette = {}
            for letter in _LETTERS:
                cost = costs[letter]
                palette[cost] = palette.get(cost, b"") + bytes([letter])
            self._palette[costs] = palette
        low, high = min(palette), max(palette)
        left = sum(costs[octets[place]] for place in places)
        made = self._stream(b"text", octets, 2 * len(places))
        out = bytearray(octets)
        for index, place in enumerate(places):
            more = len(places) - index - 1
            choice = b"".join(
                letters
                for cost, letters in palette.items()
                if low * more <= left - cost <= high * more
            )
            # No letter keeps the sum reachable.
            if not choice:
                choice = palette[low if left < low * (more + 1) else high]
            letter = choice[(made[2 * index] << 8 | made[2 * index + 1]) % len(choice)]
            out[place] = letter
            left -= costs[letter]
        return bytes(out)

    def _alike(self, octets: bytes) -> bytes:
        """Return a text whose characters have the same sizes: letters for letters, digits for
        digits. Different words of letters and digits stay different.
        """
        text = octets.decode("utf-8", "surrogateescape")
        if len(text) > _SHORT:
            made = self._stream(b"text", octets, 2 * len(text))
            numbers = (number for (number,) in iter_unpack(">H", made))
            text = "".join(map(_other, text, numbers))
            return text.encode("utf-8", "surrogateescape")
        # By chance short ones would become equal. Each character moves by a number that those
        # before it give, and then by one that those behind it give: both can be undone.
        for _ in range(2):
            seen, moved = b"", ""
            for character in text:
                number = int.from_bytes(self._stream(b"short", seen, 2), "big")
                moved = _other(character, number) + moved
                seen += character.encode("utf-8", "surrogateescape")
            text = moved
        return text.encode("utf-8", "surrogateescape")

    def _stream(self, use: bytes, octets: bytes, size: int) -> bytes:
        """Return bytes that depend on nothing but the key, the use and the input."""
        return hashlib.shake_256(self._key[32:] + use + b"\0" + octets).digest(size)


def _other(character: str, number: int) -> str:
    """Return the character that is a number of places further among those of its size and kind."""
    if character == " " or not character.isprintable():
        return character
    if character.isascii():
        kind = _LETTERS[52:] if character.isdigit() else _LETTERS[:52]
        return chr(kind[(kind.find(ord(character)) + number) % len(kind)])
    first, count = _SCRIPTS[len(character.encode())]
    return chr(first + (ord(character) + number) % count)


def _visible(octets: bytes) -> list[int]:
    """Return the offsets of the bytes of visible characters."""
    places: list[int] = []
    at = 0
    for character in octets.decode("utf-8", "surrogateescape"):
        size = len(character.encode("utf-8", "surrogateescape"))
        if _is_visible(character):
            places += range(at, at + size)
        at += size
    return places


def _is_visible(character: str) -> bool:
    """Return whether a character is replaced: no space or control character, nor a byte that is no
    UTF-8, which is a surrogate here.
    """
    return not "\udc80" <= character <= "\udcff" and (
        character > "\x7f" or _SPACE < ord(character) < _DELETE
    )


@lru_cache(maxsize=2)
def _tree(width: int) -> tuple[frozenset[tuple[int, int]], Callable[[int], bool]]:
    """Return the prefixes, as (bits, number), after which the next bit stays, because changing it
    would move an address into or out of a kind of network; and a function that returns whether an
    address stays entirely.
    """
    networks = [ip_network(text) for text in (*_FIXED, *_KINDS)]
    closed: set[tuple[int, int]] = set()
    parts: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    for text, network in zip((*_FIXED, *_KINDS), networks, strict=True):
        if network.max_prefixlen == width:
            number, size = int(network.network_address), network.prefixlen
            closed.update((upto, number >> (width - upto)) for upto in range(size))
            parts[text in _FIXED].add((size, number >> (width - size)))

    def stays(address: int) -> bool:
        fixed, kinds = (
            any(address >> (width - size) == number for size, number in parts[which])
            for which in (True, False)
        )
        return fixed and not kinds

    return frozenset(closed), stays


def _aes(key: bytes) -> Callable[[bytes], bytes]:
    """Return a function that encrypts one block."""
    try:
        from cryptography.hazmat.primitives.ciphers import (  # noqa: PLC0415 - an extra
            Cipher,
            algorithms,
            modes,
        )
    except ModuleNotFoundError as error:
        raise UsageError(
            "anonymise needs the package cryptography: pip install 'netdissect[anonymise]'"
        ) from error
    update: Callable[[bytes], bytes] = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update  # noqa: S305 - single blocks, as the construction wants
    return update
