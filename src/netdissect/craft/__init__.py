"""Builds messages from fields, with what carries them, and payloads from their JSON output."""
