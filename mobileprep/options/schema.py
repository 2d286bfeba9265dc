"""From declared options to JSON Schema."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from mobileprep.options.declare import ANY_NUMBER, Declared, declared

Schema: TypeAlias = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def parameters_schema(
    transform: type, name: str, summary: str, *, of_graph_transform_tool: bool
) -> Schema:
    """The schema of a transform's parameters.

    Args:
        transform: its dataclass.
        name: its name.
        summary: what it does, in a sentence.
        of_graph_transform_tool: whether the original tool has it too.
    """
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
    """The properties of a section of a recipe, by name."""
    return {option.name: _key(option) for option in declared(section)}


def rendered(schema: Schema) -> str:
    """A schema as the text of a file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _parameter(option: Declared) -> Schema:
    """A transform's parameter: whole numbers are the original's, and every default is told."""
    described = {"description": option.option.sentence, **_value(option)}
    if option.kind is int:
        least, most = ANY_NUMBER
        described = {**described, "minimum": least, "maximum": most, **_bounds(option)}
    return described if option.required else {**described, "default": _plain(option.default)}


def _key(option: Declared) -> Schema:
    """A key of a recipe; where there is no value without it, none is told."""
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
    """What a single value may be."""
    extra = option.option
    if extra.definition is not None:
        return {"$ref": f"#/$defs/{extra.definition}"}
    if option.choices:
        return {"enum": list(option.choices)}
    text = {"minLength": extra.min_length, "format": extra.format}
    given = {key: value for key, value in text.items() if value is not None}
    return {"type": _TYPES[option.kind], **given}


def _bounds(option: Declared) -> Schema:
    bounds = {"minimum": option.option.minimum, "maximum": option.option.maximum}
    return {key: value for key, value in bounds.items() if value is not None}


def _plain(default: Any) -> Any:  # noqa: ANN401 - JSON
    return list(default) if isinstance(default, tuple) else default
