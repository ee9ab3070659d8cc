"""Wrong input gets a right answer: the exit status of the contract, the reason and the place."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import console_docs
from netdissect.cli import COMMANDS, cli

LOSSY = str(console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
MANY = "9" * 5000

Case = tuple[list[str], int, str]


def _schema(message: object) -> dict[str, object]:
    return {"format": "netdissect-schema/1", "protocol": "riptide", "messages": {"1": message}}


SCHEMAS: dict[str, tuple[object, str]] = {
    "unknown type": (_schema({"fields": [["x", "nosuch"]]}), "messages.1.x: no type is called"),
    "near type": (_schema({"fields": [["x", "ushrt"]]}), "did you mean 'ushort'"),
    "bits of text": (
        _schema({"fields": [{"name": "x", "type": "bits", "bits": "x"}]}),
        "messages.1.fields[0]: bits must be 1 to 64",
    ),
    "too many bits": (_schema({"fields": [["x", "bits", 65]]}), "bits must be 1 to 64, not 65"),
    "bits of truth": (_schema({"fields": [["x", "bits", True]]}), "bits must be 1 to 64"),
    "long number": (_schema({"fields": [["x", f"int[{MANY}]"]]}), "is not a type"),
    "many dimensions": (_schema({"fields": [["x", "int" + "[]" * 17]]}), "is not a type"),
    "no type": (_schema({"fields": [["x"]]}), "must be [name, type]"),
    "type of number": (_schema({"fields": [["x", 5]]}), "name and type must be texts"),
    "name of number": (_schema({"fields": [[5, "int"]]}), "name and type must be texts"),
    "fields of text": (_schema({"fields": "x"}), "fields must be a list"),
    "message of list": (_schema([]), "an object with name and fields"),
    "dialects of text": (_schema({"fields": [], "dialects": "2.0"}), "dialects must be a list"),
    "protocol of number": ({"protocol": 7, "messages": {}}, "protocol must be a name, not 7"),
    "protocol of list": ({"protocol": ["riptide"]}, "protocol must be a name"),
    "no protocol": ({"messages": {}}, "does not say its protocol"),
    "unknown protocol": ({"protocol": "riptid"}, "did you mean 'riptide'"),
    "other format": ({"format": "x/2"}, "format"),
    "unknown dialect": (_schema({"fields": [], "dialects": ["2.9"]}), "riptide has no dialect '2.9'"),
    "field without a name": (_schema({"fields": [["", "int"]]}), "name and type must be texts"),
    "messages of list": ({"protocol": "riptide", "messages": []}, "messages must be an object"),
    "enum without numbers": (
        {"protocol": "riptide", "enums": {"E": {"x": "a"}}}, "enums.E: must be an object of numbers",
    ),
    "enum with a long number": (
        {"protocol": "riptide", "enums": {"E": {MANY: "a"}}}, "enums.E: must be an object of numbers",
    ),
    "enum of unknown type": (
        {"protocol": "riptide", "enums": {"E": {"type": "bite", "0": "a"}}},
        "enums.E: no type is called 'bite'; did you mean 'byte'",
    ),
    "object of unknown type": (
        {"protocol": "riptide", "objects": {"O": [["x", "P"]]}}, "objects.O.x: no type is called 'P'",
    ),
    "a list": ([], "not a schema"),
    "many bits": (_schema({"fields": [["x", "bits(65)"]]}), "bits must be 1 to 64, not 65"),
    "no bits": (_schema({"fields": [["x", "bits(0)"]]}), "bits must be 1 to 64, not 0"),
    "long length": (_schema({"fields": [["x", "int[:65]"]]}), "a length has 1 to 64 bits"),
    "one name twice": (
        _schema({"fields": [["x", "int"], ["y", "int"], ["x", "byte"]]}),
        "messages.1.fields[2]: field 'x' is defined twice",
    ),
    "name of message": (_schema({"name": 5, "fields": []}), "messages.1: name must be a text"),
    "direction": (
        _schema({"direction": "up", "fields": []}), "messages.1: direction must be c2s or s2c",
    ),
    "misspelt messages": (
        {"protocol": "riptide", "mesages": {}}, "no key is called 'mesages'; did you mean 'messages'?",
    ),
    "misspelt fields": (_schema({"feilds": []}), "messages.1: no key is called 'feilds'; did you mean"),
    "unknown key of a field": (
        _schema({"fields": [{"name": "x", "type": "bits", "bit": 3}]}),
        "messages.1.fields[0]: no key is called 'bit'; did you mean 'bits'?",
    ),
    "unknown key": (_schema({"colour": 1}), "no key is called 'colour'; known: name, direction"),
    "bits of an int": (_schema({"fields": [["x", "int", 7]]}), "1.x: 'int' has its own number of bits"),
    "bits of a text": (_schema({"fields": [["x", "string(5)"]]}), "'string' has its own number of bits"),
    "length without bits": (_schema({"fields": [["x", "int[:0]"]]}), "a length has 1 to 64 bits"),
    "empty id": ({"protocol": "riptide", "messages": {"": {}}}, "'' is neither an id in decimal nor"),
    "id in hexadecimal": ({"protocol": "riptide", "messages": {"0x10": {}}}, "messages.0x10: '0x10' is neit"),
    "id with many digits": ({"protocol": "knet", "messages": {MANY: {}}}, "is neither an id in decimal"),
    "id with a point": ({"protocol": "riptide", "messages": {"1.5": {}}}, "'1.5' is neither an id"),
    "dialect of number": (_schema({"dialects": [5]}), "messages.1: dialects must be a list of names"),
    "near dialect": (_schema({"dialects": ["2.3"]}), "messages.1: riptide has no dialect '2.3'"),
    "object called as a type": (
        {"protocol": "riptide", "objects": {"int": []}}, "objects.int: the protocol has a type of that",
    ),
    "enum called as a type": (
        {"protocol": "knet", "enums": {"u8": {}}}, "enums.u8: the protocol has a type of that name",
    ),
    "enum called as an object": (
        {"protocol": "riptide", "objects": {"E": []}, "enums": {"E": {}}}, "enums.E: an object has that name",
    ),
    "object in itself": (
        {"protocol": "riptide", "objects": {"O": [["x", "O"]]}}, "objects.O: it contains itself without end",
    ),
    "objects in each other": (
        {"protocol": "knet", "objects": {"A": [["b", "B[2]"]], "B": [["a", "A"]]}}, "it contains itself by ",
    ),
    "enum of a number": ({"protocol": "riptide", "enums": {"E": {"0": 5}}}, "enums.E: must be an object of numbers"),
    "enum with an odd number": ({"protocol": "riptide", "enums": {"E": {"1_0": "a"}}}, "numbers to names"),
    "enum with foreign digits": ({"protocol": "riptide", "enums": {"E": {"٣": "a"}}}, "numbers to names"),
    "enum with one number twice": (
        {"protocol": "riptide", "enums": {"E": {"1": "a", "0x1": "b"}}}, "enums.E: 1 has two names",
    ),
    "enum of fractions": (
        {"protocol": "riptide", "enums": {"E": {"type": "float"}}}, "enums.E: 'float' is not an integer type",
    ),
    "enum of texts": (
        {"protocol": "knet", "enums": {"E": {"type": "string8"}}}, "'string8' is not an integer",
    ),
    "enum with a type of number": (
        {"protocol": "riptide", "enums": {"E": {"type": 5}}}, "enums.E: type must be a text, not 5",
    ),
    "enum out of its type": (
        {"protocol": "riptide", "enums": {"E": {"type": "byte", "300": "a"}}}, "enums.E: 300 is not of type byte",
    ),
    "direction of list": (_schema({"direction": [], "fields": []}), "direction must be c2s or"),
}  # fmt: skip

FILTERS: dict[str, str] = {
    "": "the filter is empty",
    "nosuch": "no field is called 'nosuch'",
    "frame.numbr == 4": "did you mean 'frame.number'",
    "msg.seq = 5": "equality is written ==",
    "msg.seq => 5": "greater or equal is written >=",
    "msg.seq =< 5": "less or equal is written <=",
    "msg.type == 'Ack'": "texts stand in double quotes",
    "msg.resend | msg.duplicate": "either of two is written ||",
    "msg.seq > abc": "msg.seq is a number, and this is none",
    'msg.seq == "abc"': "msg.seq is a number",
    "msg.seq in {1 abc}": "msg.seq is a number",
    "msg.seq in {1..b}": "msg.seq is a number",
    "count(msg.type) > many": "is a number",
    "riptide.sequence_id == first": "is a number",
    "msg.sequence_id == first": "is a number",
    "frame.number == 1e999": "this number is too large",
    f"frame.number == {MANY}": "this number is too large",
    "frame.number ==": "the filter ends too early",
    "frame.number == 4 5": "expected an operator or the end",
    **dict.fromkeys(
        ("udp port 7777", "port 7777", "host 10.0.0.1", "not dst host 10.0.0.1", "src net 10.0.0.0"),
        "`udp port 7` is written udp.port == 7, and `host` is ip.addr",
    ),
    "(frame.number == 4": "expected )",
    "frame.number in {}": "the set is empty",
    "msg.seq in {1": "ends too early",
    'msg.type == "Ack': "the string is not closed",
    'msg.type matches "("': "",
    'msg.type matches "a{9999}"': "",
    "msg.data[x] == 1": "a slice is written",
    f"msg.data[{MANY}] == 1": "a slice is written",
    "msg.seq & x": "a mask is a whole number",
    "5": "this is no field name",
    "5 == 5": "one side must be a field",
    "any(chairs: msg.seq == 1)": "no message has a list",
    "all msg.seq": "all needs a comparison",
    "(" * 200 + "udp" + ")" * 200: "nested too deeply",
    "x" * 10_001: "at most 10000 characters",
    "ip.addr == 5": "ip.addr is an address, and this is none",
    "ip.src in {300.1.1.1}": "ip.src is an address",
    "ip.dst >= 10.0.0.0/99": "ip.dst is an address",
    "msg.resend == maybe": "msg.resend is true or false",
    "riptide == yes": "riptide is true or false",
    "riptide > 5": "riptide is true or false",
    "msg.resend == 2": "msg.resend is true or false",
    "msg.resend > true": "msg.resend is true or false",
    "msg.duplicate in {0 2}": "msg.duplicate is true or false",
    "msg.type > 5": 'msg.type is a text, and this is a number; write "5"',
    "msg.seq in {5..1}": "the range runs backwards",
    "ip.addr in {10.0.0.9..10.0.0.1}": "the range runs backwards",
    "ip.src in {10.0.0.9..::1}": "the range mixes IPv4 and IPv6",
    "frame.number == 1_0": "frame.number is a number, and this is none",
    "frame.number == ٣": "frame.number is a number, and this is none",
    "protocol == riptid": "protocol is never 'riptid'; did you mean 'riptide'",
    "dialect == riptide-2.9": "did you mean 'riptide-2.",
    'anomaly == "retransmision"': "did you mean 'retransmission'",
    "direction in {c2s s2s}": "direction is never 's2s'; did you mean 's2c'",
    "conn.state != opne": "did you mean 'open'",
    "msg.seq == msg.type": "msg.seq is a number, and msg.type is a text",
    "ip.src != udp.port": "ip.src is a text, and udp.port is a number",
    "msg.type < riptide.sequence_id": "msg.type is a text, and riptide.sequence_id is a number",
    "data[0:2] == frame.number": "data is a text, and frame.number",
    "msg.type == (frame.number & 3)": "",
    "msg.seq == {1}": "",
    **dict.fromkeys(
        ("udp.port == 70000", "70000 == udp.port", "tcp.port > 70000", "udp.dstport == -1",
         "udp.port in {1..70000}", "udp.srcport != 0x10000"), "is 0 to 65535, never this number",
    ),
    **dict.fromkeys(("msg.rtt < -3", "data.len == -1", "any(msg: msg.acked_in in {-5..-1})"), "is 0 or more, never this number"),
    **dict.fromkeys(
        ("riptide.sequence_id == 70000", "msg.sequence_id in {1 65536}", "riptide.sequence_id > 65537",
         "65537 < riptide.sequence_id", "!(riptide.sequence_id == -1)"),
        "sequence_id is 0 to 65535, never this number",
    ),
    "riptide.rtt_ms == 32768": "riptide.rtt_ms is -32768 to 32767, never this number",
    "teeworlds.ack == 1024": "teeworlds.ack is 0 to 1023",
    "knet.message_id >= 0x40000001": "knet.message_id is 0 to 1073741823",
    "eoudp.command == 256": "eoudp.command is 0 to 255",
    **dict.fromkeys(
        ('frame.number matches "x"', "udp.port contains 5", 'msg.resend matches "1"', "len(data) contains 1",
         'count(udp.port) matches "2"'), "is for texts and bytes",
    ),
    "riptide.sequence_id == true": "riptide.sequence_id is a number, and this is none",
    **dict.fromkeys(
        ("frame.number == 1.5", "conn.id != 2.5", "frame.number in {1, 2.5}"), "is a whole number, never this one"
    ),
    "frame.time_relative == false": "frame.time_relative is a number, and this is none",
    "udp.port & -1": "a mask is a whole number, 1 or more",
    "udp.port & 0": "a mask is a whole number, 1 or more",
    "udp.port & 1_0": "a mask is a whole number",
    "data[0:0] == 05": "this slice is always empty",
    "data[5-2] == 05": "this slice is always empty",
    "data[0] == 5": "data is bytes, written 05:ff or 0x05ff",
    "data[0] == 256": "data is bytes, written",
    "data[0] == 01:02": "this is longer than data[...]",
    'data[2-3] == "abc"': "this is longer than data[...]",
    "§": "unexpected character",
}

WORDS: list[Case] = [
    (["conections", LOSSY], 2, "did you mean 'connections'"),
    (["timelin", LOSSY], 2, "did you mean 'timeline'"),
    *(([word, LOSSY], 2, f"; did you mean '{ours}'?") for word, ours in (
        ("conn", "connections"), ("diag", "diagnose"), ("anon", "anonymise"), ("capture", "sniff"),
        ("record", "sniff"), ("open", "browse"), ("view", "browse"), ("split", "slice"), ("compare", "diff"),
        ("findings", "anomalies"), ("graph", "plot"), ("summary", "info"), ("analyze", "diagnose"),
        ("html", "report"), ("flows", "connections"), ("help", "--help"), ("interfaces", "-D"))),
    (["nosuchcommand"], 2, "no command is called 'nosuchcommand'"),
    (["protocols", "riptid"], 2, "did you mean 'riptide'"),
    (["fields", "teeworld"], 2, "did you mean 'teeworlds'"),
    (["fields", "xyzzy"], 2, "known: eoudp, riptide, knet"),
    (["-z", "nosuch", LOSSY], 2, "unknown statistics -z nosuch"),
    (["-z", "conv,ipx", "-r", LOSSY], 2, "unknown statistics -z conv,ipx; known: conv, conv,tcp,"),
    (["--nosuch"], 2, "o such option"),
    (["read"], 2, "Missing capture FILE"),
    (["read", LOSSY, "x"], 2, "unexpected extra argument"),
    (["read", LOSSY, "-c", "0"], 2, "not in the range"),
    (["read", LOSSY, "-c", "x"], 2, "'x' is not a number."),
    (["read", LOSSY, "-c", MANY], 2, "not a valid integer"),
    (["read", LOSSY, "-t", "x"], 2, "is not one of"),
    (["read", LOSSY, "--color", "blue"], 2, "is not one of"),
    (["read", LOSSY, "--width", "5"], 2, "not in the range"),
    (["read", LOSSY, "-T", "nosuch"], 2, "is not one of"),
    (["read", LOSSY, "-e", "frame.number"], 2, "-T"),
    (["read", LOSSY, "-T", "csv", "-e", "frame.numbr"], 4, "did you mean 'frame.number'"),
    *(([name, "missing.pcap"], 3, "missing.pcap: No such file")
      for name in ("anomalies", "connections", "follow", "info", "ladder", "stats", "timeline")),
    (["ladder", LOSSY, "1", "--from", "50s", "--to", "60s"], 2, "--from: the capture ends after 12.5"),
    *(([*words, "--from", "5s", "--to", "3s"], 2, "--from is after --to")
      for words in (["ladder", LOSSY, "1"], ["read", LOSSY], ["connections", LOSSY], ["plot", "acks", LOSSY],
                    ["slice", LOSSY, "-w", "x.pcap"])),
    (["follow", LOSSY, "0"], 2, "not in the range"),
    (["timeline", LOSSY, "1", "-Y", "msg.seq > x"], 4, "msg.seq is a number"),
    (["anomalies", LOSSY, "-Y", "nosuch"], 4, "no field is called 'nosuch'"),
    (["anomalies", LOSSY, "-Y", ""], 4, "the filter is empty"),
    (["read", LOSSY, "-d", "nonsense"], 2, "decode-as wants"),
    (["read", LOSSY, "-d", "udp.port==x,riptide"], 2, "decode-as wants"),
    (["read", LOSSY, "-d", "udp.port==٣,riptide"], 2, "decode-as wants"),
    (["read", LOSSY, "-d", f"udp.port=={MANY},riptide"], 2, "decode-as wants"),
    (["read", LOSSY, "-d", "udp.port==65536,riptide"], 2, "ports are 0 to 65535"),
    (["read", LOSSY, "-d", "udp.port==7777,riptid"], 2, "did you mean 'riptide'"),
    (["read", LOSSY, "-d", "udp.port==7777,riptide-2.5"], 2, "did you mean 'riptide-2."),
    (["read", LOSSY, "--dialect", "riptide-2.5"], 2, "did you mean 'riptide-2."),
    (["read", LOSSY, "--dialect", "nosuch"], 2, "no protocol has a dialect 'nosuch'"),
    (
        ["read", LOSSY, "--dialect", "riptide-2.0", "--dialect", "2.2"], 2,
        "riptide-2.0 and riptide-2.2 exclude each other",
    ),
    (["read", LOSSY, "--disable-protocol", "riptid"], 2, "did you mean 'riptide'"),
    (["read", LOSSY, "--byte-order", "middle"], 2, "is not one of"),
    (["read", LOSSY, "--inflate-limit", "0"], 2, "not in the range"),
    (["read", LOSSY, "--inflate-limit", str(1 << 40)], 2, "not in the range"),
    *((["read", LOSSY, "--inflate-limit", text], 2, f"'{text}' is not a number") for text in ("1_0", "1e3", "٣")),
    (["read", LOSSY, "-c", "1_0"], 2, "'1_0' is not a number"),
    (["send", "riptide", "Connect", "--wait", "1_0"], 2, "'1_0' is not a number"),
    *((words, 2, "ame of a file cannot be empty") for words in (
        ["info", ""], ["info", "-r", ""], ["timeline", LOSSY, ""], ["merge", LOSSY, "", "-w", "x"], ["diff", "", LOSSY],
        ["join", LOSSY, ""], ["slice", LOSSY, "-w", ""], ["sniff", "-r", ""], ["sniff", "-i", "lo", "-w", ""],
        ["read", LOSSY, "--schema", ""],
    )),
    (["read", LOSSY, "--inflate-ratio", str(1 << 40)], 2, "not in the range"),
    (["read", LOSSY, "--schema", "missing.json"], 2, "missing.json: No such file"),
    (["read", LOSSY, "--schema", "/dev/zero"], 2, "/dev/zero: not a regular file"),
    (["read", LOSSY, "--schema", "/"], 2, "/: "),
    (["read", "missing.pcap"], 3, "missing.pcap: No such file"),
    (["read", "/"], 3, "/: Is a directory"),
    (["read", ""], 2, "The name of a file cannot be empty"),
    *(([name, LOSSY, "--from", "1s", "--around", "2s"], 2, "leave out --from and --to") for name in ("ladder", "read", "report")),
    *(([name, LOSSY, "--around", "#99999"], 2, "--around: there is no frame 99999: the capture has 1073")
      for name in ("read", "anomalies", "connections")),
    *(([*words, "--from", "5000s"], 2, "--from: the capture ends after 12.5")
      for words in (["read", LOSSY], ["timeline", LOSSY], ["stats", LOSSY], ["diagnose", LOSSY], ["follow", LOSSY, "1"],
                    ["connections", LOSSY, "1"], ["slice", LOSSY, "-w", "x.pcap"], ["report", LOSSY, "-o", "x.html"])),
    (["info", LOSSY, "--around", "#0"], 2, "'#0' is not a time; write 3s, 250ms or 1.5m, or a frame: #12"),
    (["info", LOSSY, "--around", "60s"], 2, "--around: the capture ends after 12.5"),
    *((["fuzz", "riptide", "--target", "127.0.0.1:9", "--out", "run", *words], 2, said) for words, said in (
        (["--type", "Nosuch"], "--type: riptide-2.2 has no message type 'Nosuch'; there are Ack, "),
        (["--type", "Reliabel"], "did you mean 'Reliable'"),
        (["--mutator", "feild:flip"], "--mutator: no mutator is called 'feild:flip'; did you mean 'field:flip'"),
        (["--mutator", "field:*", "--mutator", "octets"], "no mutator is called 'octets'"),
        (["--mutator", "octets:flip+ad"], "did you mean 'octets:flip'"),
        (["--mutator", "order:nosuch"], "no mutator is called 'order:nosuch'"),
        (["--mutator", ""], "no mutator is called ''; there are field:*, octets:*"),
        (["--skip", ""], "--skip: an empty text is part of every failure"))),
    (["read", "/dev/null"], 3, "file is empty"),
    (["read", __file__], 3, "not a capture file"),
    (["connections", LOSSY, "0"], 2, "not in the range"),
    (["connections", "1", LOSSY], 2, "is not a number; CONNECTION follows FILE"),
    (["explain", "zzz"], 2, "`netdissect explain` lists them"),
    (["connections", LOSSY, "9"], 2, "there is no connection 9: the capture has only 1"),
    (["connections", LOSSY, "x"], 2, "is not a number; CONNECTION follows FILE"),
    (["connections", LOSSY, LOSSY], 2, "'netdissect merge' makes one file of several"),
    (["timeline", LOSSY, LOSSY, LOSSY], 2, "'netdissect merge' makes one file of several"),
    (["connections", LOSSY, "--sort", "x"], 2, "is not one of"),
    (["connections", LOSSY, "--processes", "0"], 2, "not in the range"),
    (["connections", LOSSY, "--processes", "65"], 2, "not in the range"),
    (["survey", LOSSY, "--out", "x", "--workers", "1025"], 2, "not in the range"),
    (["follow", LOSSY, "-c", str(1 << 63)], 2, "larger than any capture"),
    (["show", LOSSY, str(1 << 63)], 2, "larger than any capture"),
    *(([name, LOSSY, "9"], 2, "there is no connection 9: the capture has only 1")
      for name in ("timeline", "ladder", "stats", "follow")),
    (["show", LOSSY], 2, "Give the number of a FRAME"),
    (["show", LOSSY, "0"], 2, "not in the range"),
    (["show", LOSSY, "1074"], 2, "there is no frame 1074: the capture has 1073"),
    (["show", LOSSY, MANY], 2, "not a valid integer"),
    (["stats", LOSSY, "--interval", "0"], 2, "must be longer than 0"),
    (["stats", LOSSY, "--interval", "x"], 2, "is not a time"),
    (["stats", LOSSY, "--interval", "-1s"], 2, ""),
    (["ladder", LOSSY, "1", "--from", "x"], 2, "is not a time"),
    (["anomalies", LOSSY, "--fail-on", "x"], 2, "is not one of"),
    (["explain", "retransmision"], 2, "did you mean 'retransmission'"),
    (["explain", "x" * 5000], 2, "no finding is called"),
    (["fields", "riptid"], 2, "riptid"),
    (["protocols", "riptid"], 2, "'riptid'"),
    (["man", "red"], 2, "no command is called"),
    (["completion", "tcsh"], 2, "is not one of"),
    (["config"], 2, ""),
    (["config", "nosuch"], 2, "No such command"),
    (["decode", "riptid", "00"], 2, "did you mean 'riptide'"),
    (["decode", "riptide", "zz"], 2, "hexadecimal"),
    (["decode", "riptide", "0"], 2, "hexadecimal"),
    (["decode", "riptide", "--dialect", "9", "00"], 2, "riptide has no dialect '9'"),
    (["decode", "riptide"], 2, "Missing argument"),
    (["encode", "riptid", "Ack"], 2, "did you mean 'riptide'"),
    (["encode", "riptide", "Relible"], 2, "riptide has no message 'Relible'; did you mean 'Reliable'?"),
    (["encode", "riptide", "Xyzzy"], 2, "has no message 'Xyzzy'. Types of riptide-2.2: Ack, "),
    (["encode", "knet", "KnetSpecPacketAck"], 2, "knet-2.x has no message KnetSpecPacketAck"),
    (["encode", "riptide", "Reliable", "sequnce_id=1"], 2, "did you mean 'sequence_id'?"),
    (["fuzz", "riptide", "--target", "127.0.0.1:9", "--monitor", "exce:x"], 2, "--monitor: 'exce:x' is not a monitor"),
    (["plot", "rtt", LOSSY, "--space", "nosuch"], 2, "connection 1 has no space 'nosuch'; known: "),
    (["timeline", LOSSY, "--slowest", "5", "--sort", "copies"], 2, "--slowest and --sort exclude each other"),
    (["diagnose", LOSSY, "--fail-on", "los>5%"], 2, "not 'los>5%'; did you mean 'loss'?"),
    (["survey", LOSSY, "--out", "x", "--against", "missing"], 3, "missing: no dataset of a survey"),
    (["encode", "riptide", "Reliable", "x"], 2, "is not FIELD=VALUE"),
    (["encode", "riptide", "Reliable", "nosuch=1"], 2, "has no field 'nosuch'"),
    (["encode", "riptide", "Reliable", "sequence_id=abc"], 2, "sequence_id='abc': is neither a number nor the name of one"),
    (["encode", "riptide", "Reliable", "sequence_id=1.5"], 2, "is not an integer"),
    (["encode", "riptide", "Reliable", f"sequence_id={MANY}"], 2, "sequence_id="),
    *((["encode", "riptide", "Reliable", f"sequence_id={value}"], 2, f"sequence_id='{value}': must be 0 to 65535")
      for value in ("70000", "-1", "0x10000", "-32768")),
    (["encode", "riptide", "Reliable", "sequence_id=٣"], 2, "sequence_id='٣': is neither a number nor the name of one"),
    (["encode", "riptide", "Reliable", "message_id=18446744073709551616"], 2, "must be 0 to "),
    (["encode", "teeworlds", "sys.snap_empty", "tick=2147483648"], 2,
     "must be -2147483648 to 2147483647"),
    (["encode", "knet", "PingRequest", "ping_id=256"], 2, "ping_id='256': must be 0 to 255"),
    (["encode", "eoudp", "ACK", "acked_id=-1"], 2, "acked_id='-1': must be "),
    (["encode", "knet", "KnetDatagram", "in_order=2"], 2, "in_order='2': must be 0 to 1"),
    (["encode", "riptide", "Reliable", "data=zz"], 2, "data='zz'"),
    (["encode", "eoudp", "Ping", "x=["], 2, ""),
    (["send", "riptide", "Ack", "--target", "nonsense"], 2, ""),
    (["fuzz", "x" * 300, "--target", "127.0.0.1:1"], 2, "no protocol is called"),
    (["sniff", "-i", "lo", "--user", MANY], 2, "there is no user '999"),
    (["fuzz", "riptid", "--target", "127.0.0.1:1"], 2, "'riptid'"),
    (["fuzz", "riptide", "--target", "nonsense"], 2, ""),
    (["fuzz", "riptide", "--target", "127.0.0.1:99999"], 2, ""),
    (["replay", "missing-folder", "--target", "127.0.0.1:1"], 2, ""),
    (["minimise", "missing-folder", "--target", "127.0.0.1:1"], 2, ""),
    (["sniff", "-i", "nosuchif0", "-c", "1"], 5, "nosuchif0"),
    (["sniff", "--backend", "nosuch"], 2, "is not one of"),
    *((["sniff", "-i", "lo", "-w", name, "-a", "duration:9"], 3, f"{name}: No such file")
      for name in ("nosuch/x.pcap", "nosuch/x.pcapng")),
    (["anonymise", LOSSY, "-w", "x.pcap", "--key-file", "/dev/zero"], 2, "/dev/zero: not a regular"),
    (["slice", LOSSY, "-w", "."], 3, ".: Is a directory"),
    (["slice", LOSSY, "-w", "nosuch/x.pcap"], 3, "nosuch/x.pcap: No such file"),
    (["merge", LOSSY, LOSSY, "-w", "nosuch/x.pcap"], 3, "nosuch/x.pcap: No such file"),
    (["anonymise", LOSSY, "-w", "nosuch/x.pcap"], 3, "nosuch/x.pcap: No such file"),
    (["slice", LOSSY, "-w", "x.pcap", "--frames", f"1-{MANY}"], 2, "is no range"),
    (["merge", LOSSY, "missing.pcap", "-w", "x.pcap"], 3, "missing.pcap: No such file"),
    (["join", LOSSY], 2, "Give two captures"),
    (["join", LOSSY, LOSSY, "--datagrams"], 2, "--datagrams needs --json"),
    (["plot", "acks", LOSSY, MANY], 2, "is not a connection"),
    (["plot", "acks", LOSSY, "٣"], 2, "is not a connection"),
    (["plot", "acks", LOSSY, "--from", "nan"], 2, "is not a time"),
    (["plot", "acks", LOSSY, "--to", MANY], 2, "is not a time"),
    (["plot", "acks", LOSSY, "-o", "nosuch/x.svg"], 3, "nosuch/x.svg: No such file"),
    (["report", LOSSY, "-o", "nosuch/x.html"], 3, "nosuch/x.html: No such file"),
    (["report", "missing.pcap"], 3, "missing.pcap: No such file"),
    (["browse", "missing.pcap"], 3, "missing.pcap: No such file"),
    (["diagnose", LOSSY, "--fail-on", "loss>nan%"], 2, "--fail-on needs"),
    (["diagnose", LOSSY, "--fail-on", "loss>5ms"], 2, "loss is a number of %"),
    (["diagnose", LOSSY, "--fail-on", "loss>0.05"], 2, "loss needs a unit, such as 'loss>0.05%'"),
    (["diagnose", LOSSY, "--fail-on", "lag.p95>=2"], 2, "needs a unit, such as 'lag.p95>=2ms'"),
    (["survey", "show", "nosuch", "--fail-on", "loss>5"], 2, "loss needs a unit"),
    (["survey", "show", "nosuch", "--fail-on", "connections>5%"], 2, "a plain number, not of %"),
    *((["diagnose", LOSSY, "--fail-on", limit], 2, said)
      for limit, said in (("loss>200%", "loss can never exceed 'loss>200%': use 100% at most"),
                          ("loss.c2s>100.5%", "100% at most"), (f"lag.p95>{MANY}ms", "a smaller number"),
                          ("los>5%", "did you mean 'loss'"), ("loss", "--fail-on needs MEASURE>NUMBER"))),
    (["survey", "show", "nosuch", "--fail-on", "bad>101%"], 2, "bad can never exceed"),
    *((["slice", LOSSY, "-w", "x.pcap", "--frames", frames], 2, "--frames: there is no frame 2000: the capture has 1073")
      for frames in ("2000", "2000-", "1-5,2000-3000")),
    (["export", LOSSY, "--pcapng-notes", "x.pcapng", "--connection", "1"], 2, "--connection needs --qlog"),
    (["survey", "show", "nosuch"], 3, "no dataset of a survey"),
    (["survey", "nosuch", "--out", "x"], 3, "nosuch: No such file"),
    (["survey", LOSSY], 2, "--out"),
    (["survey", LOSSY, "--out", ""], 2, "the name of a file cannot be empty"),
    (["ladder", LOSSY, "1", "--svg", ""], 3, "No such file"),
    (["ladder", LOSSY, "1", "--svg", "nosuch/"], 3, "nosuch/: Is a directory"),
    (["diff", LOSSY, "1", MANY], 2, "give two captures (A B)"),
    (["diff", LOSSY, "1", "٣"], 2, "give two captures (A B)"),
    (["export", LOSSY], 2, "give either --pcapng-notes FILE"),
    (["export", LOSSY, "--qlog", "nosuch/x"], 3, "nosuch/x: No such file"),
    (["export", "lua", "riptide", "-o", "nosuch/x"], 3, "nosuch/x: No such file"),
    (["export", "lua", "riptide", "-o", "."], 3, ".: Is a directory"),
    (["export", "lua", "riptide", "--qlog", "-"], 2, "its only option is -o FILE"),
    (["slice", LOSSY, "-w", "x.pcap", "--frames", ""], 2, "is no range"),
    (["read", LOSSY, "-d", "tcp.port==7777,teeworlds"], 2, "teeworlds does not run over tcp"),
    (["schema", "nosuch"], 2, "no command 'nosuch' has --json"),
    (["schema", "conections"], 2, "did you mean 'connections'"),
    (["new-protocol", "1abc", "x"], 2, "'1abc' is not a name"),
    (["new-protocol", "lambda", "x"], 2, "'lambda' is a keyword of Python"),
    (["new-protocol", "mygame", ""], 2, "the name of a file cannot be empty"),
    (["new-protocol", "riptide", "x"], 2, "there already is a protocol 'riptide'"),
    (["follow", LOSSY, "x"], 2, "Invalid value for CONNECTION: 'x'"),
    (["send", "riptide", "Ack", "--target", f"127.0.0.1:{MANY}"], 2, "has no port"),
    (["send", "riptide", "Ack", "--target", "127.0.0.1:9", "--wait", "nan"], 2, "is not a number"),
    (["fuzz", "riptide", "--target", "127.0.0.1:9", "--rate", "inf"], 2, "is not a number"),
    (["fuzz", "riptide", "--target", "127.0.0.1:9", "--rate", "fast"], 2, "'fast' is not a valid number"),
    (["minimise", "x", "--answer", "nan"], 2, "is not a number"),
    (["minimise", "x"], 2, "x is no failure folder: No such file or directory"),
    (["DIAGNOSE", LOSSY], 2, "did you mean 'diagnose'"),
    (["protocols", "RIPTIDE"], 2, "did you mean 'riptide'"),
    (["plot", "acks", LOSSY, "5"], 2, "there is no connection 5: the capture has only 1"),
    (["plot", "rate", LOSSY, "--interval", "0s"], 2, "must be longer than 0"),
    (["survey", LOSSY, "--out", "x", "--interval", "0"], 2, "must be longer than 0"),
    (["survey", LOSSY, "--out", "/proc/x"], 3, "/proc/x: No such file"),
    (["slice", LOSSY, "-w", "x.pcap", "--around", "#2000"], 2, "there is no frame 2000: the capture has 1073"),
    (["anonymise", LOSSY, "-w", "x.pcap", "--key-file", "nosuch"], 2, "makes a key"),
    (["encode", "riptide", "Reliable", "sequence_id=1", "sequence_id=2"], 2, "is given twice"),
    *((["sniff", "-i", "lo", *limit], 2, f"{limit[0]} {limit[1].partition(':')[0]}: must be more than 0 and")
      for limit in (["-a", f"duration:{MANY}"], ["-a", "duration:1" + "0" * 12], ["-a", "packets:0"],
                    ["-b", f"filesize:{MANY}", "-w", "x.pcap"])),
    (["sniff", "-i", "lo", "--live", "--json"], 2, "--live and --json exclude each other"),
    (["sniff", "-i", "lo", "--live", "--metrics", "127.0.0.1:0"], 2, "--metrics and --live exclude each other"),
    *(([*words, "--json", "-T", "csv"], 2, "--json and -T exclude each other")
      for words in (["read", LOSSY, "-e", "msg.seq"], ["stats", LOSSY])),
    *((["fuzz", "riptide", "--target", "127.0.0.1:9", "--out", f"{LOSSY}/x", *more], 2,
       "clientleg.pcap/x: Not a directory") for more in ([], ["--workers", "2"], ["--resume"])),
    (["sniff", "-i", "lo", "-o", "x:y"], 2, "--backend tshark"),
    (["sniff", "-i", "lo", "--backend", "tshark", "-o", "x"], 2, "-o needs NAME:VALUE, not 'x'"),
    (["sniff", "-i", "lo", "-Y", "nosuch", "-w", "nosuch/x"], 4, "no field is called 'nosuch'"),
    *((["fuzz", "riptide", "--target", "127.0.0.1:9", "--out", "run", "--monitor", monitor], 2, said)
      for monitor, said in (("exec:'", "No closing quotation"), (f"pid:{MANY}", "is not a monitor"),
                            ("memory:٣", "is not a monitor"))),
    (["export", LOSSY, "--qlog", ""], 2, "the name of a file cannot be empty"),
    (["export", "lua", "riptide", "-o", ""], 2, "the name of a file cannot be empty"),
    (["ladder", LOSSY, "1", "--svg", "nosuch/x.svg"], 3, "nosuch/x.svg: No such file"),
    (["new-protocol", "mygame", "/proc/x"], 3, "No such file"),
    (["man", "red"], 2, "did you mean 'read'"),
    (["encode", "riptide", "-", "x=1"], 2, "come from standard input, not from x=1"),
    (["decode", "riptide", "--dialect", "", "00"], 2, "riptide has no dialect ''"),
    *(([*words], 2, f"{protocol} does not run over {carrier}")
      for protocol, carrier, message in (("netplay", "udp", "0"), ("teeworlds", "tcp", "sys.info"))
      for words in (["decode", protocol, "--transport", carrier, "00"],
                    ["encode", protocol, "--transport", carrier, message])),
    (["encode", "riptide", "Reliable", "sequence_id=1_0"], 2, "sequence_id='1_0': is neither a number nor the name of one"),
    (["encode", "knet", "KnetDatagram", "messages={}"], 2, "messages='{}': is not a list"),
    (["encode", "knet", "KnetDatagram", 'messages=[{"message_ide": 5}]'], 2, "has no field 'message_ide'"),
    (["encode", "eoudp", "PACKET_INFO", 'pairs=[{"sent": true}]'], 2, "sent: cannot be true or false"),
    (["encode", "teeworlds", "sys.input", "input=[1, true]"], 2, "cannot be true or false"),
    *(([name, LOSSY, *more, "--connection", "77"], 2, "there is no connection 77: the capture has only 1")
      for name, *more in (("connections",), ("read",), ("info",), ("timeline",), ("anomalies",), ("diagnose",),
                          ("stats",), ("stats", "--interval", "1s"), ("read", "--json"))),
    (["connections", LOSSY, "1", "-Y", "frame.number == 5000"], 2, "no datagram of connection 1 matches the filter"),
    (["connections", LOSSY, "１"], 2, "'１' is not a number"),
    (["ladder", LOSSY, "1", "--json", "--mermaid"], 2, "--json and --mermaid exclude each other"),
    (["ladder", LOSSY, "1", "--svg", "x.svg", "--mermaid"], 2, "--svg and --mermaid exclude each other"),
    (["ladder", LOSSY, "1", "--svg", ""], 3, "'': No such file"),
    (["follow", LOSSY, "1", "--json", "--as", "hex"], 2, "--json and --as exclude each other"),
    (["plot", "acks", LOSSY, "--json", "-o", "x.svg"], 2, "--json and -o exclude each other"),
    *((["plot", "rtt", LOSSY, *more], 2, "--bytes and --interval only apply to `rate`")
      for more in (["--bytes"], ["--interval", "1s"])),
    *((["read", LOSSY, "-T", "csv", "-e", "msg.seq", more], 2, "-V and -x cannot be combined with -T")
      for more in ("-V", "-x")),
    (["read", LOSSY, "--csv-safe"], 2, "--csv-safe needs -T csv, -T tsv or -T fields"),
    (["show", LOSSY, "4", "--field", "sequence_i"], 2, "no field 'sequence_i'; did you mean 'sequence_id'?"),
    (["show", LOSSY, "4", "--field", ""], 2, "frame 4 has no field ''"),
    *((["fuzz", "knet", "--target", target], 2, "is no HOST:PORT") for target in ("[::1:5", "::1]:5", "[[::1]]:5")),
    (["encode", "riptide", "Reliable", f"sequence_id=-{MANY}"], 2, "has too many digits"),
]  # fmt: skip

STDIN: list[tuple[list[str], str | bytes, str]] = [
    (["encode", "riptide", "-"], b'\n{"fields": {"\xff": 1}}', "line 2 is not JSON"),
    (["decode", "riptide", "-"], b"\n\xff\n", "line 2 is not an even number"),
    (["encode", "riptide", "-"], "nonsense", "line 1 is not JSON"),
    (["encode", "riptide", "-"], "[]", "line 1 has no object `fields`"),
    (["encode", "riptide", "-"], '{"fields": 5}', "line 1 has no object `fields`"),
    (["encode", "riptide", "-"], "[" * 100_000, "line 1 is nested too deeply"),
    *((["encode", "eoudp", "-"], f'\n{{"fields": {{}}, "{name}": {value}}}', f"line 2: {name} must be")
      for name in ("dialect", "transport") for value in ("[]", "5", "{}")),
    (["encode", "eoudp", "-"], '{"fields": {}, "transport": "sctp"}', "line 1: transport must be udp or"),
    *((["encode", "knet", "-"], f'{{"fields": {{}}, "messages": {value}}}',
       "line 1: messages must be a list of objects") for value in ("5", "[5]", '{"a": 1}')),
    (["encode", "riptide", "-"],
     '{"type": "Reliable", "fields": {"data": ' + "[" * 600 + "]" * 600 + "}}", "line 1 is nested too deeply"),
    (["encode", "teeworlds", "-"],
     '{"fields": {"chunks": ' + "[" * 320 + "]" * 320 + "}}", "not a payload"),
    (["encode", "riptide", "-"], "\n" + " " * ((1 << 24) + 1), "line 2 is longer than"),
    (["decode", "riptide", "-"], "\n" + "0" * ((1 << 24) + 1), "line 2 is longer than"),
    (["encode", "riptide", "-"], '{"fields": {}, "type": "Relible"}', "has no message 'Relible'"),
    (["encode", "riptide", "-"], '{"fields": {"sequence_id": "x"}, "type": "Reliable"}',
     "sequence_id: is neither a number nor the name of one"),
    (["encode", "riptide", "-"], f'\n{{"fields": {{"sequence_id": {MANY}}}}}', "line 2: a number has too many digits"),
    (["encode", "riptide", "-"], '{"fields": {"sequence_id": [1]}, "type": "Reliable"}',
     "sequence_id: is neither a number nor the name of one"),
    (["encode", "riptide", "-"], '{"fields": {"sequence_id": 1.5}, "type": "Reliable"}',
     "sequence_id: is not an integer"),
    (["encode", "riptide", "-"], '{"fields": {"sequence_id": -1}, "type": "Reliable"}',
     "Reliable: sequence_id: must be 0 to 65535"),
    (["encode", "riptide", "-"], '{"fields": {"data": [999]}, "type": "Reliable"}',
     "Reliable: data: is not a string of hexadecimal digits"),
    (["encode", "teeworlds", "-"], '{"fields": {"chunks": 5}}', "teeworlds"),
    (["encode", "teeworlds", "-"], '{"fields": {"chunks": [5]}}', "teeworlds"),
    (["decode", "riptide", "-"], "xyz", "hexadecimal"),
    *(([name, "nosuch", "-"], "", "no protocol is called 'nosuch'") for name in ("decode", "encode")),
    (["encode", "riptide", "--dialect", "", "-"], '{"fields": {}}', "riptide has no dialect ''"),
    (["encode", "teeworlds", "-"], '{"fields": {}, "transport": "tcp"}', "does not run over tcp"),
    (["encode", "riptide", "-"], '{"fields": {"data": "\\ud800"}, "type": "Reliable"}',
     "Reliable: data: is not a string of hexadecimal digits"),
    (["encode", "riptide", "-"], '{"fields": {"type_id": 4, "trailing": "zz"}}', "hexadecimal digits"),
    (["encode", "teeworlds", "-"], '{"fields": {"version": "\\ud800"}, "type": "sys.info"}',
     "sys.info: version: holds half a character"),
    (["encode", "knet", "-"], '{"fields": {"messages": [null]}}', "messages: is not an object of fields"),
    (["encode", "knet", "-"], '{"fields": {"messages": {"a": 5}}}', "messages: is not a list"),
    (["encode", "eoudp", "-"], '{"fields": {"command": null, "timestamp": []}}',
     "timestamp: is not a number"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def check(words: list[str], status: int, said: str, given: str | bytes | None = None) -> None:
    result = CliRunner().invoke(cli, words, input=given, prog_name="netdissect")
    assert result.exit_code == status, result.stderr
    assert said in " ".join(result.stderr.split())
    assert "unexpected failure" not in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert len(result.stderr) < 3000


def _named(case: Case) -> str:
    return " ".join(Path(word).name[:30] for word in case[0])


@pytest.mark.parametrize("case", WORDS, ids=_named)
def test_wrong_words(case: Case) -> None:
    check(*case)


@pytest.mark.parametrize(
    "words",
    [["--frames", "2000-"], ["--frames", "1-5,2000"], ["--around", "#2000"], ["--from", "9m"]],
    ids=lambda words: words[1],
)
def test_a_part_that_is_refused_leaves_no_file(words: list[str]) -> None:
    check(["slice", LOSSY, "-w", "x.pcap", *words], 2, f"{words[0]}: ")
    assert not Path("x.pcap").exists()


@pytest.mark.parametrize("text", FILTERS, ids=lambda text: text[:30])
def test_wrong_filters(text: str) -> None:
    check(["read", LOSSY, "-Y", text], 4, FILTERS[text])


@pytest.mark.parametrize(
    "words",
    [["sniff", "-r", "it.csv", "-w"], ["report", "it.csv", "-o"], ["slice", "it.csv", "-w"],
     ["report", LOSSY, "it.csv", "-o"], ["plot", "acks", "it.csv", "-o"],
     ["anonymise", "it.csv", "-w"], ["merge", LOSSY, "it.csv", "-w"],
     ["export", "it.csv", "--pcapng-notes"]],
    ids=lambda words: f"{words[0]} {words[-2]}"[:20],
)  # fmt: skip
@pytest.mark.parametrize("name", ["it.csv", "link.csv", "hard.csv"])
def test_what_is_read_is_not_written_over(words: list[str], name: str) -> None:
    octets = Path(LOSSY).read_bytes()
    Path("it.csv").write_bytes(octets)
    Path("link.csv").symlink_to("it.csv")
    Path("hard.csv").hardlink_to("it.csv")
    check([*words, name], 2, f"{name} is also an input: write to another file")
    assert Path("it.csv").read_bytes() == octets


@pytest.mark.parametrize(
    ("words", "named"),
    [(["slice", "-", "-w", "it.csv"], "it.csv"), (["merge", LOSSY, "-", "-w", "it.csv"], "it.csv"),
     (["report", "-", "-o", "it.csv"], "it.csv"), (["ladder", "-", "--svg", "it.csv"], "it.csv"),
     (["sniff", "-r", "-", "-w", "/dev/stdin"], "/dev/stdin"),
     (["slice", "it.csv", "-w", "-"], "standard output"),
     (["plot", "acks", "it.csv"], "standard output")],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)  # fmt: skip
def test_what_a_shell_redirects_is_not_read_and_written(words: list[str], named: str) -> None:
    octets = Path(LOSSY).read_bytes()
    file = Path("it.csv")
    file.write_bytes(octets)
    with file.open("rb") as source, file.open("ab") as target:
        run = subprocess.run(
            [sys.executable, "-m", "netdissect", *words], stdin=source, stdout=target,
            stderr=subprocess.PIPE, text=True, check=False, timeout=60,
        )  # fmt: skip
    assert file.read_bytes() == octets
    assert f"{named} is also an input: write to another file" in run.stderr
    assert run.returncode == 2


@pytest.mark.parametrize("name", SCHEMAS)
def test_wrong_schemas(name: str) -> None:
    content, said = SCHEMAS[name]
    Path("game.json").write_text(json.dumps(content))
    check(["read", LOSSY, "--schema", "game.json"], 2, said)
    result = CliRunner().invoke(cli, ["read", LOSSY, "--schema", "game.json"])
    assert "game.json" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("deep.toml", "x=" + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("long.toml", ".".join("a" * 20_000) + " = 1", "long.toml: no schema in TOML: nested too deeply"),
        ("long.toml", "[" + " . ".join(['"a b"'] * 9000) + "]", "long.toml: no schema in TOML: nested too deeply"),
        ("deep.json", '{"a":' * 100_000, "nested too deeply"),
        ("bad.json", "{", "bad.json: no schema in JSON: "),
        ("twice.json", '{"protocol": "riptide", "protocol": "knet"}', "'protocol' is given twice in one"),
        ("mark.json", '\ufeff{"protocol": "nosuch"}', "mark.json: no protocol is called 'nosuch'"),
        ("twice.xml", '<p><message id="1"/><message id="1"/></p>', "line 1: message 1 is defined twice"),
        ("bad.toml", "x = ", "bad.toml: no schema in TOML: "),
        ("long.toml", f"x = {MANY}", "long.toml: "),
        ("latin.json", "é".encode("latin-1"), "not UTF-8 text (byte 0)"),
        ("big.json", b" " * (4 * 1024 * 1024 + 1), "larger than 4,194,304 bytes"),
        ("doctype.xml", "<!DOCTYPE x><x/>", "doctype.xml: "),
        ("bad.xml", "<x", "bad.xml: "),
    ],
)
def test_wrong_schema_files(name: str, content: str | bytes, said: str) -> None:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    check(["read", LOSSY, "--schema", name], 2, said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = " + "[" * 3000 + "]" * 3000, "plan.toml: nested too deeply"),
        ("protocol = 'riptide'\ntarget = '127.0.0.1:9'\ncases = 'many'", "plan.toml: cases: 'many' is"),
        ("protocol = ['riptide']", "plan.toml: protocol takes one value"),
        ("protocol = 'riptid'", "plan.toml: protocol: no protocol is called 'riptid'; did you"),
        ("protocol = 'knet'\ntarget = 9", "plan.toml: target: '9' is no HOST:PORT"),
        (f"cases = {MANY}", "plan.toml: a number has too many digits"),
    ],
)
def test_wrong_plans(content: str, said: str) -> None:
    Path("plan.toml").write_text(content)
    check(["fuzz", "--plan", "plan.toml"], 2, said)


@pytest.mark.parametrize(
    "words",
    [["connections", LOSSY], ["timeline", LOSSY], ["info", LOSSY], ["diff", LOSSY, LOSSY],
     ["survey", LOSSY, "--out", "x"], ["browse", LOSSY], ["join", LOSSY, LOSSY],
     ["sniff", "-i", "lo", "-a", "duration:1"], ["slice", LOSSY, "-w", "y.pcap"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_wrong_schema_is_refused_by_commands_that_need_none(words: list[str]) -> None:
    Path("x.json").write_text(json.dumps(SCHEMAS["unknown type"][0]))
    check([*words, "--schema", "x.json"], 2, "x.json: messages.1.x: no type is called 'nosuch'")


def test_objects_that_end_may_hold_themselves() -> None:
    """By an array, or where the protocol has null."""
    for protocol, kind in (("riptide", "O[]"), ("knet", "O[:3]"), ("netplay", "O")):
        Path("x.json").write_text(json.dumps({"protocol": protocol, "objects": {"O": [["x", kind]]}}))
        result = CliRunner().invoke(cli, ["info", LOSSY, "--schema", "x.json"])
        assert (result.exit_code, result.stderr) == (0, "")


def test_a_schema_is_no_pipe() -> None:
    os.mkfifo("pipe")
    check(["read", LOSSY, "--schema", "pipe"], 2, "pipe: not a regular file")


def test_a_survey_that_cannot_be_shown_says_only_that() -> None:
    """DuckDB complained of what was not freed at the exit, on standard error, of every answer."""
    pytest.importorskip("duckdb")
    run = subprocess.run(
        [sys.executable, "-m", "netdissect", "survey", "show", "."],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (3, "netdissect: .: no dataset of a survey\n")


def test_a_survey_waits_for_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.pcap")
    check(["survey", "x.pcap", "--out", "y"], 3, "x.pcap: not a regular file")
    check(["survey", ".", "--out", "y"], 3, ".: no captures there")


def test_a_number_of_many_digits_in_a_file(tmp_path: Path) -> None:
    for kind, text in (("TOML", f"n = {MANY}"), ("JSON", f'{{"n": {MANY}}}')):
        name = f"x.{kind.lower()}"
        (tmp_path / name).write_text(text)
        said = f"{name}: no schema in {kind}: a number has too many digits"
        check(["read", LOSSY, "--schema", name], 2, said)
    (tmp_path / "netdissect.toml").write_text(f"n = {MANY}")
    check(["read", LOSSY], 2, "netdissect.toml: a number has too many digits")


@pytest.mark.parametrize("words", [["read", "-"], ["encode", "riptide", "-"], ["decode", "riptide", "-"]])
def test_standard_input_may_be_closed(words: list[str]) -> None:
    command = [sys.executable, "-m", "netdissect", *words]
    ended = subprocess.run(
        ["sh", "-c", f"{shlex.join(command)} <&-"], capture_output=True, text=True, check=False
    )
    assert ended.returncode in {0, 2, 3}, ended.stderr
    assert "unexpected" not in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="takes /dev/full")
def test_what_nobody_can_be_told_changes_no_status() -> None:
    for words, status in ((["nosuch"], 2), (["info", "nosuch.pcap"], 3), (["info", LOSSY], 0)):
        with open("/dev/full", "wb") as full:  # noqa: PTH123
            run = subprocess.run(
                [sys.executable, "-m", "netdissect", *words],
                stdout=subprocess.DEVNULL, stderr=full, check=False,
            )  # fmt: skip
        assert run.returncode == status


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="takes /dev/full")
@pytest.mark.parametrize(
    "words",
    [["slice", LOSSY, "-w"], ["merge", LOSSY, LOSSY, "-w"], ["anonymise", LOSSY, "-w"],
     ["export", LOSSY, "--pcapng-notes"], ["export", LOSSY, "--qlog"], ["export", "lua", "knet", "-o"]],
    ids=lambda words: " ".join((words[0], words[-1])),
)  # fmt: skip
def test_a_full_disk_is_named(words: list[str]) -> None:
    check([*words, "/dev/full"], 3, "netdissect: /dev/full: No space left on device")


@pytest.mark.parametrize("case", STDIN, ids=lambda case: str(case[1])[:30])
def test_wrong_standard_input(case: tuple[list[str], str | bytes, str]) -> None:
    words, given, said = case
    check(words, 2, said, given)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_unknown_option_names_the_help(name: str) -> None:
    check([name, "--nosuchoption"], 2, "No such option")


def test_an_option_of_the_program_is_suggested_where_a_command_was_implied() -> None:
    check(["--verson"], 2, "'--version'")


def test_there_are_many() -> None:
    cases = len(WORDS) + len(FILTERS) + len(SCHEMAS) + len(STDIN) + len(COMMANDS) + 10
    assert cases >= 250


@pytest.mark.parametrize("words", [["read"], ["follow"], ["anomalies"], ["read", "--json"]], ids=" ".join)
def test_a_capture_without_a_known_protocol_is_said_to_be_one(words: list[str]) -> None:
    """Without any output, it looked like a filter that matches nothing."""
    result = CliRunner().invoke(cli, [*words, LOSSY, "--disable-protocol", "riptide"])
    assert result.exit_code == 0
    assert result.stderr == "netdissect: no datagram of a known protocol; `netdissect info` counts all\n"
    for more in ([], ["-Y", "frame.number == 99999"], ["-c", "1"]):
        assert CliRunner().invoke(cli, [*words, LOSSY, *more]).stderr == ""
