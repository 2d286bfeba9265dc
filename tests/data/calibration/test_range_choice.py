"""Ranges that are chosen by the error in the ops that read a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.data.calibration.range_choice import Calibrated, Reader, Trial, calibrated
from mobileprep.data.calibration.shards import observed
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.refs import Edge
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import op, placeholder
from tests.data.calibration.graphs import Samples, subject

COUNT = 40
ZERO = constant("zero", Tensor.of(np.zeros(1, np.float32)))
INT32 = attr.dtype(DType.INT32)


def rows(outlier: float) -> Samples:
    """Samples with values from -1 to 1, and one outlier in the first column of the first."""
    values = np.random.default_rng(3).uniform(-1, 1, (COUNT, 512)).astype(np.float32)
    values[:, 1:3] = -1, 1
    values[0, 0] = np.float32(outlier)
    return Samples(values)


def weighted(first: float, *more: Any) -> Graph:
    """A product of the samples with weights, of which the first is given."""
    weights = np.random.default_rng(4).normal(size=(512, 8)).astype(np.float32)
    weights[0] = first
    nodes = [placeholder((-1, 512)), constant("w", Tensor.of(weights)), op("less", "Neg", "x")]
    return Graph([*nodes, op("y", "MatMul", "less", "w"), *more])


def chosen(
    model: Graph,
    data: Samples,
    *tensors: str,
    outputs: tuple[str, ...] = ("y",),
    method: str = "auto",
    batch: int = 1,
) -> Calibrated:
    edges: tuple[Edge, ...] = tuple((name, 0) for name in tensors)
    task = subject(method, graph=model, tensors=edges, batch=batch)
    task = replace(task, fetches=outputs, outputs=outputs)
    return calibrated(task, data, observed(task, data))


def test_outlier_that_no_reader_uses_is_clipped() -> None:
    found = chosen(weighted(0.0), rows(10), "less").ranges["less", 0]
    assert -2 < found[0] <= -0.99
    assert found[1] == 1


def test_outlier_that_a_reader_needs_is_kept() -> None:
    assert chosen(weighted(1.0), rows(10), "less").ranges["less", 0] == (-10, 1)


def test_clipping_less_than_the_steps_is_no_reason_to_keep_all_values() -> None:
    """The weight of the outlier is so small that 8-bit steps of the whole range are worse."""
    found = chosen(weighted(1e-3), rows(10), "less").ranges["less", 0]
    assert -2 < found[0] <= -0.99


def test_output_has_headroom() -> None:
    model = Graph([placeholder((-1, 512)), op("y", "Neg", "x")])
    found = chosen(model, rows(10), "y")
    assert found.ranges == {("y", 0): (-11.25, 1.125)}
    assert found.sixteen == {("y", 0): (-20, 2)}
    assert found.samples == COUNT


def test_output_behind_a_reshape_has_headroom() -> None:
    model = Graph(
        [
            *(placeholder((-1, 512)), op("less", "Neg", "x")),
            *(
                constant("s", Tensor.of(np.array([-1, 4], np.int32))),
                op("y", "Reshape", "less", "s"),
            ),
        ]
    )
    assert chosen(model, rows(10), "less").ranges == {("less", 0): (-11.25, 1.125)}


def test_tensors_that_are_compared_keep_all_values() -> None:
    axis = constant("axis", Tensor.of(np.array(1, np.int32)))
    model = Graph(
        [placeholder((-1, 512)), op("less", "Neg", "x"), axis, op("y", "ArgMax", "less", "axis")]
    )
    assert chosen(model, rows(10), "less").ranges == {("less", 0): (-11.25, 1.125)}


@pytest.mark.parametrize(("outlier", "top"), [(10, 1), (-10, 10)])
def test_softmax_clips_low_inputs_only(outlier: float, top: float) -> None:
    model = Graph([placeholder((-1, 512)), op("less", "Neg", "x"), op("y", "Softmax", "less")])
    low, high = chosen(model, rows(outlier), "less").ranges["less", 0]
    assert high == top
    assert -2 < low <= -0.99


def test_readers_of_a_concatenation_count() -> None:
    """The concatenation has a range of its own, but the same values."""
    weights = np.ones((516, 3), np.float32)
    weights[0] = 0
    model = Graph(
        [
            *(placeholder((-1, 512)), op("less", "Neg", "x"), op("more", "Relu", "x")),
            constant("axis", Tensor.of(np.array(1, np.int32))),
            constant("part", Tensor.of(np.array([0, 0], np.int32))),
            constant("size", Tensor.of(np.array([-1, 4], np.int32))),
            op("four", "Slice", "more", "part", "size", Index=INT32),
            op("both", "ConcatV2", "less", "four", "axis", N=attr.integer(2), Tidx=INT32),
            *(constant("w", Tensor.of(weights)), op("y", "MatMul", "both", "w")),
        ]
    )
    found = chosen(model, rows(10), "less", "both", "four").ranges
    assert found["less", 0][0] > -2
    # The outlier of the other part has a weight.
    assert found["four", 0] == (0, 10)


def test_readers_with_two_inputs_keep_the_other_in_float() -> None:
    model = weighted(0.0, op("abs", "Abs", "x"), op("z", "AddV2", "less", "abs"))
    found = chosen(model, rows(10), "less", "abs", "z", outputs=("y", "z")).ranges
    # The sum needs the outlier, although the product does not.
    assert found["less", 0] == (-10, 1)
    assert found["abs", 0] == (pytest.approx(0, abs=0.01), 10)


def test_tensors_in_branches_are_measured_by_percentile() -> None:
    model = Graph(
        [
            *(placeholder((-1, 512)), op("less", "Neg", "x")),
            constant("yes", Tensor.of(np.array(True))),
            *(op("switch", "Switch", "less", "yes"), op("y", "Abs", "switch:1")),
        ]
    )
    found = chosen(model, rows(10), "less", "y").ranges
    task = subject("percentile", graph=model, tensors=(("less", 0), ("y", 0)))
    task = replace(task, method=replace(task.method, percentile=99.99))
    assert found == calibrated(task, rows(10), observed(task, rows(10))).ranges


def test_unsupported_outputs_keep_all_values() -> None:
    model = weighted(0.0, op("z", "MyOwnOp", "less"))
    found = chosen(model, rows(10), "less", "y", outputs=("y",)).ranges["less", 0]
    assert found[0] > -2
    task = replace(subject("auto", graph=model, tensors=(("less", 0),)), fetches=("less",))
    task = replace(task, outputs=("z",))
    assert calibrated(task, rows(10), observed(task, rows(10))).ranges["less", 0] == (-10, 1)


def test_runs_with_much_power_do_not_outweigh_the_others() -> None:
    trial = Trial(("x", 0), Reader(("y", 0), frozenset()))
    trial.errors = [np.array([1.0, 4.0]), np.array([100.0, np.inf]), np.array([2.0, 1.0])]
    trial.powers = [10.0, 1000.0, 20.0]
    # The median is 20: the first run counts as 1 / 20, and the second as 100 / 1000.
    assert trial.shares() == pytest.approx([(0.05 + 0.1 + 0.1) / 3, np.inf])
    trial.powers = [0.0, 0.0, 0.0]
    trial.errors[1] = np.array([0.0, np.nan])
    assert trial.shares() == pytest.approx([1, np.inf])


@pytest.mark.parametrize("batch", [3, 40])
def test_ranges_do_not_depend_on_the_batch(batch: int) -> None:
    expected = chosen(weighted(0.0), rows(10), "x", "less")
    assert chosen(weighted(0.0), rows(10), "x", "less", batch=batch) == expected


def test_constant_tensors_have_their_range() -> None:
    model = weighted(1.0, op("none", "Relu6", "z"), op("z", "Mul", "y", "zero"), ZERO)
    found = chosen(model, rows(10), "z", "none", outputs=("none",))
    assert found.ranges == {("z", 0): (0, 0), ("none", 0): (0, 0)}


def test_largest_numbers_have_no_headroom() -> None:
    most = float(np.finfo(np.float32).max)
    model = Graph([placeholder((-1, 512)), op("y", "Neg", "x")])
    found = chosen(model, rows(most), "y")
    assert found.ranges["y", 0] == (-most, 1.125)
    assert found.sixteen["y", 0] == (-most, 2)
