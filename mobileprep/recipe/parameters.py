"""A transform's parameters, fitted to its schema: repeated ones are lists, texts become numbers."""

from __future__ import annotations

import math
import re

from mobileprep.recipe.chain import Argument, Call
from mobileprep.recipe.model import ParameterValue
from mobileprep.recipe.offsets import TextPlaces
from mobileprep.recipe.problems import Problem
from mobileprep.recipe.schemas import Schema
from mobileprep.recipe.tree import (
    Entry,
    MappingNode,
    Node,
    Scalar,
    ScalarValue,
    Sequence,
    plain,
)

IGNORE_ERRORS = "ignore_errors"

# What the original's number parsers take, white space around it apart.
_INTEGER = re.compile(r"-?[0-9]{1,30}\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_HEX = re.compile(r"[-+]?0[xX][0-9a-fA-F]{1,30}\Z")
_SPACE = " \t\n\v\f\r"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def from_yaml(node: Node, nothing: MappingNode, schema: Schema) -> MappingNode:
    """Parameters of the YAML form; a single value for a list becomes a list of one.

    Args:
        node: a mapping, a list of mappings whose values follow one another, or null.
        nothing: what stands for null.
        schema: the transform's.
    """
    if isinstance(node, Sequence):
        node = _joined(node)
    given = node if isinstance(node, MappingNode) else nothing
    entries = {
        key: Entry(entry.key_place, _listed(entry.value) if _is_list(schema, key) else entry.value)
        for key, entry in given.items()
    }
    return MappingNode(entries, given.place)


def from_chain(call: Call, places: TextPlaces, schema: Schema) -> tuple[MappingNode, list[Problem]]:
    """Parameters of the text form, and a problem for each that may not be repeated but is."""
    repeated: dict[str, list[Argument]] = {}
    for argument in call.arguments:
        repeated.setdefault(argument.name, []).append(argument)
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    for name, arguments in repeated.items():
        key_place = places.at(arguments[0].offset, (call.name, name))
        scalars = tuple(_scalar(call, argument, places, schema) for argument in arguments)
        if _is_list(schema, name):
            entries[name] = Entry(key_place, Sequence(scalars, key_place))
            continue
        entries[name] = Entry(key_place, scalars[0])
        # The original reads the first ignore_errors and leaves the others.
        if len(scalars) > 1 and name != IGNORE_ERRORS and name in schema.get("properties", {}):
            message = f"expected a single {name!r}, found {len(scalars)}"
            problems.append(Problem(scalars[1].place, message, "keep one of them"))
    place = places.at(call.offset, (call.name,))
    return MappingNode(entries, place), problems


def typed_values(parameters: MappingNode, schema: Schema) -> tuple[tuple[str, ParameterValue], ...]:
    """Checked parameters as Python values; lists as tuples, numbers of the schema's type."""
    return tuple(
        (key, _of_kind(plain(entry.value), _item_kind(schema, key)))
        for key, entry in parameters.items()
    )


def _scalar(call: Call, argument: Argument, places: TextPlaces, schema: Schema) -> Scalar:
    place = places.at(argument.value_offset, (call.name, argument.name))
    value = _from_text(argument.value, _item_kind(schema, argument.name))
    if argument.name == IGNORE_ERRORS:
        value = {"true": True, "false": False}.get(argument.value.lower(), argument.value)
    return Scalar(value, place, argument.value)


def _from_text(text: str, kind: str) -> ScalarValue:
    """The value that the original reads from a text; the text itself where it reads none."""
    bare = text.strip(_SPACE)
    if kind == "boolean":
        return _BOOLEANS.get(text, text)
    if kind == "integer" and _INTEGER.match(bare):
        return int(bare)
    if kind == "number" and _FLOAT.match(bare):
        number = float(bare)
        return number if math.isfinite(number) else text
    if kind == "number" and _HEX.match(bare):
        return float(int(bare, 16))
    return text


def _joined(mappings: Sequence) -> MappingNode:
    entries: dict[str, Entry] = {}
    for mapping in mappings.items:
        for key, entry in mapping.items() if isinstance(mapping, MappingNode) else ():
            before = entries.get(key)
            values = _listed(entry.value)
            if before is not None:
                values = Sequence((*_listed(before.value).items, *values.items), values.place)
            entries[key] = Entry(before.key_place if before else entry.key_place, values)
    return MappingNode(entries, mappings.place)


def _listed(node: Node) -> Sequence:
    return node if isinstance(node, Sequence) else Sequence((node,), node.place)


def _of_kind(value: ParameterValue | list[ParameterValue], kind: str) -> ParameterValue:
    if isinstance(value, list):
        return tuple(_of_kind(item, kind) for item in value)  # type: ignore[misc]
    if kind == "integer":
        return int(value)  # type: ignore[arg-type]
    return float(value) if kind == "number" else value  # type: ignore[arg-type]


def _is_list(schema: Schema, name: str) -> bool:
    return _property(schema, name).get("type") == "array"


def _item_kind(schema: Schema, name: str) -> str:
    described = _property(schema, name)
    if described.get("type") == "array":
        described = described.get("items", {})
    return str(described.get("type", "string"))


def _property(schema: Schema, name: str) -> Schema:
    described: Schema = schema.get("properties", {}).get(name, {})
    return described
