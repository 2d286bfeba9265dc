"""Builds that calibrate on data of every kind, and on invalid data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.building.calibrating import calibrate
from mobileprep.building.report.text import report_text
from mobileprep.errors import MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.range_file import RangeFile, read_range_file
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import op, placeholder
from tests.data.made import pictures, tf_record, write
from tests.ops.examples import example, floats_of
from tests.ops.graphs import n
from tests.ops.sounds import wav

# Five rows are enough to see which samples are read.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*the ranges are those of 5 samples"),
    pytest.mark.filterwarnings("ignore:.*-check. after quantize_nodes, on 5 samples"),
]
RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
calibration: {data: DATA, method: min_max, range_file: ranges.yaml}
targets: {phone: {quantize: {mode: nodes, ranges: observed}}}
"""
ROWS = [[1, 2, 3], [3, -2, 1], [2, 3, 1], [4, 0, 1], [5, 1, -1]]
FUNCTION = f"ROWS = {ROWS}\n\ndef samples():\n    for row in ROWS:\n        yield {{'x': row}}, 0\n"


def dense(shape: tuple[int, ...] = (-1, 3), rows: int = 3) -> Graph:
    """A dense layer on what is fed, flattened where it has more axes."""
    weights = np.random.default_rng(3).normal(size=(rows, 2)).astype(np.float32)
    nodes = [placeholder(shape), constant("w", Tensor.of(weights))]
    if shape == (-1, rows):
        return Graph([*nodes, op("y", "MatMul", "x", "w")])
    flat = constant("flat", Tensor.of(np.array([-1, rows], np.int32)))
    return Graph([*nodes, flat, n("rows", "Reshape", "x", "flat"), op("y", "MatMul", "rows", "w")])


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    write_graph(tmp_path / "model.pb", dense())
    x = np.array(ROWS, np.float32)
    np.savez(tmp_path / "d.npz", x=x, label=np.arange(5))
    np.save(tmp_path / "d.npy", x)
    lines = "".join(f"{a},{b},{c},{at}\n" for at, (a, b, c) in enumerate(ROWS))
    write(tmp_path / "d.csv", f"a,b,c,label\n{lines}".encode())
    records = [example(x=floats_of(*row)) for row in ROWS]
    write(tmp_path / "d.tfrecord", tf_record(records))
    write(tmp_path / "d.py", FUNCTION.encode())
    return tmp_path / "recipe.yaml"


def measured(recipe: Path, data: str, warnings: list[str] | None = None) -> RangeFile:
    """The ranges, from a range file that is written for them."""
    recipe.write_text(RECIPE.replace("DATA", data))
    told = [] if warnings is None else warnings
    calibrate(recipe, warn=told.append)
    return read_range_file(recipe.with_name("ranges.yaml"))


def ends(ranges: RangeFile, tensor: str = "x") -> tuple[float, float]:
    found = ranges.tensors[tensor]
    return found.low, found.high


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    ["d.npz", "d.npy", "d.csv", "{tfrecord: d.tfrecord, features: {x: x}}", "{python: d.py}"],
)
@pytest.mark.parametrize("where", ["", ", batch: 1, workers: 2"])
def test_data_of_every_kind_gives_the_same_ranges(recipe: Path, data: str, where: str) -> None:
    found = measured(recipe, data + where)
    assert (found.samples, ends(found)) == (5, (-2, 5))
    recipe.with_name("out").mkdir()
    before = recipe.with_name("ranges.yaml").read_bytes()
    build(recipe, recipe.parent / "out", jobs=1)
    calibrate(recipe)
    assert recipe.with_name("ranges.yaml").read_bytes() == before


def test_images_and_audio_are_validated(recipe: Path) -> None:
    folder = recipe.parent
    write_graph(folder / "model.pb", dense((-1, 4, 6, 3), 72))
    arrays = np.stack(pictures(folder / "p", ["a/1.png", "b/2.png", "b/3.png"]))
    found = measured(recipe, "{pictures: p, mean: 0, std: 255}")
    assert found.samples == 3
    assert ends(found) == pytest.approx((arrays.min() / 255, arrays.max() / 255), rel=1e-6)
    write_graph(folder / "model.pb", dense((-1, 8), 8))
    for at in range(3):
        write(folder / f"s/{at}.wav", wav(np.full((8, 1), at * 8192)))
    assert ends(measured(recipe, "s")) == (0, 0.5)


