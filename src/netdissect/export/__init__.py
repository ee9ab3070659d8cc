"""Writes reports for programs: JSON Lines and CSV. Converters are written by hand, key by key."""
