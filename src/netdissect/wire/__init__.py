"""Stateless codecs (bits, variable-length integers, bounded inflate, Huffman), and the numbers and
names of formats that both layers and `scan` need. No I/O.
"""
