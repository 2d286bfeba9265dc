"""Schemas and reference pages are what the declarations of options make of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.recipe.schemas import TransformSchemas

COMMAND = "python tools/make_schemas.py"


def _tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "make_schemas.py"
    spec = importlib.util.spec_from_file_location("make_schemas", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = _tool()
MADE = {
    **TOOL.transform_schemas(),
    **TOOL.output_schemas(),
    TOOL.SCHEMA_FOLDER / "recipe.json": TOOL.recipe_format(),
    **TOOL.derived(),
}


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_a_file_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path], COMMAND


def test_no_schema_is_left_of_a_transform_that_is_gone() -> None:
    assert set(TOOL.TRANSFORMS.glob("*.json")) == TOOL.transform_schemas().keys(), COMMAND


def test_quantize_takes_what_its_transforms_take() -> None:
    keys = TOOL.recipe_schema()["$defs"]["quantize"]["else"]["properties"]
    for mode, (transform, parameter) in TOOL.QUANTIZERS.items():
        wanted = TransformSchemas().get(transform)["properties"][parameter]
        # What quantize_weights takes below zero is the original's, and of no use in a recipe.
        bound = {key: keys[parameter][key] for key in ("minimum",) if key in keys[parameter]}
        told = {**keys[parameter], "description": wanted["description"]}
        assert told == {**wanted, **bound}
        named = keys[parameter]["description"].partition(": ")[0]
        assert f"`{mode}`" in named
    assert keys["minimum_size"]["description"].startswith(
        "With `weights`, `float16` or `bfloat16`: constants"
    )


@pytest.mark.parametrize("key", ["bits", "granularity"])
def test_quantize_takes_the_bits_and_scales_of_its_transform(key):
    told = TOOL.recipe_schema()["$defs"]["quantize"]["else"]["properties"][key]
    wanted = TransformSchemas().get("linear_quantize_weights")["properties"][key]
    names = ("type", "minimum", "maximum")
    assert {n: told.get(n) for n in names} == {n: wanted.get(n) for n in names}
    assert sorted(told.get("enum", ())) == sorted(wanted.get("enum", ()))


def test_main_writes_what_is_missing_and_removes_what_is_too_much(
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
