"""The ``data`` key of sections: valid and invalid forms."""

from __future__ import annotations

import pytest

from mobileprep.data.options import FeatureReading, Reading
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.settings import Data
from mobileprep.recipe.tree import InvalidRecipeError

HEAD = "version: 1\nname: r\nsource: {frozen: g.pb}\ntargets: {p: {}}\n"


def data_of(folder, text: str) -> Data:
    recipe = load_recipe(
        folder / "recipe.yaml", environ={}, text=f"{HEAD}validation: {{data: {text}}}\n"
    )
    assert recipe.targets[0].validation is not None
    return recipe.targets[0].validation.data


def problems_of(folder, text: str) -> str:
    with pytest.raises(InvalidRecipeError) as raised:
        data_of(folder, text)
    return f"{raised.value} {raised.value.hint}"


def test_path_without_a_kind(tmp_path):
    data = data_of(tmp_path, "d/t.npz")
    assert (data.kind, data.reading, data.beside) == (None, Reading(), ())
    assert data.file.path == tmp_path / "d/t.npz"
    assert data.file.place == f"{tmp_path}/recipe.yaml:5:20"


def test_images_with_all_options(tmp_path):
    data = data_of(
        tmp_path,
        "{pictures: photos, input: image, labels: labels.csv, classes: names.txt,"
        " resize: [224, 192], central_crop: 0.875, mean: 127.5, std: [1, 2, 3], channels: bgr}",
    )
    assert data.kind == "pictures"
    assert data.reading == Reading(
        input="image",
        labels="labels.csv",
        resize=(224, 192),
        central_crop=0.875,
        mean=(127.5,),
        std=(1.0, 2.0, 3.0),
        channels="bgr",
    )
    assert [file.name for file in data.beside] == ["labels.csv", "names.txt"]


def test_labels_by_directory_need_no_file(tmp_path):
    assert data_of(tmp_path, "{pictures: p, labels: folders}").beside == ()


def test_labels_in_an_array_need_no_file(tmp_path):
    data = data_of(tmp_path, "{npz: d.npz, labels: y, inputs: {x: images}}")
    assert (data.labels, data.reading.labels) == (None, "y")
    assert data.reading.inputs == (("x", ("images",)),)


def test_features_as_names_or_mappings(tmp_path):
    data = data_of(
        tmp_path,
        "{tfrecord: t, features: {a: image/raw, b: {key: k, encoding: raw, shape: [2, 3]}}}",
    )
    assert data.reading.features == (
        ("a", FeatureReading("image/raw")),
        ("b", FeatureReading("k", "raw", None, (2, 3))),
    )


def test_generator_with_its_files(tmp_path):
    data = data_of(tmp_path, "{python: tools/data.py, function: make, files: [a.csv, b]}")
    assert (data.kind, data.reading.function) == ("python", "make")
    assert [file.path for file in data.beside] == [tmp_path / "a.csv", tmp_path / "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{picture: p}", "recipe.yaml:5:21: validation.data.picture: unknown key 'picture'"),
        ("{picture: p}", "did you mean 'pictures'?"),
        ("{input: x}", "the data names no file or folder"),
        (
            "{npz: a, csv: b}",
            "recipe.yaml:5:29: validation.data.csv: data has one kind",
        ),
        ("{npz: a, resize: [2, 2]}", "'resize' applies only to 'pictures' or 'tfrecord'"),
        (
            "{pictures: a, std: 0}",
            "recipe.yaml:5:39: validation.data.std: values cannot be",
        ),
        ("{pictures: a, std: [1, 0]}", "values cannot be divided by 0"),
        ("{pictures: a, resize: [2]}", "needs at least 2 items"),
        ("{pictures: a, channels: bgrr}", "did you mean 'bgr'?"),
        ("{tfrecord: a}", "TFRecords need the features that are fed"),
        ("{tfrecord: a, features: {x: {keys: b}}}", "did you mean 'key'?"),
        ("[a]", "expected text or a mapping, found a list"),
    ],
)
def test_invalid_data_is_reported_at_its_location(tmp_path, text, message):
    assert message in problems_of(tmp_path, text)


def test_data_of_a_target_replaces_the_shared_data(tmp_path):
    text = (
        "version: 1\nname: r\nsource: {frozen: g.pb}\n"
        "validation: {data: {npz: a.npz, labels: y}, batch: 8}\n"
        "targets: {p: {validation: {data: {pictures: photos}, seed: 3}}}\n"
    )
    recipe = load_recipe(tmp_path / "recipe.yaml", environ={}, text=text)
    validation = recipe.targets[0].validation
    assert validation is not None
    assert (validation.data.kind, validation.data.reading) == ("pictures", Reading())
    assert (validation.batch, validation.seed, validation.strict) == (8, 3, False)
