"""The numbers in pcapng files. Source: draft-ietf-opsawg-pcapng, sections 3 and 4."""

from __future__ import annotations

from typing import Final

SECTION: Final = 0x0A0D0D0A
INTERFACE: Final = 1
OLD_PACKET: Final = 2
SIMPLE_PACKET: Final = 3
NAMES: Final = 4
STATISTICS: Final = 5
PACKET: Final = 6
"""Types of blocks. `PACKET` is the Enhanced Packet Block."""
BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D

END_OF_OPTIONS: Final = 0
COMMENT: Final = 1
"""Options of every block."""
IF_NAME: Final = 2
IF_DESCRIPTION: Final = 3
IF_TSRESOL: Final = 9
IF_TSOFFSET: Final = 14
ISB_IFRECV: Final = 4
ISB_IFDROP: Final = 5
ISB_OSDROP: Final = 7
EPB_DROPCOUNT: Final = 4
"""Options of one kind of block: that of the prefix."""
