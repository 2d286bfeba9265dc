"""Declare options: a field of a Struct, annotated with its description and bounds.

    minimum_size: Annotated[int, Option("Constants with fewer elements stay as they are.")] = 1024

Type and default are those of the field, so that mypy checks them. Schemas, reference pages, and
flags are generated from such fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import NODEFAULT, Struct, structs

ANY_NUMBER = -(1 << 31), (1 << 31) - 1
"""Bounds of integers in the original tools."""


class Located(Struct, frozen=True, eq=False):
    """A declaration with fields that record its location.

    The fields in `aside` do not affect equality or the fingerprint.
    """

    aside: ClassVar[frozenset[str]] = frozenset()

    def essentials(self) -> dict[str, Any]:
        """Return the fields that affect equality, by name."""
        return {k: v for k, v in structs.asdict(self).items() if k not in self.aside}

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self.essentials() == other.essentials()

    def __ne__(self, other: object) -> bool:  # Struct compares identities.
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self.essentials().values()))


class Option(Struct, frozen=True):
    """The description and bounds of an option.

    Args:
        sentence: description for schemas, pages, and flags.
        minimum: minimum of a number.
        maximum: maximum of a number.
        min_length: minimum length of a string, or of each string in a list.
        min_items: minimum length of a list.
        max_items: maximum length of a list.
        unique: whether the items of a list must be unique.
        format: ``path`` for a file, ``checkpoint`` for the prefix of a checkpoint.
        choices: permitted strings if the type does not list them.
        definition: name of the recipe schema's definition for the value.
    """

    sentence: str
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique: bool = False
    format: Literal["path", "checkpoint"] | None = None
    choices: tuple[str, ...] = ()
    definition: str | None = None


class Declared(NamedTuple):
    """An option of a Struct.

    Args:
        name: name of the field.
        kind: type of the value, or of each item.
        repeated: whether the value is a list.
        choices: permitted values; empty for any.
        required: whether it is required.
        default: value of an optional option; None if it has none.
        option: description and bounds.
    """

    name: str
    kind: type
    repeated: bool
    choices: tuple[Any, ...]
    required: bool
    default: Any
    option: Option


def declared(owner: type) -> Iterator[Declared]:
    """Yield the options of a Struct in order, without other fields."""
    hints = get_type_hints(owner, include_extras=True)
    for field in structs.fields(owner):
        option = _option(hints[field.name])
        if option is not None:
            kind, repeated, choices = _kind(get_args(hints[field.name])[0])
            required = field.required
            default = None if field.default is NODEFAULT else field.default
            listed = option.choices or choices
            yield Declared(field.name, kind, repeated, listed, required, default, option)


def _option(hint: Any) -> Option | None:  # noqa: ANN401 - a type hint
    extras = getattr(hint, "__metadata__", ())
    return next((extra for extra in extras if isinstance(extra, Option)), None)


def _kind(hint: Any) -> tuple[type, bool, tuple[Any, ...]]:  # noqa: ANN401 - a type hint
    """Return the type of a value, whether it is a list, and its choices."""
    if get_origin(hint) is tuple:
        kind, _, choices = _kind(get_args(hint)[0])
        return kind, True, choices
    if get_origin(hint) is Literal:
        return type(get_args(hint)[0]), False, get_args(hint)
    if NoneType in get_args(hint):
        return _kind(next(kind for kind in get_args(hint) if kind is not NoneType))
    return hint, False, ()


Schema: TypeAlias = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def parameters_schema(
    transform: type, name: str, summary: str, *, of_graph_transform_tool: bool
) -> Schema:
    """Return the schema of a transform's parameters."""
    options = list(declared(transform))
    required = [option.name for option in options if option.required]
    return {
        "$schema": DIALECT,
        "title": name,
        "description": summary,
        **({"graphTransformTool": True} if of_graph_transform_tool else {}),
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {option.name: _parameter(option) for option in options},
    }


def section_schema(section: type) -> Schema:
    """Return the properties of a recipe section, by name."""
    return {option.name: _key(option) for option in declared(section)}


def rendered(schema: Schema) -> str:
    """Return the file content of a schema."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _parameter(option: Declared) -> Schema:
    """Return the schema of a transform parameter, with every default."""
    described = {"description": option.option.sentence, **_value(option)}
    if option.kind is int:
        least, most = ANY_NUMBER
        described = {**described, "minimum": least, "maximum": most, **_bounds(option)}
    return described if option.required else {**described, "default": _plain(option.default)}


def _key(option: Declared) -> Schema:
    """Return the schema of a recipe key, without a default if there is none."""
    described = {"description": option.option.sentence, **_value(option)}
    if option.default is None or (option.option.min_items and not option.default):
        return described
    return {**described, "default": _plain(option.default)}


def _value(option: Declared) -> Schema:
    extra = option.option
    if not option.repeated:
        return {**_one(option), **_bounds(option)}
    items = {
        "minItems": extra.min_items,
        "maxItems": extra.max_items,
        "uniqueItems": extra.unique or None,
        "items": {**_one(option), **_bounds(option)},
    }
    return {"type": "array", **{key: value for key, value in items.items() if value is not None}}


def _one(option: Declared) -> Schema:
    """Return the schema of a single value."""
    extra = option.option
    if extra.definition is not None:
        return {"$ref": f"#/$defs/{extra.definition}"}
    if option.choices:
        return {"enum": list(option.choices)}
    text = {"minLength": extra.min_length, "format": extra.format}
    constraints = {key: value for key, value in text.items() if value is not None}
    return {"type": _TYPES[option.kind], **constraints}


def _bounds(option: Declared) -> Schema:
    bounds = {"minimum": option.option.minimum, "maximum": option.option.maximum}
    return {key: value for key, value in bounds.items() if value is not None}


def _plain(default: Any) -> Any:  # noqa: ANN401 - JSON
    return list(default) if isinstance(default, tuple) else default
