"""Converts kNet's own XML descriptions of messages to user schemas.

This is safe for any file: document type declarations are refused, so that no entity is expanded and
nothing is fetched. *Source:* kNet doc/src/KristalliXML.dox, `src/MessageListParser.cpp`.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

MAX_ELEMENTS = 100_000
"""Maximum number of elements in a description."""
MAX_DEPTH = 64
"""Maximum nesting of structures."""
_SCALARS = frozenset(
    {"bit", "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "float", "double", "string"}
)
_MAX_COUNT_BITS = 32
"""Maximum value of `dynamicCount`: bits of a count on the wire."""
_MAX_COUNT = 1 << 20
"""Maximum value of `count`."""


class XmlSchemaError(ValueError):
    """A description cannot be used. The text is for the user."""


class _Element:
    """An element with its children."""

    __slots__ = ("attributes", "children", "line", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], line: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.children: list[_Element] = []


def xml_schema(text: str) -> dict[str, Any]:
    """Return the description as the object that `parse_schema` takes.

    Raises:
        XmlSchemaError: the text is not XML, no description, or wrong; with the line.

    """
    root = _tree(text)
    messages: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for element in root.children:
        if element.tag != "message":
            continue
        # A message ID is a VLE-8/16/32, which has up to 30 bits.
        number = _number(element, "id", 0, 0x3FFFFFFF)
        if str(number) in messages:
            raise XmlSchemaError(f"line {element.line}: message {number} is defined twice")
        name = element.attributes.get("name", f"message {number}")
        fields = _fields(element, objects, f"message{number}")
        messages[str(number)] = {"name": name, "fields": fields}
    if not messages:
        raise XmlSchemaError("no <message> in the description")
    return {"protocol": "knet", "messages": messages, "objects": objects}


def _tree(text: str) -> _Element:
    """Return the root element; raise XmlSchemaError for anything but plain elements."""
    parser = expat.ParserCreate()
    top = _Element("", {}, 0)
    stack = [top]
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS:
            raise XmlSchemaError(f"line {parser.CurrentLineNumber}: too many elements")
        if len(stack) > MAX_DEPTH:
            raise XmlSchemaError(f"line {parser.CurrentLineNumber}: nested too deeply")
        element = _Element(tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def refuse(*_: object) -> None:
        raise XmlSchemaError(f"line {parser.CurrentLineNumber}: document types are not accepted")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _tag: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as fault:
        raise XmlSchemaError(f"not XML: {fault}") from None
    return top.children[0]


def _number(element: _Element, name: str, low: int, high: int) -> int:
    try:
        value = int(element.attributes.get(name, ""), 0)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise XmlSchemaError(f"line {element.line}: <{element.tag}> needs {name}={low} to {high}")
    return value


def _fields(parent: _Element, objects: dict[str, Any], path: str) -> list[list[str]]:
    """Return [name, type] of each child; structures are added to `objects`."""
    fields = []
    for index, element in enumerate(parent.children):
        name = element.attributes.get("name") or f"{element.tag}{index}"
        if element.tag == "struct":
            kind = f"{path}.struct{index}"
            objects[kind] = _fields(element, objects, kind)
        elif element.tag in _SCALARS:
            kind = element.tag
        else:
            raise XmlSchemaError(f"line {element.line}: <{element.tag}> is not a type")
        fields.append([name, kind + _multiplicity(element)])
    return fields


def _multiplicity(element: _Element) -> str:
    """Return the array part of a type: `[n]` for n items, `[:n]` for a count in n bits."""
    if "count" in element.attributes:
        return f"[{_number(element, 'count', 0, _MAX_COUNT)}]"
    if "dynamicCount" in element.attributes:
        return f"[:{_number(element, 'dynamicCount', 1, _MAX_COUNT_BITS)}]"
    return ""
