"""Builds that validate on other kinds of data than arrays, and on invalid data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.building.builder import build
from mobileprep.errors import MobileprepError
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.building.stages.jobs import op, placeholder
from tests.data.made import pictures, write

RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
transforms: [strip_unused_nodes]
check: true
validation: {data: DATA}
targets: {phone: {}}
"""
FUNCTION = "def samples():\n    for i in range(4):\n        yield {'x': [i, 1 - i, 0.5]}, 0\n"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    graph = Graph([placeholder((-1, 3)), op("y", "Relu", "x")])
    write_graph(tmp_path / "model.pb", graph)
    write(tmp_path / "d.csv", b"a,b,c,label\n1,2,3,2\n3,2,1,0\n2,3,1,1\n")
    write(tmp_path / "data.py", FUNCTION.encode())
    return tmp_path / "recipe.yaml"


def built(recipe: Path, data: str) -> tuple[dict, tuple[str, ...], list[str]]:
    """The validation's record, what ran, and what was warned of."""
    recipe.write_text(RECIPE.replace("DATA", data))
    warnings: list[str] = []
    done = build(recipe, recipe.parent / "out", jobs=1, warn=warnings.append)
    manifest = json.loads((done.targets[0].folder / "manifest.json").read_text())
    return manifest, done.ran, warnings


def test_a_csv_file_is_checked_and_validated_with(recipe: Path) -> None:
    manifest, ran, _ = built(recipe, "d.csv, samples: 2")
    assert "r/samples" in ran
    assert {"d.csv", "model.pb"} <= manifest["sources"].keys()
    _, ran, _ = built(recipe, "d.csv, samples: 2")
    assert not ran
    write(recipe.parent / "d.csv", b"a,b,c,label\n1,2,3,2\n3,2,1,0\n2,3,9,2\n")
    _, ran, _ = built(recipe, "d.csv, samples: 2")
    assert {"r/samples", "r/evaluate-source", "r/phone/evaluate"} <= set(ran)
    assert "r/freeze" not in ran


def test_file_next_to_a_function_is_an_input(recipe: Path) -> None:
    write(recipe.parent / "more/a.txt", b"1")
    data = "{python: data.py, files: [more]}"
    manifest, _, _ = built(recipe, data)
    assert {"data.py", "more/a.txt"} <= manifest["sources"].keys()
    write(recipe.parent / "more/b.txt", b"1")
    _, ran, _ = built(recipe, data)
    assert "r/evaluate-source" in ran


@pytest.mark.parametrize(
    ("data", "code", "told"),
    [
        ("d.csv, samples: 4", 8, "d.csv has 3 samples, and 4 are asked for"),
        ("{csv: d.csv, inputs: {x: [a, b, c]}}, labels: lable", 8, "has no column 'lable'"),
        ("{csv: wide.csv}", 8, r"takes the shape \[\?, 3\], and the sample has \[4\]"),
        ("{csv: text.csv}, strict: true", 4, "text.csv, line 3.* 'x' is not a number"),
        ("{csv: same.csv}", 8, "same.csv: all samples hold one value: 'x' is 1 throughout"),
        ("{csv: nan.csv}", 8, "1 of 2 samples of 'x' are NaN throughout, the first"),
        ("{csv: far.csv}", 8, "1 of 2 labels 'label' are none of the model's 3 classes"),
        ("none.npz", 4, "none.npz does not exist"),
        ("empty", 4, "empty is a folder without files"),
        ("{python: data.py, function: raises}", 8, "raises.py:3|KeyError"),
        ("{python: data.py, function: nothing}", 8, "nothing holds no samples"),
    ],
)
def test_bad_data_is_reported_and_outputs_stay(
    recipe: Path, data: str, code: int, told: str
) -> None:
    folder = recipe.parent
    write(folder / "wide.csv", b"a,b,c,d,label\n1,2,3,4,0\n")
    write(folder / "text.csv", b"a,b,c,label\n1,2,3,0\n1,x,3,0\n")
    write(folder / "same.csv", b"a,b,c,label\n1,1,1,0\n1,1,1,0\n")
    write(folder / "nan.csv", b"a,b,c,label\n1,2,1,0\nnan,nan,nan,0\n")
    write(folder / "far.csv", b"a,b,c,label\n1,2,1,0\n1,2,3,7\n")
    (folder / "empty").mkdir()
    more = (
        "\ndef raises():\n    raise KeyError('k')\n    yield\n\n\ndef nothing():\n    return []\n"
    )
    write(folder / "data.py", (FUNCTION + more).encode())
    built(recipe, "{python: data.py}")
    before = {p.name: p.read_bytes() for p in (folder / "out/r/phone").iterdir()}
    with pytest.raises(MobileprepError, match=told) as caught:
        built(recipe, data)
    assert caught.value.exit_code == code
    assert {p.name: p.read_bytes() for p in (folder / "out/r/phone").iterdir()} == before


def test_unreadable_image_is_a_warning(recipe: Path) -> None:
    folder = recipe.parent
    graph = Graph([placeholder((-1, 4, 6, 3)), op("y", "Relu", "x")])
    write_graph(folder / "model.pb", graph)
    pictures(folder / "p", ["a/1.png", "b/2.png"])
    write(folder / "p/b/3.png", b"none")
    recipe.write_text(RECIPE.replace("validation: {data: DATA}\n", "").replace("true", "{data: p}"))
    warnings: list[str] = []
    build(recipe, folder / "out", jobs=1, warn=warnings.append)
    (told,) = warnings
    assert (
        "p: 1 of 3 samples cannot be read: b/3.png (is not a JPEG, PNG, GIF, or BMP file)" in told
    )


def test_memory_is_that_of_batches_and_not_of_samples(tmp_path: Path) -> None:
    import tracemalloc

    from mobileprep.data.source import DataFiles
    from mobileprep.data.survey import runs
    from tests.data.made import fed, opened

    peaks = []
    for count in (50, 500):
        pictures(tmp_path / f"p{count}", [f"{at}.png" for at in range(count)])
        inputs = [fed((-1, 64, 64, 3))]
        dataset = opened(DataFiles("p", tmp_path / f"p{count}"), inputs)
        tracemalloc.start()
        fed_samples = sum(run.count for run in runs(dataset, inputs, 10))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert fed_samples == count
    # Ten images of float32 are half a megabyte; 500 would be 24.
    assert peaks[1] < peaks[0] + 1_000_000
