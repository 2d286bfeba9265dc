"""replace_detection_postprocess: an SSD post-processor for one image, and what is not one.

``tests/reference/test_detection_postprocess.py`` has whole exports with loops.
"""

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import apply, const, node

INTS = {"Tshape": DType.INT32}
SLICE = {"Index": DType.INT32}
ANCHORS = np.float32([[0.2, 0.3, 0.4, 0.2], [0.7, 0.3, 0.4, 0.6], [0.3, 0.8, 0.2, 0.4], [0.9] * 4])
OUTPUTS = ("ssd/boxes", "ssd/scores", "ssd/classes", "ssd/count")
EXAMPLE_INPUTS = ("ssd/image",)
EXAMPLE_OUTPUTS = OUTPUTS


def _coder():
    """Raw encodings and class predictions of four boxes, and the decoded boxes."""
    columns = [const(f"anchor_{n}", ANCHORS[:, i]) for i, n in enumerate("yxhw")]
    nodes = [
        *columns,
        node("image", "Placeholder", T=None, dtype=DType.FLOAT, shape=attr.shape((1, 4, 4, 3))),
        const("hundredth", 0.01),
        node("small", "Mul", "image hundredth"),
        const("flat", [-1], np.int32),
        node("features", "Reshape", "small flat", **INTS),
        *(const(n, [v], np.int32) for n, v in (("zero", 0), ("sixteen", 16), ("twelve", 12))),
        node("for_boxes", "Slice", "features zero sixteen", **SLICE),
        const("four_columns", [-1, 4], np.int32),
        node("encodings", "Reshape", "for_boxes four_columns", **INTS),
        node("for_classes", "Slice", "features sixteen twelve", **SLICE),
        const("with_background", [1, 4, 3], np.int32),
        node("logits", "Reshape", "for_classes with_background", **INTS),
        node("probabilities", "Sigmoid", "logits"),
        const("order", [1, 0], np.int32),
        node("turned", "Transpose", "encodings order", Tperm=DType.INT32),
        node("column", "Unpack", "turned", num=4, axis=0),
        const("ten", 10.0),
        const("five", 5.0),
        const("half", 0.5),
    ]
    for i, side in enumerate("yx"):
        size = "hw"[i]
        nodes += [
            node(f"{side}_code", "RealDiv", f"column:{i} ten"),
            node(f"{side}_offset", "Mul", f"{side}_code anchor_{size}"),
            node(f"{side}_center", "AddV2", f"{side}_offset anchor_{side}"),
            node(f"{size}_code", "RealDiv", f"column:{i + 2} five"),
            node(f"{size}_factor", "Exp", f"{size}_code"),
            node(f"{size}_size", "Mul", f"{size}_factor anchor_{size}"),
            node(f"{size}_half", "Mul", f"{size}_size half"),
            node(f"{side}_low", "Sub", f"{side}_center {size}_half"),
            node(f"{side}_high", "AddV2", f"{side}_center {size}_half"),
        ]
    return [
        *nodes,
        node("corners", "Pack", "y_low x_low y_high x_high", N=4, axis=0),
        node("decoded", "Transpose", "corners order", Tperm=DType.INT32),
    ]


def _suppression():
    """The two best boxes of each class, the three best of them, clipped to the image."""
    nodes = [
        const("most", 2, np.int32),
        const("overlap", 0.4),
        const("least", 0.55),
        const("zero_float", 0.0),
        const("one", 1.0),
        const("axis", 0, np.int32),
        const("three", 3, np.int32),
        const("whole", [-1], np.int32),
        const("second", [0, 0, 1], np.int32),
        const("rest", [-1, -1, -1], np.int32),
        node("foreground", "Slice", "probabilities second rest", **SLICE),
    ]
    for i in (0, 1):
        nodes += [
            const(f"begin{i}", [0, 0, i], np.int32),
            const(f"size{i}", [1, 4, 1], np.int32),
            node(f"cut{i}", "Slice", f"foreground begin{i} size{i}", **SLICE),
            node(f"of_class{i}", "Reshape", f"cut{i} whole", **INTS),
            node(f"kept{i}", "NonMaxSuppressionV3", f"decoded of_class{i} most overlap least"),
            node(f"boxes{i}", "GatherV2", f"decoded kept{i} axis", **_GATHER),
            node(f"scores{i}", "GatherV2", f"of_class{i} kept{i} axis", **_GATHER),
            node(f"zeros{i}", "ZerosLike", f"scores{i}"),
            const(f"number{i}", float(i)),
            node(f"classes{i}", "AddV2", f"zeros{i} number{i}"),
        ]
    joined = {"N": 2, "Tidx": DType.INT32}
    return [
        *nodes,
        node("all_boxes", "ConcatV2", "boxes0 boxes1 axis", **joined),
        node("all_scores", "ConcatV2", "scores0 scores1 axis", **joined),
        node("all_classes", "ConcatV2", "classes0 classes1 axis", **joined),
        node("best", "TopKV2", "all_scores three", sorted=True),
        node("best_boxes", "GatherV2", "all_boxes best:1 axis", **_GATHER),
        node("best_classes", "GatherV2", "all_classes best:1 axis", **_GATHER),
        node("below", "Minimum", "best_boxes one"),
        node("inside", "Maximum", "below zero_float"),
        node("numbered", "AddV2", "best_classes one"),
        node("boxes", "ExpandDims", "inside axis", Tdim=DType.INT32),
        node("scores", "ExpandDims", "best axis", Tdim=DType.INT32),
        node("classes", "ExpandDims", "numbered axis", Tdim=DType.INT32),
        node("shape", "Shape", "best", out_type=DType.INT32),
        node("count", "Cast", "shape", T=None, SrcT=DType.INT32, DstT=DType.FLOAT),
    ]


