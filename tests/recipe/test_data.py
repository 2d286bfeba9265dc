"""The ``data`` of sections: what each form means, and what is wrong with others."""

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


def test_a_path_alone_leaves_the_kind_to_its_content(tmp_path):
    found = data_of(tmp_path, "d/t.npz")
    assert (found.kind, found.reading, found.beside) == (None, Reading(), ())
    assert found.file.path == tmp_path / "d/t.npz"
    assert found.file.place == f"{tmp_path}/recipe.yaml:5:20"


def test_pictures_with_all_their_options(tmp_path):
    found = data_of(
        tmp_path,
        "{pictures: photos, input: image, labels: labels.csv, classes: names.txt,"
        " resize: [224, 192], central_crop: 0.875, mean: 127.5, std: [1, 2, 3], channels: bgr}",
    )
    assert found.kind == "pictures"
    assert found.reading == Reading(
        input="image",
        labels="labels.csv",
        resize=(224, 192),
        central_crop=0.875,
        mean=(127.5,),
        std=(1.0, 2.0, 3.0),
        channels="bgr",
    )
    assert [file.name for file in found.beside] == ["labels.csv", "names.txt"]


def test_labels_by_folder_name_no_file(tmp_path):
    assert data_of(tmp_path, "{pictures: p, labels: folders}").beside == ()


def test_an_array_of_labels_is_no_file(tmp_path):
    found = data_of(tmp_path, "{npz: d.npz, labels: y, inputs: {x: images}}")
    assert (found.labels, found.reading.labels) == (None, "y")
    assert found.reading.inputs == (("x", ("images",)),)


def test_features_are_names_or_mappings(tmp_path):
    found = data_of(
        tmp_path,
        "{tfrecord: t, features: {a: image/raw, b: {key: k, encoding: raw, shape: [2, 3]}}}",
    )
    assert found.reading.features == (
        ("a", FeatureReading("image/raw")),
        ("b", FeatureReading("k", "raw", None, (2, 3))),
    )


def test_a_generator_and_what_it_reads(tmp_path):
    found = data_of(tmp_path, "{python: tools/data.py, function: make, files: [a.csv, b]}")
    assert (found.kind, found.reading.function) == ("python", "make")
    assert [file.path for file in found.beside] == [tmp_path / "a.csv", tmp_path / "b"]


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_what_is_wrong_is_told_at_its_place(tmp_path, text, told):
    assert told in problems_of(tmp_path, text)


def test_data_of_a_target_replaces_the_shared_data_as_a_whole(tmp_path):
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
