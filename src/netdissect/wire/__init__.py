"""Codecs without state: bits, variable-length integers, serial numbers, bounded inflate. No
protocol, no I/O.
"""
