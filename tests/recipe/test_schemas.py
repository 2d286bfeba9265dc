"""The schema agrees with the model classes."""

from __future__ import annotations

import json

from msgspec import structs

from mobileprep.recipe.model import Target
from mobileprep.recipe.schemas import SCHEMA_FOLDER, TransformSchemas, recipe_schema
from mobileprep.recipe.settings import InputSpec, Source
from mobileprep.recipe.validation_settings import Quantize

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
