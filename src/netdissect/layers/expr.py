"""Conditions and lengths as expressions over earlier fields: Scapy calls them, generators translate
them to Python or Lua.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

_Rule: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""(fields read so far) -> value."""

_ALLOWED: Final = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Tuple, ast.Set,
    ast.Attribute,
)  # fmt: skip
"""Kinds of syntax tree nodes in an expression: arithmetic and comparison, but no calls."""


class _PacketFields(Mapping[str, Any]):
    """The fields of a Scapy packet, and of the packets that enclose it."""

    __slots__ = ("_packet",)

    def __init__(self, packet: Any) -> None:
        self._packet = packet

    def __getitem__(self, name: str) -> Any:
        packet = self._packet
        while packet is not None:
            if isinstance(packet, dict):
                if name in packet:
                    return packet[name]
                raise KeyError(name)
            if name in packet.fieldtype:
                return packet.getfieldval(name)
            packet = packet.parent or packet.underlayer
        raise KeyError(name)

    def __iter__(self) -> Any:
        raise TypeError("names are looked up, not listed")

    def __len__(self) -> int:
        raise TypeError("names are looked up, not listed")


class _Translation(ast.NodeTransformer):
    """Replaces the names in an expression by Python source."""

    def __init__(
        self,
        number: Callable[[str], str],
        value: Callable[[str], str],
        any_item: Callable[[str, str], str],
    ) -> None:
        """Take one function per use of a name: `name`, `name is None`, and `items.name`."""
        self._number = number
        self._value = value
        self._any_item = any_item

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace `items.name`: true if the field is set in any item of a list."""
        return ast.Name(self._any_item(ast.unparse(node.value), node.attr))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name that is used as a number."""
        node.id = self._number(node.id)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Replace the name in `name is None`, or the names in another comparison."""
        # As a number an absent field is 0, which would never be None.
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and isinstance(node.left, ast.Name):
            node.left.id = self._value(node.left.id)
            return node
        self.generic_visit(node)
        return node

    def source(self, expression: str) -> str:
        """Return Python source of the expression with its names replaced."""
        return ast.unparse(self.visit(ast.parse(expression, mode="eval")))


_LOOKUPS: Final = _Translation(
    lambda name: f"(0 if (_{name} := _fields[{name!r}]) is None else _{name})",
    lambda name: f"_fields[{name!r}]",
    lambda items, name: f"_any_item(_fields[{items!r}], {name!r})",
)
"""Names become look-ups in the mapping `_fields`."""


def _any_item(items: Any, name: str) -> bool:
    """Return whether a field is set in any item. An item that is cut short may lack the field."""
    return any(
        item.get(name) if isinstance(item, Mapping) else item.getfieldval(name)
        for item in items or ()
    )


def _function(source: str) -> _Rule:
    """Return the expression as a function of the mapping of fields."""
    body = _LOOKUPS.source(source)
    # Safe: the text is a constant of a layer module, and has passed the check of `E`.
    rule: _Rule = eval(  # noqa: S307
        f"lambda _fields: {body}", {"__builtins__": {}, "_any_item": _any_item}
    )
    return rule


# The layers of Teeworlds have 331 expressions, of which 29 differ.
@lru_cache(maxsize=1024)
def _read(source: str) -> tuple[ast.Expression, tuple[str, ...], _Rule]:
    """Return the syntax tree of an expression, its names, and its function."""
    tree = ast.parse(source, mode="eval")
    for node in ast.walk(tree):
        inner = isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name)
        if inner or not isinstance(node, _ALLOWED):
            raise TypeError(f"{type(node).__name__} is not allowed in {source!r}")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return tree, tuple(sorted(names)), _function(source)


class E:
    """An expression such as `E("size_hi << 6 | size_lo")` over the fields read so far.

    Call it with a Scapy packet or with a mapping of field values. An absent field (None) is 0;
    `name is None` distinguishes the two. `items.name` is true if the field is not 0 in any item of
    the list `items`.

    Raises:
        SyntaxError, TypeError: the text has anything but arithmetic, comparison and names.
    """

    __slots__ = ("names", "rule", "source", "tree")

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree, self.names, self.rule = _read(source)
        """Syntax tree, not to be changed; names in order; the expression as a function of a
        mapping, which raises KeyError if a name is missing.
        """

    def __call__(self, packet: Any) -> Any:
        """Return the value of the expression for a packet or mapping.

        Raises:
            NameError: a field is missing.
        """
        try:
            # Nearly always, the layer itself has all fields.
            return self.rule(packet if isinstance(packet, dict) else packet.fields)
        except KeyError:
            pass
        try:
            return self.rule(_PacketFields(packet))
        except KeyError as missing:
            raise NameError(f"{self.source!r} needs {missing}") from None

    def __repr__(self) -> str:
        return f"E({self.source!r})"

    def translate(
        self,
        numbers: Mapping[str, str],
        values: Mapping[str, str],
        any_item: Callable[[str, str], str] = "{}.{}".format,
    ) -> str:
        """Return Python source of the expression for another set of variables.

        Args:
            numbers: name -> what replaces it where it is used as a number.
            values: name -> what replaces it in a comparison with None.
            any_item: returns what replaces `items.name`.
        """
        return _Translation(numbers.__getitem__, values.__getitem__, any_item).source(self.source)
