"""What every transform must have: a schema that says what its options are, and tests."""

import dataclasses
import importlib
import json
import typing
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import mobileprep.transforms
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.recipe.schemas import SCHEMA_FOLDER
from mobileprep.transforms.base import (
    Context,
    Transform,
    make_transform,
    transform_class,
    transform_names,
    transforms_in,
)
from mobileprep.transforms.chain import Step, run_chain
from tests.transforms.graphs import node, placeholder

MODULES = Path(mobileprep.transforms.__file__).parent
SCHEMAS = SCHEMA_FOLDER / "transforms"
TESTS = Path(__file__).parent
NAMES = transform_names()
# What the modules that are no transforms are for: see each one's docstring.
MACHINERY = {"__init__", "base", "cautions", "chain", "copied_constants", "norms_left", "plugins"}

KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}

for_each = pytest.mark.parametrize("name", NAMES)


def _schema(name):
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


def _options(name):
    return {f.name: f for f in dataclasses.fields(transform_class(name))}


def test_every_public_module_is_a_transform_or_machinery():
    public = {p.stem for p in MODULES.glob("*.py") if not p.stem.startswith("_")}
    assert public - MACHINERY == set(NAMES)


def test_every_schema_is_one_of_a_transform():
    assert {p.stem for p in SCHEMAS.glob("*.json")} == set(NAMES)


@for_each
def test_it_has_tests_of_its_own(name):
    assert (TESTS / f"test_{name}.py").exists()


@for_each
def test_its_module_declares_it_and_nothing_else(name):
    module = importlib.import_module(f"{mobileprep.transforms.__name__}.{name}")
    inside = f"{module.__name__}."
    own = [k for k in transforms_in(module).values() if f"{k.__module__}.".startswith(inside)]
    assert [kind.transform_name for kind in own] == [name]


@for_each
def test_it_is_a_frozen_dataclass_that_knows_its_name(name):
    kind = transform_class(name)
    assert issubclass(kind, Transform)
    assert kind.transform_name == name
    assert kind.__dataclass_params__.frozen


@for_each
def test_its_schema_is_one_and_closed(name):
    schema = _schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (schema["title"], schema["type"]) == (name, "object")
    assert schema["additionalProperties"] is False
    assert schema["description"].endswith(".")


@for_each
def test_its_options_are_those_of_its_schema_in_the_same_order(name):
    assert list(_options(name)) == list(_schema(name)["properties"])


@for_each
def test_its_defaults_are_those_of_its_schema(name):
    schema = _schema(name)
    required = schema.get("required", [])
    for option, field in _options(name).items():
        declared = schema["properties"][option]
        assert (field.default is dataclasses.MISSING) == (option in required), option
        assert ("default" in declared) == (option not in required), option
        if option not in required:
            default = field.default
            default = list(default) if isinstance(default, tuple) else default
            assert default == declared["default"], option
            assert type(default) is type(declared["default"]), option
            # An option that need not have a value has null for its default.
            if default is not None:
                Draft202012Validator(declared).validate(default)


@for_each
def test_its_types_are_those_of_its_schema(name):
    hints = typing.get_type_hints(transform_class(name))
    for option in _options(name):
        declared = _schema(name)["properties"][option]
        assert declared["description"].endswith("."), option
        if declared["type"] == "array":
            (item, rest) = typing.get_args(hints[option])
            assert rest is Ellipsis
            assert declared["items"]["type"] == KINDS[item], option
        else:
            assert declared["type"] == KINDS[_without_none(hints[option])], option


def _without_none(hint):
    return next((h for h in typing.get_args(hint) if h is not type(None)), hint)


@for_each
def test_errors_are_ignored_by_the_chain_and_not_by_the_transform(name):
    assert "ignore_errors" not in _options(name)
    assert "ignore_errors" not in _schema(name)["properties"]


REQUIRED = {
    "remove_attribute": {"attribute_name": "T"},
    "remove_nodes": {"op": ("Identity", "Relu")},
    "rename_attribute": {"old_attribute_name": "T", "new_attribute_name": "kind"},
    "rename_node": {"old_node_name": "a", "new_node_name": "b"},
    "rename_op": {"old_op_name": "Mul", "new_op_name": "Times"},
}
# Whatever a transform looks for, here are nodes that lack their inputs.
BROKEN = Graph(
    [
        placeholder(),
        node("a", "Mul", "gone gone:1"),
        node("i", "Identity", "gone"),
        node("g", "Gather", "i gone", T=None, Tindices=DType.INT64),
        node("c", "Cast", "i", T=None, SrcT=DType.FLOAT, DstT=DType.FLOAT),
        node("q", "FakeQuantWithMinMaxVars", "a gone gone", T=None),
        node("r", "Rsqrt", "gone"),
        node("out", "Conv2D", "a i", strides=(1, 1, 1, 1), padding="SAME"),
    ]
)


@for_each
@pytest.mark.parametrize("faithful", [True, False])
def test_a_missing_input_is_an_error_that_says_so(name, faithful):
    step = Step(name, REQUIRED.get(name, {}))
    with pytest.raises(MobileprepError):
        run_chain(BROKEN, [step], Context(("x",), ("out",), faithful))


def test_a_misspelt_transform_is_an_error_with_the_nearest_name():
    with pytest.raises(UsageError, match="there is no transform 'remove_node'") as caught:
        make_transform("remove_node", {})
    assert caught.value.hint == "did you mean 'remove_nodes'?"


def test_a_misspelt_option_is_an_error_with_the_nearest_name():
    with pytest.raises(UsageError, match="has no parameter 'ops'") as caught:
        make_transform("remove_nodes", {"ops": ["Identity"]})
    assert caught.value.hint == "did you mean 'op'?"


def test_a_missing_option_is_an_error():
    with pytest.raises(UsageError, match="remove_nodes needs the parameter 'op'"):
        make_transform("remove_nodes", {})
