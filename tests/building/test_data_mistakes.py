"""Mistakes in data that builds warn of, in their output and in their reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.building.report.collect import report_data
from mobileprep.building.report.text import report_text
from mobileprep.graph.tensor import Array
from mobileprep.recipe.load import load_recipe

DIGITS = Path(__file__).resolve().parents[2] / "recipes" / "digits"
RECIPE = """\
version: 1
extends: digits/recipe.yaml
name: r
calibration: {data: %s}
validation: {data: %s, max_drop: 1}
targets:
  phone: null
  download: null
  eight: {quantize: {mode: nodes, ranges: observed}}
"""
CALIBRATION, TEST = "digits/data/calibration.npz", "digits/data/test.npz"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DIGITS, tmp_path / "digits")


def arrays(file: str) -> dict[str, Array]:
    with np.load(file) as found:
        return dict(found)


def saved(name: str, images: Array, labels: Array | None = None) -> str:
    given = {} if labels is None else {"label": labels}
    np.savez(name, image=images.astype(np.float32), **given)
    return name


def warnings_of(calibration: str = CALIBRATION, validation: str = TEST) -> list[str]:
    """What a build warns of, once it is sure that the report says the same."""
    Path("recipe.yaml").write_text(RECIPE % (calibration, validation))
    printed: list[str] = []
    recipe = load_recipe(Path("recipe.yaml"), environ={})
    (target,) = build([recipe], "out", warn=printed.append).targets
    report = target.report
    assert report.accuracy is not None
    reported = [text for one in report.calibrations for text in one.warnings]
    reported += report.accuracy.warnings
    found = [line.partition(": ")[2] for line in printed]
    assert sorted(found) == sorted(reported)
    data = report_data(report)
    in_json = [text for one in data["calibrations"] for text in one["warnings"]]
    assert sorted(in_json + list(data["accuracy"]["warnings"])) == sorted(found)
    assert all(f"  warning: {text}\n" in report_text(report) for text in found)
    return found


def test_good_data_is_not_warned_of() -> None:
    assert warnings_of() == []


def test_four_images_are_few() -> None:
    (found,) = warnings_of(saved("c.npz", arrays(CALIBRATION)["image"][:4]))
    assert found == "c.npz: the ranges are those of 4 samples; 100 that differ are usual"


def test_copies_of_an_image_count_once() -> None:
    one = arrays(CALIBRATION)["image"][:1]
    (found,) = warnings_of(saved("c.npz", np.repeat(one, 8, axis=0)))
    assert "only 1 of 8 samples are distinct" in found


def test_noise_is_a_warning() -> None:
    noise = np.random.default_rng(0).random((100, 8, 8, 1))
    (found,) = warnings_of(saved("c.npz", noise))
    assert "the images look like noise" in found


def test_calibration_on_validation_samples_is_a_warning() -> None:
    (found,) = warnings_of(TEST)
    assert found.startswith(f"450 of 450 calibration samples of {TEST} are in {TEST} as well: ")


def test_the_same_samples_in_another_file_are_the_same() -> None:
    (found,) = warnings_of(saved("c.npz", arrays(TEST)["image"][::3]))
    assert found.startswith(f"150 of 150 calibration samples of c.npz are in {TEST} as well: ")


def test_bytes_for_an_input_of_shares() -> None:
    test = arrays(TEST)
    scaled = saved("t.npz", test["image"] * 255, test["label"])
    of_bytes, of_norm, of_both = warnings_of(validation=scaled)
    assert "the input 'image' is fed 0 to 255, the graph does not scale that" in of_bytes
    assert "top1 accuracy is 0.2" in of_bytes
    assert "values have a standard deviation of 44, and had 0.18 in training" in of_norm
    assert f"the input 'image' is fed 0 to 1 by {CALIBRATION} in the calibration" in of_both


def test_bytes_in_the_calibration_alone() -> None:
    images = saved("c.npz", arrays(CALIBRATION)["image"] * 255)
    of_norm, of_both = warnings_of(images)
    assert "c.npz: before the first batch normalization" in of_norm
    assert "the input 'image' is fed 0 to 255 by c.npz in the calibration" in of_both


def test_labels_in_another_order_bring_the_source_near_chance() -> None:
    test = arrays(TEST)
    shuffled = np.random.default_rng(0).permutation(test["label"])
    (found,) = warnings_of(validation=saved("t.npz", test["image"], shuffled))
    assert "on 450 samples, near chance: 0.1000 for 10 classes. Check that the labels" in found
    assert "('image' is fed 0 to 1)" in found


@pytest.mark.parametrize(("orientation", "count"), [(1, 0), (6, 20)])
def test_photos_that_are_to_be_turned(orientation: int, count: int) -> None:
    image = pytest.importorskip("PIL.Image")
    test = arrays(TEST)
    for at, label in enumerate(test["label"][:60]):
        Path(f"photos/{label}").mkdir(parents=True, exist_ok=True)
        exif = image.Exif()
        exif[0x0112] = orientation if at % 3 == 0 else 1
        pixels = np.round(test["image"][at, :, :, 0] * 255).astype(np.uint8)
        image.fromarray(pixels).save(f"photos/{label}/{at}.jpg", quality=95, exif=exif)
    photos = "{pictures: photos, channels: grayscale, labels: folders}"
    found = warnings_of(validation=photos)
    assert len(found) == bool(count)
    assert all(f"{count} of 60 images have an EXIF orientation" in text for text in found)
