"""From bytes to annotated trees: the walker (`engine`), the derived readers and user schemas.

Importing this package does not import Scapy; the first call of `engine.dissect` does.
"""
