"""Check a tree against a JSON Schema, and report every problem with its location."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from mobileprep.errors import nearest_hint
from mobileprep.recipe.schemas import Schema, no_schema
from mobileprep.recipe.tree import (
    MappingNode,
    Node,
    Plain,
    Problem,
    Scalar,
    ScalarValue,
    find,
    place_of,
    plain,
    show,
)
from mobileprep.recipe.units import resolve

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_TYPE_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
# Errors that invalid schemas cause in code that uses them.
_NO_SCHEMA = (TypeError, KeyError, AttributeError, ValueError, RecursionError, re.error)
_QUOTED = re.compile(r"([\"'])(.*?)\1")
_YAML_1_1_BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def schema_problems(root: Node, schema: Schema, *, where: str = "") -> list[Problem]:
    """Return all problems of a tree, in the order of the schema.

    Args:
        root: the tree.
        schema: a JSON Schema (2020-12). ``patternErrorMessage``, which editors also support, is the
            error message of a ``pattern``.
        where: file of an untrusted schema; empty for schemas of this package.
    """
    value = plain(root)
    if not where:
        return [] if surely_fits(value, schema) else _problems(root, schema)
    try:
        if surely_fits(value, schema):
            return []
    except _NO_SCHEMA:
        pass  # jsonschema reports details.
    return _of_stranger(root, schema, where)


def _of_stranger(root: Node, schema: Schema, where: str) -> list[Problem]:
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        _validator_class().check_schema(schema)
        return _problems(root, schema)
    except SchemaError as error:
        at = "/".join(map(str, error.absolute_path))
        msg = f"{at}: {show(error.message, 200)}"
        raise no_schema(msg, where) from error
    except Unresolvable as error:
        msg = f"it refers to {error.ref}, which is not in it"
        raise no_schema(msg, where) from error
    except _NO_SCHEMA as error:
        raise no_schema(show(str(error), 200), where) from error


def _problems(root: Node, schema: Schema) -> list[Problem]:
    # Without this registry, jsonschema would download external references.
    from referencing.jsonschema import EMPTY_REGISTRY

    validator = _validator_class()(schema, registry=EMPTY_REGISTRY)
    return [p for error in validator.iter_errors(plain(root)) for p in _describe(error, root)]


@lru_cache(maxsize=1)
def _validator_class() -> type[Validator]:
    # This import takes longer than reading a recipe, and is only needed for errors.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    kind: type[Validator] = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, {"uniqueItems": _unique_items}
    )
    return kind


def _unique_items(
    _validator: Validator, unique: bool, instance: Plain, _schema: Schema
) -> Iterator[ValidationError]:
    """Check ``uniqueItems`` for strings in linear time, unlike jsonschema for mixed lists."""
    from jsonschema.exceptions import ValidationError

    if not unique or not isinstance(instance, list):
        return
    seen: set[str] = set()
    for index, item in enumerate(instance):
        if isinstance(item, str) and item in seen:
            yield ValidationError("twice", path=[index], validator="uniqueItems", instance=item)
        elif isinstance(item, str):
            seen.add(item)


def _describe(error: ValidationError, root: Node) -> Iterator[Problem]:
    path = tuple(error.absolute_path)
    node = find(root, path)
    if node is None:  # The schema names a value that the tree does not have.
        node = root
    describe = _DESCRIBE.get(str(error.validator), _other)
    names_key = "propertyNames" in error.absolute_schema_path
    for problem in describe(error, node):
        if names_key and isinstance(node, MappingNode):
            entry = node.entries[str(error.instance)]
            yield problem._replace(place=entry.key_place)
        elif problem.place is node.place:
            yield problem._replace(place=place_of(root, path))
        else:
            yield problem


def _unknown_keys(error: ValidationError, node: Node) -> Iterator[Problem]:
    keys = list(_keyword(error, "properties", {}))
    assert isinstance(node, MappingNode)
    for key, entry in node.items():
        if key in keys:
            continue
        hint = nearest_hint(key, keys) or f"known here: {', '.join(keys)}"
        yield Problem(entry.key_place, f"unknown key {show(key)}", hint)


def _missing_keys(error: ValidationError, node: Node) -> Iterator[Problem]:
    for key in _limit(error):
        if isinstance(node, MappingNode) and key not in node.entries:
            yield Problem(node.place, f"the key {key!r} is missing", f"add '{key}: ...'")


def _wrong_type(error: ValidationError, node: Node) -> Iterator[Problem]:
    types = _limit(error)
    kinds = [types] if isinstance(types, str) else [k for k in types if k != "null"]
    expected = " or ".join(_TYPE_WORDS[kind] for kind in kinds)
    message = f"expected {expected}, found {_value_text(node)}"
    yield Problem(node.place, message, _type_hint(kinds, node))


def _type_hint(kinds: list[str], node: Node) -> str:
    if not isinstance(node, Scalar):
        return ""
    value, text = node.value, node.text
    if "string" in kinds and isinstance(value, bool | int | float):
        return f'write "{text}" in quotes'
    if "boolean" in kinds and text.lower() in _YAML_1_1_BOOLEANS:
        return f"write {_YAML_1_1_BOOLEANS[text.lower()]}"
    if isinstance(value, str) and not node.plain and _is_of(resolve(text), kinds):
        return f"write {_as_written(node)} without quotes"
    if kinds == ["array"] and value is not None and len(text) < 60:
        return f"write [{text}]"
    return ""


def _is_of(value: ScalarValue, kinds: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    return isinstance(value, int | float) and bool({"integer", "number"} & set(kinds))


def _as_written(node: Scalar) -> str:
    """Return the source text of a quoted value with a variable, otherwise the value's text."""
    line = node.place.source.lines[node.place.line - 1][node.place.column - 1 :]
    written = _QUOTED.match(line)
    return written[2] if written and "${" in written[2] else node.text


