"""Builds with `preprocessing: cut`: the graph, the report, the proof, and the generated code."""

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.building.stages.cut import run
from mobileprep.cli.main import main
from mobileprep.errors import AccuracyError, RecipeError, TransformError
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.transforms.cut_preprocessing.recognition import prepared
from tests.transforms.graphs import node
from tests.transforms.test_cut_preprocessing import _inception

RECIPE = """\
version: 1
name: photos
source: {{frozen: graph.pb}}
inputs: {{file: {{dtype: string, shape: []}}}}
outputs: [out]
preprocessing: cut
{more}
targets:
  phone: {{platform: android{target}}}
"""
CODE = "integration: {languages: [java, kotlin, cpp, objc], class_name: Photos}"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))


def photos_recipe(folder: Path, graph: Graph, more: str = "", target: str = "") -> Path:
    write_graph(folder / "graph.pb", graph)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(more=more, target=target))
    return recipe


def save_photos(folder: Path, suffix: str = "png") -> None:
    image = pytest.importorskip("PIL.Image")
    (folder / "photos").mkdir()
    for number, size in enumerate([(9, 7, 3), (20, 31, 3)]):
        pixels = np.random.default_rng(number).integers(0, 256, size, np.uint8)
        image.fromarray(pixels).save(folder / f"photos/{number}.{suffix}")


def test_build_cuts_the_front_and_reports_it(tmp_path: Path) -> None:
    recipe = photos_recipe(tmp_path, Graph(_inception()))
    build([recipe], out=tmp_path / "out", warn=lambda _: None)
    folder = tmp_path / "out/photos/phone"
    graph = read_graph(folder / "photos.pb")
    assert [(n.name, n.op) for n in graph] == [("last", "Placeholder"), ("out", "Relu")]
    report = json.loads((folder / "report.json").read_text())["preprocessing"]
    assert report["preprocessing"]["resize"] == [5, 4]
    assert report["summary"] == "rgb; bilinear 5 x 4; mean 128; std 128"
    assert (report["data"], report["samples"]) == ("drawn", 2)
    assert report["largest_difference"] <= 1e-6


def test_build_compares_on_the_image_files(tmp_path: Path) -> None:
    save_photos(tmp_path, "jpg")
    data = "check: {data: {pictures: photos, mean: 128, std: 128}}"
    recipe = photos_recipe(tmp_path, Graph(_inception()), data)
    build([recipe], out=tmp_path / "out", warn=lambda _: None)
    report = json.loads((tmp_path / "out/photos/phone/report.json").read_text())
    assert report["preprocessing"]["data"] == "photos"
    assert report["preprocessing"]["samples"] == 2
    # The check feeds the cut graph with the decoded images.
    assert report["check"]["inputs"] == {"last": "float32 [1, 5, 4, 3]"}


def test_a_difference_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "prepared", lambda found, pixels: prepared(found, pixels) + 0.01)
    recipe = photos_recipe(tmp_path, Graph(_inception(align_corners=True)))
    with pytest.raises(AccuracyError, match="the app's preprocessing and the graph's differ") as e:
        build([recipe], out=tmp_path / "out", warn=lambda _: None)
    assert e.value.exit_code == 8


def test_a_graph_without_a_front_is_an_error(tmp_path: Path) -> None:
    twice = Graph([*_inception(), node("again", "DecodeJpeg", "file", T=None, channels=3)])
    recipe = photos_recipe(tmp_path, Graph([*twice, node("x2", "Identity", "again")]))
    recipe.write_text(recipe.read_text().replace("[out]", "[out, x2]"))
    with pytest.raises(TransformError, match="cannot be cut: the graph has 2 decoders"):
        build([recipe], out=tmp_path / "out", warn=lambda _: None)


def code_of(folder: Path) -> dict[str, str]:
    files = (p for p in (folder / "integration").rglob("*") if p.is_file())
    return {path.name: path.read_text() for path in files}


def test_generated_code_has_the_preprocessing(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("red\nred\n")
    code = CODE.replace("}", ", labels: labels.txt}")
    recipe = photos_recipe(tmp_path, Graph(_inception()), code)
    messages: list[str] = []
    build([recipe], out=tmp_path / "out", warn=messages.append)
    folder = tmp_path / "out/photos/phone"
    files = code_of(folder)
    assert "(resized(y, x, 0) - 128.0f) / 128.0f" in files["Photos.cc"]
    assert "preprocess(int[] pixels, int width, int height)" in files["Photos.java"]
    assert "fun preprocess(pixels: IntArray, width: Int, height: Int)" in files["Photos.kt"]
    assert "topK" in files["Photos.java"]
    # The output has three scores, so the first one is the background.
    assert (folder / "photos_labels.txt").read_text() == "background\nred\nred\n"
    assert any("2 labels, and the output 'out' 3 scores" in message for message in messages)


def test_wrong_number_of_labels_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("only\n")
    code = CODE.replace("}", ", labels: labels.txt}")
    recipe = photos_recipe(tmp_path, Graph(_inception()), code)
    with pytest.raises(AccuracyError, match="1 labels, and the output 'out' 3 scores"):
        build([recipe], out=tmp_path / "out", warn=lambda _: None)


def test_the_transform_is_not_a_step_of_a_recipe(tmp_path: Path) -> None:
    recipe = photos_recipe(tmp_path, Graph(_inception()), "transforms: [cut_preprocessing]")
    with pytest.raises(RecipeError, match="cannot be a step of a recipe"):
        build([recipe], out=tmp_path / "out", warn=lambda _: None)


def test_init_writes_the_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path / "graph.pb", Graph(_inception()))
    monkeypatch.chdir(tmp_path)
    assert main(["init", "graph.pb", "--recipe", "photos.yaml"]) == 0
    lines = (tmp_path / "photos.yaml").read_text().splitlines()
    at = lines.index("preprocessing: cut")
    assert "bilinear 5 x 4; mean 128; std 128" in " ".join(lines[at - 2 : at])
