"""Values that pass between the rooms of the house. Holds no behaviour that reads a capture or a
protocol.
"""
