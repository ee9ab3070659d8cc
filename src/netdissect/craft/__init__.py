"""Messages built from fields: what carries them, and what was shown of a payload built again."""
