"""share_constants: one of constants that hold the same."""

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from tests.transforms.graphs import apply, const, node, placeholder, run, shown


def _two(first, second):
    return Graph([placeholder(), first, second, node("out", "Add", f"{first.name} {second.name}")])


def _is_shared(first, second):
    return bool(apply("share_constants", _two(first, second)).matched)


def test_golden():
    result = apply("share_constants", _two(const("a", [1.0, 2.0]), const("b", [1.0, 2.0])))
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\na = Const() value=float32[2]\nout = Add(a, a) T=float32"
    )


def test_it_computes_the_same():
    products = [node("p", "Mul", "x a"), node("out", "Add", "p b:0")]
    graph = Graph([placeholder(), const("a", 2.0), const("b", 2.0), *products])
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(run(apply("share_constants", graph).graph, x), run(graph, x))


@pytest.mark.parametrize(
    "other",
    [
        const("b", [1.0, 3.0]),
        const("b", [[1.0, 2.0]]),
        const("b", [1.0, 2.0], np.float64),
        const("b", [1.0, 2.0], inputs="^x"),
        replace(const("b", [1.0, 2.0]), device="/gpu:0"),
        node("b", "Const", T=None, dtype=DType.FLOAT),
    ],
    ids=["value", "shape", "type", "control input", "device", "no value"],
)
def test_constants_that_differ_stay(other):
    graph = _two(const("a", [1.0, 2.0]), other)
    assert apply("share_constants", graph).graph is graph


def test_zeros_of_either_sign_stay_apart():
    assert not _is_shared(const("a", 0.0), const("b", -0.0))


@pytest.mark.parametrize(
    ("values", "leading"),
    [([5, 5, 5, 5], [5]), ([1, 5, 5, 5], [1, 5]), ([1, 5, 5, 5], [1, 5, 5]), ([0] * 4, [])],
)
def test_however_the_elements_are_written(values, leading):
    listed = Tensor(DType.FLOAT, (4,), values=np.array(leading, np.float32))
    raw = Tensor(DType.FLOAT, (4,), content=np.array(values, "<f4").tobytes())
    assert _is_shared(constant("a", listed), constant("b", raw))
    assert _is_shared(constant("a", Tensor.of(np.array(values, np.float32))), constant("b", raw))


def test_string_constants_are_shared():
    assert _is_shared(const("a", [b"ab", b"c"], object), const("b", [b"ab", b"c"], object))
    assert not _is_shared(const("a", [b"ab", b"c"], object), const("b", [b"a", b"bc"], object))


def test_inputs_and_outputs_stay_and_others_use_them():
    graph = _two(const("a", 1.0), const("b", 1.0))
    after = apply("share_constants", graph, outputs=("b", "out")).graph
    assert [str(r) for r in after["out"].inputs] == ["b", "b"]
    both = apply("share_constants", graph, outputs=("a", "b", "out"))
    assert both.graph is graph


def test_a_large_constant_of_one_number_is_not_spread_out():
    huge = [
        constant(n, Tensor(DType.FLOAT, (1 << 40,), values=np.ones(1, np.float32))) for n in "ab"
    ]
    assert _is_shared(*huge)
