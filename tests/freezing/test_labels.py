"""Which inputs are labels: of graphs for inference, for evaluation and for training."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import guess
from mobileprep.freezing.proposal import propose
from tests.freezing.graphs import FLOAT, const, node, placeholder, source

INT = DType.INT64
INDEX = DType.INT32


def told(nodes):
    """The names of the likely inputs and outputs."""
    found = guess(source(nodes))
    return [t.name for t in found.inputs], [t.name for t in found.outputs]


def scoring():
    """A layer with weights that gives ``logits``."""
    weights = const("w", np.ones((4, 3), np.float32))
    return [placeholder("x", -1, 4), weights, node("logits", "MatMul", "x", "w", T=FLOAT)]


@pytest.mark.parametrize("shape", [(), (3,), (-1, 3)])
def test_a_second_input_of_a_model_is_none_however_it_is_met(shape):
    nodes = [
        *scoring(),
        placeholder("temperature", *shape),
        node("scaled", "RealDiv", "logits", "temperature", T=FLOAT),
        node("probs", "Softmax", "scaled", T=FLOAT),
    ]
    assert told(nodes) == (["x", "temperature"], ["probs"])
    assert propose(source(nodes)).about_outputs == ("Outputs: used by no other node.",)


def test_a_threshold_that_ends_in_one_number_is_none():
    nodes = [
        *scoring(),
        placeholder("threshold"),
        const("axes", np.arange(2, dtype=np.int32)),
        node("over", "Sub", "logits", "threshold", T=FLOAT),
        node("score", "Sum", "over", "axes", T=FLOAT, Tidx=INDEX, keep_dims=False),
    ]
    assert told(nodes) == (["x", "threshold"], ["score"])


def test_a_sparse_input_meets_weights():
    nodes = [
        *scoring(),
        placeholder("sp/indices", -1, 2, dtype=INT),
        placeholder("sp/values", -1),
        placeholder("sp/shape", 2, dtype=INT),
        const("wide", np.ones((12, 3), np.float32)),
        node(
            "deep", "SparseTensorDenseMatMul", "sp/indices", "sp/values", "sp/shape", "wide",
            T=FLOAT, Tindices=INT,
        ),
        node("both", "AddV2", "deep", "logits", T=FLOAT),
        node("loss", "L2Loss", "w", T=FLOAT),
        node("step", "AssignAdd", "count", "one", T=FLOAT),
        node("count", "VariableV2", dtype=FLOAT),
        const("one", np.float32(1)),
    ]  # fmt: skip
    assert told(nodes) == (["x", "sp/indices", "sp/values", "sp/shape"], ["both"])


def accuracy(*more):
    return [
        *scoring(),
        placeholder("wanted", -1, dtype=INT),
        const("axis", np.int32(1)),
        node("best", "ArgMax", "logits", "axis", T=FLOAT, Tidx=INDEX, output_type=INT),
        node("right", "Equal", "best", "wanted", T=INT),
        node("share", "Cast", "right", SrcT=DType.BOOL, DstT=FLOAT),
        const("all", np.zeros(1, np.int32)),
        node("accuracy", "Mean", "share", "all", T=FLOAT, Tidx=INDEX, keep_dims=False),
        *more,
    ]


def test_what_the_model_is_compared_with_is_a_label():
    by_class = node("by_class", "UnsortedSegmentSum", "share", "wanted", "n", T=FLOAT)
    for more in ([], [by_class, const("n", np.int32(3))]):
        assert told(accuracy(*more)) == (["x"], ["best"])


def test_what_scores_took_too_is_told():
    assert "losses" in propose(source(accuracy())).about_outputs[0]


def test_what_ends_in_one_number_is_a_label():
    nodes = [
        *scoring(),
        placeholder("aim", -1, 3),
        const("axes", np.arange(2, dtype=np.int32)),
        node("gap", "SquaredDifference", "logits", "aim", T=FLOAT),
        node("error", "Mean", "gap", "axes", T=FLOAT, Tidx=INDEX, keep_dims=False),
    ]
    assert told(nodes) == (["x"], ["logits"])


def test_of_a_graph_that_trains_what_meets_no_weights_is_no_input():
    nodes = [
        *scoring(),
        placeholder("rate"),
        node("count", "VariableV2", dtype=FLOAT),
        node("train", "ApplyGradientDescent", "count", "rate", "logits", T=FLOAT),
        node("scaled", "Mul", "logits", "rate", T=FLOAT),
    ]
    assert told(nodes) == (["x"], ["logits"])
