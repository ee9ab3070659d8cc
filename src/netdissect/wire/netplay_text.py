"""Judges one text message of Netplay. Source: docs/protocols/netplay.md section 5."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from netdissect.wire.strictjson import Json, read_json

JAVA_CLASSES: Final = frozenset(
    (
        "Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Character", "String",
        "Object", "Date", "BigInteger", "BigDecimal", "ArrayList", "LinkedList", "HashMap",
        "LinkedHashMap", "TreeMap", "HashSet", "LinkedHashSet", "TreeSet", "ArrayDeque",
        "ConcurrentHashMap", "EnumMap", "boolean", "byte", "short", "int", "long", "float",
        "double", "char",
    )
)
"""Simple names of Java's own classes and primitive types, which need no schema."""
_NUMBERS: Final = frozenset(
    (
        "Byte", "Short", "Integer", "Long", "Float", "Double", "BigInteger", "BigDecimal", "byte",
        "short", "int", "long", "float", "double",
    )
)
"""Those of them whose values are JSON numbers."""
_IDENTIFIER: Final = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_WORDS: Final = frozenset({"true", "false", "null"})
"""JSON values that are also identifiers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of reading one message."""

    class_name: str
    """The class line, with U+FFFD for bytes that are no UTF-8."""
    known: bool
    """Whether the class line is a class name that a schema should know."""
    value: Any
    """The JSON value of the body."""
    valid: bool
    """Whether the body is strict JSON."""
    findings: tuple[tuple[str, str, str], ...]
    """(catalogue code, sentence, `class_name` or `body`: the line that it is about)."""


@lru_cache(maxsize=1024)
def is_class_line(text: str) -> bool:
    """Return whether a line is a Java identifier, with any number of `[]` after it."""
    while text.endswith("[]"):
        text = text[:-2]
    return _IDENTIFIER.fullmatch(text) is not None


def could_be_class(text: str) -> bool:
    """Return whether a line can name a class: it is an identifier, and no JSON value."""
    return is_class_line(text) and text not in _WORDS


def of_class(name: str, value: Any) -> bool:
    """Return whether a JSON value can be of the Java class or array that a line names."""
    if name.endswith("[]"):
        return isinstance(value, list)
    if isinstance(value, bool):
        return name in ("Boolean", "boolean")
    if isinstance(value, str):
        return name in ("String", "Character", "char", "Date")
    if isinstance(value, (int, float)):
        return name in _NUMBERS
    return isinstance(value, (list, dict)) and name in JAVA_CLASSES


def judge(class_line: bytes, body: bytes) -> Verdict:
    """Return the verdict on a message; never raises."""
    name = class_line.decode("utf-8", "replace")
    text = body.decode("utf-8", "replace")
    findings: list[tuple[str, str, str]] = []
    identifier = is_class_line(name)
    if not identifier:
        findings.append(_class_finding(name))
    shifted = not name or name[0] in "{["
    if shifted and could_be_class(text):
        findings.append(
            ("pair-shift-suspected", "class and body lines have changed places", "body")
        )
    for octets, decoded, line in ((class_line, name, "class_name"), (body, text, "body")):
        if "\ufffd" in decoded and decoded.encode() != octets:
            findings.append(("invalid-utf8", f"{line} holds bytes that are no UTF-8", line))
    read = read_json(text)
    findings += ((code, sentence, "body") for code, sentence in _body_findings(text, read))
    known = identifier and name.split("[", 1)[0] not in JAVA_CLASSES
    return Verdict(name, known, read.value, read.valid, tuple(findings))


def _body_findings(text: str, read: Json) -> Iterator[tuple[str, str]]:
    if not text:
        yield "empty-body-line", "the handler gets null"
    elif read.too_deep:
        yield "depth-limit", "JSON nested too deeply to be read"
    elif not read.valid:
        yield "json-invalid", f"no strict JSON: {read.fault}"
    elif not isinstance(read.value, dict):
        yield "json-not-object", f"a JSON {_kind(read.value)}, no object"
    if read.duplicate_key is not None:
        yield "json-duplicate-key", f"an object states {json.dumps(read.duplicate_key)} twice"
    if read.lone_surrogate:
        yield "json-lone-surrogate", "an escape is half of a surrogate pair"


def _class_finding(name: str) -> tuple[str, str, str]:
    if not name:
        return "empty-class-line", "no class name", "class_name"
    if is_class_line(name.removesuffix("\r")):
        return "class-line-has-cr", "the class name ends with a carriage return", "class_name"
    return "class-line-not-identifier", "no Java class name", "class_name"


def _kind(value: Any) -> str:
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "boolean"), (str, "string"), ((int, float), "number"), (list, "array"),
    )  # fmt: skip
    return next((word for kind, word in kinds if isinstance(value, kind)), "null")
