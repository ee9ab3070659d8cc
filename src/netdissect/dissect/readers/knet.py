"""Derived readers of knet: generated from the layers, do not edit.

`python -m netdissect.dissect.derive` regenerates them. `read_...` returns one value per field and
the next offset, or None if bytes are missing. `odd_...` appends a finding for each soft rule that
these values break; without a reader, its values are those that the rules name, in field order.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final

from netdissect.model.events import Ev, Event
from netdissect.wire import varint

_LE_H: Final = Struct("<H").unpack_from
_LE_I: Final = Struct("<I").unpack_from
_read_KNET_15_16: Final = varint.KNET_15_16.read
_read_KNET_7_7_16: Final = varint.KNET_7_7_16.read
_read_KNET_7_8: Final = varint.KNET_7_8.read


def read_KnetMessage(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (fragment_start, fragment, in_order, reliable, unused, reliable_delta, fragment_count, transfer_id, fragment_number, content, next offset)."""
    if p + 1 > end: return None
    v_content_length_low = buf[p]
    p += 1
    if p + 1 > end: return None
    n = buf[p]
    v_fragment_start = n >> 7
    v_fragment = n >> 6 & 0x1
    v_in_order = n >> 5 & 0x1
    v_reliable = n >> 4 & 0x1
    v_unused = n >> 3 & 0x1
    v_content_length_high = n & 0x7
    p += 1
    if (v_reliable or 0):
        if p >= end: return None
        v_reliable_delta = buf[p]
        if v_reliable_delta < 0x80: p += 1
        else:
            try:
                v_reliable_delta, p = _read_KNET_7_8(buf, p, end)
            except ValueError:
                return None
    else:
        v_reliable_delta = None
    if (v_fragment_start or 0):
        if p >= end: return None
        v_fragment_count = buf[p]
        if v_fragment_count < 0x80: p += 1
        else:
            try:
                v_fragment_count, p = _read_KNET_7_7_16(buf, p, end)
            except ValueError:
                return None
    else:
        v_fragment_count = None
    if (v_fragment_start or 0) or (v_fragment or 0):
        if p + 1 > end: return None
        v_transfer_id = buf[p]
        p += 1
    else:
        v_transfer_id = None
    if (v_fragment or 0) and (not (v_fragment_start or 0)):
        if p >= end: return None
        v_fragment_number = buf[p]
        if v_fragment_number < 0x80: p += 1
        else:
            try:
                v_fragment_number, p = _read_KNET_7_7_16(buf, p, end)
            except ValueError:
                return None
    else:
        v_fragment_number = None
    k = (v_content_length_high or 0) << 8 | (v_content_length_low or 0)
    if k < 1 or p + k > end: return None
    if buf[p] > 127 and (k < 2 or k < 4 and buf[p + 1] > 127) and not ((v_fragment or 0) and (not (v_fragment_start or 0))): return None
    v_content = buf[p:p + k]
    return (v_fragment_start, v_fragment, v_in_order, v_reliable, v_unused, v_reliable_delta, v_fragment_count, v_transfer_id, v_fragment_number, v_content, p + k,)


def odd_KnetMessage(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[4] or 0): found.append((Ev.NOTE, 'knet-unused-bit', 'bit 11 is set'))
    if ((values[1] or 0) or (values[0] or 0)) and (not (values[3] or 0)): found.append((Ev.NOTE, 'knet-unreliable-fragment', 'a fragment that is not reliable; a receiver without its first fragment discards it'))
    if values[6] is not None and (values[6] or 0) < 2: found.append((Ev.NOTE, 'knet-fragment-count', f'fragment count must be at least 2, not {values[6]}'))
    if values[7] is not None and (values[7] or 0) == 0: found.append((Ev.NOTE, 'knet-transfer-zero', 'transfer 0'))


