"""The vocabulary of the program: the values that pass between its packages. Nothing here reads a
capture or knows a protocol.
"""
