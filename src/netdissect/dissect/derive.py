"""Generates the derived readers: from a layer's `fields_desc`, a straight-line Python function.

`read_<Layer>(buf, off, end)` returns a tuple of one value per field (None if absent) and the next
offset, or None if bytes are missing; the walker then shows what there is. `odd_<Layer>` takes that
tuple and appends a finding for each broken soft rule that is an expression. A rule with a severity
of its own is left to the walker, since an event has the severity of its code.

The functions are in `dissect/readers/<protocol>.py`, so that the hot path does not import Scapy.
`python -m netdissect.dissect.derive` rewrites them; a test checks that they are current.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Formatter
from typing import Any

from netdissect.dissect.derive_bits import with_words
from netdissect.dissect.derive_fields import python_source, source, written
from netdissect.dissect.engine import layer_module
from netdissect.layers.base import Check
from netdissect.layers.expr import E
from netdissect.layers.fields import Items

_HEADER = '''"""Derived readers of {protocol}: generated from the layers, do not edit.

`python -m netdissect.dissect.derive` regenerates them. `read_...` returns one value per field and
the next offset, or None if bytes are missing. `odd_...` appends a finding for each soft rule that
these values break; without a reader, its values are those that the rules name, in field order.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final
{imports}

'''

def odd_source(
    layer: type[Any], skip: Iterable[str], rows: Mapping[type[Any], Iterable[str]]
) -> str:
    """Return the source, without its name, of `odd_...` of a layer; "" if it would do nothing.

    It applies the soft rules of the layer and of the items in its lists to what the readers return.

    Args:
        layer: the layer class.
        skip: fields whose values its reader does not return.
        rows: all layers with readers -> fields that those do not return.

    """
    return _odd(layer, _returned(layer, skip), rows)


def rule_source(layer: type[Any]) -> str:
    """Return the source of `odd_...` of a layer without a reader, without its name.

    Its values are the fields that the rules name, in field order.
    """
    rules = (check for check in layer.checks if isinstance(check.when, E))
    used = {name for check in rules for name in _fields_of(check)}
    return _odd(layer, [field.name for field in layer.fields_desc if field.name in used], {})


def _returned(layer: type[Any], skip: Iterable[str]) -> list[str]:
    """Return the names of the values that a reader returns."""
    return [value.removeprefix("v_") for value in written(layer, skip).values]


def _fields_of(check: Check) -> set[str]:
    """Return the fields that a rule and its message name."""
    shown = {name for _, name, _, _ in Formatter().parse(check.message) if name is not None}
    return shown | {*check.when.names} if isinstance(check.when, E) else shown


def _odd(
    layer: type[Any], values: list[str], rows: Mapping[type[Any], Iterable[str]]
) -> str:
    names = {name: f"values[{place}]" for place, name in enumerate(values)}
    names["_direction"] = "direction"
    lists = {
        field.name: field.item for field in layer.fields_desc
        if isinstance(field, Items) and field.name in names
    }  # fmt: skip

    def any_item(items: str, name: str) -> str:
        place = _returned(lists[items], rows[lists[items]]).index(name)
        return f"any(item[{place}] for item in {names[items]})"

    body: list[str] = []
    for check in layer.checks:
        derivable = isinstance(check.when, E) and check.severity is None
        if not derivable or not names.keys() >= _fields_of(check):
            continue
        text = "".join(
            literal + ("" if name is None else f"{{{names[name]}{form and ':' + form}}}")
            for literal, name, form, _ in Formatter().parse(check.message)
        )
        note = f"(Ev.NOTE, {check.code!r}, {'f' if '{' in text else ''}{text!r})"
        body.append(f"    if {python_source(check.when, names, any_item)}: found.append({note})")
    for name, item in lists.items():
        if item in rows and odd_source(item, rows[item], rows):
            loop = f"for item in {names[name]}: odd_{item.__name__}(item, direction, found)"
            body.append(f"    {loop}")
    if not body:
        return ""
    head = "(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:"
    return "\n".join([head, *body])


def module_source(protocol: str) -> str:
    """Return the source of `dissect/readers/<protocol>.py`, from tables of the layer module.

    `READERS` is a list of (layer, fields to skip). The items of their lists are read too, whether
    they are in it or not. Layers of one layout share a reader. For layers in `RULES`, only the soft
    rules are generated. Layers in `WORDS`, those of the most frequent messages, have a second
    reader, which creates no objects (`with_words`).
    """
    module = layer_module(protocol)
    text = _module(protocol, module.READERS, getattr(module, "RULES", ()))
    skips = dict(module.READERS)
    writers = [written(layer, skips[layer]) for layer in getattr(module, "WORDS", ())]
    return with_words(text, writers)


def _with_items(rows: Iterable[tuple[type[Any], Iterable[str]]]) -> dict[type[Any], Iterable[str]]:
    """Return layer -> fields to skip, where the items of a list come before it."""
    stated = dict(rows)
    found: dict[type[Any], Iterable[str]] = {}

    def add(layer: type[Any]) -> None:
        for field in layer.fields_desc:
            inner = getattr(field, "fld", field)
            if isinstance(inner, Items) and inner.choose is None and inner.item not in found:
                add(inner.item)
        found[layer] = stated.get(layer, ())

    for layer in stated:
        if layer not in found:
            add(layer)
    return found


def _module(
    title: str, stated: Iterable[tuple[type[Any], Iterable[str]]], rules: Iterable[type[Any]] = ()
) -> str:
    rows = _with_items(stated)
    functions: dict[str, str] = {}
    shared: list[str] = []
    structs: dict[str, str] = {}
    imports: set[str] = set()
    made: list[tuple[str, str]] = []
    for layer, skip in rows.items():
        text, needed, needs = source(layer, skip)
        made.append((f"read_{layer.__name__}", text))
        made.append((f"odd_{layer.__name__}", odd_source(layer, skip, rows)))
        structs |= needed
        imports |= needs
    made += [(f"odd_{layer.__name__}", rule_source(layer)) for layer in rules]
    for name, text in made:
        if text and functions.setdefault(text, name) != name:
            shared.append(f"{name}: Final = {functions[text]}")
        if text and name.startswith("odd_"):
            imports.add("from netdissect.model.events import Ev, Event")
    constants = "\n".join(
        f"{local}: Final = {what}"
        if "." in what
        else f'{local}: Final = Struct("{what}").unpack_from'
        for what, local in sorted(structs.items(), key=lambda item: item[1])
    )
    parts = [constants, *(f"def {name}{text}" for text, name in functions.items())]
    if shared:
        parts.append("\n".join(shared))
    lines = "\n".join(["", *sorted(imports)] if imports else [])
    return _HEADER.format(protocol=title, imports=lines) + "\n\n\n".join(parts) + "\n"


def main() -> None:
    """Write the reader modules of all built-in protocols."""
    from netdissect.layers import PROTOCOLS  # noqa: PLC0415

    folder = Path(__file__).parent / "readers"
    for protocol in PROTOCOLS:
        if find_spec(f"netdissect.layers.{protocol}") is None:
            continue
        if hasattr(layer_module(protocol), "READERS"):
            (folder / f"{protocol}.py").write_text(module_source(protocol), encoding="utf-8")


if __name__ == "__main__":
    main()
