"""Expressions over earlier fields: conditions and lengths that Scapy can call and a generator can
read.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["E"]

_ALLOWED: Final = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Tuple, ast.Set,
    ast.Attribute,
)  # fmt: skip
"""What an expression may be made of: arithmetic and comparison, and no calls."""


class _Names(Mapping[str, Any]):
    """Resolves names in a Scapy packet, then in those around it."""

    __slots__ = ("_packet",)

    def __init__(self, packet: Any) -> None:
        self._packet = packet

    def __getitem__(self, name: str) -> Any:
        packet = self._packet
        while packet is not None:
            if isinstance(packet, Mapping):
                if name in packet:
                    return packet[name]
                raise KeyError(name)
            if any(field.name == name for field in packet.fields_desc):
                return packet.getfieldval(name)
            packet = packet.parent or packet.underlayer
        raise KeyError(name)

    def __iter__(self) -> Any:
        raise TypeError("names are looked up, not listed")

    def __len__(self) -> int:
        raise TypeError("names are looked up, not listed")


class _Renaming(ast.NodeTransformer):
    """Puts a text in the place of each name: another one where it is asked whether it is None, and
    a third where it is asked for a field of the items of a list.
    """

    def __init__(
        self,
        number: Callable[[str], str],
        value: Callable[[str], str],
        some: Callable[[str, str], str],
    ) -> None:
        self._number = number
        self._value = value
        self._some = some

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Write whether any item of a list has a field that counts."""
        return ast.Name(self._some(ast.unparse(node.value), node.attr))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Write a name that counts as a number."""
        node.id = self._number(node.id)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Write `name is None` or `name is not None`, or go on below another comparison."""
        # Asked whether it is None, a name must not count as 0 before.
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and isinstance(node.left, ast.Name):
            node.left.id = self._value(node.left.id)
            return node
        self.generic_visit(node)
        return node

    def text(self, source: str) -> str:
        """Return an expression with its names written so."""
        return ast.unparse(self.visit(ast.parse(source, mode="eval")))


_LOOKUPS: Final = _Renaming(
    lambda name: f"(0 if (_{name} := _fields[{name!r}]) is None else _{name})",
    lambda name: f"_fields[{name!r}]",
    lambda items, name: f"_some(_fields[{items!r}], {name!r})",
)


def _some(items: Any, name: str) -> bool:
    """Return whether a field of any item counts; items may be cut short."""
    return any(
        item.get(name) if isinstance(item, Mapping) else item.getfieldval(name)
        for item in items or ()
    )


def _function(source: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function of the fields that an expression is."""
    body = _LOOKUPS.text(source)
    # The text is a constant of this package and was checked before: nothing of a packet is run.
    rule: Callable[[Mapping[str, Any]], Any] = eval(  # noqa: S307
        f"lambda _fields: {body}", {"__builtins__": {}, "_some": _some}
    )
    return rule


class E:
    """An expression such as `E("size_hi << 6 | size_lo")` over the fields read so far.

    Called with a Scapy packet or with a mapping of field values. An absent (None) field counts as
    0; `name is None` tells the two apart. `items.name` is whether any item of a list has a field
    other than 0.
    Raises SyntaxError or TypeError at definition when it holds anything but arithmetic, comparison
    and names.
    """

    __slots__ = ("names", "rule", "source", "tree")

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = ast.parse(source, mode="eval")
        for node in ast.walk(self.tree):
            inner = isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name)
            if inner or not isinstance(node, _ALLOWED):
                raise TypeError(f"{type(node).__name__} is not allowed in {source!r}")
        self.names = tuple(
            sorted({node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)})
        )
        self.rule = _function(source)
        """The same for a mapping alone; raises KeyError where a name is not in it."""

    def __call__(self, packet: Any) -> Any:
        """Return the value of the expression for `packet`."""
        try:
            return self.rule(packet if isinstance(packet, dict) else _Names(packet))
        except KeyError as missing:
            raise NameError(f"{self.source!r} asks for {missing}") from None

    def __repr__(self) -> str:
        return f"E({self.source!r})"

    def translate(
        self,
        numbers: Mapping[str, str],
        values: Mapping[str, str],
        some: Callable[[str, str], str] = "{}.{}".format,
    ) -> str:
        """Return Python source of the expression with each name replaced by `numbers[name]`, or by
        `values[name]` where it is compared with None, and `items.name` by `some(items, name)`.
        """
        return _Renaming(numbers.__getitem__, values.__getitem__, some).text(self.source)
