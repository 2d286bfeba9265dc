"""Loading recipes, including hostile input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mobileprep.cli._shared.folders import recipe_cautions
from mobileprep.errors import NotDownloadedError, RecipeError
from mobileprep.recipe.load import load_recipe

VALID = """\
version: 1
name: digits
source: {graph: model/graph.pbtxt, checkpoint: model/model.ckpt-1000}
inputs:
  image: {dtype: float32, shape: [1, 8, 8, 1]}
outputs: [probabilities]
transforms:
  - strip_unused_nodes
  - remove_nodes: {op: [Identity, CheckNumerics]}
targets:
  phone: {platform: android, quantize: weights, registration: {tensorflow: "1.15"}}
"""


def test_valid_recipe(load):
    recipe = load(VALID)
    assert (recipe.version, recipe.name, recipe.file) == (1, "digits", "recipe.yaml")
    assert [target.name for target in recipe.targets] == ["phone"]


def test_consequences_of_a_missing_variable_are_not_reported(problems):
    text = VALID.replace("model/graph.pbtxt", "'${GRAPH}'").replace("[1, 8", "['${N}', 8")
    assert problems(text) == [
        (
            "3:17 source.graph: the variable GRAPH has no value; "
            "give it with --set GRAPH=VALUE or write ${GRAPH:-default}"
        ),
        (
            "5:35 inputs.image.shape[0]: the variable N has no value; "
            "give it with --set N=VALUE or write ${N:-default}"
        ),
    ]


def test_unquoted_variable_in_a_flow_mapping_has_its_location(problems):
    (problem,) = problems(VALID.replace("model/graph.pbtxt", "${GRAPH}"))
    assert problem.startswith("3:17 source.graph: the variable GRAPH has no value; ")


def test_unquoted_default_with_a_quote_has_a_hint(problems):
    (problem,) = problems(VALID.replace("model/graph.pbtxt", "${GRAPH:-it's}"))
    assert problem.startswith("3:18: not YAML: ")
    hint = "a default with quotes or a backslash needs quotes around the whole value"
    assert problem.endswith(f"; {hint}, and none has braces")


@pytest.mark.parametrize(
    "quantize", ["{{mode: round, num_steps: {}}}", "\n  mode: round\n  num_steps: {}"]
)
def test_unquoted_number_works_in_every_yaml_style(load, problems, quantize):
    def recipe(steps):
        target = "    quantize: " + quantize.format(steps).replace("\n", "\n    ")
        return f"version: 1\nname: x\nsource: {{frozen: m.pb}}\ntargets:\n  p:\n{target}\n"

    assert load(recipe("${STEPS:-16}")).targets[0].quantize.parameters == (("num_steps", 16),)
    for value in ('"${STEPS:-16}"', "'16'"):
        (problem,) = problems(recipe(value))
        assert problem.endswith(f"write {value[1:-1]} without quotes")


def test_missing_variables_are_reported_with_other_problems(problems):
    lines = problems(VALID.replace("model/graph.pbtxt", "'${GRAPH}'") + "extra: 1\n")
    assert [line.split(" ")[0] for line in lines] == ["3:17", "12:1"]


def test_environment_of_the_process_is_the_default(write, monkeypatch):
    path = write(VALID.replace("digits", "${RECIPE_NAME}"))
    monkeypatch.setenv("RECIPE_NAME", "numbers")
    assert load_recipe(path).name == "numbers"


def test_problem_of_an_extended_recipe_is_reported_in_its_file(write):
    write(VALID.replace("android", "andriod"), "base/recipe.yaml")
    path = write("extends: base/recipe.yaml\noutput: [x]\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    places = [line.split(" ")[0] for line in str(caught.value).splitlines() if ".yaml:" in line]
    assert places == ["base/recipe.yaml:11:21:", "recipe.yaml:2:1:"]


def _load_or_refuse(write, text):
    path = write(text)
    try:
        load_recipe(path, environ={"HOME": "/home"})
    except RecipeError as error:
        assert error.exit_code == 3
        assert str(error)
    except NotDownloadedError as error:  # Hypothesis generates headers of Git LFS pointers.
        assert str(error)


FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b"a: \xed\xa0\x80")
def test_random_bytes_raise_only_our_errors(write, data):
    _load_or_refuse(write, data)


@FUZZ
@given(st.text(alphabet="ab:-{}[]&*!|>'\"%@`,?#<~=\\$ \n\t019.é", max_size=120))
@example("a: *a")
@example("? ")
@example("<<: [~]")
@example('"\\U00110000": a')
def test_random_yaml_raises_only_our_errors(write, text):
    _load_or_refuse(write, text)


KEYS_AND_VALUES = """
version name source frozen graph checkpoint sha256 freeze inputs outputs transforms then
validation data models targets quantize mode budget model_bytes registration tensorflow abis
sort fold_constants remove_nodes op strip_unused_nodes 1.15 weights
"""
WORDS = st.sampled_from(KEYS_AND_VALUES.split())
NUMBERS = st.one_of(st.booleans(), st.integers(-3, 3), st.floats())
LEAVES = st.one_of(st.none(), NUMBERS, WORDS, st.text(max_size=5))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=25,
)


@FUZZ
@given(st.dictionaries(WORDS, TREES, max_size=8))
def test_random_structures_raise_only_our_errors(write, tree):
    _load_or_refuse(write, json.dumps(tree).replace("NaN", ".nan"))


@FUZZ
@given(st.data())
def test_damaged_recipes_raise_only_our_errors(write, data):
    at = data.draw(st.integers(0, len(VALID) - 1))
    length = data.draw(st.integers(0, 8))
    inserted = data.draw(st.text(alphabet="ab:-{}[]&*!|>'\"\n\t$ 1", max_size=4))
    _load_or_refuse(write, VALID[:at] + inserted + VALID[at + length :])


def test_loading_a_recipe_imports_few_modules(write):
    path = write(VALID)
    code = (
        "import sys; from mobileprep.recipe.load import load_recipe; "
        f"load_recipe({str(path)!r}); "
        "layers = {m.split('.')[1] for m in sys.modules if m.startswith('mobileprep.')}; "
        "assert layers <= {'errors', 'core', 'data', 'freezing', 'targets', 'recipe'}, layers; "
        "assert 'numpy' not in sys.modules; "
        "assert 'jsonschema' not in sys.modules"
    )
    environ = {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environ)


HEAD = "version: 1\nname: x\nsource: {frozen: m.pb}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "transforms: [quantize_nodes, fold_batch_norms]\ntargets: {a: {}, b: {}}\n",
            "recipe.yaml:4:30: fold_batch_norms after quantize_nodes: ",
        ),
        (
            "transforms: 'quantize_weights round_weights quantize_weights'\ntargets: {a: {}}\n",
            "recipe.yaml:4:45: quantize_weights a second time: ",
        ),
        (
            "transforms: [quantize_weights]\ntargets:\n  a: {}\n  b: {quantize: weights}\n",
            "recipe.yaml:7:17: quantize_weights a second time: ",
        ),
        (
            "transforms: 'round_weights (num_steps=5)'\ntargets: {a: {}, b: {}}\n",
            "recipe.yaml:4:14: white space before '(', which the original tool refuses",
        ),
    ],
)
def test_known_pitfall_is_reported_once_at_its_location(write, text, message):
    (caution,) = recipe_cautions(load_recipe(write(HEAD + text)))
    assert caution.startswith(message)


@pytest.mark.parametrize(
    "chain",
    [
        "fold_batch_norms quantize_weights quantize_nodes",
        "fold_batch_norms fold_batch_norms round_weights round_weights",
    ],
)
def test_valid_chain_has_no_warnings(write, chain):
    path = write(HEAD + f"transforms: '{chain}'\ntargets: {{a: {{}}, b: {{}}}}\n")
    assert recipe_cautions(load_recipe(path)) == ()
