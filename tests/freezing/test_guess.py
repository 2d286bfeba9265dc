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


FETCHABLE_INT = DType.INT32
BOOL = DType.BOOL


def outputs(*nodes):
    return [t.name for t in guess(source(list(nodes))).outputs]


def loop(name, start, *body, next_value, initial_count="0"):
    """Return a loop with a counter ``NAME/turn`` and ``NAME/value``, which ends the loop.

    Args:
        name: name of the loop.
        start: initial value.
        body: additional nodes.
        next_value: node of the next value.
        initial_count: initial value of the counter.
    """

    def variable(key, dtype, begins, following):
        return [
            node(f"{name}/{key}/Enter", "Enter", begins, T=dtype, frame_name=name),
            node(f"{name}/{key}/Next", "NextIteration", following, T=dtype),
            node(
                f"{name}/{key}/Merge", "Merge", f"{name}/{key}/Enter", f"{name}/{key}/Next",
                T=dtype, N=2,
            ),
            node(f"{name}/{key}/Switch", "Switch", f"{name}/{key}/Merge", f"{name}/go", T=dtype),
            node(f"{name}/{key}", "Identity", f"{name}/{key}/Switch:1", T=dtype),
            node(f"{name}/{key}/Exit", "Exit", f"{name}/{key}/Switch", T=dtype),
        ]  # fmt: skip

    return [
        *variable("turn", FETCHABLE_INT, initial_count, f"{name}/add"),
        *variable("value", FLOAT, start, next_value),
        const(f"{name}/limit", np.float32(4), f"^{name}/turn/Merge"),
        const(f"{name}/axis", np.int32(0), f"^{name}/turn/Merge"),
        node(f"{name}/less", "Less", f"{name}/value/Merge", f"{name}/limit", T=FLOAT),
        node(
            f"{name}/all",
            "All",
            f"{name}/less",
            f"{name}/axis",
            Tidx=FETCHABLE_INT,
            keep_dims=False,
        ),
        node(f"{name}/go", "LoopCond", f"{name}/all"),
        const(f"{name}/one", np.int32(1), f"^{name}/turn"),
        node(f"{name}/add", "AddV2", f"{name}/turn", f"{name}/one", T=FETCHABLE_INT),
        *body,
    ]


def first_nodes():
    return [placeholder("x", 4), const("0", np.int32(0))]


def halved(name):
    return node(f"{name}/half", "Neg", f"{name}/value", T=FLOAT)


def test_unused_node_of_a_loop_is_not_an_output():
    body = [halved("a"), node("a/unused", "Abs", "a/value", T=FLOAT)]
    nodes = [*first_nodes(), *loop("a", "x", *body, next_value="a/half")]
    assert outputs(*nodes) == ["a/value/Exit"]
    named = node("out", "Identity", "a/value/Exit", T=FLOAT)
    assert outputs(*nodes, named) == ["out"]


def test_exit_of_a_nested_loop_is_not_an_output():
    within = loop("b", "a/value", halved("b"), next_value="b/half", initial_count="a/turn")
    nodes = [*first_nodes(), *loop("a", "x", *within, next_value="b/value/Exit")]
    assert outputs(*nodes, node("out", "Identity", "a/value/Exit", T=FLOAT)) == ["out"]


def test_counter_is_the_output_if_there_is_no_other():
    body = [halved("a"), node("a/wait", "Max", "a/value", "a/0", T=FLOAT, Tidx=FETCHABLE_INT)]
    nodes = [
        *first_nodes(),
        *loop("a", "x", *body, next_value="a/half"),
        const("a/0", np.int32(0), "^a/turn"),
    ]
    assert outputs(*(n for n in nodes if n.name != "a/value/Exit")) == ["a/turn/Exit"]


def test_input_dependent_loop_count_is_an_output():
    count = node("a/count", "Enter", "size", T=FETCHABLE_INT, frame_name="a")
    nodes = [
        *first_nodes(),
        node("size", "ArgMax", "x", "0", T=FLOAT, Tidx=FETCHABLE_INT, output_type=FETCHABLE_INT),
        *loop("a", "x", halved("a"), next_value="a/half", initial_count="size"),
        count,
        node("out", "Identity", "a/value/Exit", T=FLOAT),
    ]
    assert outputs(*nodes) == ["out", "a/turn/Exit"]


