"""Readers derived from the layers, one generated module a protocol. They import no Scapy."""
