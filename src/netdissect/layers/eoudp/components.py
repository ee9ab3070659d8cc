"""The data of each known component. The component's name on the wire selects the layout.

Values are packed and little-endian, without type tags.
*Source:* docs/protocols/eoudp.md, "Component data"; engine, `serialize` of the components.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    ConditionalField,
    LEIntField,
    LELongField,
    LESignedIntField,
    StrFixedLenField,
)

from netdissect.layers.base import Layer, make_layer
from netdissect.layers.eoudp.fields import Flag, Floats, Head, Real
from netdissect.layers.expr import E
from netdissect.layers.fields import Tail

TEXT_FIXED = 49
"""Bytes behind the text of a TextRendererComponent: 81 bytes less the 32 before the text."""


def _textured() -> list[Any]:
    """Return the fields that only a sprite with a texture has."""
    fields = [LELongField("asset", 0), Floats("coords", 2), Floats("cell", 2), Floats("sprite", 2)]
    return [ConditionalField(field, E("has_texture")) for field in fields]


def _whole(name: str, default: int) -> Any:
    return LESignedIntField(name, default)


def _mask() -> Any:
    """Return the mask that selects what a collider collides with."""
    return LEIntField("mask", 0xFFFFFFFF)


def _asset(name: str = "asset") -> Any:
    return LELongField(name, 0)


_LAYOUTS: dict[str, tuple[str, list[Any]]] = {
    "TagComponent": ("A name.", [Head("text")]),
    "ScriptComponent": ("The name of a script.", [Head("text")]),
    "TransformComponent": (
        "Position, rotation (radians) and scale.",
        [Floats("translation", 3), Floats("rotation", 3), Floats("scale", 3, 1.0)],
    ),
    "RigidBody2DComponent": (
        "Physics of a body; type 0 is static, 1 dynamic.",
        [_whole("type", 1), Floats("velocity", 2), Real("gravity_scale"), Real("mass")],
    ),
    "BoxCollider2DComponent": ("A box.", [Floats("offset", 2), Floats("size", 2, 0.5), _mask()]),
    "CircleCollider2DComponent": ("A circle.", [Floats("offset", 2), Real("radius", 0.5), _mask()]),
    "CameraComponent": (
        "A camera; projection 0 is perspective, 1 orthographic. Angles are in radians.",
        [
            _whole("projection", 1), Real("fov", 0.785398), Real("near", 0.01),
            Real("far", 1000.0), Real("ortho_size", 10.0), Real("ortho_near", -1.0),
            Real("ortho_far", 1.0), Flag("primary", 1), Flag("fixed_aspect", 0),
        ],
    ),
    "Health": ("Hit points.", [_whole("current", 1), _whole("max", 1)]),
    "Clock": ("Elapsed seconds.", [Real("elapsed")]),
    "Animation": (
        "An animated sprite, v1.0 only.",
        [Real("current_frame"), Real("max_frame"), Real("frame_time"), Real("elapsed")],
    ),
    "SpriteRendererComponent": (
        "A sprite since v1.2.",
        [Floats("color", 4, 1.0), Real("tiling", 1.0), Flag("has_texture", 0), *_textured()],
    ),
    "CircleRendererComponent": (
        "A circle.", [Floats("color", 4, 1.0), Real("thickness", 1.0), Real("fade", 0.005)],
    ),
    "TextRendererComponent": (
        "A text. It overwrites the flag before it; the bytes behind it are uninitialised memory.",
        [
            Floats("color", 4, 1.0), _asset("font"), Real("kerning"), Real("line_spacing"),
            Head("text", keep=TEXT_FIXED), Tail("uninitialised"),
        ],
    ),
    "SoundComponent": ("A sound.", [_asset(), Real("volume", 0.5), Flag("play", 0)]),
    "MusicComponent": (
        "Music. Its flag is written past the end of the buffer and never sent.",
        [_asset(), Real("volume", 0.5)],
    ),
    "IDComponent": (
        "A pointer of the sending process, not the entity id as intended.",
        [StrFixedLenField("leaked_pointer_hex", bytes(8), 8)],
    ),
    "Nothing": ("A component that is serialised to no bytes.", []),
}  # fmt: skip
"""Component -> (description, fields)."""


_LAYERS: dict[str, type[Layer]] = {
    name: make_layer(globals(), name, Layer, text, fields_desc=fields)
    for name, (text, fields) in _LAYOUTS.items()
}
_EARLY_SPRITE: type[Layer] = make_layer(
    globals(), "SpriteRendererComponentEarly", Layer,
    "A sprite before v1.2: the flag overwrites the first byte of the colour.",
    fields_desc=[
        Flag("has_texture", 0), StrFixedLenField("damaged_red", bytes(3), 3),
        Floats("green_blue_alpha", 3, 1.0), Real("tiling", 1.0),
        StrFixedLenField("undefined", bytes(1), 1), *_textured(),
    ],
    name="SpriteRendererComponent",
)  # fmt: skip
_LAYERS["ParentComponent"] = _LAYERS["ChildrenComponent"] = _LAYERS.pop("Nothing")
_OVERLAID = ("exodia-early", "exodia-mid", "exodia-30")
"""Prefixes of the dialects with the sprite layout before v1.2."""


def component_layer(dialect: str, name: str) -> type[Layer] | None:
    """Return the layout of a component's data; None if the name is unknown."""
    if name == "SpriteRendererComponent" and dialect.startswith(_OVERLAID):
        return _EARLY_SPRITE
    return _LAYERS.get(name)
