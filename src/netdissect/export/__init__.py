"""Writes reports for other programs: JSON Lines, CSV, qlog, JUnit and OpenMetrics, by converters
written key by key.
"""
