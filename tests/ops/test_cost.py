"""Kernels, their costs, and their modules."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mobileprep.core.limits import OverWorkError, working
from mobileprep.errors import InternalError
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import any_op_def
from mobileprep.ops.kernel import (
    Sizes,
    call_kernel,
    charge,
    context_kernel_names,
    count_flops,
    counted_ops,
    find_kernel,
    kernel,
    kernel_names,
)
from mobileprep.ops.registry import INDEX
from tests.transforms.graphs import conv, node

IMAGE, FILTER = (1, 8, 8, 3), (3, 3, 3, 16)


def flops(op: Node | str, inputs: list, outputs: list) -> int | None:
    return count_flops(Sizes(op if isinstance(op, Node) else node("n", op), inputs, outputs))


def test_every_op_with_a_kernel_has_a_cost() -> None:
    missing = {*kernel_names(), *context_kernel_names()} - set(counted_ops())
    assert not missing, "add a cost rule next to the kernel"


def test_convolutions() -> None:
    out = (1, 8, 8, 16)
    assert flops(conv("n", ""), [IMAGE, FILTER], [out]) == 2 * 8 * 8 * 16 * 27
    depthwise = conv("n", "", op="DepthwiseConv2dNative")
    assert flops(depthwise, [IMAGE, (3, 3, 3, 2)], [(1, 8, 8, 6)]) == 2 * 8 * 8 * 6 * 9
    transposed = conv("n", "", op="Conv2DBackpropInput")
    assert flops(transposed, [(4,), (2, 2, 5, 3), IMAGE], [(1, 16, 16, 5)]) == 2 * 192 * 20


def test_matrix_products() -> None:
    product = node("n", "MatMul", transpose_a=True, transpose_b=False)
    assert flops(product, [(4, 2), (4, 3)], [(2, 3)]) == 2 * 2 * 3 * 4
    batch = node("n", "BatchMatMulV2", adj_x=False, adj_y=False)
    assert flops(batch, [(5, 2, 4), (5, 4, 3)], [(5, 2, 3)]) == 5 * 2 * 2 * 3 * 4
    einsum = node("n", "Einsum", equation="bij,bjk->bik", N=2)
    assert flops(einsum, [(5, 2, 4), (5, 4, 3)], [(5, 2, 3)]) == 5 * 2 * 2 * 3 * 4


def test_fused_ops_are_counted() -> None:
    from mobileprep.graph.attrs import AttrValue

    fused = conv("n", "", op="_FusedConv2D").with_attrs(
        fused_ops=AttrValue("list(string)", (b"BiasAdd", b"Relu6"))
    )
    plain = 2 * 8 * 8 * 16 * 27
    assert flops(fused, [IMAGE, FILTER, (16,)], [(1, 8, 8, 16)]) == plain + 3 * 8 * 8 * 16


@pytest.mark.parametrize(
    ("op", "factor"),
    [("Relu", 1), ("Relu6", 2), ("Add", 1), ("Rsqrt", 2), ("Sigmoid", 4), ("Softmax", 5)],
)
def test_elementwise_ops(op: str, factor: int) -> None:
    assert flops(op, [(2, 3), (2, 3)], [(2, 3)]) == factor * 6


def test_reductions() -> None:
    assert flops("Sum", [(2, 10), (1,)], [(2,)]) == 18
    assert flops("Mean", [(2, 10), (1,)], [(2,)]) == 20
    pool = node("n", "AvgPool", ksize=(1, 3, 3, 1), strides=(1, 1, 1, 1), padding="SAME")
    assert flops(pool, [IMAGE], [IMAGE]) == 9 * 192


def test_sums_of_several_tensors() -> None:
    assert flops("AddN", [(4,)] * 3, [(4,)]) == 8


def test_data_dependent_sizes() -> None:
    assert flops("SegmentMean", [(4, 3), (4,)], [(2, 3)]) == 12 + 6
    assert flops("SparseSegmentMean", [(7, 3), (4,), (4,)], [(2, 3)]) == 12 + 6
    assert flops("RaggedRange", [(3,), (3,), (3,)], [(4,), (9,)]) == 18


def test_batch_normalization() -> None:
    assert flops(node("n", "FusedBatchNormV3", is_training=False), [IMAGE], [IMAGE]) == 384
    assert flops(node("n", "FusedBatchNormV3", is_training=True), [IMAGE], [IMAGE]) == 6 * 192


def test_transpose_costs_nothing() -> None:
    assert flops("Transpose", [IMAGE, (4,)], [(1, 3, 8, 8)]) == 0


@pytest.mark.parametrize("shape", [None, (1, -1, 8, 3)])
def test_unknown_shapes_have_unknown_costs(shape) -> None:
    assert flops("Relu", [shape], [shape]) is None
    assert flops(conv("n", ""), [IMAGE, shape], [(1, 8, 8, 16)]) is None


def test_unknown_ops_have_unknown_costs() -> None:
    assert flops("Frobnicate", [IMAGE], [IMAGE]) is None
    assert flops("NonMaxSuppressionV2", [(9, 4), (9,), (), ()], [(-1,)]) is None


X = np.ones(1000, np.float32)
STRINGS = np.array([b"a"] * 1000, object)


def is_free(op: str, inputs: Sequence[object], results: Sequence[object]) -> bool:
    try:
        with working(1000):
            charge(op, inputs, results)
    except OverWorkError:
        return False
    return True


@pytest.mark.parametrize("op", ["Identity", "Switch", "Reshape", "Slice"])
def test_views_are_free(op: str) -> None:
    assert is_free(op, [X], [X])
    assert is_free(op, [X], [X[:500]])
    assert is_free(op, [X], [object(), None])


def test_new_and_reduced_tensors_are_counted() -> None:
    assert not is_free("Fill", [], [X])
    assert not is_free("Sum", [X], [np.float32(1)])
    assert not is_free("Gather", [X], [X.copy()])
    assert is_free("Shape", [X], [np.array([3], np.int32)])


def test_strings_cost_more_than_numbers() -> None:
    with working(10_000_000):
        charge("Neg", [X], [])
    with working(10_000_000), pytest.raises(OverWorkError):
        charge("StringLength", [STRINGS], [])


def test_every_kernel_has_an_op_definition() -> None:
    names = kernel_names()
    assert names == sorted(set(names))
    assert {"Add", "Conv2D", "MatMul", "Softmax"} <= set(names)
    unknown = [name for name in names if any_op_def(name) is None]
    # LiteRT defines them.
    assert unknown == [
        "TFLite_Detection_PostProcess",
        "UnidirectionalSequenceLSTM",
        "UnidirectionalSequenceRNN",
    ]
    assert all(find_kernel(name) is not None for name in names)


def test_unknown_op_has_no_kernel() -> None:
    assert find_kernel("NoSuchOp") is None


def test_duplicate_kernel_is_refused() -> None:
    find_kernel("Add")
    with pytest.raises(InternalError, match="'Add' is registered twice"):
        kernel("Add")(lambda _node, x: x)


def test_kernel_outputs_are_a_tuple() -> None:
    one, two = np.zeros(1), np.zeros(2)
    node = Node("n", "Op")
    assert call_kernel(lambda _n, x: x, node, [one])[0] is one
    outputs = call_kernel(lambda _n, x, y: (y, x), node, [one, two])
    assert outputs[0] is two
    assert outputs[1] is one
    assert call_kernel(lambda _n: (), node, []) == ()


def test_kernel_modules_are_loaded_on_demand() -> None:
    code = (
        "import sys, mobileprep.ops.kernel as k;"
        "names = lambda: (m for m in sys.modules if m.startswith('mobileprep.ops.'));"
        "loaded = lambda: {m for m in names() if m.count('.') > 2};"
        "assert not loaded(), loaded(); assert k.find_kernel('Relu');"
        "assert 'mobileprep.ops.quantized.conv' not in loaded(), loaded();"
        "assert len(loaded()) < 10, loaded()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ROOT = Path(__file__).resolve().parents[2]


def test_index_is_up_to_date() -> None:
    path = ROOT / "tools" / "make_op_index.py"
    spec = importlib.util.spec_from_file_location("make_op_index", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command = "python tools/make_op_index.py"
    assert INDEX.read_text(encoding="utf-8") == module.render(), command


def test_kernels_missing_from_the_index_are_loaded(tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"math.arithmetic": ["Add"]}))
    code = (
        "import sys, pathlib, mobileprep.ops.registry as m;"
        "from mobileprep.ops.kernel import find_kernel;"
        "from mobileprep.ops.kernel import find_context_kernel;"
        "m.INDEX = pathlib.Path(sys.argv[1]);"
        "assert find_kernel('Add'); assert find_kernel('Relu6');"
        "assert find_kernel('Nope') is None;"
        "assert find_context_kernel('RandomUniform')"
    )
    subprocess.run([sys.executable, "-c", code, str(index)], check=True)