def conditional(*, around=()):
    """Return ``Neg`` or ``Abs`` of ``x``, with an unused node in the first branch."""
    return [
        placeholder("x", 4),
        placeholder("p", dtype=BOOL),
        node("cond/pred_id", "Identity", "p", T=BOOL),
        node("cond/in", "Switch", "x", "cond/pred_id", T=FLOAT),
        node("cond/neg", "Neg", "cond/in:1", T=FLOAT),
        node("cond/unused", "Tanh", "cond/in:1", T=FLOAT),
        node("cond/abs", "Abs", "cond/in", T=FLOAT),
        node("cond/Merge", "Merge", "cond/abs", "cond/neg", T=FLOAT, N=2),
        *around,
    ]


def test_unused_node_of_a_branch_is_not_an_output():
    assert outputs(*conditional()) == ["cond/Merge"]
    assert outputs(*conditional(around=[node("y", "Relu", "cond/Merge", T=FLOAT)])) == ["y"]


def test_branch_in_a_loop_and_loop_in_a_branch():
    body = [
        node("a/less_too", "Less", "a/turn", "a/one", T=FETCHABLE_INT),
        node("a/in", "Switch", "a/value", "a/less_too", T=FLOAT),
        node("a/neg", "Neg", "a/in:1", T=FLOAT),
        node("a/both", "Merge", "a/in", "a/neg", T=FLOAT, N=2),
        node("a/unused", "Abs", "a/both", T=FLOAT),
    ]
    assert outputs(*first_nodes(), *loop("a", "x", *body, next_value="a/both")) == ["a/value/Exit"]
    chosen = [
        node("in", "Switch", "x", "p", T=FLOAT),
        node("zero", "Switch", "0", "p", T=FETCHABLE_INT),
        placeholder("p", dtype=BOOL),
        *loop("a", "in", halved("a"), next_value="a/half", initial_count="zero"),
        node("y", "Merge", "a/value/Exit", "in:1", T=FLOAT, N=2),
    ]
    assert outputs(*first_nodes(), *chosen) == ["y"]


def checked():
    """Return a model with checks and image summaries."""
    return [
        placeholder("x", 4),
        const("tag", np.array(b"t", dtype=object)),
        const("shape", np.array([1, 2, 2, 1], np.int32)),
        node("finite/CheckNumerics", "CheckNumerics", "x", T=FLOAT, message="no number"),
        node("finite/control_dependency", "Identity", "x", "^finite/CheckNumerics", T=FLOAT),
        node("picture", "Reshape", "x", "shape", T=FLOAT, Tshape=FETCHABLE_INT),
        node("shown", "ImageSummary", "tag", "picture", T=FLOAT),
        node("less", "Less", "x", "x", T=FLOAT),
        node("a/AssertGuard/Switch", "Switch", "less", "less", T=BOOL),
        node("a/AssertGuard/no", "Identity", "a/AssertGuard/Switch", T=BOOL),
        node("a/AssertGuard/yes", "Identity", "a/AssertGuard/Switch:1", T=BOOL),
        node("a/AssertGuard/Merge", "Merge", "a/AssertGuard/no", "a/AssertGuard/yes", T=BOOL, N=2),
    ]


def test_checks_and_summaries_are_not_outputs():
    assert outputs(*checked(), node("y", "Relu", "x", T=FLOAT)) == ["y"]


def test_checks_and_summaries_are_the_only_outputs():
    assert outputs(*checked()) != []


def test_checked_result_is_an_output():
    nodes = [
        placeholder("x", 4),
        node("y", "Relu", "x", T=FLOAT),
        node("z", "Abs", "x", T=FLOAT),
        node("finite/CheckNumerics", "CheckNumerics", "y", T=FLOAT, message="no number"),
        node("finite/control_dependency", "Identity", "y", "^finite/CheckNumerics", T=FLOAT),
        node("sure", "CheckNumerics", "x", T=FLOAT, message="no number"),
    ]
    assert outputs(*nodes) == ["finite/control_dependency", "z", "sure"]
