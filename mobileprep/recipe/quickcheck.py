"""A quick yes to whether a value fits a schema, so that only misfits pay for jsonschema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from mobileprep.recipe.schemas import Schema
from mobileprep.recipe.tree import Plain

# Given a value, what the keyword asks for, the schema that has the keyword, and the root schema.
_Check: TypeAlias = Callable[[Plain, Any, Schema, Schema], bool]


class UnsureError(Exception):
    """The schema or the value has something that is not judged here."""


def surely_fits(value: Plain, schema: Schema) -> bool:
    """Whether a value fits a schema, as far as can be told without jsonschema.

    Importing jsonschema takes longer than all else that reading a recipe does, and nearly every
    recipe that is read is valid. True is as good as jsonschema's word; False means only that
    jsonschema has to be asked.
    """
    try:
        return judge(value, schema, schema)
    except UnsureError:
        return False


def judge(value: Plain, schema: Schema | bool, root: Schema) -> bool:
    """Whether a value fits; ``root`` is what references start from.

    Raises:
        UnsureError: a keyword or a value that is not judged here.
    """
    if isinstance(schema, bool):
        return schema
    for keyword, wanted in schema.items():
        if keyword in _WITHOUT_EFFECT:
            continue
        check = _CHECKS.get(keyword)
        if check is None:
            raise UnsureError
        if not check(value, wanted, schema, root):
            return False
    return True


def _reference(value: Plain, wanted: str, _schema: Schema, root: Schema) -> bool:
    target = root.get("$defs", {}).get(wanted.removeprefix("#/$defs/"))
    if target is None:
        raise UnsureError
    return judge(value, target, root)


def _type(value: Plain, wanted: str | list[str], _schema: Schema, _root: Schema) -> bool:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    return any(_TYPES[kind](value) for kind in kinds)


def _enum(value: Plain, wanted: list[Plain], _schema: Schema, _root: Schema) -> bool:
    if not isinstance(value, str):
        raise UnsureError
    return value in wanted


def _const(value: Plain, wanted: Plain, _schema: Schema, _root: Schema) -> bool:
    if type(value) is not type(wanted) or not isinstance(value, str | int):
        raise UnsureError
    return bool(value == wanted)


def _if(value: Plain, wanted: Schema, schema: Schema, root: Schema) -> bool:
    branch = "then" if judge(value, wanted, root) else "else"
    return judge(value, schema.get(branch, True), root)


def _not(value: Plain, wanted: Schema, _schema: Schema, root: Schema) -> bool:
    return not judge(value, wanted, root)


def _properties(value: Plain, wanted: Schema, _schema: Schema, root: Schema) -> bool:
    return not isinstance(value, dict) or all(
        judge(value[key], child, root) for key, child in wanted.items() if key in value
    )


def _additional(value: Plain, wanted: Schema | bool, schema: Schema, root: Schema) -> bool:
    known = schema.get("properties", {})
    return not isinstance(value, dict) or all(
        judge(child, wanted, root) for key, child in value.items() if key not in known
    )


def _names(value: Plain, wanted: Schema, _schema: Schema, root: Schema) -> bool:
    return not isinstance(value, dict) or all(judge(key, wanted, root) for key in value)


def _required(value: Plain, wanted: list[str], _schema: Schema, _root: Schema) -> bool:
    return not isinstance(value, dict) or all(key in value for key in wanted)


def _items(value: Plain, wanted: Schema | bool, _schema: Schema, root: Schema) -> bool:
    return not isinstance(value, list) or all(judge(item, wanted, root) for item in value)


def _unique(value: Plain, wanted: bool, _schema: Schema, _root: Schema) -> bool:
    if not wanted or not isinstance(value, list):
        return True
    if not all(isinstance(item, str) for item in value):
        raise UnsureError
    return len(set(value)) == len(value)


def _pattern(value: Plain, wanted: str, _schema: Schema, _root: Schema) -> bool:
    return not isinstance(value, str) or re.search(wanted, value) is not None


def _at_least(kind: str, measure: Callable[[Plain], float]) -> _Check:
    return lambda value, limit, _schema, _root: not _TYPES[kind](value) or measure(value) >= limit


def _at_most(kind: str, measure: Callable[[Plain], float]) -> _Check:
    return lambda value, limit, _schema, _root: not _TYPES[kind](value) or measure(value) <= limit


def _is_number(value: Plain) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Plain], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}
_ANNOTATIONS = {
    "$schema",
    "$id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "format",
    "graphTransformTool",
}
# Read with other keywords: "$ref", "pattern" and "if".
_COMPANIONS = {"$defs", "patternErrorMessage", "then", "else"}
_WITHOUT_EFFECT = _ANNOTATIONS | _COMPANIONS
_CHECKS: Mapping[str, _Check] = {
    "$ref": _reference,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "if": _if,
    "not": _not,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "required": _required,
    "items": _items,
    "uniqueItems": _unique,
    "pattern": _pattern,
    "minimum": _at_least("number", lambda value: value),
    "maximum": _at_most("number", lambda value: value),
    "minLength": _at_least("string", len),
    "maxLength": _at_most("string", len),
    "minItems": _at_least("array", len),
    "maxItems": _at_most("array", len),
    "minProperties": _at_least("object", len),
    "maxProperties": _at_most("object", len),
}
