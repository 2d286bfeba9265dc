"""cast_weights: constants of narrower floating types, which Cast makes floats of again."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.kernel_classes import kernel_class
from mobileprep.graph.serde import graph_to_bytes
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

TYPES = ("float16", "bfloat16")
each_type = pytest.mark.parametrize("kind", TYPES)
# Half a unit in the last place of 11 and of 8 significant bits.
CLOSE = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def layer(weights: np.ndarray) -> Graph:
    return Graph([placeholder(), const("w", weights), conv("out", "x w")])


@each_type
def test_golden(kind):
    assert (
        shown(apply("cast_weights", layer(normal(3, 3, 8, 16)), type=kind).graph)
        == f"""\
x = Placeholder()
w_{kind} = Const() value={kind}[3, 3, 8, 16]
w = Cast(w_{kind}) DstT=float32 SrcT={kind}
out = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1"""
    )


@each_type
def test_every_element_is_rounded_to_the_nearest(kind):
    weights = normal(3, 3, 8, 16)
    after = apply("cast_weights", layer(weights), type=kind, outputs=("w",)).graph
    back = run(after, np.zeros((1, 4, 4, 8), np.float32), "w")
    np.testing.assert_allclose(back, weights, rtol=CLOSE[kind], atol=2.0**-25)


@each_type
def test_a_file_is_half_as_large(kind):
    graph = layer(normal(3, 3, 32, 64))
    after = apply("cast_weights", graph, type=kind).graph
    assert len(graph_to_bytes(after)) < len(graph_to_bytes(graph)) / 2 + 200


@each_type
@pytest.mark.parametrize("release", ["1.15", "2.21"])
def test_tensorflow_has_a_kernel_for_it(kind, release):
    after = apply("cast_weights", layer(normal(3, 3, 8, 16)), type=kind).graph
    assert kernel_class(after["w"], release)


def test_numbers_beyond_float16_stay_and_bfloat16_takes_them():
    graph = layer(np.full((3, 3, 16, 16), 1e5, np.float32))
    result = apply("cast_weights", graph)
    assert result.graph is graph
    assert result.skipped == {"it holds numbers beyond the type's largest": 1}
    assert apply("cast_weights", graph, type="bfloat16").matched == 1


def test_infinity_and_nan_do_not_change():
    weights = normal(3, 3, 16, 16)
    weights[0, 0, 0, :3] = np.inf, -np.inf, np.nan
    after = apply("cast_weights", layer(weights), outputs=("w",)).graph
    back = run(after, np.zeros((1, 4, 4, 16), np.float32), "w")
    np.testing.assert_array_equal(back[0, 0, 0, :3], weights[0, 0, 0, :3])


NEAR_MISSES = {
    "small": (const("w", normal(1000)), "fewer elements than minimum_size"),
    "a variance": (const("w", abs(normal(2000))), "a variance, where small values weigh the most"),
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_near_misses_stay(case):
    weights, reason = NEAR_MISSES[case]
    graph = Graph([weights, node("out", "Rsqrt", "w")])
    result = apply("cast_weights", graph)
    assert result.graph is graph
    assert result.skipped == {reason: 1}


def test_doubles_and_whole_numbers_stay():
    graph = Graph([const("d", normal(2000), np.float64), const("i", range(2000), np.int32)])
    assert apply("cast_weights", graph).graph is graph


def test_constants_of_a_branch_stay_tied_to_it():
    graph = Graph(
        [
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            const("w", normal(64, 64), inputs="^switch"),
        ]
    )
    after = apply("cast_weights", graph).graph
    assert [str(r) for r in after["w_float16"].inputs] == ["^switch"]


@each_type
def test_folding_constants_leaves_it(kind):
    after = apply("cast_weights", layer(normal(3, 3, 16, 16)), type=kind).graph
    assert apply("fold_constants", after).graph["w"].op == "Cast"
