"""From frames to datagrams and TCP streams: link layer, IP, fragments and segments off. Knows no
protocol above them.
"""

from __future__ import annotations

from netdissect.flow.codes import FLOW_CODES
from netdissect.flow.decapsulate import Decapsulator, packets
from netdissect.flow.stats import FlowStats

__all__ = ["FLOW_CODES", "Decapsulator", "FlowStats", "packets"]
