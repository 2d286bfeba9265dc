"""The samples stage: data, drawn samples, and what the source gives for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.check.run import read_runs, run_samples
from mobileprep.building.stages.check.spec import SamplesStage
from mobileprep.errors import AccuracyError, InvalidGraphError, RecipeError
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.settings import InputSpec
from tests.building.stages.jobs import (
    NUMPY,
    assets,
    classifier,
    files,
    interface,
    job,
    left,
    op,
    placeholder,
    slots,
)

X = np.random.default_rng(3).standard_normal((10, 3)).astype(np.float32)


def stage(
    folder: Path,
    graph: Graph | None = None,
    *,
    data: dict[str, Any] | None = None,
    count: int = 4,
    inputs: tuple[str, ...] = ("x",),
    shape: tuple[int, ...] | None = None,
) -> Job[SamplesStage]:
    if data is not None:
        write_arrays(folder / "data.npz", data)
    stored = {
        "graph": graph or classifier(),
        "interface": interface("y", inputs=inputs),
        "assets": assets(folder),
    }
    asked = SamplesStage(
        data=None if data is None else files(folder / "data.npz"),
        section="check",
        count=count,
        inputs=tuple(InputSpec(name, None, shape) for name in inputs),
        engine=NUMPY,
        **slots(*stored),
    )
    return job(folder, asked, **stored)


def written(done: Job[SamplesStage]) -> tuple[list[Any], list[Any]]:
    """What is fed to the only input, and what the only output gives, run by run."""
    names = (SamplesStage.FED, SamplesStage.EXPECTED)
    fed, given = ([arrays[0] for arrays in read_runs(done.folder / n)] for n in names)
    return fed, given


def test_samples_of_the_data_are_spread_over_it(tmp_path: Path) -> None:
    done = stage(tmp_path, data={"x": X})
    run_samples(done)
    fed, given = written(done)
    np.testing.assert_array_equal(np.concatenate(fed), X[[0, 2, 5, 7]])
    np.testing.assert_array_equal(np.concatenate(given), X[[0, 2, 5, 7]])
    told = left(done, "samples.json")
    assert (told["origin"], told["data"], told["samples"]) == ("check", "data.npz", 4)
    assert told["inputs"] == {"x": "float32 [1, 3]"}
    assert told["warnings"] == []


def test_a_graph_of_a_fixed_batch_is_fed_whole_batches(tmp_path: Path) -> None:
    done = stage(tmp_path, classifier(4), data={"x": X})
    run_samples(done)
    fed, _ = written(done)
    assert [len(batch) for batch in fed] == [4, 4, 4]
    np.testing.assert_array_equal(fed[2], X[[8, 9, 0, 1]])


def test_drawn_samples_are_the_same_each_time_and_differ_from_each_other(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        done = stage(tmp_path / name)
        run_samples(done)
        found.append(((done.folder / "samples.npz").read_bytes(), written(done)[0]))
    assert found[0][0] == found[1][0]
    fed = found[0][1]
    assert len(fed) == 4
    assert len({array.tobytes() for array in fed}) == 4
    assert left(done, "samples.json")["origin"] == "drawn"


def test_an_input_that_is_no_placeholder_takes_the_recipe_s_shape(tmp_path: Path) -> None:
    graph = Graph(
        [
            placeholder(None),
            constant("c", Tensor.of(np.float32(2))),
            op("Mul", "Mul", "x", "c"),
            op("y", "Relu", "Mul"),
        ]
    )
    done = stage(tmp_path, graph, inputs=("Mul",), shape=(1, 32, 32, 3))
    run_samples(done)
    assert written(done)[0][0].shape == (1, 32, 32, 3)


def test_a_shape_that_contradicts_the_graph_is_told_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidGraphError, match=r"\[-1, 3\] in the graph, which \[1, 4\]"
    ) as caught:
        run_samples(stage(tmp_path, shape=(1, 4)))
    assert caught.value.where == "recipe.yaml:4:1"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"X": X}, "data.npz has no array 'x'; it has X"),
        ({"x": X[:, :2]}, r"'x' takes the shape \[\?, 3\], and the array has \[10, 2\]"),
        ({"x": X.astype(complex)}, "'x' takes float32, and the array is complex128"),
        ({"x": np.array(["a"] * 3)}, "'x' takes float32, and the array is text"),
        ({"x": X[:0]}, "do not fit together: x has 0"),
        ({"x": np.where(np.arange(10)[:, None] > 7, np.nan, X)}, "2 of 10 samples of 'x' are NaN"),
    ],
)
def test_data_that_does_not_fit_is_told_at_its_place(
    tmp_path: Path, data: dict[str, Any], told: str
) -> None:
    with pytest.raises(AccuracyError, match=told) as caught:
        run_samples(stage(tmp_path, data=data))
    assert caught.value.where == "recipe.yaml:12:1"


def test_data_on_which_the_source_does_not_run_is_told(tmp_path: Path) -> None:
    graph = Graph([placeholder(None), constant("w", Tensor.of(np.eye(3, dtype=np.float32))),
                   op("y", "MatMul", "x", "w")])  # fmt: skip
    with pytest.raises(AccuracyError, match=r"run on the samples of data\.npz") as caught:
        run_samples(stage(tmp_path, graph, data={"x": np.ones((2, 4), np.float32)}))
    assert caught.value.where == "recipe.yaml:12:1"


def test_what_cannot_be_drawn_is_told_at_the_check(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1,), DType.STRING), op("y", "Identity", "x")])
    graph = graph.with_nodes(
        [n if n.name == "x" else n.with_attrs(T=graph["x"].attrs["dtype"]) for n in graph]
    )
    with pytest.raises(
        RecipeError, match="no sample can be drawn for the input 'x': it is text"
    ) as c:
        run_samples(stage(tmp_path, graph))
    assert "check: {data: FILE.npz}" in c.value.hint
    assert c.value.where == "recipe.yaml:11:1"


def test_outputs_that_hardly_move_are_warned_of(tmp_path: Path) -> None:
    told: list[str] = []
    done = stage(tmp_path, classifier(scale=1e-6, shift=1.0))
    structs.force_setattr(done, "warn", told.append)
    run_samples(done)
    assert told == left(done, "samples.json")["warnings"]
    assert told[0].startswith("outputs hardly move from sample to sample: 'y' by ")


def test_outputs_without_a_number_are_warned_of(tmp_path: Path) -> None:
    done = stage(tmp_path, classifier(scale=np.nan))
    run_samples(done)
    (warning,) = left(done, "samples.json")["warnings"]
    assert warning.startswith(
        "the source gives nothing but NaN or infinity for 'y': the samples are unusable; "
        "fed: x float32 ["
    )


def test_a_model_without_inputs_is_run_once(tmp_path: Path) -> None:
    done = stage(tmp_path, Graph([constant("y", Tensor.of(X))]), inputs=(), data={"x": X})
    run_samples(done)
    told = left(done, "samples.json")
    assert (told["samples"], told["origin"]) == (1, "drawn")
    assert "constants alone" in told["warnings"][0]