def test_an_input_without_an_axis_for_samples_takes_them_one_by_one(recipe: Path) -> None:
    write_graph(recipe.with_name("model.pb"), dense((3, 1)))
    x = np.array(ROWS, np.float32)[..., np.newaxis]
    np.savez(recipe.with_name("d.npz"), x=x)
    found = measured(recipe, "d.npz")
    assert (found.samples, ends(found)) == (5, (-2, 5))


def test_graphs_with_file_inputs_receive_files(recipe: Path) -> None:
    folder = recipe.parent
    text = {"dtype": attr.dtype(DType.STRING), "shape": attr.shape(())}
    decode = n("decode", "DecodeWav", "x", desired_channels=1, desired_samples=8)
    turn = constant("shape", Tensor.of(np.array([1, 8], np.int32)))
    weights = [node for node in dense((-1, 8), 8) if node.name != "x"]
    rest = [n("rows", "Reshape", "decode", "shape"), weights[0], op("y", "MatMul", "rows", "w")]
    graph = Graph([Node("x", "Placeholder", (), "", text), decode, turn, *rest])
    write_graph(folder / "model.pb", graph)
    for at in range(3):
        write(folder / f"s/{at}.wav", wav(np.full((8, 1), at * 8192)))
    assert ends(measured(recipe, "s"), "rows") == (0, 0.5)


def test_samples_are_the_ones_that_seed_and_number_ask_for(recipe: Path) -> None:
    assert ends(measured(recipe, "d.npz, samples: 2")) == (1, 3)  # the first of each half
    kept = recipe.with_name("ranges.yaml").read_text()
    drawn = measured(recipe, "d.npz, samples: 2, seed: 3")
    assert drawn.samples == 2
    assert drawn.data not in kept


def test_a_change_of_any_file_or_of_how_it_is_read_makes_ranges_stale(recipe: Path) -> None:
    write(recipe.parent / "more/a.txt", b"1")
    data = "{python: d.py, files: [more]}"
    before = measured(recipe, data)
    write(recipe.parent / "more/b.txt", b"1")
    with pytest.raises(MobileprepError, match="it was measured on other data"):
        build(recipe, recipe.parent / "out", jobs=1)
    assert measured(recipe, data).data != before.data
    csv = measured(recipe, "d.csv")
    assert measured(recipe, "{csv: d.csv, inputs: {x: [b, a, c]}}").data != csv.data


def test_report_contains_the_calibration(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace("DATA", "d.csv").replace(", range_file: ranges.yaml", ""))
    done = build(recipe, recipe.parent / "out", jobs=1)
    (target,) = done.targets
    (told,) = json.loads((target.folder / "report.json").read_text())["calibrations"]
    assert told["origin"] == "d.csv"
    assert (told["method"], told["samples"], told["tensors"]) == ("min_max", 5, 1)
    line = "ranges   of 1 tensor measured by min_max on 5 samples of d.csv\n"
    assert line in report_text(target.report)


BAD = [
    ("d.csv, samples: 6", 8, "d.csv has 5 samples, and 6 are asked for"),
    ("{csv: wide.csv}", 8, r"takes the shape \[\?, 3\], and the sample has \[4\]"),
    ("{csv: text.csv}, strict: true", 4, "text.csv, line 3.* 'x' is not a number"),
    ("{csv: text.csv}, batch: 1, workers: 2, strict: true", 4, "text.csv, line 3"),
    ("{csv: lost.csv}", 8, "2 of 2 samples cannot be read"),
    ("{csv: same.csv}", 8, "same.csv: all samples hold one value: 'x' is 1 throughout"),
    ("{csv: same.csv}, batch: 1, workers: 2", 8, "same.csv: all samples hold one value"),
    ("{csv: nan.csv}", 8, "1 of 2 samples of 'x' are NaN throughout, the first"),
    ("{csv: inf.csv}", 8, "the tensor 'x' is NaN or infinite for line 3"),
    ("none.npz", 4, "none.npz does not exist"),
    ("empty", 4, "empty is a folder without files"),
    ("other.npz", 8, "has no array 'x'"),
    ("texts.npz", 8, "'x' takes float32"),
    ("{python: d.py, function: raises}", 8, "raises.py:3|KeyError"),
    ("{python: d.py, function: nothing}", 8, "nothing holds no samples"),
    ("{python: d.py, function: samples}, samples: 9", 8, "5 samples, and 9 are asked for"),
]


