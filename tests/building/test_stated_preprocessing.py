"""Builds of graphs without a decoder whose preprocessing the recipe states."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.building.stages.cut.run import stated_preprocessing
from mobileprep.cli.main import main
from mobileprep.data.file_samples import ImageReading
from mobileprep.data.options import Reading
from mobileprep.errors import AccuracyError, RecipeError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.preprocessing import StatedPreprocessing
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.transforms.cut_preprocessing import prepared
from tests.building.stages.jobs import placeholder
from tests.building.test_cut_preprocessing import code_of
from tests.transforms.graphs import node

RECIPE = """\
version: 1
name: photos
source: {{frozen: graph.pb}}
inputs: {{x: {declared}}}
outputs: [y]
preprocessing: {{{stated}}}
integration: {{languages: [{languages}], class_name: Photos}}
targets:
  phone: {{platform: android{target}}}
"""
SHAPE = "{shape: [1, 5, 4, 3]}"
CAFFE = "channels: bgr, central_crop: 0.875, mean: [104, 117, 123], std: 1"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))


def stated_recipe(
    folder: Path,
    stated: str,
    *,
    shape: tuple[int, ...] = (1, 5, 4, 3),
    dtype: DType = DType.FLOAT,
    declared: str = "{}",
    target: str = "",
    languages: str = "java, kotlin, cpp, objc",
) -> Path:
    graph = Graph([placeholder(shape, dtype), node("y", "Identity", "x", T=dtype)])
    write_graph(folder / "graph.pb", graph)
    recipe = folder / "recipe.yaml"
    text = RECIPE.format(stated=stated, declared=declared, target=target, languages=languages)
    recipe.write_text(text)
    return recipe


def built(recipe: Path) -> Path:
    build([recipe], out=recipe.parent / "out", warn=lambda _: None)
    return recipe.parent / "out/photos/phone"


def test_code_and_report_have_the_stated_preprocessing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = built(stated_recipe(tmp_path, CAFFE))
    record = json.loads((folder / "report.json").read_text())["preprocessing"]
    # The size is that of the input's shape, as for samples.
    assert record["summary"] == "bgr; central crop 0.875; bilinear 5 x 4; mean 104, 117, 123; std 1"
    assert (record["nodes"], record["data"], record["tolerance"]) == (0, None, None)
    assert record["preprocessing"]["input"] == "x"
    assert main(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert f"preprocessing: {record['summary']}; input x\n" in shown
    assert "agrees with the graph" not in shown
    files = code_of(folder)
    # Blue comes first, and 104 is its mean.
    assert "(resized(y, x, 2) - 104.0f) / 1.0f" in files["Photos.cc"]
    assert "preprocess(int[] pixels, int width, int height)" in files["Photos.java"]
    assert "fun preprocess(pixels: IntArray, width: Int, height: Int)" in files["Photos.kt"]


def test_conversion_is_that_of_samples() -> None:
    png = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(3).integers(0, 256, (9, 7, 3), np.uint8)
    file = io.BytesIO()
    png.fromarray(pixels).save(file, "png")
    keys: dict[str, Any] = {"channels": "bgr", "central_crop": 0.75, "mean": (1.0, 2.0, 3.0)}
    fed = FedTensor("x", DType.FLOAT, (1, 5, 4, 3))
    sample = ImageReading(fed, Reading(**keys), "").sample(file.getvalue(), "a.png")
    preprocessing = stated_preprocessing(StatedPreprocessing(**keys), fed)
    np.testing.assert_array_equal(prepared(preprocessing, pixels), sample.reshape(5, 4, 3))


def test_defaults_are_those_of_samples(tmp_path: Path) -> None:
    folder = built(stated_recipe(tmp_path, "interpolation: nearest, align_corners: true"))
    summary = json.loads((folder / "report.json").read_text())["preprocessing"]["summary"]
    assert summary == "rgb; nearest 5 x 4 align_corners; mean 0; std 255"


def test_uint8_inputs_get_rounded_pixels(tmp_path: Path) -> None:
    files = code_of(built(stated_recipe(tmp_path, "channels: rgb", dtype=DType.UINT8)))
    assert "static_cast<std::uint8_t>(std::nearbyint(resized(y, x, 0)))" in files["Photos.cc"]
    assert "(byte) (int) Math.rint(value)" in files["Photos.java"]
    assert "Math.rint(value.toDouble()).toInt().toByte()" in files["Photos.kt"]


def test_open_sizes_keep_the_size_of_the_image(tmp_path: Path) -> None:
    recipe = stated_recipe(tmp_path, "mean: 1", shape=(-1, -1, -1, 3), languages="cpp")
    assert "*out_height = rows;" in code_of(built(recipe))["Photos.cc"]


def test_a_target_overrides_keys(tmp_path: Path) -> None:
    target = ", preprocessing: {channels: rgb}"
    (phone,) = load_recipe(stated_recipe(tmp_path, "channels: bgr, mean: 3", target=target)).targets
    assert phone.preprocessing == StatedPreprocessing(channels="rgb", mean=(3.0,))
    unchanged = stated_recipe(tmp_path, "channels: bgr", target=", preprocessing: keep")
    assert load_recipe(unchanged).targets[0].preprocessing == "keep"


@pytest.mark.parametrize(
    ("stated", "declared", "column", "problem"),
    [
        ("channels: grayscale", SHAPE, 27, "'grayscale' has 1 channels, and the input 'x' 3"),
        ("resize: [4, 4]", SHAPE, 17, "the size 4 x 4 does not fit the input 'x' with the shape"),
        ("input: z", SHAPE, 24, "'z' is not one of the inputs: x"),
        ("mean: 1", "{shape: [1, 9]}", 1, "the shape [1, 9], which is not that of an image"),
        ("mean: 1", "{shape: [1, 5, -1, 3]}", 1, "the input 'x' has only one known side"),
        ("mean: [1, 2]", "{}", 17, "'mean' has 2 numbers for 3 channels"),
        ("std: [1, 0, 1]", "{}", 17, "values cannot be divided by 0"),
        ("align_corners: true, half_pixel_centers: true", "{}", 32, "exclude each other"),
        ("crop: 0.5", "{}", 17, "unknown key 'crop'"),
        ("channels: red", "{}", 27, "red"),
    ],
)
def test_invalid_keys(
    tmp_path: Path, stated: str, declared: str, column: int, problem: str
) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(stated_recipe(tmp_path, stated, declared=declared))
    assert f"recipe.yaml:6:{column}: preprocessing" in str(error.value)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("stated", "shape", "dtype", "problem"),
    [
        ("channels: grayscale", (1, 5, 4, 3), DType.FLOAT, "has 1 channels, and the input 'x' 3"),
        ("resize: [4, 5]", (1, 5, 4, 3), DType.FLOAT, "the size 4 x 5 does not fit the input"),
        ("mean: 1", (1, 5, 4, 3), DType.UINT8, "is uint8, which the code does not scale"),
        ("mean: 1", (1, 5, 4, 3), DType.INT32, "is int32, not float32 or uint8"),
    ],
)
def test_preprocessing_that_does_not_fit_the_graph(
    tmp_path: Path, stated: str, shape: tuple[int, ...], dtype: DType, problem: str
) -> None:
    recipe = stated_recipe(tmp_path, stated, shape=shape, dtype=dtype)
    with pytest.raises(AccuracyError) as error:
        built(recipe)
    assert problem in str(error.value)
    assert "recipe.yaml:6:1" in str(error.value)
