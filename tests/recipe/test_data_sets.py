"""The section ``validation`` as a list of named validations."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError, RecipeError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Target
from mobileprep.recipe.presence import check_files
from mobileprep.recipe.validation_settings import NamedValidation

HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\ntargets: {p: TARGET}\nvalidation:\n"
STUDIO = "  - {name: studio, data: studio.npz}\n"


def load_target(directory: Path, items: str, target: str = "{}") -> Target:
    text = f"{HEAD.replace('TARGET', target)}{items}"
    (loaded,) = load_recipe(directory / "recipe.yaml", text=text, environ={}).targets
    return loaded


def names(target: Target) -> list[tuple[str, str]]:
    """Return the name and the data of each validation."""
    validations = target.validations
    return [(v.name, v.data.file.name) for v in validations if isinstance(v, NamedValidation)]


def test_list_of_validations(tmp_path: Path) -> None:
    phone = "  - {name: phone, data: phone.npz, max_gap: 0.05, max_drop: 0.02}\n"
    target = load_target(tmp_path, f"{STUDIO}{phone}")
    assert names(target) == [("studio", "studio.npz"), ("phone", "phone.npz")]
    assert target.validation == target.validations[0]
    limits = [(c.max_drop, c.max_gap) for v in target.validations for c in v.metrics]
    assert limits == [(0.01, None), (0.02, 0.05)]
    assert target.validation_keys(target.validations[1]) == ("validation", 1)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (
            "{name: studio, data: phone.npz}",
            (
                "recipe.yaml:7:12: validation[1].name: another validation has the name 'studio'; "
                "give each data set its own name"
            ),
        ),
        (
            "{data: phone.npz}",
            "recipe.yaml:7:5: validation[1]: the key 'name' is missing; add 'name: ...'",
        ),
        (
            "{name: phone, data: phone.npz, max_gp: 0.1}",
            "recipe.yaml:7:36: validation[1].max_gp: unknown key 'max_gp'; did you mean 'max_gap'?",
        ),
        (
            "{name: phone}",
            "recipe.yaml:7:5: validation[1]: validation needs a test set; add 'data: test.npz'",
        ),
        (
            "{name: phone, data: phone.npz, metric: top5, max_gap: 0.1}",
            (
                "recipe.yaml:7:50: validation[1].max_gap: the first validation does not have the "
                "metric 'top5' to compare with; did you mean 'auto'?"
            ),
        ),
        (
            "{name: phone, data: phone.npz, output: y, max_gap: 0.1}",
            (
                "recipe.yaml:7:47: validation[1].max_gap: the first validation measures 'auto' of "
                "another output; name the same output in both validations"
            ),
        ),
        (
            "{name: phone, data: phone.npz, max_gap: -1}",
            "recipe.yaml:7:45: validation[1].max_gap: must be at least 0",
        ),
        (
            "{name: phone, data: {npz: a.npz, csv: a.csv}}",
            "recipe.yaml:7:38: validation[1].data.csv: data has one kind: 'npz' is already set",
        ),
        (
            "{name: phone, data: phone.npz, engine: graph}",
            "recipe.yaml:7:44: validation[1].engine: 'engine' of 'validation' requires",
        ),
        (
            "{name: phone, data: phone.npz, metric: psnr, max_gap: 1}",
            "recipe.yaml:7:44: validation[1].metric: 'psnr' needs a limit",
        ),
        ("7", "recipe.yaml:7:5: validation[1]: expected a mapping, found the number 7"),
    ],
)
def test_invalid_items(tmp_path: Path, item: str, problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_target(tmp_path, f"{STUDIO}  - {item}\n")
    assert problem in str(caught.value)


def test_gap_of_the_first_validation(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="this is the first"):
        load_target(tmp_path, "  - {name: studio, data: studio.npz, max_gap: 0.1}\n")


def test_gap_of_a_single_validation(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'max_gap' compares data sets, and there is one"):
        load_target(tmp_path, "  {data: studio.npz, max_gap: 0.1}\n")


def test_empty_list(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="needs at least 1 item"):
        load_target(tmp_path, "  []\n")


def test_closest_metric(tmp_path: Path) -> None:
    first = "  - {name: a, data: a.npz, metric: top5}\n"
    with pytest.raises(RecipeError, match="did you mean 'top5'"):
        load_target(tmp_path, f"{first}  - {{name: b, data: b.npz, metric: top1, max_gap: 0.1}}\n")


def test_gap_of_a_metric_in_a_list(tmp_path: Path) -> None:
    first = "  - {name: a, data: a.npz, metrics: [{metric: top1}, {metric: top5}]}\n"
    second = "  - {name: b, data: b.npz, metrics: [{metric: top5, max_gap: 0.1}]}\n"
    target = load_target(tmp_path, f"{first}{second}")
    assert [c.max_gap for c in target.validations[1].metrics] == [0.1]
    misplaced = "  - {name: c, data: c.npz, metrics: [{metric: top5}], max_gap: 0.1}\n"
    with pytest.raises(RecipeError, match="'max_gap' is of a single metric"):
        load_target(tmp_path, f"{first}{misplaced}")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("{validation: [{name: b, data: b.npz}]}", [("b", "b.npz")]),
        ("{validation: null}", []),
        ("{}", [("studio", "studio.npz")]),
    ],
)
def test_targets_replace_the_list(
    tmp_path: Path, target: str, expected: list[tuple[str, str]]
) -> None:
    assert names(load_target(tmp_path, STUDIO, target)) == expected


def test_mapping_replaces_a_list(tmp_path: Path) -> None:
    target = load_target(tmp_path, STUDIO, "{validation: {data: c.npz}}")
    assert [v.data.file.name for v in target.validations] == ["c.npz"]
    with pytest.raises(RecipeError, match="validation needs a test set"):
        load_target(tmp_path, STUDIO, "{validation: {max_drop: 0.1}}")


def test_extending_recipe_replaces_the_list(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(f"{HEAD.replace('TARGET', '{}')}{STUDIO}")
    text = "extends: base.yaml\nvalidation: [{name: b, data: b.npz}]\n"
    (target,) = load_recipe(tmp_path / "recipe.yaml", text=text, environ={}).targets
    assert names(target) == [("b", "b.npz")]


def test_missing_files_of_every_data_set(tmp_path: Path) -> None:
    (tmp_path / "m.pb").write_bytes(b"")
    text = f"{HEAD.replace('TARGET', '{}')}{STUDIO}  - {{name: b, data: b.npz}}\n"
    recipe = load_recipe(tmp_path / "recipe.yaml", text=text, environ={})
    with pytest.raises(CorruptFileError) as caught:
        check_files(recipe)
    assert "recipe.yaml:6:26: no such file: 'studio.npz'" in str(caught.value)
    assert "recipe.yaml:7:21: no such file: 'b.npz'" in str(caught.value)
