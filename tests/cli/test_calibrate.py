"""The verb ``calibrate``, and builds with the range files that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mobileprep
from mobileprep.errors import UsageError
from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.formats.range_file import range_file_text, read_range_file
from tests.cli.conftest import Run, replace_text

TARGETS = """
  eight: {platform: android, quantize: {mode: nodes, ranges: observed}}
calibration: {data: data/calibration.npz, method: min_max, range_file: ranges.yaml}
"""


@pytest.fixture
def recipe(built: Path) -> Path:
    """The digits recipe with an additional target that uses observed ranges."""
    built.write_text(built.read_text() + TARGETS)
    return built


@pytest.fixture
def ranges(recipe: Path) -> Path:
    return recipe.with_name("ranges.yaml")


def test_build_uses_written_ranges_without_the_data(recipe: Path, ranges: Path, run: Run) -> None:
    first = run("calibrate", recipe)
    assert first.code == 0
    assert first.err.endswith("ranges.yaml: written\n")
    assert first.out.startswith("digits/eight: 7 ranges by min_max on ")
    assert "  image: new, 0 to 1\n" in first.out
    again = run("calibrate", recipe)
    assert again.err.endswith("ranges.yaml: up to date\n")
    assert again.out.endswith(" samples, 0 moved\n")
    (recipe.parent / "data" / "calibration.npz").unlink()
    assert run("validate", recipe).code == 0
    assert run("build", recipe, "--target", "eight").code == 0


def test_build_measures_ranges_without_a_range_file(recipe: Path, run: Run) -> None:
    assert run("build", recipe, "--target", "eight").code == 0


def test_moved_ranges_are_reported(recipe: Path, ranges: Path, run: Run) -> None:
    run("calibrate", recipe)
    text = ranges.read_text()
    ranges.write_text(text.replace("image: {min: 0.0, max: 1.0", "image: {min: 0.0, max: 0.8"))
    checked = run("calibrate", recipe, "--check", "--target", "eight")
    assert checked.code == 8
    assert "  image: 0 to 0.8 became 0 to 1, by 25.00% of its width\n" in checked.out
    assert "ranges.yaml: would change\n" in checked.err
    assert "ranges.yaml is not up to date" in checked.err
    result = run("calibrate", recipe, "--json")
    assert result.code == 0
    (data,) = json.loads(result.out)
    assert data["moved"] == [
        {
            "tensor": "image",
            "before": [0.0, pytest.approx(0.8)],
            "after": [0.0, 1.0],
            "share": pytest.approx(0.25),
        }
    ]
    assert ranges.read_text() == text
    assert run("calibrate", recipe, "--check").code == 0


def test_stale_range_file_fails_the_build(recipe: Path, ranges: Path, run: Run) -> None:
    run("calibrate", recipe)
    replace_text(recipe, "  - fold_old_batch_norms\n", "")
    result = run("build", recipe, "--target", "eight")
    assert result.code == 8
    assert "Dense/Relu6: what computes it has changed\n" in result.err
    assert "run 'mobileprep calibrate'" in result.err
    assert "image: " not in result.err


def test_changed_data_makes_the_range_file_stale(recipe: Path, ranges: Path, run: Run) -> None:
    run("calibrate", recipe)
    path = recipe.parent / "data" / "calibration.npz"
    arrays = read_arrays(path)
    with path.open("wb") as stream:
        write_arrays(stream, {**arrays, "image": arrays["image"] / 2})
    result = run("build", recipe, "--target", "eight")
    assert result.code == 8
    assert "it was measured on other data\n" in result.err


def test_sample_with_infinite_values_is_reported(recipe: Path, run: Run) -> None:
    path = recipe.parent / "data" / "calibration.npz"
    arrays = read_arrays(path)
    image = arrays["image"].astype(np.float32)
    image[3, 0, 0, 0] = np.inf
    with path.open("wb") as stream:
        write_arrays(stream, {**arrays, "image": image})
    result = run("calibrate", recipe)
    assert result.code == 8
    assert "the tensor 'image' is NaN or infinite for sample 3" in result.err


def test_other_yaml_file_is_not_overwritten(recipe: Path, run: Run) -> None:
    replace_text(recipe, "range_file: ranges", "range_file: other")
    other = recipe.with_name("other.yaml")
    other.write_text("mine: yes\n")
    result = run("calibrate", recipe)
    assert result.code == 4
    assert "unknown key 'mine'" in result.err
    assert other.read_text() == "mine: yes\n"


def test_targets_with_one_range_file_need_equal_ranges(recipe: Path, run: Run) -> None:
    same = "  more: {quantize: {mode: nodes, ranges: observed}}\ncalibration:"
    replace_text(recipe, "calibration:", same)
    result = run("calibrate", recipe, "--target", "more")
    assert result.code == 0
    assert result.out.startswith("digits/eight, digits/more: 7 ranges")
    other = same.replace("observed}", "observed}, calibration: {method: mse}")
    replace_text(recipe, same, other)
    result = run("calibrate", recipe)
    assert result.code == 3
    assert "digits/more and digits/eight cannot share ranges.yaml" in result.err


def test_missing_range_file_option_is_reported(recipe: Path, run: Run) -> None:
    replace_text(recipe, ", range_file: ranges.yaml", "")
    result = run("calibrate", recipe)
    assert result.code == 0
    assert "no range_file is named that would keep the ranges" in result.err
    assert not recipe.with_name("ranges.yaml").exists()


def test_recipe_without_observed_ranges_is_refused(built: Path, run: Run) -> None:
    result = run("calibrate", built)
    assert result.code == 2
    assert "no target takes observed ranges" in result.err


def test_function_accepts_paths_and_recipes(recipe: Path, ranges: Path) -> None:
    (change,) = mobileprep.calibrate(recipe, check=True)
    assert change.is_changed
    assert not ranges.exists()
    (written,) = mobileprep.calibrate(mobileprep.load_recipe(recipe), targets=["eight"])
    assert written == change
    assert range_file_text(read_range_file(ranges)) == ranges.read_text()
    with pytest.raises(UsageError, match="no target phone takes observed ranges"):
        mobileprep.calibrate(recipe, targets=["phone"])
