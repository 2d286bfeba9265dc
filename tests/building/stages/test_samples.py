"""The samples stage: data or drawn samples, and the outputs of the source."""

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
    json_output,
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
    optional: bool = False,
) -> Job[SamplesStage]:
    if data is not None:
        write_arrays(folder / "data.npz", data)
    stored = {
        "graph": graph or classifier(),
        "interface": interface("y", inputs=inputs),
        "assets": assets(folder),
    }
    sample_stage = SamplesStage(
        data=None if data is None else files(folder / "data.npz"),
        section="check",
        count=count,
        inputs=tuple(InputSpec(name, None, shape) for name in inputs),
        engine=NUMPY,
        optional=optional,
        **slots(*stored),
    )
    return job(folder, sample_stage, **stored)


def arrays_of(done: Job[SamplesStage]) -> tuple[list[Any], list[Any]]:
    """The arrays of the only input and of the only output for each run."""
    names = (SamplesStage.FED, SamplesStage.EXPECTED)
    fed, outputs = ([arrays[0] for arrays in read_runs(done.folder / n)] for n in names)
    return fed, outputs


def test_samples_are_spread_over_the_data(tmp_path: Path) -> None:
    done = stage(tmp_path, data={"x": X})
    run_samples(done)
    fed, outputs = arrays_of(done)
    np.testing.assert_array_equal(np.concatenate(fed), X[[0, 2, 5, 7]])
    np.testing.assert_array_equal(np.concatenate(outputs), X[[0, 2, 5, 7]])
    record = json_output(done, "samples.json")
    assert (record["origin"], record["data"], record["samples"]) == ("check", "data.npz", 4)
    assert record["inputs"] == {"x": "float32 [1, 3]"}
    assert record["warnings"] == []


def test_fixed_batches_are_padded(tmp_path: Path) -> None:
    done = stage(tmp_path, classifier(4), data={"x": X})
    run_samples(done)
    fed, _ = arrays_of(done)
    assert [len(batch) for batch in fed] == [4, 4, 4]
    np.testing.assert_array_equal(fed[2], X[[8, 9, 0, 1]])


@pytest.mark.parametrize(("optional", "count"), [(False, 8), (True, 3)])
def test_default_check_of_a_large_network_has_fewer_samples(
    tmp_path: Path, optional: bool, count: int
) -> None:
    square = constant("square", Tensor.of(np.full((2000, 2000), 1e-3, np.float32)))
    model = Graph(
        [
            *(placeholder((1, 3)), square, op("product", "MatMul", "square", "square")),
            constant("all", Tensor.of(np.array([0, 1], np.int32))),
            *(op("sum", "Sum", "product", "all"), op("y", "Mul", "x", "sum")),
        ]
    )
    done = stage(tmp_path, model, data={"x": X}, count=8, optional=optional)
    run_samples(done)
    assert json_output(done, "samples.json")["samples"] == count


def test_drawn_samples_are_reproducible_and_distinct(tmp_path: Path) -> None:
    files = []
    for name in "ab":
        (tmp_path / name).mkdir()
        done = stage(tmp_path / name)
        run_samples(done)
        files.append((done.folder / "samples.npz").read_bytes())
    assert files[0] == files[1]
    fed, _ = arrays_of(done)
    assert len(fed) == 4
    assert len({array.tobytes() for array in fed}) == 4
    assert json_output(done, "samples.json")["origin"] == "drawn"


def test_declared_shape_of_another_input_than_a_placeholder_is_used(tmp_path: Path) -> None:
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
    assert arrays_of(done)[0][0].shape == (1, 32, 32, 3)


def test_shape_that_contradicts_the_graph_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidGraphError, match=r"\[-1, 3\] in the graph, which \[1, 4\]"
    ) as caught:
        run_samples(stage(tmp_path, shape=(1, 4)))
    assert caught.value.where == "recipe.yaml:4:1"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"X": X}, "data.npz has no array 'x'; it has X"),
        ({"x": X[:, :2]}, r"'x' takes the shape \[\?, 3\], and the array has \[10, 2\]"),
        ({"x": X.astype(complex)}, "'x' takes float32, and the array is complex128"),
        ({"x": np.array(["a"] * 3)}, "'x' takes float32, and the array is text"),
        ({"x": X[:0]}, "do not fit together: x has 0"),
        ({"x": np.where(np.arange(10)[:, None] > 7, np.nan, X)}, "2 of 10 samples of 'x' are NaN"),
    ],
)
def test_mismatched_data_is_reported_with_its_position(
    tmp_path: Path, data: dict[str, Any], message: str
) -> None:
    with pytest.raises(AccuracyError, match=message) as caught:
        run_samples(stage(tmp_path, data=data))
    assert caught.value.where == "recipe.yaml:12:1"


def test_data_on_which_the_source_does_not_run_is_refused(tmp_path: Path) -> None:
    graph = Graph([placeholder(None), constant("w", Tensor.of(np.eye(3, dtype=np.float32))),
                   op("y", "MatMul", "x", "w")])  # fmt: skip
    with pytest.raises(AccuracyError, match=r"run on the samples of data\.npz") as caught:
        run_samples(stage(tmp_path, graph, data={"x": np.ones((2, 4), np.float32)}))
    assert caught.value.where == "recipe.yaml:12:1"


def test_input_without_drawn_samples_needs_data(tmp_path: Path) -> None:
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


def test_nearly_constant_outputs_are_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    done = stage(tmp_path, classifier(scale=1e-6, shift=1.0))
    structs.force_setattr(done, "warn", warnings.append)
    run_samples(done)
    assert warnings == json_output(done, "samples.json")["warnings"]
    assert warnings[0].startswith("outputs hardly move from sample to sample: 'y' by ")


def test_nan_outputs_are_a_warning(tmp_path: Path) -> None:
    done = stage(tmp_path, classifier(scale=np.nan))
    run_samples(done)
    (warning,) = json_output(done, "samples.json")["warnings"]
    assert warning.startswith(
        "the source gives nothing but NaN or infinity for 'y': the samples are unusable; "
        "fed: x float32 ["
    )


def test_model_without_inputs_runs_once(tmp_path: Path) -> None:
    done = stage(tmp_path, Graph([constant("y", Tensor.of(X))]), inputs=(), data={"x": X})
    run_samples(done)
    record = json_output(done, "samples.json")
    assert (record["samples"], record["origin"]) == (1, "drawn")
    assert "constants alone" in record["warnings"][0]