@pytest.mark.parametrize(("data", "code", "told"), BAD)
def test_bad_data_is_reported_and_outputs_stay(
    recipe: Path, data: str, code: int, told: str
) -> None:
    folder = recipe.parent
    write(folder / "wide.csv", b"a,b,c,d,label\n1,2,3,4,0\n")
    write(folder / "text.csv", b"a,b,c,label\n1,2,3,0\n1,x,3,0\n")
    write(folder / "lost.csv", b"a,b,c,label\n1,y,3,0\n1,x,3,0\n")
    write(folder / "same.csv", b"a,b,c,label\n1,1,1,0\n1,1,1,0\n1,1,1,0\n")
    write(folder / "nan.csv", b"a,b,c,label\n1,2,1,0\nnan,nan,nan,0\n")
    write(folder / "inf.csv", b"a,b,c,label\n1,2,1,0\n1,inf,1,0\n")
    np.savez(folder / "other.npz", y=np.ones(3))
    np.savez(folder / "texts.npz", x=np.array([["a", "b", "c"]]))
    (folder / "empty").mkdir()
    more = "def raises():\n    raise KeyError('k')\n    yield\n\n\ndef nothing():\n    return []\n"
    write(folder / "d.py", f"{FUNCTION}\n\n{more}".encode())
    text = RECIPE.replace(", range_file: ranges.yaml", "")
    recipe.write_text(text.replace("DATA", "d.npz"))
    build(recipe, folder / "out", jobs=1)
    before = {p.name: p.read_bytes() for p in (folder / "out/r/phone").iterdir()}
    recipe.write_text(text.replace("DATA", data))
    with pytest.raises(MobileprepError, match=told) as caught:
        build(recipe, folder / "out", jobs=1)
    assert caught.value.exit_code == code
    assert {p.name: p.read_bytes() for p in (folder / "out/r/phone").iterdir()} == before


@pytest.mark.parametrize("where", ["", ", batch: 1, workers: 2"])
def test_unreadable_samples_are_skipped_and_listed(recipe: Path, where: str) -> None:
    write(recipe.with_name("d.csv"), b"a,b,c,label\n1,2,3,0\n1,x,9,0\n4,5,6,0\n2,y,9,0\n")
    warnings: list[str] = []
    found = measured(recipe, f"d.csv{where}", warnings)
    assert (found.samples, ends(found)) == (2, (1, 6))
    told, few = warnings
    assert "d.csv: the ranges are those of 2 samples" in few
    assert "d.csv: 2 of 4 samples cannot be read: line 3 (" in told
    assert ", line 5 (" in told


def test_constant_input_next_to_varying_ones_is_accepted(recipe: Path) -> None:
    """Each process sees one value alone; all samples together hold two."""
    rows = b"1,1,1,0\n" * 4 + b"2,2,2,0\n" * 4
    write(recipe.with_name("d.csv"), b"a,b,c,label\n" + rows)
    assert ends(measured(recipe, "d.csv, batch: 1, workers: 2")) == (1, 2)


def looped() -> Graph:
    """x times a matrix while the sum of its elements is below a hundred."""
    weights = np.eye(3, dtype=np.float32) * 2
    zero_one = constant("axes", Tensor.of(np.array([0, 1], np.int32)))
    return Graph(
        [
            placeholder((-1, 3)),
            constant("w", Tensor.of(weights)),
            constant("hundred", Tensor.of(np.array(100, np.float32))),
            zero_one,
            n("enter", "Enter", "x", frame_name="f", T=np.float32),
            n("weights", "Enter", "w", frame_name="f", is_constant=True, T=np.float32),
            n("limit", "Enter", "hundred", frame_name="f", is_constant=True, T=np.float32),
            n("over", "Enter", "axes", frame_name="f", is_constant=True, T=np.int32),
            n("head", "Merge", "enter", "next", T=np.float32),
            n("sum", "Sum", "head", "over", T=np.float32, Tidx=np.int32),
            n("more", "Less", "sum", "limit", T=np.float32),
            n("cond", "LoopCond", "more"),
            n("switch", "Switch", "head", "cond", T=np.float32),
            n("body", "Identity", "switch:1", T=np.float32),
            n("double", "MatMul", "body", "weights", T=np.float32),
            n("next", "NextIteration", "double", T=np.float32),
            n("y", "Exit", "switch:0", T=np.float32),
        ]
    )


def test_layers_of_loops_have_constant_ranges(recipe: Path) -> None:
    write_graph(recipe.with_name("model.pb"), looped())
    ranges = measured(recipe, "d.npz, batch: 1")
    assert not ranges.unseen
    assert ranges.tensors["body"].high > 40
    done = build(recipe, recipe.parent / "out", jobs=1)
    ops = done.targets[0].report.ops
    assert ops["QuantizedMatMul"] == 1
    assert not {"Min", "Max"} & ops.keys()
