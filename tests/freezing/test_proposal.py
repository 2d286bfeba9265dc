"""Proposed inputs and outputs of a first recipe."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.model import Signature, TensorSpec
from mobileprep.freezing.proposal import propose
from mobileprep.freezing.source import bundle_signatures
from mobileprep.graph import attrs as attr
from tests.freezing.graphs import FLOAT, const, node, placeholder, source
from tests.freezing.test_guess import training


def names(proposal):
    return [i.spec.name for i in proposal.inputs]


def test_training_graph_has_one_output_and_others_are_reported():
    proposal = propose(training())
    assert (names(proposal), proposal.outputs) == (["image"], ("scores",))
    assert "best (int64 [-1])" in " ".join(proposal.about_outputs)


def test_inputs_and_outputs_by_signature_names():
    nodes = [placeholder("x", 2), placeholder("z", 2), node("y", "Add", "x", "z", T=FLOAT)]
    default = Signature({"in put": TensorSpec("x:0")}, {'"out"': TensorSpec("y:0")})
    model = source(nodes, signatures={"serving_default": default})
    proposal = propose(model, inputs=["in put", "z"], outputs=['"out"'])
    assert (names(proposal), proposal.outputs) == (["x:0", "z"], ("y:0",))


def test_all_unread_nodes_of_an_inference_graph_are_outputs():
    nodes = [placeholder("x", 2), *(node(n, "Relu", "x", T=FLOAT) for n in ("a", "b"))]
    assert propose(source(nodes)).outputs == ("a", "b")
    nodes += [placeholder("z", 2), node("c", "Relu", "z", T=FLOAT)]
    assert names(propose(source(nodes), outputs=["a"])) == ["x"]


def test_settings_of_a_model_have_remarks():
    switch = node("is_training", "Placeholder", dtype=DType.BOOL)
    keep = node("keep_prob", "Placeholder", dtype=FLOAT)
    open_shape = node("x", "Placeholder", dtype=FLOAT)
    nodes = [switch, keep, open_shape, node("s", "Mul", "x", "keep_prob", T=FLOAT)]
    nodes.append(node("y", "Select", "is_training", "s", "x", T=FLOAT))
    inputs = {i.spec.name: i for i in propose(source(nodes)).inputs}
    assert inputs["is_training"].spec.shape == ()
    assert "false" in inputs["is_training"].remark
    assert inputs["keep_prob"].spec.shape == ()
    assert "feeds 1" in inputs["keep_prob"].remark
    assert "does not record its shape" in inputs["x"].remark


def test_flag_with_a_default_is_not_an_input():
    switch = node("phase", "PlaceholderWithDefault", "no", dtype=DType.BOOL)
    nodes = [placeholder("x", 2), const("no", np.False_)]
    nodes.append(switch.with_attrs(shape=attr.shape(())))
    nodes.append(node("y", "Select", "phase", "x", "x", T=FLOAT))
    proposal = propose(source(nodes))
    assert names(proposal) == ["x"]
    assert "phase" in " ".join(proposal.about_inputs)


def signature(dtype, name="x"):
    return Signature({"in": TensorSpec(name, dtype, (2,))}, {"out": TensorSpec("y")})


def test_signature_with_numeric_inputs_is_preferred():
    nodes = [placeholder("x", 2), node("y", "Relu", "x", T=FLOAT)]
    both = {"classify": signature(DType.STRING), "predict": signature(FLOAT)}
    proposal = propose(source(nodes, signatures=both))
    assert proposal.signature == "predict"
    assert "classify" in " ".join(proposal.about_inputs)
    only = propose(source(nodes, signatures={"predict": signature(FLOAT)}))
    assert (only.signature, only.outputs) == ("", ("y",))


def test_names_that_are_invalid_in_recipes_are_not_outputs():
    nodes = [placeholder("x", 2), node("y\n: {evil: 1}", "Relu", "x", T=FLOAT)]
    with pytest.raises(InvalidGraphError, match="no output"):
        propose(source(nodes))


def test_signatures_of_a_session_bundle():
    message = (
        b"\n \n\x1e\n\x0e\n\x0ctf_example:0\x12\x0c\n\nIdentity:0"
        b"\x12\x19\n\x07outputs\x12\x0e\x1a\x0c\n\n\n\x01y\x12\x05\n\x03y:0"
        b"\x12\x18\n\x06inputs\x12\x0e\x1a\x0c\n\n\n\x01x\x12\x05\n\x03x:0"
    )
    (bundle,) = bundle_signatures([message]).values()
    assert bundle == Signature({"x": TensorSpec("x:0")}, {"y": TensorSpec("y:0")})
    (default,) = bundle_signatures([message[:34]]).values()
    assert default.inputs["inputs"].name == "tf_example:0"
    assert default.outputs["outputs"].name == "Identity:0"
    assert bundle_signatures([message[:-3], b"\xff"]) == {}