def read_KnetDatagram(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (in_order, reliable, packet_id_low, packet_id_high, reliable_base, messages, next offset)."""
    if p + 1 > end: return None
    n = buf[p]
    v_in_order = n >> 7
    v_reliable = n >> 6 & 0x1
    v_packet_id_low = n & 0x3f
    p += 1
    if p + 2 > end: return None
    v_packet_id_high, = _LE_H(buf, p)
    p += 2
    if (v_reliable or 0):
        try:
            v_reliable_base, p = _read_KNET_15_16(buf, p, end)
        except ValueError:
            return None
    else:
        v_reliable_base = None
    v_messages = []
    while p < end:
        item = read_KnetMessage(buf, p, end)
        if item is None: return None
        v_messages.append(item)
        p = item[-1]
    return (v_in_order, v_reliable, v_packet_id_low, v_packet_id_high, v_reliable_base, v_messages, p,)


def odd_KnetDatagram(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if not (values[5] or 0): found.append((Ev.NOTE, 'knet-no-messages', 'a header and no messages'))
    if (values[5] or 0) and (values[1] or 0) != any(item[3] for item in values[5]): found.append((Ev.NOTE, 'knet-flag-mismatch', "the Reliable flag is not the OR of the messages' Reliable bits"))
    for item in values[5]: odd_KnetMessage(item, direction, found)


def read_Knet2010Message(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (fragment_start, fragment, in_order, reliable, unused, reliable_delta, fragment_count, transfer_id, fragment_number, content, next offset)."""
    if p + 1 > end: return None
    v_content_length_low = buf[p]
    p += 1
    if p + 1 > end: return None
    n = buf[p]
    v_fragment_start = n >> 7
    v_fragment = n >> 6 & 0x1
    v_in_order = n >> 5 & 0x1
    v_reliable = n >> 4 & 0x1
    v_unused = n >> 3 & 0x1
    v_content_length_high = n & 0x7
    p += 1
    if (v_reliable or 0):
        if p >= end: return None
        v_reliable_delta = buf[p]
        if v_reliable_delta < 0x80: p += 1
        else:
            try:
                v_reliable_delta, p = _read_KNET_7_8(buf, p, end)
            except ValueError:
                return None
    else:
        v_reliable_delta = None
    if (v_fragment_start or 0):
        if p >= end: return None
        v_fragment_count = buf[p]
        if v_fragment_count < 0x80: p += 1
        else:
            try:
                v_fragment_count, p = _read_KNET_7_7_16(buf, p, end)
            except ValueError:
                return None
    else:
        v_fragment_count = None
    if (v_fragment_start or 0) or ((v_fragment or 0) and (v_reliable or 0)):
        if p + 1 > end: return None
        v_transfer_id = buf[p]
        p += 1
    else:
        v_transfer_id = None
    if (v_fragment or 0) and (v_reliable or 0) and (not (v_fragment_start or 0)):
        if p >= end: return None
        v_fragment_number = buf[p]
        if v_fragment_number < 0x80: p += 1
        else:
            try:
                v_fragment_number, p = _read_KNET_7_7_16(buf, p, end)
            except ValueError:
                return None
    else:
        v_fragment_number = None
    k = (v_content_length_high or 0) << 8 | (v_content_length_low or 0)
    if k < 1 or p + k > end: return None
    if buf[p] > 127 and (k < 2 or k < 4 and buf[p + 1] > 127) and not ((v_fragment or 0) and (v_reliable or 0) and (not (v_fragment_start or 0))): return None
    v_content = buf[p:p + k]
    return (v_fragment_start, v_fragment, v_in_order, v_reliable, v_unused, v_reliable_delta, v_fragment_count, v_transfer_id, v_fragment_number, v_content, p + k,)


def odd_Knet2010Message(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[4] or 0): found.append((Ev.NOTE, 'knet-unused-bit', 'bit 11 is set'))
    if (values[0] or 0) and (not (values[3] or 0)): found.append((Ev.NOTE, 'knet-unreliable-fragment', 'a fragment that is not reliable; a receiver without its first fragment discards it'))
    if values[6] is not None and (values[6] or 0) < 2: found.append((Ev.NOTE, 'knet-fragment-count', f'fragment count must be at least 2, not {values[6]}'))
    if (values[1] or 0) and (not (values[3] or 0)) and (not (values[0] or 0)): found.append((Ev.NOTE, 'knet-stray-fragment-bit', 'left-over Fragment bit; read as a whole message'))


def read_Knet2010Datagram(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (in_order, reliable, packet_id_low, packet_id_high, reliable_base, messages, next offset)."""
    if p + 1 > end: return None
    n = buf[p]
    v_in_order = n >> 7
    v_reliable = n >> 6 & 0x1
    v_packet_id_low = n & 0x3f
    p += 1
    if p + 2 > end: return None
    v_packet_id_high, = _LE_H(buf, p)
    p += 2
    if (v_reliable or 0):
        try:
            v_reliable_base, p = _read_KNET_15_16(buf, p, end)
        except ValueError:
            return None
    else:
        v_reliable_base = None
    v_messages = []
    while p < end:
        item = read_Knet2010Message(buf, p, end)
        if item is None: return None
        v_messages.append(item)
        p = item[-1]
    return (v_in_order, v_reliable, v_packet_id_low, v_packet_id_high, v_reliable_base, v_messages, p,)


def odd_Knet2010Datagram(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if not (values[5] or 0): found.append((Ev.NOTE, 'knet-no-messages', 'a header and no messages'))
    if (values[5] or 0) and (values[1] or 0) != any(item[3] for item in values[5]): found.append((Ev.NOTE, 'knet-flag-mismatch', "the Reliable flag is not the OR of the messages' Reliable bits"))
    for item in values[5]: odd_Knet2010Message(item, direction, found)


def read_KnetPacketAck(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (message_id, acked_packet_id, sequence_bits, next offset)."""
    if p >= end: return None
    v_message_id = buf[p]
    if v_message_id < 0x80: p += 1
    else:
        try:
            v_message_id, p = _read_KNET_7_7_16(buf, p, end)
        except ValueError:
            return None
    if p + 3 > end: return None
    v_acked_packet_id = buf[p] | buf[p + 1] << 8 | buf[p + 2] << 16
    p += 3
    if p + 4 > end: return None
    v_sequence_bits, = _LE_I(buf, p)
    return (v_message_id, v_acked_packet_id, v_sequence_bits, p + 4,)


def odd_KnetPacketAck(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[1] or 0) >> 22: found.append((Ev.NOTE, 'knet-ack-bits', f'bits 22-23 of {values[1]:#x} are set: the base acknowledges nothing'))


def read_KnetSpecPacketAck(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (message_id, acked_packet_id_low, sequence_bits_low, acked_packet_id_high, sequence_bits_high, next offset)."""
    if p >= end: return None
    v_message_id = buf[p]
    if v_message_id < 0x80: p += 1
    else:
        try:
            v_message_id, p = _read_KNET_7_7_16(buf, p, end)
        except ValueError:
            return None
    if p + 2 > end: return None
    v_acked_packet_id_low, = _LE_H(buf, p)
    p += 2
    if p + 1 > end: return None
    n = buf[p]
    v_sequence_bits_low = n >> 6
    v_acked_packet_id_high = n & 0x3f
    p += 1
    if p + 4 > end: return None
    v_sequence_bits_high, = _LE_I(buf, p)
    return (v_message_id, v_acked_packet_id_low, v_sequence_bits_low, v_acked_packet_id_high, v_sequence_bits_high, p + 4,)


def read_KnetSpecMessage(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (fragment_start, fragment, in_order_code, single_in_order_index, multi_in_order_index_count, multi_in_order_indexes, fragment_count, transfer_id, fragment_number, content, next offset)."""
    if p + 1 > end: return None
    v_content_length_low = buf[p]
    p += 1
    if p + 1 > end: return None
    n = buf[p]
    v_fragment_start = n >> 7
    v_fragment = n >> 6 & 0x1
    v_in_order_code = n >> 3 & 0x7
    v_content_length_high = n & 0x7
    p += 1
    if (v_in_order_code or 0) == 6:
        if p + 1 > end: return None
        v_single_in_order_index = buf[p]
        p += 1
    else:
        v_single_in_order_index = None
    if (v_in_order_code or 0) == 7:
        if p + 1 > end: return None
        v_multi_in_order_index_count = buf[p]
        p += 1
    else:
        v_multi_in_order_index_count = None
    if (v_in_order_code or 0) == 7:
        k = (v_multi_in_order_index_count or 0)
        if p + k > end: return None
        v_multi_in_order_indexes = list(buf[p:p + k])
        p += k
    else:
        v_multi_in_order_indexes = None
    if (v_fragment_start or 0):
        if p >= end: return None
        v_fragment_count = buf[p]
        if v_fragment_count < 0x80: p += 1
        else:
            try:
                v_fragment_count, p = _read_KNET_7_7_16(buf, p, end)
            except ValueError:
                return None
    else:
        v_fragment_count = None
    if (v_fragment_start or 0) or (v_fragment or 0):
        if p + 1 > end: return None
        v_transfer_id = buf[p]
        p += 1
    else:
        v_transfer_id = None
    if (v_fragment or 0) and (not (v_fragment_start or 0)):
        if p >= end: return None
        v_fragment_number = buf[p]
        if v_fragment_number < 0x80: p += 1
        else:
            try:
                v_fragment_number, p = _read_KNET_7_7_16(buf, p, end)
            except ValueError:
                return None
    else:
        v_fragment_number = None
    k = (v_content_length_high or 0) << 8 | (v_content_length_low or 0)
    if k < 1 or p + k > end: return None
    if buf[p] > 127 and (k < 2 or k < 4 and buf[p + 1] > 127) and not ((v_fragment or 0) and (not (v_fragment_start or 0))): return None
    v_content = buf[p:p + k]
    return (v_fragment_start, v_fragment, v_in_order_code, v_single_in_order_index, v_multi_in_order_index_count, v_multi_in_order_indexes, v_fragment_count, v_transfer_id, v_fragment_number, v_content, p + k,)


def odd_KnetSpecMessage(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if values[6] is not None and (values[6] or 0) < 2: found.append((Ev.NOTE, 'knet-fragment-count', f'fragment count must be at least 2, not {values[6]}'))


def read_KnetSpecHeader(buf: bytes, p: int, end: int) -> tuple[Any, ...] | None:
    """Return (packet_id_low, in_order, reliable, packet_id_high, in_order_delta_count, in_order_deltas, in_order_datagram_indexes, next offset)."""
    if p + 2 > end: return None
    v_packet_id_low, = _LE_H(buf, p)
    p += 2
    if p + 1 > end: return None
    n = buf[p]
    v_in_order = n >> 7
    v_reliable = n >> 6 & 0x1
    v_packet_id_high = n & 0x3f
    p += 1
    if (v_in_order or 0):
        if p + 1 > end: return None
        v_in_order_delta_count = buf[p]
        p += 1
    else:
        v_in_order_delta_count = None
    if (v_in_order or 0):
        v_in_order_deltas = []
        for _ in range((v_in_order_delta_count or 0)):
            if p >= end: return None
            v_in_order_deltas_item = buf[p]
            if v_in_order_deltas_item < 0x80: p += 1
            else:
                try:
                    v_in_order_deltas_item, p = _read_KNET_7_8(buf, p, end)
                except ValueError:
                    return None
            v_in_order_deltas.append(v_in_order_deltas_item)
    else:
        v_in_order_deltas = None
    if (v_in_order or 0):
        v_in_order_datagram_indexes = []
        for _ in range((v_in_order_delta_count or 0)):
            if p >= end: return None
            v_in_order_datagram_indexes_item = buf[p]
            if v_in_order_datagram_indexes_item < 0x80: p += 1
            else:
                try:
                    v_in_order_datagram_indexes_item, p = _read_KNET_7_8(buf, p, end)
                except ValueError:
                    return None
            v_in_order_datagram_indexes.append(v_in_order_datagram_indexes_item)
    else:
        v_in_order_datagram_indexes = None
    return (v_packet_id_low, v_in_order, v_reliable, v_packet_id_high, v_in_order_delta_count, v_in_order_deltas, v_in_order_datagram_indexes, p,)


def odd_KnetSpecDatagram(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if not (values[0] or 0): found.append((Ev.NOTE, 'knet-no-messages', 'a header and no messages'))


def odd_KnetWrongSize(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if 1: found.append((Ev.NOTE, 'knet-control-size', 'the payload does not have the size of this control message'))


def odd_KnetDisconnect(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:
    if (values[0] or 0): found.append((Ev.NOTE, 'knet-disconnect-payload', 'an empty message with a payload'))
