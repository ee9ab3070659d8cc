"""What this program asks of the system: other programs and processes. Knows nothing of captures."""
