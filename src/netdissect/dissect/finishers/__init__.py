"""Completes trees with what needs the whole payload: second buffers, user schemas, rules across
messages. There is one module per protocol.
"""
