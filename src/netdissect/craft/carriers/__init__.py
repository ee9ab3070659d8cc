"""What carries the messages of a protocol, one module each; see `Protocol.carrier`."""
