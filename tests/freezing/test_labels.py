"""Detection of labels in graphs for inference, evaluation, and training."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import guess
from mobileprep.freezing.proposal import propose
from tests.freezing.graphs import FLOAT, const, node, placeholder, source

INT = DType.INT64
INDEX = DType.INT32


def interface_of(nodes):
    """Return the names of the guessed inputs and outputs."""
    interface = guess(source(nodes))
    return [t.name for t in interface.inputs], [t.name for t in interface.outputs]


def scoring():
    """Return a layer with weights, whose output is ``logits``."""
    weights = const("w", np.ones((4, 3), np.float32))
    return [placeholder("x", -1, 4), weights, node("logits", "MatMul", "x", "w", T=FLOAT)]


@pytest.mark.parametrize("shape", [(), (3,), (-1, 3)])
def test_second_input_of_a_model_is_not_a_label(shape):
    nodes = [
        *scoring(),
        placeholder("temperature", *shape),
        node("scaled", "RealDiv", "logits", "temperature", T=FLOAT),
        node("probs", "Softmax", "scaled", T=FLOAT),
    ]
    assert interface_of(nodes) == (["x", "temperature"], ["probs"])
    assert propose(source(nodes)).about_outputs == ("Outputs: used by no other node.",)


def test_threshold_of_a_scalar_score_is_not_a_label():
    nodes = [
        *scoring(),
        placeholder("threshold"),
        const("axes", np.arange(2, dtype=np.int32)),
        node("over", "Sub", "logits", "threshold", T=FLOAT),
        node("score", "Sum", "over", "axes", T=FLOAT, Tidx=INDEX, keep_dims=False),
    ]
    assert interface_of(nodes) == (["x", "threshold"], ["score"])


def test_sparse_input_is_not_a_label():
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
    assert interface_of(nodes) == (["x", "sp/indices", "sp/values", "sp/shape"], ["both"])


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


def test_input_compared_with_the_output_is_a_label():
    by_class = node("by_class", "UnsortedSegmentSum", "share", "wanted", "n", T=FLOAT)
    for more in ([], [by_class, const("n", np.int32(3))]):
        assert interface_of(accuracy(*more)) == (["x"], ["best"])


def test_outputs_used_by_losses_are_reported():
    assert "losses" in propose(source(accuracy())).about_outputs[0]


def test_input_of_a_scalar_error_is_a_label():
    nodes = [
        *scoring(),
        placeholder("aim", -1, 3),
        const("axes", np.arange(2, dtype=np.int32)),
        node("gap", "SquaredDifference", "logits", "aim", T=FLOAT),
        node("error", "Mean", "gap", "axes", T=FLOAT, Tidx=INDEX, keep_dims=False),
    ]
    assert interface_of(nodes) == (["x"], ["logits"])


def test_training_setting_is_not_an_input():
    nodes = [
        *scoring(),
        placeholder("rate"),
        node("count", "VariableV2", dtype=FLOAT),
        node("train", "ApplyGradientDescent", "count", "rate", "logits", T=FLOAT),
        node("scaled", "Mul", "logits", "rate", T=FLOAT),
    ]
    assert interface_of(nodes) == (["x"], ["logits"])
