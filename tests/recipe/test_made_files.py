"""Generated schemas and reference pages are up to date."""

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