_GATHER = {"T": None, "Tparams": DType.FLOAT, "Tindices": DType.INT32, "Taxis": DType.INT32}


def _in_scope(made):
    inputs = tuple(r.renamed(f"ssd/{r.node}") for r in made.inputs)
    return replace(made, name=f"ssd/{made.name}", inputs=inputs)


EXAMPLE_NODES = tuple(map(_in_scope, (*_coder(), *_suppression())))


def _replaced(*changed, outputs=OUTPUTS, **options):
    names = {n.name: n for n in map(_in_scope, changed)}
    graph = Graph([names.get(n.name, n) for n in EXAMPLE_NODES])
    return graph, apply(
        "replace_detection_postprocess", graph, inputs=EXAMPLE_INPUTS, outputs=outputs, **options
    )


def test_a_node_takes_the_place_of_decoder_and_suppression():
    graph, result = _replaced()
    assert result.matched == 1
    assert not any(n.op.startswith("NonMaxSuppression") for n in result.graph)
    found = next(n for n in result.graph if n.op == "TFLite_Detection_PostProcess")
    anchors = result.graph[found.data_inputs[2].node].attr_tensor("value").array()
    np.testing.assert_array_equal(anchors, ANCHORS)
    scales = [found.attr_float(f"{side}_scale") for side in "yxhw"]
    assert scales == [10, 10, 5, 5]
    ints = ("max_detections", "num_classes", "detections_per_class", "max_classes_per_detection")
    assert [found.attr_int(name) for name in ints] == [3, 2, 2, 1]
    assert found.attr_bool("use_regular_nms")
    assert found.attr_float("nms_iou_threshold") == pytest.approx(0.4)
    # LiteRT keeps boxes of exactly the threshold, TensorFlow does not.
    assert found.attr_float("nms_score_threshold") == np.nextafter(np.float32(0.55), np.float32(1))
    image = np.random.default_rng(5).uniform(-200, 200, (1, 4, 4, 3)).astype(np.float32)
    expected = Interpreter(graph).run(OUTPUTS, {"ssd/image": image})
    values = Interpreter(result.graph).run(OUTPUTS, {"ssd/image": image})
    for value, wanted in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-6)


def test_scores_with_the_background_go_into_the_node():
    _, result = _replaced()
    shape = (
        Interpreter(result.graph)
        .run(["detection_postprocess/scores"], {"ssd/image": np.zeros((1, 4, 4, 3), np.float32)})[0]
        .shape
    )
    assert shape == (1, 4, 3)


def test_a_graph_without_suppression_stays():
    graph, result = _replaced(outputs=("ssd/probabilities",))
    assert result.graph is graph
    assert not result.matched
    with pytest.raises(TransformError, match="the outputs do not depend on a NonMaxSuppression"):
        _replaced(outputs=("ssd/probabilities",), required=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (node("h_factor", "Softplus", "h_code"), "no box decoder with two Exp"),
        (node("corners", "Pack", "x_low y_low x_high y_high", N=4, axis=0), "order y, x, y, x"),
        (node("y_center", "AddV2", "y_offset x_code"), "the anchors depend on the image"),
        (node("numbered", "Neg", "best_classes"), "of the detections in a random image"),
    ],
    ids=["decoder", "corners", "anchors", "other result"],
)
def test_a_part_that_is_not_recognized_is_named(changed, message):
    with pytest.raises(TransformError, match=message) as caught:
        _replaced(changed)
    assert caught.value.hint


def test_limits_have_to_be_constant_and_the_same_for_all_classes():
    other = node("kept1", "NonMaxSuppressionV3", "decoded of_class1 most least least")
    with pytest.raises(TransformError, match="suppressed with different limits"):
        _replaced(other)
    computed = node("least", "Mul", "hundredth half")
    with pytest.raises(
        TransformError, match="the limits of NonMaxSuppressionV3 'ssd/kept0' are not"
    ):
        _replaced(computed)


def test_other_outputs_of_the_suppression_are_refused():
    with pytest.raises(TransformError, match="does not compute the output 'ssd/best:1'") as caught:
        _replaced(outputs=(*OUTPUTS, "ssd/best:1"))
    assert caught.value.hint == "remove it from the outputs"
    with pytest.raises(TransformError, match="no output has the classes of the detections"):
        _replaced(outputs=("ssd/boxes", "ssd/scores"))
