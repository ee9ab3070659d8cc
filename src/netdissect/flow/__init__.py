"""From frames to datagrams and TCP streams: removes link layers and IP, joins fragments, orders
segments. Knows no protocol above UDP and TCP.
"""

from __future__ import annotations

from netdissect.flow.codes import FLOW_CODES
from netdissect.flow.decapsulate import Decapsulator, packets
from netdissect.flow.stats import FlowStats

__all__ = ["FLOW_CODES", "Decapsulator", "FlowStats", "packets"]
