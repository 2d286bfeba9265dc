"""Guessed inputs and outputs of graphs and signatures."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import described, guess
from mobileprep.freezing.model import Signature, TensorSpec
from mobileprep.graph.attrs import FuncRef
from tests.freezing.graphs import FLOAT, const, node, placeholder, ref_variable, source

INT = DType.INT64


def training():
    """Return a small classifier with a loss, gradient, summary, metric, and saver."""
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


def names(specs):
    return [spec.name for spec in specs]


def output_names(nodes):
    return names(guess(source(nodes)).outputs)


def test_training_nodes_are_excluded():
    interface = guess(training())
    assert names(interface.inputs) == ["image"]
    assert names(interface.outputs) == ["scores", "best"]
    assert described(interface.outputs) == "scores (float32 [-1, 3]), best (int64 [-1])"


def test_labels_in_the_gather_of_a_loss_are_not_inputs():
    model = training()
    more = [
        placeholder("y1", -1, dtype=INT),
        const("axis1", np.int32(1)),
        node("picked", "GatherV2", "scores", "y1", "axis1", Tparams=FLOAT, Tindices=INT),
        node("cost", "Neg", "picked", T=FLOAT),
        node("Adam/update_w/start", "StridedSlice", "scores", "axis", "axis", "axis", T=FLOAT),
    ]
    interface = guess(source([*model.graph, *more]))
    assert names(interface.inputs) == ["image"]
    assert names(interface.outputs) == ["scores", "best"]


def test_unused_outputs_of_a_conditional_come_last():
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
    assert output_names(nodes) == ["y", "cond/Identity_1"]


def test_unused_outputs_of_a_while_are_not_outputs():
    types = {"T": [DType.INT32, FLOAT], "cond": FuncRef("f"), "body": FuncRef("g")}
    nodes = [
        placeholder("x", 2),
        placeholder("n", dtype=DType.INT32),
        node("while", "While", "n", "x", **types),
        node("while/Identity", "Identity", "while", T=DType.INT32),
        node("while/Identity_1", "Identity", "while:1", T=FLOAT),
        node("y", "Relu", "while/Identity_1", T=FLOAT),
    ]
    assert output_names(nodes) == ["y"]
    ends = ["while/Identity", "while/Identity_1"]
    assert sorted(output_names(nodes[:-1])) == ends


def test_counter_of_a_lowered_loop_is_not_an_output():
    nodes = [
        placeholder("x", -1, 4),
        node("while/enter/_1", "Enter", "x", T=FLOAT, frame_name="loop"),
        node("while/exit/_7", "Exit", "while/enter/_1", T=FLOAT),
        node("while/exit/_8", "Exit", "while/enter/_1", T=FLOAT),
        node("y", "Identity", "while/exit/_8", T=FLOAT),
    ]
    assert output_names(nodes) == ["y"]
    assert output_names(nodes[:3]) == ["while/exit/_7"]


def test_predicate_of_a_conditional_is_not_an_output():
    nodes = [
        placeholder("x", 2),
        placeholder("is_fast", dtype=DType.BOOL),
        node("cond/Switch", "Switch", "is_fast", "is_fast", T=DType.BOOL),
        node("cond/switch_t", "Identity", "cond/Switch:1", T=DType.BOOL),
        node("cond/switch_f", "Identity", "cond/Switch", T=DType.BOOL),
        node("cond/pred_id", "Identity", "is_fast", T=DType.BOOL),
        node("y", "Relu", "x", T=FLOAT),
    ]
    assert output_names(nodes) == ["y"]


def test_model_without_training_nodes():
    nodes = [placeholder("x", 2, 3), placeholder("y_", 2), node("y", "Relu", "x", T=FLOAT)]
    interface = guess(source([*nodes, node("gap", "Sub", "y_", "y_", T=FLOAT)]))
    assert names(interface.inputs) == ["x"]
    assert interface.outputs == (TensorSpec("y", FLOAT, (2, 3)),)


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
    interface = guess(source(nodes))
    assert names(interface.inputs) == ["next", "taken"]
    assert names(interface.outputs) == ["y"]


def test_random_outputs_count_only_if_there_are_no_others():
    dropped = [
        node("shape", "Shape", "x", T=FLOAT, out_type=DType.INT32),
        node("u", "RandomUniform", "shape", T=DType.INT32, dtype=FLOAT),
        node("noisy", "Add", "x", "u", T=FLOAT),
    ]
    plain = node("y", "Relu", "x", T=FLOAT)
    assert output_names([placeholder("x", 2), *dropped, plain]) == ["y"]
    assert output_names([placeholder("x", 2), *dropped]) == ["noisy"]


def test_deeper_results_come_first_and_flags_last():
    nodes = [
        placeholder("x", 2),
        node("flag", "IsNan", "x", T=FLOAT),
        node("side", "Neg", "x", T=FLOAT),
        node("a", "Relu", "x", T=FLOAT),
        node("b", "Relu", "a", T=FLOAT),
    ]
    assert output_names(nodes) == ["b", "side", "flag"]


def test_inputs_and_outputs_of_a_signature():
    x, y = TensorSpec("x:0", FLOAT, (1,)), TensorSpec("y:0", FLOAT, None)
    interface = guess(training(), Signature({"in": x, "again": x}, {"out": y}))
    assert (interface.inputs, interface.outputs) == ((x,), (y,))
    assert described(interface.outputs) == "y:0 (float32 of any shape)"


def test_invalid_graph_has_no_outputs():
    assert guess(source([placeholder("x"), node("y", "Relu", "gone", T=FLOAT)])).outputs == ()


def test_long_list_of_tensors_is_abbreviated():
    many = [TensorSpec(f"t{i}", FLOAT, ()) for i in range(9)]
    assert described(many).endswith("t5 (float32 []) and 3 more")
