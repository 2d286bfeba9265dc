"""Guessed inputs and outputs: of plain, training and functional graphs, and of signatures."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import described, guess
from mobileprep.freezing.model import Signature, TensorSpec
from mobileprep.graph.attrs import FuncRef
from tests.freezing.graphs import FLOAT, const, node, placeholder, ref_variable, source

INT = DType.INT64


def training():
    """A small classifier with its loss, gradient, summary, metric and saver."""
    file = node("save/filename", "Placeholder", dtype=DType.STRING)
    return source(
        [
            placeholder("image", -1, 4),
            placeholder("class", -1, dtype=INT),
            placeholder("rate"),
            ref_variable("w", 4, 3),
            node("logits", "MatMul", "image", "w/read", T=FLOAT),
            node("scores", "Softmax", "logits", T=FLOAT),
            node("log/summary", "HistogramSummary", "tag", "scores", T=FLOAT),
            const("tag", np.array(b"t", dtype=object)),
            node(
                "loss",
                "SparseSoftmaxCrossEntropyWithLogits",
                "logits",
                "class",
                T=FLOAT,
                Tlabels=INT,
            ),
            node("gradients/size", "Shape", "logits", T=FLOAT, out_type=DType.INT32),
            node("gradients/w", "MatMul", "image", "loss:1", T=FLOAT),
            node("train", "ApplyGradientDescent", "w", "rate", "gradients/w", T=FLOAT),
            const("axis", np.int32(1)),
            node("best", "ArgMax", "logits", "axis", T=FLOAT, Tidx=DType.INT32, output_type=INT),
            node("right", "Equal", "best", "class", T=INT),
            file,
            node("save/save", "SaveV2", "save/filename", "tag", "tag", "w"),
        ]
    )


def test_a_training_graph_is_seen_through():
    found = guess(training())
    assert [t.name for t in found.inputs] == ["image"]
    assert [t.name for t in found.outputs] == ["scores", "best"]
    assert described(found.outputs) == "scores (float32 [-1, 3]), best (int64 [-1])"


def test_labels_that_a_loss_gathers_by_are_no_inputs():
    model = training()
    more = [
        placeholder("y1", -1, dtype=INT),
        const("axis1", np.int32(1)),
        node("picked", "GatherV2", "scores", "y1", "axis1", Tparams=FLOAT, Tindices=INT),
        node("cost", "Neg", "picked", T=FLOAT),
        node("Adam/update_w/start", "StridedSlice", "scores", "axis", "axis", "axis", T=FLOAT),
    ]
    found = guess(source([*model.graph, *more]))
    assert [t.name for t in found.inputs] == ["image"]
    assert [t.name for t in found.outputs] == ["scores", "best"]


def test_what_a_conditional_gives_beside_its_result_comes_last():
    branch = {"then_branch": FuncRef("f"), "else_branch": FuncRef("f")}
    types = {"Tcond": DType.BOOL, "Tin": [FLOAT], "Tout": [FLOAT, FLOAT, DType.VARIANT]}
    nodes = [
        placeholder("x", 2),
        placeholder("p", dtype=DType.BOOL),
        node("cond", "If", "p", "x", **types, **branch),
        node("cond/Identity", "Identity", "cond", T=FLOAT),
        node("cond/Identity_1", "Identity", "cond:1", T=FLOAT),
        node("cond/Identity_2", "Identity", "cond:2", T=DType.VARIANT),
        node("y", "Relu", "cond/Identity", T=FLOAT),
    ]
    assert [t.name for t in guess(source(nodes)).outputs] == ["y", "cond/Identity_1"]


def test_what_a_while_gives_beside_its_result_is_no_output():
    types = {"T": [DType.INT32, FLOAT], "cond": FuncRef("f"), "body": FuncRef("g")}
    nodes = [
        placeholder("x", 2),
        placeholder("n", dtype=DType.INT32),
        node("while", "While", "n", "x", **types),
        node("while/Identity", "Identity", "while", T=DType.INT32),
        node("while/Identity_1", "Identity", "while:1", T=FLOAT),
        node("y", "Relu", "while/Identity_1", T=FLOAT),
    ]
    assert [t.name for t in guess(source(nodes)).outputs] == ["y"]
    ends = ["while/Identity", "while/Identity_1"]
    assert sorted(t.name for t in guess(source(nodes[:-1])).outputs) == ends


def test_what_leaves_a_lowered_loop_unread_is_no_output():
    """A loop of TensorFlow 2 that was lowered: its counter leaves it too."""
    nodes = [
        placeholder("x", -1, 4),
        node("while/enter/_1", "Enter", "x", T=FLOAT, frame_name="loop"),
        node("while/exit/_7", "Exit", "while/enter/_1", T=FLOAT),
        node("while/exit/_8", "Exit", "while/enter/_1", T=FLOAT),
        node("y", "Identity", "while/exit/_8", T=FLOAT),
    ]
    assert [t.name for t in guess(source(nodes)).outputs] == ["y"]
    assert [t.name for t in guess(source(nodes[:3])).outputs] == ["while/exit/_7"]


def test_what_holds_the_branch_taken_is_no_output():
    nodes = [
        placeholder("x", 2),
        placeholder("is_fast", dtype=DType.BOOL),
        node("cond/Switch", "Switch", "is_fast", "is_fast", T=DType.BOOL),
        node("cond/switch_t", "Identity", "cond/Switch:1", T=DType.BOOL),
        node("cond/switch_f", "Identity", "cond/Switch", T=DType.BOOL),
        node("cond/pred_id", "Identity", "is_fast", T=DType.BOOL),
        node("y", "Relu", "x", T=FLOAT),
    ]
    assert [t.name for t in guess(source(nodes)).outputs] == ["y"]


def test_a_model_that_nothing_trains():
    nodes = [placeholder("x", 2, 3), placeholder("y_", 2), node("y", "Relu", "x", T=FLOAT)]
    found = guess(source([*nodes, node("gap", "Sub", "y_", "y_", T=FLOAT)]))
    assert [t.name for t in found.inputs] == ["x"]
    assert found.outputs == (TensorSpec("y", FLOAT, (2, 3)),)


def test_iterators_and_queues_are_inputs():
    types = [FLOAT, INT]
    nodes = [
        node("it", "OneShotIterator"),
        node("next", "IteratorGetNext", "it", output_types=types),
        node("queue", "FIFOQueueV2", component_types=[FLOAT]),
        node("taken", "QueueDequeueV2", "queue", component_types=[FLOAT]),
        node("logits", "Add", "next", "taken", T=FLOAT),
        node("y", "Softmax", "logits", T=FLOAT),
        node(
            "loss",
            "SparseSoftmaxCrossEntropyWithLogits",
            "logits",
            "next:1",
            T=FLOAT,
            Tlabels=INT,
        ),
    ]
    found = guess(source(nodes))
    assert [t.name for t in found.inputs] == ["next", "taken"]
    assert [t.name for t in found.outputs] == ["y"]


def test_outputs_of_chance_come_only_where_there_are_no_others():
    dropped = [
        node("shape", "Shape", "x", T=FLOAT, out_type=DType.INT32),
        node("u", "RandomUniform", "shape", T=DType.INT32, dtype=FLOAT),
        node("noisy", "Add", "x", "u", T=FLOAT),
    ]
    plain = node("y", "Relu", "x", T=FLOAT)
    both = guess(source([placeholder("x", 2), *dropped, plain]))
    assert [t.name for t in both.outputs] == ["y"]
    only = guess(source([placeholder("x", 2), *dropped]))
    assert [t.name for t in only.outputs] == ["noisy"]


def test_deeper_results_come_first_and_flags_last():
    nodes = [
        placeholder("x", 2),
        node("flag", "IsNan", "x", T=FLOAT),
        node("side", "Neg", "x", T=FLOAT),
        node("a", "Relu", "x", T=FLOAT),
        node("b", "Relu", "a", T=FLOAT),
    ]
    assert [t.name for t in guess(source(nodes)).outputs] == ["b", "side", "flag"]


def test_a_signature_says_so_itself():
    x, y = TensorSpec("x:0", FLOAT, (1,)), TensorSpec("y:0", FLOAT, None)
    found = guess(training(), Signature({"in": x, "again": x}, {"out": y}))
    assert (found.inputs, found.outputs) == ((x,), (y,))
    assert described(found.outputs) == "y:0 (float32 of any shape)"


def test_a_broken_graph_gives_no_guess():
    assert guess(source([placeholder("x"), node("y", "Relu", "gone", T=FLOAT)])).outputs == ()


def test_many_are_cut_short():
    many = [TensorSpec(f"t{i}", FLOAT, ()) for i in range(9)]
    assert described(many).endswith("t5 (float32 []) and 3 more")
