"""What every transform must have: options that say what they are, and tests."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from jsonschema import Draft202012Validator
from msgspec import structs

import mobileprep.transforms
from mobileprep.core.declare import declared
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.recipe.schemas import SCHEMA_FOLDER, TransformSchemas
from mobileprep.transforms.base import (
    GROUPS,
    Context,
    Transform,
    make_transform,
    module_of,
    transform_class,
    transform_names,
    transforms_in,
)
from mobileprep.transforms.chains.chain import ChainStep, run_chain
from tests.transforms.graphs import node, placeholder

MODULES = Path(mobileprep.transforms.__file__).parent
TESTS = Path(__file__).parent
NAMES = transform_names()
MACHINERY = {"__init__", "base", "chains", "rewriting", "tf115"}

for_each = pytest.mark.parametrize("name", NAMES)


def test_package_contains_only_transforms_and_helpers():
    listed = {p.stem for p in MODULES.iterdir() if p.suffix == ".py" or p.is_dir()}
    schemas = {p.stem for p in (SCHEMA_FOLDER / "transforms").glob("*.json")}
    assert set(NAMES) == schemas
    assert listed - {"__pycache__"} == MACHINERY | {module_of(name) for name in NAMES}


def test_the_tool_of_tensorflow_has_these_of_them():
    """As ``REGISTER_GRAPH_TRANSFORM`` names them in TensorFlow 1.15's tools/graph_transforms."""
    assert {name for name in NAMES if transform_class(name).of_graph_transform_tool} == {
        *("add_default_attributes", "backport_concatv2", "backport_tensor_array_v3"),
        *("flatten_atrous_conv", "fold_batch_norms", "fold_constants", "fold_old_batch_norms"),
        *("freeze_requantization_ranges", "fuse_pad_and_conv", "fuse_remote_graph"),
        *("fuse_resize_and_conv", "fuse_resize_pad_and_conv", "insert_logging"),
        *("merge_duplicate_nodes", "obfuscate_names", "place_remote_graph_arguments"),
        *("quantize_nodes", "quantize_weights", "remove_attribute"),
        *("remove_control_dependencies", "remove_device", "remove_nodes"),
        *("rename_attribute", "rename_node", "rename_op", "round_weights", "set_device"),
        *("sort_by_execution_order", "sparsify_gather", "strip_unused_nodes"),
    }


@for_each
def test_it_has_tests_of_its_own(name):
    assert (TESTS / f"test_{name}.py").exists()


@for_each
def test_its_module_declares_it_and_the_others_of_its_group(name):
    group = module_of(name)
    module = importlib.import_module(f"{mobileprep.transforms.__name__}.{group}")
    inside = f"{module.__name__}."
    own = [k for k in transforms_in(module).values() if f"{k.__module__}.".startswith(inside)]
    assert {kind.transform_name for kind in own} == set(GROUPS.get(group, (name,)))


def test_type_alias_is_not_a_transform():
    module = ModuleType("made")
    module.Shape = tuple[int, ...]
    assert transforms_in(module) == {}


@for_each
def test_it_is_a_frozen_struct_that_knows_its_name(name):
    kind = transform_class(name)
    assert issubclass(kind, Transform)
    assert kind.transform_name == name
    assert kind.__struct_config__.frozen


@for_each
def test_transforms_and_options_have_descriptions(name):
    kind = transform_class(name)
    sentences = [kind.summary, *(option.option.sentence for option in declared(kind))]
    assert all(sentence.endswith(".") for sentence in sentences)


@for_each
def test_every_field_is_a_declared_option(name):
    kind = transform_class(name)
    fields = {f.name for f in structs.fields(kind)}
    assert {option.name for option in declared(kind)} == fields
    assert "ignore_errors" not in fields, "the chain ignores errors, not the transform"


@for_each
def test_its_defaults_fit_its_schema(name):
    for key, described in TransformSchemas().get(name)["properties"].items():
        # An option that need not have a value has null for its default.
        if described.get("default") is not None:
            Draft202012Validator(described).validate(described["default"])
        assert ("default" in described) == (key not in needed(name)), key


def needed(name):
    """A value for each option that must be given."""
    required = [option for option in declared(transform_class(name)) if option.required]
    return {o.name: ("Identity", "Relu") if o.repeated else "T" for o in required}


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
@pytest.mark.parametrize("tf115", [True, False])
def test_a_missing_input_is_an_error_that_says_so(name, tf115):
    step = ChainStep(name, needed(name))
    with pytest.raises(MobileprepError):
        run_chain(BROKEN, [step], Context(("x",), ("out",), tf115))


def test_a_misspelt_transform_is_an_error_with_the_nearest_name():
    with pytest.raises(UsageError, match="unknown transform 'remove_node'") as caught:
        make_transform("remove_node", {})
    assert caught.value.hint == "did you mean 'remove_nodes'?"


def test_a_misspelt_option_is_an_error_with_the_nearest_name():
    with pytest.raises(UsageError, match="has no parameter 'ops'") as caught:
        make_transform("remove_nodes", {"ops": ["Identity"]})
    assert caught.value.hint == "did you mean 'op'?"


def test_a_missing_option_is_an_error():
    with pytest.raises(UsageError, match="remove_nodes needs the parameter 'op'"):
        make_transform("remove_nodes", {})
