"""Names and numbers of the link types of capture files.

Source: https://www.tcpdump.org/linktypes.html (numbers as stored in files, names without
`LINKTYPE_`/`DLT_`).
"""

from __future__ import annotations

_NAMES = {
    0: "NULL",
    1: "EN10MB",
    9: "PPP",
    12: "RAW",
    14: "RAW",
    50: "PPP_SERIAL",
    101: "RAW",
    105: "IEEE802_11",
    108: "LOOP",
    113: "LINUX_SLL",
    127: "IEEE802_11_RADIO",
    147: "USER0",
    228: "IPV4",
    229: "IPV6",
    239: "NFLOG",
    258: "PKTAP",
    276: "LINUX_SLL2",
}


def link_type_name(link_type: int) -> str:
    """Return the name of a link type, or `LINKTYPE_n` for one that has no name here."""
    return _NAMES.get(link_type, f"LINKTYPE_{link_type}")
