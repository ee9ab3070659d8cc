"""One module a protocol: its dialect rows, its recognition and `scan()`. Knows no Scapy object at run time."""
