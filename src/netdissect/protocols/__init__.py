"""One package per protocol, and what all of them share. Imports no Scapy at run time.

The packages are alike. What a protocol does not need, its package does not have:

| File | Holds |
|---|---|
| `__init__` | `PROTOCOL`: names, dialects, and where everything else is |
| `recognition` | `recognise`: is a flow this protocol, which dialect, who is the client? |
| `state` | `DecoderState`: what earlier datagrams have taught the decoder (`Hints.extra`) |
| `scan` | `scan`: the events of one datagram, read with the derived readers |
| `scanner` | the fast reader of frequent datagrams; also has `scan` where it reads all of them |
| `control` | events of rare messages: handshakes, endings |
| `rules` | reliability rules and state machines as rows |
| `strict` | whether a real sender could have sent exactly these bytes |
| `framing` | cuts a TCP stream into messages |
| `fragments` | bytes that are no packet, for `decode` |
| `inspector` | adds to a tree what only earlier datagrams explain |
| `privacy` | overwrites text without changing the size of a packet |
"""
