"""Evaluation of one node with constant inputs."""

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import evaluate_node


def _node(op, **attrs):
    types = {"T": DType.FLOAT, **attrs}
    return Node("n", op, attrs={k: attr.dtype(v) for k, v in types.items()})


def _floats(*values):
    return Tensor.of(np.array(values, np.float32))


def test_constant_returns_its_value():
    value = _floats(1, 2)
    assert evaluate_node(constant("c", value), [])[0] is value


def test_outputs_have_the_declared_types():
    shape = evaluate_node(_node("Shape", out_type=DType.INT64), [_floats(1, 2)])[0]
    assert shape.dtype is DType.INT64
    assert shape.array().tolist() == [2]


def test_identity_does_not_copy():
    value = _floats(1, 2)
    assert evaluate_node(_node("Identity"), [value])[0] is value


def test_arithmetic_flushes_denormals_to_zero():
    product = evaluate_node(_node("Mul"), [_floats(1e-30, 1e-40, 2), _floats(1e-10, 1e10, 3)])[0]
    assert product.array().tolist() == [0, 0, 6]


def test_negation_keeps_denormals():
    tiny = _floats(1e-40)
    assert evaluate_node(_node("Neg"), [tiny])[0].array()[0] == -tiny.array()[0]


def test_division_by_zero_is_infinite():
    assert evaluate_node(_node("RealDiv"), [_floats(1), _floats(0)])[0].array()[0] == np.inf


def test_invalid_inputs_are_an_error_naming_the_node():
    with pytest.raises(InvalidGraphError, match=r"'n' \(Add\)"):
        evaluate_node(_node("Add"), [_floats(1, 2), _floats(1, 2, 3)])


@pytest.mark.parametrize("op", ["Identity", "Neg"])
def test_strings_from_a_numeric_node_are_refused(op):
    strings = Tensor.of(np.array([b"a"], object))
    with pytest.raises(InvalidGraphError, match="'n'"):
        evaluate_node(_node(op), [strings])


def test_missing_outputs_are_refused():
    sizes, axis = Tensor.of(np.array([2], np.int32)), Tensor.of(np.int32(0))
    split = Node("n", "SplitV", attrs={**_node("SplitV").attrs, "num_split": attr.integer(3)})
    with pytest.raises(InvalidGraphError, match="gives 1 outputs, not 3"):
        evaluate_node(split, [_floats(1, 2), sizes, axis])


def test_op_without_a_kernel_is_unsupported():
    with pytest.raises(UnsupportedError, match="MyOwnOp"):
        evaluate_node(_node("MyOwnOp"), [])


def test_float_ranges_are_running_sums_with_tf115() -> None:
    inputs = [Tensor.of(np.float32(x)) for x in (1, 5, 0.1)]
    node = Node("r", "Range", attrs={"Tidx": attr.dtype(DType.FLOAT)})
    (exact,), (sums,) = (evaluate_node(node, inputs, tf115=tf115) for tf115 in (False, True))
    expected, total = [], np.float32(1)
    for _ in range(40):
        expected.append(total)
        total += np.float32(0.1)
    np.testing.assert_array_equal(sums.array(), np.array(expected))
    assert (sums.array() != exact.array()).any()