def _value_text(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if not isinstance(node, Scalar):
        return "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, str):
        return f"the text {show(node.value)}"
    return node.text if isinstance(node.value, bool) else f"the number {node.text}"


def _not_listed(error: ValidationError, node: Node) -> Iterator[Problem]:
    allowed = [str(value) for value in _limit(error)]
    text = error.instance if isinstance(error.instance, str) else None
    if text is not None:
        hint = nearest_hint(text, allowed)
    else:
        quotable = isinstance(node, Scalar) and node.text in allowed
        hint = f'write "{node.text}" in quotes' if isinstance(node, Scalar) and quotable else ""
    shown = show(text) if text is not None else _value_text(node)
    yield Problem(node.place, f"expected one of {', '.join(allowed)}, found {shown}", hint)


def _not_constant(error: ValidationError, node: Node) -> Iterator[Problem]:
    yield Problem(node.place, f"expected {_limit(error)}, found {_value_text(node)}")


def _wrong_text(error: ValidationError, node: Node) -> Iterator[Problem]:
    rule = _keyword(error, "patternErrorMessage", f"must match {_limit(error)}")
    hint = nearest_hint(str(error.instance), _keyword(error, "examples", []))
    yield Problem(node.place, f"{show(error.instance)} cannot be used here: {rule}", hint)


def _repeated(error: ValidationError, node: Node) -> Iterator[Problem]:
    yield Problem(node.place, f"{show(error.instance)} is listed twice", "keep one of them")


def _out_of_bounds(error: ValidationError, node: Node) -> Iterator[Problem]:
    wording = _BOUNDS[str(error.validator)]
    limit = _limit(error)
    yield Problem(node.place, wording.format(limit=limit, plural="" if limit == 1 else "s"))


def _other(error: ValidationError, node: Node) -> Iterator[Problem]:
    yield Problem(node.place, f"does not fit: {show(error.message, 200)}")


def _limit(error: ValidationError) -> Plain:
    """Return the value of the failed keyword."""
    return error.validator_value


def _keyword(error: ValidationError, keyword: str, default: Plain) -> Plain:
    """Return another keyword of the schema with the failed keyword."""
    schema = error.schema
    return schema.get(keyword, default) if isinstance(schema, dict) else default


_BOUNDS = {
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be greater than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "minLength": "needs at least {limit} character{plural}",
    "maxLength": "may have at most {limit} character{plural}",
    "minItems": "needs at least {limit} item{plural}",
    "maxItems": "may have at most {limit} item{plural}",
    "minProperties": "needs at least {limit} key{plural}",
    "maxProperties": "may have at most {limit} key{plural}",
}
_DESCRIBE: dict[str, Callable[[ValidationError, Node], Iterator[Problem]]] = {
    "additionalProperties": _unknown_keys,
    "required": _missing_keys,
    "type": _wrong_type,
    "enum": _not_listed,
    "const": _not_constant,
    "pattern": _wrong_text,
    "uniqueItems": _repeated,
    **dict.fromkeys(_BOUNDS, _out_of_bounds),
}


# Arguments: the value, the keyword's value, the schema with the keyword, and the root schema.
_Check: TypeAlias = Callable[[Plain, Any, Schema, Schema], bool]


class UnsureError(Exception):
    """The schema or the value contains something that this module cannot check."""


def surely_fits(value: Plain, schema: Schema) -> bool:
    """Return whether a value certainly fits a schema, without importing jsonschema.

    Importing jsonschema takes longer than all other steps of reading a recipe, and most recipes are
    valid. True is as reliable as the result of jsonschema; False means only that jsonschema must
    check the value.
    """
    try:
        return judge(value, schema, schema)
    except UnsureError:
        return False


def judge(value: Plain, schema: Schema | bool, root: Schema) -> bool:
    """Return whether a value fits a schema; ``root`` resolves references.

    Raises:
        UnsureError: if this module cannot check the schema or the value.
    """
    if isinstance(schema, bool):
        return schema
    for keyword, argument in schema.items():
        if keyword in _WITHOUT_EFFECT:
            continue
        check = _CHECKS.get(keyword)
        if check is None:
            raise UnsureError
        if not check(value, argument, schema, root):
            return False
    return True


def _reference(value: Plain, reference: str, _schema: Schema, root: Schema) -> bool:
    target = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
    if target is None:
        raise UnsureError
    return judge(value, target, root)


def _type(value: Plain, types: str | list[str], _schema: Schema, _root: Schema) -> bool:
    kinds = [types] if isinstance(types, str) else types
    return any(_TYPES[kind](value) for kind in kinds)


def _enum(value: Plain, allowed: list[Plain], _schema: Schema, _root: Schema) -> bool:
    if not isinstance(value, str):
        raise UnsureError
    return value in allowed


def _const(value: Plain, constant: Plain, _schema: Schema, _root: Schema) -> bool:
    if type(value) is not type(constant) or not isinstance(value, str | int):
        raise UnsureError
    return bool(value == constant)


def _if(value: Plain, condition: Schema, schema: Schema, root: Schema) -> bool:
    branch = "then" if judge(value, condition, root) else "else"
    return judge(value, schema.get(branch, True), root)


def _not(value: Plain, subschema: Schema, _schema: Schema, root: Schema) -> bool:
    return not judge(value, subschema, root)


def _properties(value: Plain, properties: Schema, _schema: Schema, root: Schema) -> bool:
    return not isinstance(value, dict) or all(
        judge(value[key], child, root) for key, child in properties.items() if key in value
    )


def _additional(value: Plain, subschema: Schema | bool, schema: Schema, root: Schema) -> bool:
    properties = schema.get("properties", {})
    return not isinstance(value, dict) or all(
        judge(child, subschema, root) for key, child in value.items() if key not in properties
    )


def _names(value: Plain, subschema: Schema, _schema: Schema, root: Schema) -> bool:
    return not isinstance(value, dict) or all(judge(key, subschema, root) for key in value)


def _required(value: Plain, keys: list[str], _schema: Schema, _root: Schema) -> bool:
    return not isinstance(value, dict) or all(key in value for key in keys)


def _items(value: Plain, subschema: Schema | bool, _schema: Schema, root: Schema) -> bool:
    return not isinstance(value, list) or all(judge(item, subschema, root) for item in value)


def _unique(value: Plain, is_unique: bool, _schema: Schema, _root: Schema) -> bool:
    if not is_unique or not isinstance(value, list):
        return True
    if not all(isinstance(item, str) for item in value):
        raise UnsureError
    return len(set(value)) == len(value)


def _pattern(value: Plain, pattern: str, _schema: Schema, _root: Schema) -> bool:
    return not isinstance(value, str) or re.search(pattern, value) is not None


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
# Keywords that other checks read: "$ref", "pattern", and "if".
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
