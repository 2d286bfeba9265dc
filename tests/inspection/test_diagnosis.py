"""Findings about slow and large parts of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.inspection.costs import counted_run
from mobileprep.inspection.diagnosis import Diagnosis, Finding, diagnose
from mobileprep.transforms.base import transform_names
from tests.inspection.test_loops import counted as loop
from tests.ops.graphs import n
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder

SHAPE = (1, 8, 8, 3)


def network(*nodes: Node) -> Graph:
    """A convolution of 8 by 8 pixels to 4 channels, and other nodes."""
    x = placeholder().with_attrs(shape=attr.shape(SHAPE))
    return Graph([x, const("w", normal(3, 3, 3, 4)), conv("conv", "x w"), *nodes])


def diagnosed(
    graph: Graph,
    output: str = "out",
    shape: Sequence[int] = SHAPE,
    **options: object,
) -> Diagnosis:
    run = counted_run(graph, [output], {"x": tuple(shape)})
    return diagnose(run, ["x"], [output], **options)  # type: ignore[arg-type]


def only(diagnosis: Diagnosis) -> Finding:
    (finding,) = diagnosis.findings
    assert not finding.transform or finding.transform in transform_names()
    return finding


NORM = [
    const("scale", [2.0, 2, 2, 2]),
    const("shift", [1.0, 1, 1, 1]),
    const("mean", [0.5, 0, 0, 0]),
    const("variance", [1.0, 2, 3, 4]),
    node(
        "out",
        "FusedBatchNorm",
        "conv scale shift mean variance",
        epsilon=0.001,
        is_training=False,
        data_format="NHWC",
    ),
]


def test_prepared_network_has_nothing_to_improve() -> None:
    graph = network(const("b", normal(4)), node("out", "BiasAdd", "conv b"))
    diagnosis = diagnosed(graph)
    # 2 operations for each of 27 weights and 256 outputs, and 256 of the bias.
    assert diagnosis.layers == 13824 / (13824 + 256)
    assert list(diagnosis.lines()) == [
        "convolutions and matrix products take 98.2% of the FLOPs; nothing to improve"
    ]


def test_unfolded_norm_is_found_and_gone_after_the_transform() -> None:
    graph = network(*NORM)
    finding = only(diagnosed(graph))
    assert (finding.nodes, finding.transform) == (("out",), "fuse_batch_norms")
    # The norm reads 1,024 bytes and 4 numbers for each channel, and writes as much; the convolution
    # reads 768 bytes and 432 bytes of weights, and writes 1,024.
    assert finding.share == 2 * (1024 + 64) / (768 + 432 + 1024 + 2 * (1024 + 64))
    assert finding.measure == "bytes moved"
    assert finding.sentence == (
        "normalizations that fit into the layer before them (`out`; 49.5% of the bytes moved): "
        "`fuse_batch_norms` removes them"
    )
    assert diagnosed(apply("fuse_batch_norms", graph).graph).findings == ()


def test_measured_times_replace_operations() -> None:
    diagnosis = diagnosed(network(*NORM), seconds={"conv": 0.003, "out": 0.001})
    assert (diagnosis.measure, diagnosis.layers) == ("time", 0.75)
    assert diagnosis.others == {"FusedBatchNorm": 0.25}
    finding = only(diagnosis)
    assert (finding.share, finding.measure) == (0.25, "time")
    assert next(diagnosis.lines()) == (
        "convolutions and matrix products take 75.0% of the time, FusedBatchNorm 25.0%"
    )


def test_norm_with_batch_statistics() -> None:
    training = NORM[-1].with_attrs(is_training=attr.boolean(True))
    finding = only(diagnosed(network(*NORM[:-1], training)))
    assert (finding.nodes, finding.transform) == (("out",), "choose_inference")


def test_values_of_an_untrained_graph_are_not_folded() -> None:
    assert diagnosed(network(*NORM), is_frozen=False).findings == ()


@pytest.mark.parametrize(
    ("op", "transform"), [("Identity", "remove_no_ops"), ("CheckNumerics", "remove_nodes")]
)
def test_identities_and_checks(op: str, transform: str) -> None:
    check = node("check", op, "conv", **({"message": "odd"} if op == "CheckNumerics" else {}))
    finding = only(diagnosed(network(check, node("out", "Relu", "check"))))
    assert (finding.nodes, finding.transform) == (("check",), transform)


def test_dropout() -> None:
    dropout = [
        const("keep", 0.5),
        const("shape", [1, 8, 8, 4], np.int32),
        node("uniform", "RandomUniform", "shape", T=DType.INT32, dtype=DType.FLOAT),
        node("sum", "Add", "uniform keep"),
        node("mask", "Floor", "sum"),
        node("scaled", "RealDiv", "conv keep"),
        node("dropped", "Mul", "scaled mask"),
        node("out", "Relu", "dropped"),
    ]
    finding = only(diagnosed(network(*dropout)))
    assert finding.transform == "remove_dropout"
    assert set(finding.nodes) == {"uniform", "sum", "mask", "scaled", "dropped"}


def test_computed_constants() -> None:
    constants = [const("a", normal(4)), const("c", normal(4)), node("b", "Add", "a c")]
    finding = only(diagnosed(network(*constants, node("out", "BiasAdd", "conv b"))))
    assert (finding.nodes, finding.transform) == (("b",), "fold_constants")


def test_quantized_weights_are_not_computed_constants() -> None:
    graph = network(node("out", "Relu", "conv"))
    small = apply("quantize_weights", graph, minimum_size=1).graph
    assert any(n.op == "Dequantize" for n in small)
    assert diagnosed(small).findings == ()


def test_training_ops_are_grouped_by_fix() -> None:
    shown = [
        const("true", True, np.bool_),
        node("assert", "Assert", "true", T=None),
        node("out", "Relu", "conv ^assert"),
    ]
    finding = only(diagnosed(network(*shown)))
    assert finding.problem == "Assert, for training or debugging"
    assert finding.transform == "remove_control_dependencies"


def test_nodes_that_outputs_do_not_need() -> None:
    extra = [node("gradients/conv", "Relu", "conv"), node("more", "Relu", "gradients/conv")]
    finding = only(diagnosed(network(node("out", "Relu", "conv"), *extra)))
    assert (finding.nodes, finding.transform) == (("gradients/conv", "more"), "strip_unused_nodes")
    assert (finding.share, finding.measure) == (2 / 6, "nodes")


def test_fake_quantization() -> None:
    quantized = node("out", "FakeQuantWithMinMaxArgs", "conv", T=None, min=-6.0, max=6.0)
    finding = only(diagnosed(network(quantized)))
    assert (finding.nodes, finding.transform) == (("out",), "quantize_nodes")


def test_casts_in_the_middle_but_not_of_an_input() -> None:
    def cast(name: str, source: str, to: DType) -> Node:
        back = DType.HALF if to is DType.FLOAT else DType.FLOAT
        return node(name, "Cast", source, T=None, SrcT=back, DstT=to)

    half = [cast("half", "conv", DType.HALF), node("relu", "Relu", "half", T=DType.HALF)]
    graph = network(*half, cast("out", "relu", DType.FLOAT))
    assert set(only(diagnosed(graph)).nodes) == {"half", "out"}
    image = placeholder(kind=DType.UINT8)
    first = node("pixels", "Cast", "x", T=None, SrcT=DType.UINT8, DstT=DType.FLOAT)
    fed = Graph([image, first, const("w", normal(3, 3, 3, 4)), conv("out", "pixels w")])
    assert diagnosed(fed).findings == ()


def test_transposes_of_layouts_but_not_of_others() -> None:
    def transposed(order: list[int]) -> Graph:
        return network(
            const("order", order, np.int32),
            node("turn", "Transpose", "conv order", Tperm=DType.INT32),
            node("out", "Relu", "turn"),
        )

    finding = only(diagnosed(transposed([0, 3, 1, 2])))
    assert (finding.nodes, finding.transform) == (("turn",), "remove_no_ops")
    assert diagnosed(transposed([0, 2, 1, 3])).findings == ()


def test_tiny_ops_in_a_loop() -> None:
    graph = loop(test=[n("less", "Less", "count", "enter_bound")], bound=100)
    run = counted_run(graph, ["y"], {"x": (4,)})
    (finding,) = (f for f in diagnose(run, ["x"], ["y"]).findings if "loops" in f.problem)
    assert finding.transform == "raise_control_flow"
    assert finding.measure == "executions"
    assert finding.share > 0.9


def test_elementwise_ops_that_move_most_bytes() -> None:
    ops = [
        node("root", "Sqrt", "conv"),
        node("square", "Square", "root"),
        node("e", "Exp", "square"),
    ]
    graph = network(*ops, node("out", "Neg", "e"))
    finding = only(diagnosed(graph, seconds={"conv": 1.0, "e": 0.2, "out": 0.2}))
    assert finding.nodes[:2] == ("e", "out")
    assert (finding.share, finding.transform) == (0.4 / 1.4, "merge_scale_and_bias")


def test_large_fully_connected_layer() -> None:
    def product(weights: list[Node], name: str = "w") -> Graph:
        flags = {"transpose_a": False, "transpose_b": False}
        return Graph([placeholder(), *weights, node("out", "MatMul", f"x {name}", **flags)])

    shape = (1, 512)
    graph = product([const("w", normal(512, 512))])
    finding = only(diagnosed(graph, shape=shape))
    assert (finding.share, finding.measure) == (1.0, "parameters")
    assert finding.transform == "quantize_weights"
    assert diagnosed(apply("quantize_weights", graph).graph, shape=shape).findings == ()
    assert diagnosed(product([const("w", normal(512, 511))]), shape=shape).findings == ()


def test_doubles() -> None:
    double = node("wide", "Cast", "x", T=None, SrcT=DType.FLOAT, DstT=DType.DOUBLE)
    ops = [double, node("out", "Square", "wide", T=DType.DOUBLE)]
    graph = Graph([placeholder().with_attrs(shape=attr.shape(SHAPE)), *ops])
    (finding,) = (f for f in diagnosed(graph).findings if "float64" in f.problem)
    assert (set(finding.nodes), finding.transform) == ({"wide", "out"}, "")


def test_unknown_operations_are_not_compared() -> None:
    graph = network(node("out", "Relu", "conv"))
    x = graph["x"].with_attrs(shape=attr.shape(None))
    diagnosis = diagnosed(graph.with_nodes([x, *graph.nodes[1:]]), shape=(-1, -1, -1, 3))
    assert diagnosis.layers is not None
    run = counted_run(graph.with_nodes([x, *graph.nodes[1:]]), ["out"], {"x": None})
    assert list(diagnose(run, ["x"], ["out"]).lines()) == [
        "the FLOPs of convolutions and matrix products are not known; nothing to improve"
    ]


@pytest.mark.parametrize("at", ["conv", "out"])
def test_sentences_name_the_most_expensive_node(at: str) -> None:
    graph = network(node("out", "CheckNumerics", "conv", message=""), node("z", "Relu", "out"))
    diagnosis = diagnosed(graph, "z", seconds={at: 1.0})
    assert diagnosis.layers == float(at == "conv")
