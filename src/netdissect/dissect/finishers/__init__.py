"""What needs a whole payload: second buffers, user schemas, rules across messages. One module a
protocol.
"""
