"""One module a protocol: dialect rows, recognition, `scan()`. Uses no Scapy object at run time."""
