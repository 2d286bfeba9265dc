"""The units of an int8 program, their multiply-accumulates, and programs that round one tensor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.assemble import assembled
from mobileprep.litert.convert import integer_units
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.program import Program
from mobileprep.litert.quantizing.exceptions import FLOAT, WIDE
from mobileprep.litert.quantizing.kernels import Integers, steps_of
from mobileprep.litert.quantizing.roundings import IntegerUnits
from tests.litert.graphs import answered, codes, const, expected, feed, op
from tests.litert.integer_op import ranges_of
from tests.litert.one_op import numbers

STRIDES = {"strides": [1, 1, 1, 1]}


def network() -> Graph:
    """A convolution, a residual sum with a depthwise convolution, a pad, a resize, a softmax."""
    return Graph(
        [
            feed("x", (1, 4, 4, 2)),
            const("w1", numbers(3, 3, 2, 4, seed=5)),
            op("conv", "Conv2D", ["x", "w1"], padding="SAME", **STRIDES),
            const("w2", numbers(3, 3, 4, 1, seed=7)),
            op("deep", "DepthwiseConv2dNative", ["conv", "w2"], padding="SAME", **STRIDES),
            op("sum", "AddV2", ["conv", "deep"]),
            const("size", np.array([8, 8], np.int32)),
            op("large", "ResizeBilinear", ["sum", "size"]),
            const("flat", np.array([1, 256], np.int32)),
            op("rows", "Reshape", ["large", "flat"]),
            const("w3", numbers(256, 5, seed=8) / 16),
            op("logits", "MatMul", ["rows", "w3"]),
            op("y", "Softmax", ["logits"]),
        ]
    )


FEEDS = {"x": numbers(1, 4, 4, 2, seed=9)}


def units_of(*rules: str) -> IntegerUnits:
    ranges = {k: v for k, v in ranges_of(network(), FEEDS).items() if k != "y"}
    options = Integers(DType.INT8, ranges, rules=rules)
    return integer_units(network(), [CutInput("x")], ["y"], options)[0]


def indices(units: IntegerUnits) -> Mapping[str, int]:
    """The unit of each node."""
    names = (units.names({unit: WIDE}) for unit in range(len(units.units)))
    return {
        name: unit for unit, modes in enumerate(names) for some in modes.values() for name in some
    }


def run(program: Program) -> Array:
    (result,) = answered(model_bytes(assembled(program)), list(FEEDS.values()))
    return np.asarray(result)


def test_units_and_their_multiply_accumulates() -> None:
    units = units_of()
    unit = indices(units)
    # The reshape only moves what the resize computes.
    assert unit["rows"] == unit["large"]
    assert len(set(unit.values())) == 6
    macs = {"conv": 16 * 4 * 18, "deep": 16 * 4 * 9, "logits": 256 * 5}
    assert units.total_macs == sum(macs.values())
    for name, index in unit.items():
        assert units.units[index].macs == pytest.approx(macs.get(name, 0) / units.total_macs)
    assert units.int8_macs == pytest.approx(1.0)


def test_operators_without_a_16_bit_kernel_are_float_exceptions() -> None:
    units = units_of()
    unit = indices(units)
    assert units.names({unit["large"]: WIDE}) == {"int16x8": ["rows"], "float": ["large"]}
    assert units.names({unit["conv"]: FLOAT, unit["y"]: WIDE}) == {
        "int16x8": ["y"],
        "float": ["conv"],
    }


def test_nodes_with_a_rule_are_fixed() -> None:
    units = units_of("mode=int8 nodes=^conv$", "mode=float ops=Softmax")
    unit = indices(units)
    assert units.units[unit["conv"]].is_fixed
    assert not units.units[unit["deep"]].is_fixed
    assert "y" not in unit


def test_rounded_tensors_and_their_readers() -> None:
    units = units_of()
    unit = indices(units)
    found = {
        t.value.name: (t.writer, tuple(sorted(t.readers)), t.has_others) for t in units.tensors
    }
    assert found == {
        "x": (None, (unit["conv"],), False),
        "conv": (unit["conv"], tuple(sorted((unit["deep"], unit["sum"]))), False),
        "deep": (unit["deep"], (unit["sum"],), False),
        "sum": (unit["sum"], (unit["large"],), False),
        # The reshaped tensor has the same elements.
        "large": (unit["large"], (unit["logits"],), False),
        "logits": (unit["logits"], (unit["y"],), False),
        "y": (unit["y"], (), True),
    }


def rounded(values: Array, name: str) -> Array:
    """Round a tensor like int8."""
    low, high = ranges_of(network(), FEEDS)[name]
    steps = steps_of((low, high), DType.INT8)
    floats = (steps.integers(values).astype(np.float32) - steps.zero) * steps.scale
    return np.asarray(floats, np.float32)


def test_programs_with_one_rounded_tensor() -> None:
    units = units_of()
    unit = indices(units)
    (tensor,) = (t for t in units.tensors if t.value.name == "conv")
    conv, deep = expected(network(), FEEDS, ["conv", "deep"])
    low = rounded(conv, "conv")
    everywhere = units.with_rounded(tensor)
    assert codes(assembled(everywhere))[:3] == ["CONV_2D", "QUANTIZE", "DEQUANTIZE"]
    cut = Graph([feed("conv", conv.shape), *list(network())[3:]])
    (reference,) = expected(cut, {"conv": low}, ["y"])
    np.testing.assert_allclose(run(everywhere), reference, atol=1e-6)
    # Only the sum reads the rounded tensor.
    (reference,) = expected(
        Graph([feed("conv", conv.shape), feed("deep", deep.shape), *list(network())[5:]]),
        {"conv": low, "deep": deep},
        ["y"],
    )
    alone = units.with_rounded(tensor, unit["sum"])
    np.testing.assert_allclose(run(alone), reference, atol=1e-6)


def test_program_with_rounded_weights() -> None:
    units = units_of()
    (layer,) = (layer for _, layer in units.layers() if layer.code == "FULLY_CONNECTED")
    weights = numbers(256, 5, seed=8) / 16
    scales = np.abs(weights).max(axis=0) / np.float32(127)
    low = (np.rint(weights / scales) * scales).astype(np.float32)
    nodes = [const("w3", low) if node.name == "w3" else node for node in network()]
    (reference,) = expected(Graph(nodes), FEEDS, ["y"])
    np.testing.assert_allclose(run(units.with_int8_weights([layer])), reference, atol=1e-6)
