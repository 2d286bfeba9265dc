"""The schema agrees with the model classes."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from msgspec import structs

from mobileprep.recipe.editor_schema import SCHEMA_ID, editor_schema
from mobileprep.recipe.model import Target
from mobileprep.recipe.schemas import (
    EDITOR_SCHEMA,
    SCHEMA_FOLDER,
    TransformSchemas,
    modeline,
    named_plugin,
    recipe_schema,
)
from mobileprep.recipe.settings import InputFile, InputSpec, Source
from mobileprep.recipe.validation_settings import Quantize
from tools.recipe_reference import render

DEFS = recipe_schema()["$defs"]


def test_target_defaults_agree():
    fields = {f.name: f for f in structs.fields(Target)}
    properties = DEFS["target"]["properties"]
    for name in ("platform", "artifact"):
        assert fields[name].default == properties[name]["default"]
    default = properties["registration"]["properties"]["tensorflow"]["default"]
    assert list(fields["registration"].default) == default
    assert DEFS["quantize_mode"]["default"] == Quantize().mode


def test_inputs_and_sources_have_the_keys_of_the_schema():
    assert {f.name for f in structs.fields(InputSpec)} == {"name", *DEFS["input"]["properties"]}
    kinds = {"frozen", "graph", "meta_graph", "saved_model", "sha256"}
    fields = {f.name for f in structs.fields(Source)} - {"kind", "file", "pins"}
    assert fields == set(DEFS["source"]["properties"]) - kinds


def test_recipe_model_and_target_share_their_sections():
    shared = ["source", "freeze", "inputs", "outputs", "transforms", "validation"]
    for properties in (
        recipe_schema()["properties"],
        DEFS["model"]["properties"],
        DEFS["target"]["properties"],
    ):
        for name in shared:
            assert properties[name] == {"$ref": f"#/$defs/{name}"}


def test_schemas_are_loaded_by_file_name(tmp_path):
    (tmp_path / "one.json").write_text('{"type": "object"}')
    (tmp_path / "notes.txt").write_text("not a schema")
    schemas = TransformSchemas(tmp_path)
    assert schemas.names == ("one",)
    assert schemas.get("one")["type"] == "object"
    assert schemas.get("../recipe.schema") is None
    assert schemas.get("two") is None


def test_every_transform_accepts_ignore_errors(tmp_path):
    (tmp_path / "one.json").write_text('{"properties": {"x": {"type": "string"}}}')
    properties = TransformSchemas(tmp_path).get("one")["properties"]
    assert properties["x"] == {"type": "string"}
    assert (properties["ignore_errors"]["type"], properties["ignore_errors"]["default"]) == (
        "boolean",
        False,
    )


def test_package_has_schemas_of_transforms():
    names = TransformSchemas().names
    assert {"fold_constants", "remove_nodes", "strip_unused_nodes"} <= set(names)
    editors = json.loads((SCHEMA_FOLDER / "recipe.schema.json").read_text(encoding="utf-8"))
    assert {f"step_{name}" for name in names} <= editors["$defs"].keys()


PAGE = Path(__file__).parents[2] / "docs" / "reference/recipe.md"


def test_page_has_every_key_of_the_schema():
    page = render(recipe_schema())
    for section in ("source", "freeze", "input", "validation", "model", "target"):
        for key in recipe_schema()["$defs"][section]["properties"]:
            assert f"| `{key}` |" in page


def _examples():
    blocks = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    return [block.partition("```")[0] for block in blocks]


@pytest.mark.parametrize("index", range(len(_examples())))
def test_examples_on_the_page_are_valid(load, index):
    text = _examples()[index]
    if "version:" not in text:
        text = "version: 1\nname: x\nsource: {frozen: m}\ntargets: {p: {}}\n" + text
    assert load(text).targets


COMMAND = "python tools/make_schemas.py"


def _tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "make_schemas.py"
    spec = importlib.util.spec_from_file_location("make_schemas", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = _tool()
GENERATED = {
    **TOOL.transform_schemas(),
    **TOOL.output_schemas(),
    TOOL.SCHEMA_FOLDER / "recipe.json": TOOL.recipe_format(),
    **TOOL.derived(),
}


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_file_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], COMMAND


def test_no_schema_of_a_removed_transform_exists() -> None:
    assert set(TOOL.TRANSFORMS.glob("*.json")) == TOOL.transform_schemas().keys(), COMMAND


def test_quantize_accepts_the_parameters_of_its_transforms() -> None:
    keys = TOOL.recipe_schema()["$defs"]["quantize"]["else"]["properties"]
    for mode, (transform, parameter) in TOOL.QUANTIZERS.items():
        expected = TransformSchemas().get(transform)["properties"][parameter]
        # As in the original, quantize_weights accepts negative values. A recipe does not.
        bound = {key: keys[parameter][key] for key in ("minimum",) if key in keys[parameter]}
        actual = {**keys[parameter], "description": expected["description"]}
        assert actual == {**expected, **bound}
        assert f"`{mode}`" in keys[parameter]["description"].partition(": ")[0]
    assert keys["minimum_size"]["description"].startswith(
        "With `weights`, `float16` or `bfloat16`: constants"
    )


@pytest.mark.parametrize("key", ["bits", "granularity"])
def test_quantize_accepts_the_bits_and_granularity_of_its_transform(key):
    actual = TOOL.recipe_schema()["$defs"]["quantize"]["else"]["properties"][key]
    expected = TransformSchemas().get("linear_quantize_weights")["properties"][key]
    names = ("type", "minimum", "maximum")
    assert {n: actual.get(n) for n in names} == {n: expected.get(n) for n in names}
    assert sorted(actual.get("enum", ())) == sorted(expected.get("enum", ()))


def test_main_adds_missing_files_and_removes_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TOOL, "TRANSFORMS", tmp_path)
    monkeypatch.setattr(TOOL, "recipe_format", lambda: "{}")
    monkeypatch.setattr(TOOL, "SCHEMA_FOLDER", tmp_path)
    monkeypatch.setattr(TOOL, "output_schemas", dict)
    monkeypatch.setattr(TOOL, "derived", dict)
    (tmp_path / "gone.json").write_text("{}")
    TOOL.main()
    assert not (tmp_path / "gone.json").exists()
    assert (tmp_path / "recipe.json").read_text() == "{}"
    assert not [
        name for name in TransformSchemas().names if not (tmp_path / f"{name}.json").exists()
    ]


ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(EDITOR_SCHEMA.read_text(encoding="utf-8"))
START = """\
version: 1
name: x
source: {frozen: m.pb}
inputs: {x: {dtype: float32, shape: [-1, 8]}}
outputs: [y]
targets: {p: {platform: android}}
"""


def error_of(text: str) -> str:
    """Return the error that an editor would show for a recipe, or an empty string."""
    error = best_match(Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(text)))
    return "" if error is None else f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


def test_schema_is_valid_and_self_contained():
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == SCHEMA_ID
    for reference in re.findall(r'"\$ref": "([^"]*)"', EDITOR_SCHEMA.read_text(encoding="utf-8")):
        head, _, name = reference.rpartition("/")
        assert head == "#/$defs"
        assert name in SCHEMA["$defs"]


def test_schema_describes_every_key_and_transform():
    for name, section in recipe_schema()["$defs"].items():
        definition = SCHEMA["$defs"][name]
        alternative = definition.get("anyOf", [{}])[0]
        properties = definition.get("properties", alternative.get("properties", {}))
        assert section.get("properties", {}).keys() <= properties.keys()
    names = TransformSchemas().names
    words, mapping = SCHEMA["$defs"]["step"]["anyOf"]
    assert words["anyOf"][0]["enum"] == list(names)
    for name in names:
        assert mapping["properties"][name]["description"]
        for key, parameter in SCHEMA["$defs"][f"step_{name}"]["properties"].items():
            assert parameter["description"], key


def recipes():
    texts = [p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("recipes/*/recipe.yaml"))]
    for page in sorted([*ROOT.rglob("docs/**/*.md"), ROOT / "README.md"]):
        blocks = re.split(r"```yaml.*\n", page.read_text(encoding="utf-8"))[1:]
        texts += [b.partition("```")[0] for b in blocks if b.startswith("version")]
    return texts


@pytest.mark.parametrize("index", range(len(recipes())))
def test_recipes_of_the_repository_are_valid(index):
    assert error_of(recipes()[index]) == ""


@pytest.mark.parametrize(
    "more",
    [
        "transforms: [fold_constants, {remove_nodes: {op: Identity}}]",
        "transforms: [{remove_nodes: {op: [Identity]}}, {fold_constants: {ignore_errors: true}}]",
        "transforms: [{fold_constants: null}, {quantize_nodes: {input_min: 0, input_max: 1.5}}]",
        "transforms: [{strip_unused_nodes: [{name: a, type_for_name: float}, {name: b}]}]",
        "transforms: fold_constants(ignore_errors=true) remove_device",
        "transforms: [{round_weights: {num_steps: '${STEPS:-16}'}}, '${LAST}']",
        "plugins: [mine.py]\ntransforms: [mine, {mine: {anything: 1}}]",
        "extends: base.yaml\ntransforms: [mine]",
        "engine: ${ENGINE:-numpy}\ncheck: ${CHECK:-true}",
        "models: {m: {transforms: [fold_constants], targets: {q: {then: [remove_device]}}}}",
        "validation: {data: d.npz, max_drop: '${DROP}'}",
        "freeze: {control_flow: '${FLOW}', clear_devices: '${CLEAR}'}",
    ],
)
def test_valid_recipes_are_accepted(more):
    assert error_of(f"{START}{more}\n") == ""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("transforms: [fold_constant]", "fold_constant"),
        ("transforms: [{fold_constant: {}}]", "fold_constant"),
        ("models: {m: {transforms: [fold_constant]}}", "fold_constant"),
        ("targets: {p: {then: [fold_constant]}}", "fold_constant"),
        ("models: {m: {targets: {p: {then: [fold_constant]}}}}", "fold_constant"),
        ("transforms: [{remove_nodes: {ops: [Identity]}}]", "ops"),
        ("plugins: [a.py]\ntransforms: [{remove_nodes: {ops: [Identity]}}]", "ops"),
        ("transforms: [{remove_nodes: [{ops: Identity}]}]", "ops"),
        ("transforms: [{round_weights: {num_steps: many}}]", "many"),
        ("transforms: [{round_weights: {num_steps: 0}}]", "0"),
        ("transforms: [{remove_attribute: {}}]", "attribute_name"),
        ("transforms: [{fold_constants: {}, remove_device: {}}]", "fold_constants"),
        ("outptus: [y]", "outptus"),
        ("targets: {p: {platform: andriod}}", "andriod"),
        ("targets: {'${P}': {}}", "${P}"),
        ("engine: numpi", "numpi"),
        ("check: maybe", "maybe"),
        ("inputs: {x: {shape: [many]}}", "many"),
    ],
)
def test_invalid_recipes_are_refused(more, message):
    key = more.partition(":")[0]
    start = "".join(line for line in START.splitlines(True) if not line.startswith(f"{key}:"))
    assert message in error_of(f"{start}{more}\n")


def test_schema_with_transforms_of_plugins(tmp_path):
    (tmp_path / "mine.py").write_text("")
    parameters = {"properties": {"x": {"type": "integer"}}, "additionalProperties": False}
    (tmp_path / "mine.json").write_text(json.dumps(parameters))
    plugin = named_plugin(InputFile("mine.py", tmp_path / "mine.py"))
    validator = Draft202012Validator(editor_schema(TransformSchemas(plugins=[plugin])))
    for steps, is_valid in ((["mine", {"mine": {"x": 1}}], True), ([{"mine": {"y": 1}}], False)):
        recipe = {**yaml.safe_load(START), "transforms": steps}
        assert validator.is_valid(recipe) is is_valid


def test_modeline_refers_to_the_nearest_schema(tmp_path):
    recipe = tmp_path / "models" / "digits" / "recipe.yaml"
    recipe.parent.mkdir(parents=True)
    next_to_it = "# yaml-language-server: $schema=recipe.schema.json"
    assert modeline(recipe) == next_to_it, "absolute path of this machine"
    (tmp_path / "recipe.schema.json").write_text("{}")
    assert modeline(recipe) == next_to_it, "schema outside of the repository"
    (tmp_path / ".git").mkdir()
    assert modeline(recipe) == "# yaml-language-server: $schema=../../recipe.schema.json"
    (recipe.parent / "recipe.schema.json").write_text("{}")
    assert modeline(recipe) == next_to_it


@pytest.mark.parametrize(
    ("installed", "shown"),
    [
        (".venv/lib/mobileprep/schemas", "recipe.schema.json"),
        ("env/lib/python3.11/site-packages/mobileprep/schemas", "recipe.schema.json"),
        ("with blank", "recipe.schema.json"),
        ("tools/mobileprep/schemas", "../tools/mobileprep/schemas/recipe.schema.json"),
    ],
)
def test_modeline_has_a_path_only_for_a_checked_in_schema(tmp_path, monkeypatch, installed, shown):
    schema = tmp_path / installed / "recipe.schema.json"
    schema.parent.mkdir(parents=True)
    schema.write_text("{}")
    monkeypatch.setattr("mobileprep.recipe.schemas.EDITOR_SCHEMA", schema)
    (tmp_path / ".git").mkdir()
    line = modeline(tmp_path / "app" / "recipe.yaml")
    assert line == f"# yaml-language-server: $schema={shown}"
