from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mobileprep.recipe.schemas import TransformSchemas, recipe_schema
from mobileprep.recipe.validate import UnsureError, judge, surely_fits

VALID = {
    "version": 1,
    "name": "digits",
    "source": {"graph": "g", "checkpoint": "c", "sha256": {"g": "a" * 64}},
    "freeze": {"clear_devices": True},
    "inputs": {"image": {"dtype": "float32", "shape": [-1, 8, 8, 1]}},
    "outputs": ["probabilities"],
    "transforms": ["strip_unused_nodes", {"remove_nodes": {"op": ["Identity"]}}],
    "validation": {"data": "d", "max_drop": 0.01},
    "targets": {
        "phone": {
            "platform": "android",
            "abis": ["x86"],
            "quantize": {"mode": "round", "num_steps": 16},
            "registration": {"tensorflow": ["1.15", "2.21"]},
            "budget": {"model_bytes": "60 KB"},
        },
        "pi": {"quantize": "weights", "registration": {"tensorflow": "1.15"}},
    },
}
RECIPE = Draft202012Validator(recipe_schema())


def test_valid_recipe_is_accepted():
    assert surely_fits(VALID, recipe_schema())


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.floats(allow_nan=False),
    st.sampled_from(["", "x", "x\n", "1.15", "weights", "android", "a" * 64, "../x", "a\0b"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def _places(value, path=()):
    yield path
    if isinstance(value, dict):
        children = list(value.items())
    else:
        children = list(enumerate(value)) if isinstance(value, list) else []
    for key, child in children:
        yield from _places(child, (*path, key))


PLACES = [path for path in _places(VALID) if path]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), VALUES, st.sampled_from(["replace", "add", "remove"]))
def test_result_never_differs_from_jsonschema(path, value, change):
    recipe = copy.deepcopy(VALID)
    holder = recipe
    for key in path[:-1]:
        holder = holder[key]
    if change == "replace":
        holder[path[-1]] = value
    elif change == "remove":
        del holder[path[-1]]
    elif isinstance(holder, list):
        holder.append(value)
    else:
        holder["added"] = value
    try:
        result = judge(recipe, recipe_schema(), recipe_schema())
    except UnsureError:
        return
    assert result == RECIPE.is_valid(recipe)


KEYWORDS = [
    {"type": "integer"},
    {"type": ["number", "null"]},
    {"const": 1},
    {"const": "x"},
    {"enum": ["x", 1, None]},
    {"minimum": 1, "maximum": 2.5},
    {"minLength": 1, "maxLength": 2},
    {"minItems": 1, "maxItems": 2},
    {"minProperties": 1, "maxProperties": 1},
    {"uniqueItems": True},
    {"uniqueItems": False},
    {"pattern": "^x+$"},
    {"items": {"type": "string"}},
    {"items": False},
    {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
    {"additionalProperties": False},
    {"propertyNames": {"maxLength": 1}},
    {"required": ["a"]},
    {"not": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "integer"}},
    {"if": {"type": "string"}, "then": False},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": "array"}}},
    {"then": False, "else": False},
]
SAMPLES = [None, True, False, 0, 1, 1.0, 2, 2.5, 3, 10**40, "", "x", "xx", "xxx", "x\n"]
SAMPLES += [[], ["x"], ["x", "x"], [1, True], [1, 2, 3], {}, {"a": "x"}, {"a": 1}, {"b": 1}]
SAMPLES += [{"b": "x"}, {"ab": 1}, {"a": "x", "b": 2}]


@pytest.mark.parametrize("schema", KEYWORDS, ids=str)
def test_keywords_are_judged_as_by_jsonschema(schema):
    judged = 0
    for sample in SAMPLES:
        try:
            result = judge(sample, schema, schema)
        except UnsureError:
            continue
        judged += 1
        assert result == Draft202012Validator(schema).is_valid(sample), sample
    assert judged >= 3


@pytest.mark.parametrize(
    "schema", [{"oneOf": [True]}, {"$ref": "#/$defs/none"}, {"enum": [1]}, {"const": 1.0}], ids=str
)
def test_unsupported_keyword_is_not_accepted(schema):
    assert not surely_fits(1, schema)


@pytest.mark.parametrize("name", TransformSchemas().names)
def test_keywords_of_transform_schemas_are_supported(name):
    """Valid recipes must not need the slow validator."""
    samples = {"array": ["x"], "string": "x", "integer": 2, "number": 0.5, "boolean": True}
    schema = TransformSchemas().get(name)
    parameters = {
        key: described.get("default")
        or described.get("enum", [None])[0]
        or samples[described["type"]]
        for key, described in schema["properties"].items()
    }
    assert surely_fits(parameters, schema)
