"""Proposed inputs and outputs of graphs that resemble public training code."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import guess
from mobileprep.freezing.model import Signature, TensorSpec
from mobileprep.freezing.proposal import propose
from mobileprep.freezing.source import bundle_signatures
from mobileprep.graph import attrs as attr
from tests.freezing.graphs import FLOAT, const, node, placeholder, ref_variable, source
from tests.freezing.test_guess import training

INT = DType.INT32
LONG = DType.INT64
BOOL = DType.BOOL
STRING = DType.STRING


def reduced(name, op, tensor, axes="axes"):
    return node(name, op, tensor, axes, T=FLOAT, Tidx=INT, keep_dims=False)


def argmax(name, tensor):
    return node(name, "ArgMax", tensor, "axis", T=FLOAT, Tidx=INT, output_type=LONG)


def numbers():
    return [const("axis", np.int32(1)), const("axes", np.arange(2, dtype=np.int32))]


def dense(name, tensor, rows, columns):
    """Return a layer with weights."""
    variable = ref_variable(f"{name}/w", rows, columns)
    return [*variable, node(name, "MatMul", tensor, f"{name}/w/read", T=FLOAT)]


def network(tensor="image", name="final_result"):
    """Return image features followed by a dense layer with a softmax."""
    return [
        const("filters", np.ones((3, 3, 3, 8), np.float32)),
        node("conv", "Conv2D", tensor, "filters", T=FLOAT, strides=[1, 1, 1, 1], padding="SAME"),
        const("places", np.array([1, 2], np.int32)),
        reduced("features", "Mean", "conv", "places"),
        *dense("logits", "bottleneck", 8, 5),
        node(name, "Softmax", "logits", T=FLOAT),
    ]


def bottleneck(default="features"):
    features = node("bottleneck", "PlaceholderWithDefault", default, dtype=FLOAT)
    return features.with_attrs(shape=attr.shape((-1, 8)))


def retraining(*, trains):
    """Return a model like TensorFlow for Poets, whose bottleneck defaults to image features."""
    image = placeholder("image", -1, 32, 32, 3)
    nodes = [image, *numbers(), *network(), bottleneck()]
    if not trains:
        return nodes
    return [
        *nodes,
        placeholder("input/GroundTruthInput", -1, dtype=LONG),
        node(
            "loss/xent", "SparseSoftmaxCrossEntropyWithLogits", "logits", "input/GroundTruthInput",
            T=FLOAT, Tlabels=LONG,
        ),
        node("train", "ApplyGradientDescent", "logits/w", "axis", "loss/xent:1", T=FLOAT),
        argmax("accuracy/ArgMax", "final_result"),
        node("accuracy/Equal", "Equal", "accuracy/ArgMax", "input/GroundTruthInput", T=LONG),
    ]  # fmt: skip


def decoding(contents):
    """Return the preprocessing of Inception, with ``Mul`` as the input of the network."""
    return [
        contents,
        node("DecodeJpeg", "DecodeJpeg", contents.name, channels=3),
        node("Cast", "Cast", "DecodeJpeg", SrcT=DType.UINT8, DstT=FLOAT),
        const("dim", np.int32(0)),
        node("ExpandDims", "ExpandDims", "Cast", "dim", T=FLOAT, Tdim=INT),
        const("size", np.array([299, 299], np.int32)),
        node("ResizeBilinear", "ResizeBilinear", "ExpandDims", "size", T=FLOAT),
        const("Sub/y", np.float32(128)),
        node("Sub", "Sub", "ResizeBilinear", "Sub/y", T=FLOAT),
        const("Mul/y", np.float32(1 / 128)),
        node("Mul", "Mul", "Sub", "Mul/y", T=FLOAT),
    ]


def constant_jpeg():
    return const("DecodeJpeg/contents", np.array(b"jpeg", dtype=object))


def classifier(label, *scores):
    """Return a softmax with scores that need a label."""
    return [
        placeholder("x", -1, 8),
        *numbers(),
        *dense("logits", "x", 8, 4),
        node("pred", "Softmax", "logits", T=FLOAT),
        label,
        *scores,
    ]


def cross_entropy():
    """Return a cross entropy in small ops and an accuracy."""
    return classifier(
        placeholder("y", -1, 4),
        const("eps", np.float32(1e-7)),
        node("add", "AddV2", "pred", "eps", T=FLOAT),
        node("Log", "Log", "add", T=FLOAT),
        node("mul", "Mul", "y", "Log", T=FLOAT),
        reduced("Sum", "Sum", "mul", "axis"),
        argmax("ArgMax", "pred"),
        argmax("ArgMax_1", "y"),
        node("Equal", "Equal", "ArgMax", "ArgMax_1", T=LONG),
    )


def squared_error():
    """Return a regression without training nodes and with an error for each sample."""
    return classifier(
        placeholder("Y", -1, 4),
        node("gap", "Sub", "pred", "Y", T=FLOAT),
        node("cost", "Square", "gap", T=FLOAT),
    )


def labels_as_rows():
    """Return a model whose labels select rows of a constant matrix."""
    return classifier(
        placeholder("wanted", -1, dtype=INT),
        const("eye", np.eye(4, dtype=np.float32)),
        node("onehot", "GatherV2", "eye", "wanted", "axis", Tparams=FLOAT, Tindices=INT),
        node("Log", "Log", "pred", T=FLOAT),
        node("mul", "Mul", "onehot", "Log", T=FLOAT),
        reduced("loss", "Mean", "mul"),
    )


def autoencoder():
    return [
        placeholder("X", -1, 8),
        *numbers(),
        *dense("encoded", "X", 8, 2),
        *dense("linear", "encoded", 2, 8),
        node("decoded", "Sigmoid", "linear", T=FLOAT),
        node("sub", "Sub", "X", "decoded", T=FLOAT),
        node("Square", "Square", "sub", T=FLOAT),
        reduced("loss", "Mean", "Square"),
    ]


def regression():
    """Return a linear regression of unknown shape, whose error is the mean along all axes."""
    return [
        node("X", "Placeholder", dtype=FLOAT),
        node("Y", "Placeholder", dtype=FLOAT),
        *ref_variable("w", 1),
        *numbers(),
        node("mul", "Mul", "X", "w/read", T=FLOAT),
        node("hypothesis", "Identity", "mul", T=FLOAT),
        node("sub", "Sub", "hypothesis", "Y", T=FLOAT),
        node("Square", "Square", "sub", T=FLOAT),
        node("Rank", "Rank", "Square", T=FLOAT),
        const("start", np.int32(0)),
        node("range", "Range", "start", "Rank", "axis", Tidx=INT),
        reduced("Mean", "Mean", "Square", "range"),
    ]


def contrastive():
    """Return a contrastive loss, in which the label weights the distance."""
    return [
        placeholder("left", -1, 8),
        placeholder("right", -1, 8),
        placeholder("similar", -1),
        *numbers(),
        *dense("a", "left", 8, 4),
        *dense("b", "right", 8, 4),
        node("gap", "Sub", "a", "b", T=FLOAT),
        reduced("distance", "Sum", "gap", "axis"),
        node("Square", "Square", "distance", T=FLOAT),
        node("mul", "Mul", "similar", "Square", T=FLOAT),
        const("margin", np.float32(1)),
        node("sub", "Sub", "margin", "distance", T=FLOAT),
        node("Square_1", "Square", "sub", T=FLOAT),
        node("sub_1", "Sub", "margin", "similar", T=FLOAT),
        node("mul_1", "Mul", "sub_1", "Square_1", T=FLOAT),
        node("add", "AddV2", "mul", "mul_1", T=FLOAT),
        reduced("loss", "Mean", "add", "margin_axes"),
        const("margin_axes", np.int32(0)),
    ]


def asserted_confusion():
    """Return a confusion matrix with an assertion about the predictions."""
    nodes = classifier(
        placeholder("groundtruth_label", -1, dtype=LONG),
        argmax("ArgMax", "logits"),
        const("classes", np.int64(4)),
        node("confusion_matrix/assert_less/Less", "Less", "ArgMax", "classes", T=LONG),
        node(
            "confusion_matrix/assert_less/All", "All", "confusion_matrix/assert_less/Less", "axis"
        ),
        node("confusion_matrix/assert_less/Assert", "Assert", "confusion_matrix/assert_less/All"),
        node("confusion_matrix/count", "Equal", "ArgMax", "groundtruth_label", T=LONG),
    )
    return [n for n in nodes if getattr(n, "name", "") != "pred"]


def recurrent(*more):
    """Return a loop over a sequence with a state and a stack of all outputs."""

    def variable(key, begins, following, dtype=FLOAT):
        name = f"rnn/while/{key}"
        return [
            node(f"{name}/Enter", "Enter", begins, T=dtype, frame_name="rnn/while"),
            node(f"{name}/Next", "NextIteration", following, T=dtype),
            node(f"{name}/Merge", "Merge", f"{name}/Enter", f"{name}/Next", T=dtype, N=2),
            node(f"{name}/Switch", "Switch", f"{name}/Merge", "rnn/while/cond", T=dtype),
            node(f"{name}/Identity", "Identity", f"{name}/Switch:1", T=dtype),
        ]

    return [
        placeholder("x", 28, 1, 8),
        *numbers(),
        const("zero", np.int32(0)),
        const("steps", np.int32(28)),
        const("state", np.zeros((1, 8), np.float32)),
        node("array", "TensorArrayV3", "steps", dtype=FLOAT),
        node("fed", "TensorArrayV3", "steps", dtype=FLOAT),
        const("range", np.arange(28, dtype=np.int32)),
        node("scatter", "TensorArrayScatterV3", "fed", "range", "x", "fed:1", T=FLOAT),
        *variable("step", "zero", "rnn/while/add", INT),
        *variable("array", "array:1", "rnn/while/write"),
        *variable("state", "state", "rnn/while/tanh"),
        node("rnn/while/enter_steps", "Enter", "steps", T=INT, frame_name="rnn/while"),
        node("rnn/while/less", "Less", "rnn/while/step/Merge", "rnn/while/enter_steps", T=INT),
        node("rnn/while/cond", "LoopCond", "rnn/while/less"),
        const("rnn/while/one", np.int32(1), "^rnn/while/step/Identity"),
        node("rnn/while/add", "AddV2", "rnn/while/step/Identity", "rnn/while/one", T=INT),
        node("rnn/while/enter_fed", "Enter", "fed", T=DType.RESOURCE, frame_name="rnn/while"),
        node("rnn/while/enter_flow", "Enter", "scatter", T=FLOAT, frame_name="rnn/while"),
        node(
            "rnn/while/read", "TensorArrayReadV3", "rnn/while/enter_fed",
            "rnn/while/step/Identity", "rnn/while/enter_flow", dtype=FLOAT,
        ),
        node("rnn/while/sum", "AddV2", "rnn/while/read", "rnn/while/state/Identity", T=FLOAT),
        node("rnn/while/tanh", "Tanh", "rnn/while/sum", T=FLOAT),
        node("rnn/while/enter_array", "Enter", "array", T=DType.RESOURCE, frame_name="rnn/while"),
        node(
            "rnn/while/write", "TensorArrayWriteV3", "rnn/while/enter_array",
            "rnn/while/step/Identity", "rnn/while/tanh", "rnn/while/array/Identity", T=FLOAT,
        ),
        node("rnn/while/Exit_1", "Exit", "rnn/while/array/Switch", T=FLOAT),
        node("rnn/while/Exit_2", "Exit", "rnn/while/state/Switch", T=FLOAT),
        node(
            "rnn/TensorArrayStack/TensorArrayGatherV3", "TensorArrayGatherV3", "array", "range",
            "rnn/while/Exit_1", dtype=FLOAT,
        ),
        *more,
    ]  # fmt: skip


def of_last_state():
    """Return a recurrent model that does not use its stacked outputs."""
    layer = dense("logits", "rnn/while/Exit_2", 8, 4)
    return recurrent(*layer, node("pred", "Softmax", "logits", T=FLOAT))


def of_all_steps():
    """Return a recurrent model that does not use its last state and has a score."""
    stacked = "rnn/TensorArrayStack/TensorArrayGatherV3"
    return recurrent(
        reduced("mean", "Mean", stacked, "zero"),
        *dense("logits", "mean", 8, 4),
        node("pred", "Softmax", "logits", T=FLOAT),
        placeholder("labels", -1, 4),
        node("Log", "Log", "pred", T=FLOAT),
        node("mul", "Mul", "labels", "Log", T=FLOAT),
        reduced("Sum", "Sum", "mul"),
        node("train", "ApplyGradientDescent", "logits/w", "zero", "Sum", T=FLOAT),
    )


def generating():
    """Return a recurrent model whose result is the output of the loop."""
    stacked = "rnn/TensorArrayStack/TensorArrayGatherV3"
    order = const("order", np.array([1, 0, 2], np.int32))
    w = ref_variable("w", 3)
    train = node("train", "ApplyGradientDescent", "w", "zero", "w/read", T=FLOAT)
    return recurrent(order, node("words", "Transpose", stacked, "order", T=FLOAT), *w, train)


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs"),
    [
        (retraining(trains=False), ["image"], ["final_result"]),
        (retraining(trains=True), ["image"], ["final_result"]),
        (
            [*numbers(), *decoding(constant_jpeg()), *network("Mul"), bottleneck()],
            ["Mul"],
            ["final_result"],
        ),
        (cross_entropy(), ["x"], ["pred"]),
        (squared_error(), ["x"], ["pred"]),
        (labels_as_rows(), ["x"], ["pred"]),
        (autoencoder(), ["X"], ["decoded"]),
        (regression(), ["X"], ["hypothesis"]),
        (contrastive(), ["left", "right"], ["distance"]),
        (asserted_confusion(), ["x"], ["logits"]),
        (of_last_state(), ["x"], ["pred"]),
        (of_all_steps(), ["x"], ["pred"]),
        (generating(), ["x"], ["words"]),
    ],
    ids=[
        "poets",
        "poets-training",
        "poets-constant-jpeg",
        "cross-entropy",
        "squared-error",
        "labels-as-rows",
        "autoencoder",
        "regression",
        "contrastive",
        "asserted-confusion",
        "last-state",
        "all-steps",
        "generating",
    ],
)
def test_inputs_and_outputs_of_public_models(nodes, inputs, outputs):
    proposal = propose(source(nodes))
    assert [i.spec.name for i in proposal.inputs] == inputs
    assert list(proposal.outputs) == outputs


def test_placeholder_with_a_constant_default_is_an_input():
    nodes = [const("none", np.zeros((1, 8), np.float32)), bottleneck("none"), *numbers()]
    nodes += [*dense("logits", "bottleneck", 8, 5)]
    assert [i.spec.name for i in propose(source(nodes)).inputs] == ["bottleneck"]


def test_placeholder_with_a_queue_default_is_an_input():
    nodes = [
        node("queue", "FIFOQueueV2", component_types=[FLOAT]),
        node("batch", "QueueDequeueV2", "queue", component_types=[FLOAT]),
        bottleneck("batch"),
        *dense("logits", "bottleneck", 8, 5),
    ]
    assert [i.spec.name for i in propose(source(nodes)).inputs] == ["bottleneck"]


def test_preprocessed_tensor_replaces_a_constant_image():
    nodes = [*numbers(), *decoding(constant_jpeg()), *network("Mul"), bottleneck()]
    proposal = propose(source(nodes))
    assert proposal.inputs[0].spec.shape == (1, 299, 299, 3)
    assert proposal.about_inputs[-1] == (
        "Images are decoded inside the graph, from a constant: feed Mul (float32 [1, 299, 299, 3]) "
        "instead, as (x - 128) / 128 for pixels x from 0 to 255."
    )


def test_image_file_input_has_a_remark_about_the_decoded_tensor():
    contents = placeholder("contents", dtype=STRING)
    nodes = [*numbers(), *decoding(contents), *network("Mul"), bottleneck()]
    (image,) = propose(source(nodes)).inputs
    assert image.spec.name == "contents"
    assert "make Mul (float32 [1, 299, 299, 3]) the input instead" in image.remark
    assert "(x - 128) / 128" in image.remark


def test_preprocessing_by_channel_is_described():
    steps = decoding(constant_jpeg())[:-4]
    steps += [
        const("means", np.array([123.5, 116.5, 104], np.float32)),
        node("Mul", "Sub", "ResizeBilinear", "means", T=FLOAT),
    ]
    proposal = propose(source([*numbers(), *steps, *network("Mul"), bottleneck()]))
    assert "as x - [123.5, 116.5, 104] for pixels" in proposal.about_inputs[-1]


def dropout(name, *probability):
    """Return the random numbers of a dropout layer and ``probability``."""
    return [
        placeholder("x", -1, 8),
        node(name, "Placeholder", dtype=FLOAT),
        node("shape", "Shape", "x", T=FLOAT, out_type=INT),
        node("random", "RandomUniform", "shape", T=INT, dtype=FLOAT),
        *probability,
    ]


def test_graph_decides_the_value_of_a_dropout_input():
    by_keep_rate = dropout(
        "dropout",
        node("sum", "Add", "dropout", "random", T=FLOAT),
        node("Floor", "Floor", "sum", T=FLOAT),
        node("div", "RealDiv", "x", "dropout", T=FLOAT),
        node("y", "Mul", "div", "Floor", T=FLOAT),
    )
    by_drop_rate = dropout(
        "keep_prob",
        const("one", np.float32(1)),
        node("sub", "Sub", "one", "keep_prob", T=FLOAT),
        node("scale", "RealDiv", "one", "sub", T=FLOAT),
        node("scaled", "Mul", "x", "scale", T=FLOAT),
        node("above", "GreaterEqual", "random", "keep_prob", T=FLOAT),
        node("mask", "Cast", "above", SrcT=BOOL, DstT=FLOAT),
        node("y", "Mul", "scaled", "mask", T=FLOAT),
    )
    divided = dropout("drop", node("y", "RealDiv", "x", "drop", T=FLOAT))
    models = (by_keep_rate, by_drop_rate, divided)
    inputs = [propose(source(nodes)).inputs[1] for nodes in models]
    assert [i.spec.shape for i in inputs] == [(), (), ()]
    assert [i.remark for i in inputs] == [
        "The app feeds 1: the dropout keeps everything.",
        "The app feeds 0: the dropout drops nothing.",
        "A setting. Judging by the name, the app feeds 1.",
    ]


def test_file_content_is_a_scalar_input():
    wav = node("wav", "Placeholder", dtype=STRING)
    nodes = [wav, node("sound", "DecodeWav", "wav"), node("y", "Neg", "sound", T=FLOAT)]
    (content,) = propose(source(nodes)).inputs
    assert (content.spec.shape, content.remark) == ((), "")


LABELS_INT = DType.INT64
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
        placeholder("sp/indices", -1, 2, dtype=LABELS_INT),
        placeholder("sp/values", -1),
        placeholder("sp/shape", 2, dtype=LABELS_INT),
        const("wide", np.ones((12, 3), np.float32)),
        node(
            "deep", "SparseTensorDenseMatMul", "sp/indices", "sp/values", "sp/shape", "wide",
            T=FLOAT, Tindices=LABELS_INT,
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
        placeholder("wanted", -1, dtype=LABELS_INT),
        const("axis", np.int32(1)),
        node("best", "ArgMax", "logits", "axis", T=FLOAT, Tidx=INDEX, output_type=LABELS_INT),
        node("right", "Equal", "best", "wanted", T=LABELS_INT),
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
