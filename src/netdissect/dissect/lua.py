"""Generates a dissector for Wireshark: Lua tables of the layers, their conditions and checks.

`data/wireshark/runtime.lua` interprets the tables, and `register.lua` cuts streams into messages.
What a layer module states as code (which layer reads a payload, how long a message in a stream is)
is written again in `data/wireshark/<protocol>.lua`, with the tables of
`layers/<protocol>/tables.py`. A plug-in has
neither: `selection` finds out which layer reads what. A field class that is not known here may have
a method `lua(self, tools)`, which returns its step.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from importlib import import_module, resources
from importlib.util import find_spec
from itertools import pairwise
from string import Formatter
from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ConditionalField,
    Field,
    FlagsField,
    LEThreeBytesField,
    MayEnd,
    StrFixedLenField,
    ThreeBytesField,
)

from netdissect.dissect.engine import Request, layer_module
from netdissect.dissect.names import layers_of
from netdissect.dissect.selection import Chooser, NoTableError, samples, selection_table
from netdissect.layers.base import Check, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, IfLeft, Items, NulString, SizedBytes, Tail, Varint
from netdissect.layers.lsb import LsbBits, LsbPad, LsbTail, LsbVarULong
from netdissect.model.errors import UsageError
from netdissect.wire.varint import OWN, VarintCodec

_WIDE = 8
"""Size in bytes of integers that need a 64-bit field in Wireshark."""
_FLOATS = "fd"
"""`struct` codes of floats."""


def script(facts: Mapping[str, Any]) -> str:
    """Return the Lua of the dissectors of some protocols.

    Args:
        facts: name -> {title, dialects, ports, transports, codes, module}, as `lookup` gives them;
            `module` is that of a plug-in's layers.

    Raises:
        UsageError: the layers of a plug-in cannot be written so.

    """
    home = resources.files("netdissect.data").joinpath("wireshark")
    parts = [home.joinpath(f"{name}.lua").read_text("utf-8") for name in ("runtime", "register")]
    for name, known in facts.items():
        if known["module"] is None:
            glue = home.joinpath(f"{name}.lua").read_text("utf-8")
            rows = _protocol(name, known, _Maker(), {})
        else:
            glue, rows = "", _plugin(name, known)
        parts.append(f"do -- {name}\nlocal P = {rows}\n{glue}\nregister(P)\nend\n")
    return "\n".join(parts)


def _plugin(name: str, known: Mapping[str, Any]) -> str:
    """Return the table of a plug-in."""
    if "udp" not in known["transports"]:
        raise UsageError(
            f"the plug-in {name} is carried by TCP alone: only code knows its messages"
        )
    module = layer_module(known["module"])
    ways = [(way, "udp") for way in (None, 0, 1)]
    made = _Maker(samples(layers_of(module)))
    try:
        roots = {
            dialect: made.choice(
                *(partial(_rooted, module.root, Request(dialect, *way)) for way in ways)
            )
            for dialect in known["dialects"]
        }
        return _protocol(name, {**known, "transports": ["udp"]}, made, {"roots": roots})
    except (NoTableError, TypeError) as error:  # TypeError: a field that has no step
        raise UsageError(f"no Lua can be made of the plug-in {name}: {error}") from error


def _rooted(root: Callable[[bytes, Request], Any], request: Request, octets: bytes) -> Any:
    return root(octets, request)


def _protocol(name: str, known: Mapping[str, Any], made: _Maker, more: Mapping[str, Any]) -> str:
    module = layer_module(known["module"] or name)
    tables = f"netdissect.layers.{name}.tables"
    built_in = known["module"] is None and find_spec(tables) is not None
    layers = {made.called(layer): made.layer(layer) for layer in layers_of(module)}
    return _lua(
        {
            "name": name,
            "proto_name": known["proto_name"],
            "title": known["title"],
            "dialects": list(known["dialects"]),
            "ports": list(known["ports"]),
            "transports": list(known["transports"]),
            "codes": {**known["codes"], "malformed": ["error", "Cannot be read"]},
            "kinds": made.kinds,
            "layers": layers,
            "tables": import_module(tables).TABLES if built_in else {},
            "choose": {},
            "codecs": made.codecs,
            **more,
        }
    )


class _Raw(str):
    """Lua source, as opposed to a string."""

    __slots__ = ()


def _lua(value: Any) -> str:  # noqa: PLR0911 - one a type
    """Return a value as Lua source."""
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, type):
        return _lua(value.__name__)
    if isinstance(value, str):
        return '"' + "".join(
            character if " " <= character <= "~" and character not in '"\\' else
            "".join(f"\\{octet:03d}" for octet in character.encode())
            for character in value
        ) + '"'  # fmt: skip
    if isinstance(value, bytes):
        return _lua(value.hex())
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        rows = (f"[{_lua(key)}]={_lua(item)}" for key, item in value.items() if item is not None)
        return "{" + ",\n".join(rows) + "}"
    return "{" + ",\n".join(map(_lua, value)) + "}"


def rule(expression: Any) -> _Raw:
    """Return an expression as a Lua function of the fields read so far.

    Raises:
        TypeError: it is not an `E`, but a Python function.

    """
    if not isinstance(expression, E):
        raise TypeError("a condition, length or count is code, not an E expression")
    return _Raw(f"function(v) return {_expression(expression.tree.body)} end")


_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "({} + {})", ast.Sub: "({} - {})", ast.Mult: "({} * {})",
    ast.FloorDiv: "floor({} / {})", ast.Mod: "({} % {})", ast.LShift: "SHL({}, {})",
    ast.RShift: "SHR({}, {})", ast.BitAnd: "BAND({}, {})", ast.BitOr: "BOR({}, {})",
    ast.BitXor: "BXOR({}, {})", ast.Eq: "B({} == {})", ast.NotEq: "B({} ~= {})",
    ast.Lt: "B({} < {})", ast.LtE: "B({} <= {})", ast.Gt: "B({} > {})", ast.GtE: "B({} >= {})",
}  # fmt: skip


def _expression(node: ast.AST) -> str:  # noqa: PLR0911 - one a kind of node
    """Return the syntax tree of an expression as Lua source."""
    if isinstance(node, ast.Name):
        return f"N(v.{node.id})"
    if isinstance(node, ast.Constant):
        return _lua(int(node.value) if isinstance(node.value, bool) else node.value)
    if isinstance(node, ast.BinOp):
        operator = _OPERATORS[type(node.op)]
        return operator.format(_expression(node.left), _expression(node.right))
    if isinstance(node, ast.BoolOp):
        name = "AND" if isinstance(node.op, ast.And) else "OR"
        return _joined(name, map(_expression, node.values))
    if isinstance(node, ast.UnaryOp):
        inner = _expression(node.operand)
        return f"B(not T({inner}))" if isinstance(node.op, ast.Not) else f"(-{inner})"
    if isinstance(node, ast.Compare):
        sides = pairwise([node.left, *node.comparators])
        pairs = zip(sides, node.ops, strict=True)
        return _joined("AND", [_compared(left, symbol, right) for (left, right), symbol in pairs])
    if isinstance(node, ast.IfExp):
        test, yes, no = map(_expression, (node.test, node.body, node.orelse))
        return f"(T({test}) and {yes} or {no})"
    raise TypeError(f"no Lua for {ast.dump(node)}")


def _joined(name: str, parts: Iterable[str]) -> str:
    return reduce(lambda found, part: f"{name}({found}, {part})", parts)


def _compared(left: ast.expr, symbol: ast.cmpop, right: ast.expr) -> str:
    """Return a comparison as Lua source."""
    if isinstance(symbol, ast.Is | ast.IsNot) and isinstance(left, ast.Name):
        return f"B(v.{left.id} {'==' if isinstance(symbol, ast.Is) else '~='} nil)"
    if isinstance(right, ast.Tuple | ast.Set):
        found = " or ".join(f"{_expression(left)} == {_expression(item)}" for item in right.elts)
        return f"B({'not ' if isinstance(symbol, ast.NotIn) else ''}({found}))"
    return _OPERATORS[type(symbol)].format(_expression(left), _expression(right))


class _Maker:
    """Makes the tables of layers, and collects the kinds of their fields."""

    def __init__(self, samples: Iterable[bytes] = ()) -> None:
        """Take the samples for `selection_table`; without samples, Lua code chooses the layers."""
        self.kinds: dict[str, str] = {"trailing": "bytes"}
        """Name of a field -> kind."""
        self.codecs: dict[str, _Raw] = {}
        """Encodings of numbers that the runtime does not have, by name."""
        self._called: dict[type[Layer], str] = {}
        """Layer -> name in the script."""
        self._samples = tuple(samples)

    def called(self, layer: type[Layer]) -> str:
        """Return the name of a layer in the script: that of the class, made unique."""
        if layer not in self._called:
            name = layer.__name__
            while name in self._called.values():
                name += "_"
            self._called[layer] = name
        return self._called[layer]

    def layer(self, layer: type[Layer]) -> _Raw:
        """Return the table of a layer: title, checks, and a step per field."""
        steps = [_lua(step) for field in layer.fields_desc if (step := self._step(field))]
        rows = [f"title={_lua(str(layer._name or layer.__name__))}"]  # noqa: SLF001 - Scapy's
        checks = [made for check in layer.checks if (made := _check(check)) is not None]
        if checks:
            rows.append(f"checks={_lua(checks)}")
        return _Raw("{" + ",\n".join([*rows, *steps]) + "}")

    def choice(self, *choose: Chooser) -> dict[Any, Any]:
        """Return the table of which layer is chosen for which bytes.

        Raises:
            NoTableError: there is no such table.

        """
        return selection_table(choose, self._samples, self.called)

    def _chosen(self, choose: Callable[[Any, bytes], Any] | None) -> dict[str, Any]:
        """Return the addition to a step whose layer a Python function chooses."""
        if not self._samples or choose is None:
            return {}
        return {"rows": self.choice(partial(choose, {}))}

    def _codec(self, codec: VarintCodec) -> str:
        """Return the name of an encoding of numbers, for which the script has a function.

        Raises:
            TypeError: there is no Lua function for it.

        """
        if codec.lua:
            self.codecs[codec.name] = _Raw(codec.lua)
        elif codec not in OWN:
            raise TypeError(f"the VarintCodec {codec.name} has no lua")
        return codec.name

    def _step(self, field: Any) -> dict[str, Any]:
        more: dict[str, Any] = {}
        while True:
            if isinstance(field, ConditionalField):
                more["c"] = rule(field.cond)
            elif isinstance(field, IfLeft):
                more["left"] = field.bits
            elif not isinstance(field, MayEnd):
                break
            field = field.fld
        shown = getattr(field, "shown", field.name)
        step = {"n": field.name, "s": shown, **self._kind(field), **more}
        if isinstance(field, Field) and not isinstance(field.default, (bytes, list)):
            plain = getattr(field, "plain", None)
            if plain is not None and step["k"] in {"bits", "int"} and plain(1) is True:
                step["flag"] = True
        names = getattr(field, "names", None)
        if not names and hasattr(field, "i2s"):
            names = dict(field.i2s)
        if names:
            step["names"] = {number: str(name) for number, name in names.items()}
        self._gather(shown, step)
        return step

    def _gather(self, shown: str, step: dict[str, Any]) -> None:
        """Record the kind of a field."""
        item = step.get("item")
        if step["k"] == "array" and isinstance(item, dict):
            item["s"] = shown
            self._gather(shown, item)
            return
        if step["k"] == "items" or step.get("hidden"):
            return
        if step["k"] == "embedded":
            # What cannot be read as a layer is shown as bytes.
            self._note(step["n"], "bytes")
            return
        kind = "int"
        if step["k"] == "float":
            kind = "float"
        elif step.get("size") == _WIDE and step["k"] == "int" and not step.get("signed"):
            kind = "u64"
        elif step["k"] == "until_" or step.get("text"):
            kind = "str"
        elif step["k"] in {"sized", "fixed", "tail", "lsbtail"}:
            kind = "bytes"
        self._note(shown, kind)

    def _note(self, shown: str, kind: str) -> None:
        """Record that a field is of this kind."""
        before = self.kinds.setdefault(shown, kind)
        if before != kind:
            # In Wireshark a name has one kind: the wider one of two integers, else text.
            wide = {before, kind} == {"int", "u64"}
            self.kinds[shown] = "u64" if wide else "str"

    def _kind(self, field: Any) -> dict[str, Any]:  # noqa: PLR0911 - one a kind of field
        own = getattr(field, "lua", None)
        if own is not None:
            made: dict[str, Any] = own(_Tools)
            return made
        if isinstance(field, LsbPad):
            return {"k": "lsbpad", "s": "padding"}
        if isinstance(field, LsbBits):
            return {"k": "lsb", "size": field.size, "signed": field.signed}
        if isinstance(field, LsbVarULong):
            return {"k": "varulong", "keep": field.keep}
        if isinstance(field, LsbTail):
            return {"k": "lsbtail"}
        if isinstance(field, Varint):
            return {"k": "varint", "codec": self._codec(field.codec)}
        if isinstance(field, Embedded):
            how = {"k": "embedded", "choose": getattr(field.choose, "__name__", "choose")}
            how |= self._chosen(field.choose)
            return how if field.length is None else {**how, "len": rule(field.length)}
        if isinstance(field, Items):
            how = {"k": "items", "item": self.called(field.item), "reserve": field.reserve}
            how |= self._chosen(field.choose)
            return how if field.count is None else {**how, "count": rule(field.count)}
        return _octets(field) or _fixed(field)


class _Tools:
    """The argument `tools` of the method `lua` of a field class."""

    rule = staticmethod(rule)

    @staticmethod
    def item(field: Any) -> dict[str, Any]:
        """Return the step of one value of a list."""
        return {"n": field.name, "s": field.name, **_Maker()._kind(field)}  # noqa: SLF001


def _octets(field: Any) -> dict[str, Any]:
    """Return the step of a field of bytes, {} for another field."""
    text = hasattr(field, "plain")
    if isinstance(field, NulString):
        shows_text = isinstance(field.unterminated(b"").value, str)
        step = {"k": "until_", "mark": field.mark[0], "code": field.code}
        return {**step, "endless_text": shows_text}
    if isinstance(field, SizedBytes):
        length = field.length
        known = length if isinstance(length, E) else E("length")
        return {"k": "sized", "len": rule(known), "text": text}
    if isinstance(field, Tail):
        return {"k": "tail"}
    if isinstance(field, StrFixedLenField):
        return {"k": "fixed", "size": int(field.length_from(None)), "lenient": True}
    return {}


def _fixed(field: Any) -> dict[str, Any]:
    """Return the step of a field of fixed size."""
    if isinstance(field, (BitField, BitEnumField, FlagsField)) and not field.rev:
        return {"k": "bits", "size": int(field.size)}
    if isinstance(field, (ThreeBytesField, LEThreeBytesField)):
        return {"k": "int", "size": 3, "le": isinstance(field, LEThreeBytesField)}
    if not isinstance(field, Field):
        raise TypeError(f"no step for {type(field).__name__}: give the class a lua(self, tools)")
    letters = field.fmt.lstrip("!<>=@")
    size = struct.calcsize(field.fmt)
    if letters.endswith("s"):
        return {"k": "fixed", "size": size}
    le = field.fmt.startswith("<")
    if letters in _FLOATS:
        return {"k": "float", "float": True, "size": size, "le": le}
    return {"k": "int", "size": size, "le": le, "signed": letters.islower()}


def _check(check: Check) -> dict[str, Any] | None:
    """Return the table of a check; None if it is a Python function, or about items of a list."""
    if not isinstance(check.when, E):
        return None
    try:
        when = _expression(check.when.tree.body)
    except TypeError:
        return None
    text = "".join(
        literal + ("" if name is None else f"{{{name}}}")
        for literal, name, _, _ in Formatter().parse(check.message)
    )
    # T: in Lua, 0 is true.
    return {"when": _Raw(f"function(v) return T({when}) end"), "code": check.code, "text": text}
