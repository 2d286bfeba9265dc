"""Evaluation of one node with constant inputs."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.arrays import handle_of
from mobileprep.ops.constant_evaluation import constant_array, evaluate_node, list_constant
from mobileprep.ops.data_flow.tensor_list import TensorList
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import i32, n


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


# Output of the original tool for an unset list of two vectors of eight floats.
WRITTEN = (
    b"\x08\x15\x12\x00z9\n\x16tensorflow::TensorList\x12\x1f\x02\x00\x01\x01"
    + b"\xff" * 9
    + b"\x01\x12\x0b\x08"
    + b"\xff" * 9
    + b"\x01\x12\x02\x08\x08"
)
RESERVE = n("r", "TensorListReserve", "s", "n", element_dtype=DType.FLOAT, shape_type=DType.INT32)


def reserved(shape: np.ndarray, count: int) -> Tensor:
    inputs = [Tensor.of(shape), Tensor.of(i32(count))]
    return evaluate_node(RESERVE, inputs, tf115=True)[0]


def variant(metadata: bytes, name: str = "tensorflow::TensorList", tensors: int = 0) -> Tensor:
    proto = pb.TensorProto(dtype=DType.VARIANT.value)
    written = proto.variant_val.add(type_name=name, metadata=metadata)
    for _ in range(tensors):
        written.tensors.add()
    return Tensor(DType.VARIANT, (), opaque=proto.SerializeToString())


def test_list_is_encoded_like_the_original() -> None:
    written = reserved(i32(-1, 8), 2)
    assert written.dtype is DType.VARIANT
    assert written.opaque == WRITTEN


def test_encoded_list_is_decoded() -> None:
    value = constant_array(Tensor(DType.VARIANT, (), opaque=WRITTEN)).item()
    assert value == TensorList((None, None), np.dtype(np.float32), (-1, 8), -1)
    unknown = constant_array(reserved(i32(-1).reshape(()), 0)).item()
    assert unknown == TensorList((), np.dtype(np.float32), None, -1)


def test_other_constants_are_decoded_as_arrays() -> None:
    assert constant_array(Tensor.of(i32(3, 4))).tolist() == [3, 4]


def test_interpreter_runs_a_list_constant() -> None:
    kinds = {"element_dtype": DType.FLOAT}
    graph = Graph(
        [
            constant("list", reserved(i32(2), 3)),
            constant("at", Tensor.of(i32(1))),
            constant("shape", Tensor.of(i32(2))),
            n("x", "Placeholder", dtype=DType.FLOAT),
            n("set", "TensorListSetItem", "list", "at", "x", **kinds),
            n("out", "TensorListStack", "set", "shape", num_elements=3, **kinds),
        ]
    )
    (out,) = Interpreter(graph).run(["out"], {"x": np.float32([5, 6])})
    assert out.tolist() == [[0, 0], [5, 6], [0, 0]]


@pytest.mark.parametrize(
    "value",
    [
        handle_of(TensorList((np.float32(1),), np.dtype(np.float32), ())),
        handle_of("something else"),
        np.float32([1]),
    ],
)
def test_other_values_are_not_encoded(value: np.ndarray) -> None:
    with pytest.raises(UnsupportedError):
        list_constant(RESERVE, value)


def test_list_without_element_dtype_is_not_encoded() -> None:
    resized = Node("r", "TensorListResize", attrs={"T": attr.dtype(DType.FLOAT)})
    with pytest.raises(UnsupportedError):
        list_constant(resized, handle_of(TensorList((), np.dtype(np.float32), ())))


@pytest.mark.parametrize(
    "tensor",
    [
        variant(b"\x00\x01\x01", name="tensorflow::Optional"),
        variant(b"\x00\x01\x01", tensors=1),
        variant(b"\xff\xff\xff\x7f\x01"),
        Tensor(DType.RESOURCE, ()),
    ],
)
def test_other_variants_are_not_decoded(tensor: Tensor) -> None:
    with pytest.raises(UnsupportedError):
        constant_array(tensor)


@pytest.mark.parametrize("metadata", [b"", b"\x00\x01", b"\x02\x00\x01\x01", b"\x00\x01\x01\xff"])
def test_truncated_list_is_corrupt(metadata: bytes) -> None:
    with pytest.raises(CorruptFileError):
        constant_array(variant(metadata))


def test_lists_are_not_folded_without_tf115() -> None:
    with pytest.raises(UnsupportedError):
        evaluate_node(RESERVE, [Tensor.of(i32(2)), Tensor.of(i32(1))])
