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

from netdissect.layers.base import Layer
from netdissect.layers.eoudp.fields import Flag, Floats, Head, Real
from netdissect.layers.expr import E
from netdissect.layers.fields import Tail

__all__ = ["component_layer"]

TEXT_FIXED = 49
"""Bytes behind the text of a TextRendererComponent: 81 bytes less the 32 before the text."""


def _textured() -> list[Any]:
    """Return the fields that only a sprite with a texture has."""
    fields = [LELongField("asset", 0), Floats("coords", 2), Floats("cell", 2), Floats("sprite", 2)]
    return [ConditionalField(field, E("has_texture")) for field in fields]


class TagComponent(Layer):
    """A name."""

    fields_desc = [Head("text")]


class ScriptComponent(Layer):
    """The name of a script."""

    fields_desc = [Head("text")]


class TransformComponent(Layer):
    """Position, rotation (radians) and scale."""

    fields_desc = [Floats("translation", 3), Floats("rotation", 3), Floats("scale", 3, 1.0)]


class RigidBody2DComponent(Layer):
    """Physics of a body; type 0 is static, 1 dynamic."""

    fields_desc = [
        LESignedIntField("type", 1), Floats("velocity", 2), Real("gravity_scale"), Real("mass"),
    ]  # fmt: skip


class BoxCollider2DComponent(Layer):
    """A box; `mask` selects what it collides with."""

    fields_desc = [Floats("offset", 2), Floats("size", 2, 0.5), LEIntField("mask", 0xFFFFFFFF)]


class CircleCollider2DComponent(Layer):
    """A circle; `mask` selects what it collides with."""

    fields_desc = [Floats("offset", 2), Real("radius", 0.5), LEIntField("mask", 0xFFFFFFFF)]


class CameraComponent(Layer):
    """A camera; projection 0 is perspective, 1 orthographic. Angles are in radians."""

    fields_desc = [
        LESignedIntField("projection", 1), Real("fov", 0.785398), Real("near", 0.01),
        Real("far", 1000.0), Real("ortho_size", 10.0), Real("ortho_near", -1.0),
        Real("ortho_far", 1.0), Flag("primary", 1), Flag("fixed_aspect", 0),
    ]  # fmt: skip


class Health(Layer):
    """Hit points."""

    fields_desc = [LESignedIntField("current", 1), LESignedIntField("max", 1)]


class Clock(Layer):
    """Elapsed seconds."""

    fields_desc = [Real("elapsed")]


class Animation(Layer):
    """An animated sprite, v1.0 only."""

    fields_desc = [Real("current_frame"), Real("max_frame"), Real("frame_time"), Real("elapsed")]


class SpriteRendererComponent(Layer):
    """A sprite since v1.2."""

    fields_desc = [
        Floats("color", 4, 1.0), Real("tiling", 1.0), Flag("has_texture", 0), *_textured(),
    ]  # fmt: skip


class SpriteRendererComponentEarly(Layer):
    """A sprite before v1.2: the flag overwrites the first byte of the colour."""

    name = "SpriteRendererComponent"
    fields_desc = [
        Flag("has_texture", 0), StrFixedLenField("damaged_red", bytes(3), 3),
        Floats("green_blue_alpha", 3, 1.0), Real("tiling", 1.0),
        StrFixedLenField("undefined", bytes(1), 1), *_textured(),
    ]  # fmt: skip


class CircleRendererComponent(Layer):
    """A circle."""

    fields_desc = [Floats("color", 4, 1.0), Real("thickness", 1.0), Real("fade", 0.005)]


class TextRendererComponent(Layer):
    """A text. It overwrites the flag before it; the bytes behind it are uninitialised memory."""

    fields_desc = [
        Floats("color", 4, 1.0), LELongField("font", 0), Real("kerning"), Real("line_spacing"),
        Head("text", keep=TEXT_FIXED), Tail("uninitialised"),
    ]  # fmt: skip


class SoundComponent(Layer):
    """A sound."""

    fields_desc = [LELongField("asset", 0), Real("volume", 0.5), Flag("play", 0)]


class MusicComponent(Layer):
    """Music. Its flag is written past the end of the buffer and never sent."""

    fields_desc = [LELongField("asset", 0), Real("volume", 0.5)]


class IDComponent(Layer):
    """A pointer of the sending process, not the entity id as intended."""

    fields_desc = [StrFixedLenField("leaked_pointer_hex", bytes(8), 8)]


class Nothing(Layer):
    """A component that is serialised to no bytes."""

    fields_desc: list[Any] = []


_LAYERS: dict[str, type[Layer]] = {
    layer.__name__: layer
    for layer in (
        TagComponent, ScriptComponent, TransformComponent, RigidBody2DComponent,
        BoxCollider2DComponent, CircleCollider2DComponent, CameraComponent, Health, Clock,
        Animation, SpriteRendererComponent, CircleRendererComponent, TextRendererComponent,
        SoundComponent, MusicComponent, IDComponent,
    )
}  # fmt: skip
_LAYERS["ParentComponent"] = _LAYERS["ChildrenComponent"] = Nothing
_OVERLAID = ("exodia-early", "exodia-mid", "exodia-30")
"""Prefixes of the dialects with the sprite layout before v1.2."""


def component_layer(dialect: str, name: str) -> type[Layer] | None:
    """Return the layout of a component's data; None if the name is unknown."""
    if name == "SpriteRendererComponent" and dialect.startswith(_OVERLAID):
        return SpriteRendererComponentEarly
    return _LAYERS.get(name)
