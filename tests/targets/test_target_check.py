"""What a build of TensorFlow lacks for a graph, why, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.opdefs.definitions import OLDER_OPS
from mobileprep.targets.op_lists import RegisteredOps
from mobileprep.targets.target_check import TargetGap, target_gaps
from mobileprep.transforms.downgrade.replacements import REPLACEMENTS
from tests.transforms.graphs import const, conv, node, placeholder


def gaps(
    *nodes: Node, platform: str = "android", release: str = "1.15", selective: bool = False
) -> list[TargetGap]:
    graph = Graph([placeholder(), *nodes])
    return list(target_gaps(graph, release, platform, selective=selective))


def causes(
    *nodes: Node, platform: str = "android", release: str = "1.15", selective: bool = False
) -> list[str]:
    return [g.cause for g in gaps(*nodes, platform=platform, release=release, selective=selective)]


def test_what_a_mobile_build_has_is_no_gap() -> None:
    nodes = [
        node("a", "Relu", "x"),
        node("b", "Conv2D", "x x"),
        node("c", "ImmutableConst", T=None, dtype=DType.FLOAT),
    ]
    for platform in ("android", "ios", "raspberry-pi", "linux", "generic"):
        assert gaps(*nodes, platform=platform) == []


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (node("n", "Xlog1py", "x x"), "newer op"),
        (node("n", "MatMul", "x x", grad_a=True), "newer attribute"),
        (node("n", "MaxPool", "x", padding="EXPLICIT"), "newer value"),
        (node("n", "Where", "x", T=DType.QINT8), "no kernel"),
        (node("n", "L2Loss", "x"), "training"),
        (node("n", "SparseApplyFtrl", "x"), "no kernel"),
        (node("n", "DecodePng", "x", T=None, dtype=DType.UINT8), "image library"),
        (node("n", "Ceil", "x"), "not compiled"),
        (node("n", "Add", "x x", T=DType.INT32), "type not compiled"),
    ],
)
def test_each_cause(made: Node, cause: str) -> None:
    found = [g for g in gaps(made) if g.node]
    assert [g.cause for g in found] == [cause]
    assert all(g.message and g.mend for g in found)


def test_groups_of_channels_are_newer_than_the_kernel() -> None:
    """1.15's op takes them, and its kernel refuses them when it runs."""
    nodes = [
        node("images", "Placeholder", T=None, dtype=DType.FLOAT, shape=attr.shape((1, 8, 8, 4))),
        const("half", np.ones((3, 3, 2, 6))),
        const("all", np.ones((3, 3, 4, 6))),
        conv("grouped", "images half"),
        conv("plain", "images all"),
    ]
    (found,) = gaps(*nodes, platform="linux")
    assert (found.op, found.cause, found.node, found.count) == ("Conv2D", "no kernel", "grouped", 1)
    assert "groups of channels" in found.message
    assert "TensorFlow 2.21" in found.mend
    assert gaps(*nodes, platform="linux", release="2.21") == []


def test_sources_to_add_are_named() -> None:
    (found,) = gaps(node("n", "Ceil", "x"), node("m", "Ceil", "x"))
    assert found.files == ("cwise_op_ceil.cc",)
    assert (found.node, found.count) == ("n", 2)
    assert found.mend == "add cwise_op_ceil.cc to the build"


@pytest.mark.parametrize(
    ("platform", "found"),
    [
        ("android", ["not compiled", "type not compiled"]),
        ("ios", ["not compiled", "type not compiled"]),
        ("raspberry-pi", ["not compiled"]),
        ("linux", []),
        ("generic", []),
    ],
)
def test_platforms_leave_out_more_or_less(platform: str, found: list[str]) -> None:
    nodes = [node("c", "Ceil", "x"), node("e", "Equal", "x x", T=DType.INT32)]
    assert causes(*nodes, platform=platform) == found
    assert causes(*nodes, platform=platform, selective=True) == []


def test_no_fragment_brings_a_library_of_pictures() -> None:
    assert causes(node("n", "DecodeJpeg", "x", T=None), selective=True) == ["image library"]


def test_tensorflow_2_compiles_all_types_and_more_ops() -> None:
    nodes = [node("c", "Ceil", "x"), node("e", "Equal", "x x", T=DType.INT32)]
    assert causes(*nodes, release="2.21") == []
    assert causes(node("n", "Acos", "x"), release="2.21") == ["not compiled"]


@pytest.mark.parametrize(
    ("op", "dtype", "is_there"),
    [
        ("Mul", DType.INT32, True),
        ("Sub", DType.INT32, True),
        ("Add", DType.FLOAT, True),
        ("Less", DType.INT32, False),
        ("Maximum", DType.INT64, False),
        ("FloorMod", DType.INT32, True),
        ("Pack", DType.INT32, True),
        ("Pack", DType.INT64, False),
        ("Pack", DType.QUINT8, True),
        ("Dequantize", DType.QUINT8, True),
        ("Reshape", DType.STRING, True),
    ],
)
def test_types_of_the_makefile_build(op: str, dtype: DType, is_there: bool) -> None:
    assert (causes(node("n", op, "x x", T=dtype)) == []) == is_there


def test_types_of_indices_are_registered_whatever_is_compiled() -> None:
    assert gaps(node("n", "Sum", "x x", Tidx=DType.INT64)) == []


def test_a_version_that_refuses_the_release() -> None:
    for versions in (Versions(900, 900), Versions(900, 0, (134,))):
        (found,) = target_gaps(Graph([placeholder()], versions=versions), "1.15", "linux")
        assert (found.cause, found.op, found.node) == ("newer graph", "", "")
        assert target_gaps(Graph([], versions=versions), "2.21", "linux") == ()


def test_an_op_that_newer_graphs_may_not_have() -> None:
    old = node("n", "BatchNormWithGlobalNormalization", "x x x x x")
    for producer, told in ((8, []), (21, ["removed op"])):
        graph = Graph([placeholder(), old], versions=Versions(producer))
        assert [g.cause for g in target_gaps(graph, "1.15", "android")] == told


def test_bodies_of_functions_count_and_calls_do_not() -> None:
    body = Function(OpDef("f"), (node("n", "Xlog1py", "a a"),))
    graph = Graph([placeholder(), Node("call", "f")], Library({"f": body}))
    (found,) = target_gaps(graph, "1.15", "android")
    assert found.sentence.endswith("the op `Xlog1py` (node `n` of function `f`)")


def test_unknown_platforms_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="platform"):
        target_gaps(Graph(), "1.15", "andriod")


def test_downgrade_is_named_for_what_it_has_a_rule_for() -> None:
    assert OLDER_OPS.keys() == REPLACEMENTS.keys()
    (found,) = gaps(node("n", "MatrixDiagV3", "x", align="LEFT_LEFT"))
    assert "`downgrade` replaces it with `MatrixDiagV2`" in found.mend
    (dropped,) = gaps(node("n", "MatMul", "x x", grad_a=True))
    assert "`downgrade` removes attributes" in dropped.mend
    (own,) = gaps(node("n", "MyOp", "x"))
    assert "register the op in the app" in own.mend


@pytest.mark.parametrize(
    ("made", "release", "what", "mend"),
    [
        (node("n", "Conv2D", "x w", data_format="NCHW"), "1.15", "data_format=NCHW", "last"),
        (node("n", "MaxPool", "x", data_format="NCHW"), "2.21", "data_format=NCHW", "last"),
        (node("n", "FusedBatchNormV3", "x", U=DType.FLOAT, data_format="NCHW"),
         "1.15", "data_format=NCHW", "last"),
        (node("n", "Conv3D", "x w", data_format="NCDHW"), "2.21", "data_format=NCDHW", "last"),
        (node("n", "DepthwiseConv2dNative", "x w", dilations=(1, 2, 2, 1)),
         "1.15", "dilations=[1, 2, 2, 1]", "SpaceToBatchND"),
        (node("n", "DepthwiseConv2dNative", "x w", strides=(1, 1, 2, 1)),
         "1.15", "strides=[1, 1, 2, 1]", "the same stride"),
    ],
)  # fmt: skip
def test_attributes_that_a_cpu_kernel_refuses(
    made: Node, release: str, what: str, mend: str
) -> None:
    inputs = [placeholder(name) for name in {str(ref): None for ref in made.inputs}]
    (gap,) = target_gaps(Graph([*inputs, made]), release, "linux")
    assert (gap.cause, gap.what) == ("no kernel", what)
    assert mend in gap.mend


@pytest.mark.parametrize(
    "made",
    [
        node("n", "BiasAdd", "x b", data_format="NCHW"),
        node(
            "n", "Conv2D", "x w", data_format="NHWC", dilations=(1, 2, 2, 1), strides=(1, 1, 2, 1)
        ),
        node("n", "DepthwiseConv2dNative", "x w", dilations=(1, 1, 1, 1), strides=(1, 2, 2, 1)),
        node("n", "MaxPool", "x", strides=(1, 1, 2, 1)),
    ],
)
def test_attributes_that_a_cpu_kernel_takes(made: Node) -> None:
    inputs = [placeholder(name) for name in {str(ref): None for ref in made.inputs}]
    assert target_gaps(Graph([*inputs, made]), "1.15", "linux") == ()


def test_ops_of_the_app_are_not_judged() -> None:
    graph = Graph([placeholder(), node("n", "MyOp", "x"), node("m", "OtherOp", "x")])
    found = target_gaps(graph, "1.15", "android", custom_ops=["MyOp"])
    assert [gap.op for gap in found] == ["OtherOp"]


def test_a_header_has_to_register_the_ops_and_kernels_of_a_graph() -> None:
    nodes = [placeholder(), node("a", "Relu", "x"), node("b", "Elu", "x"), node("c", "MyOp", "x")]
    kernels = ["PlaceholderOp", "ReluOp<CPUDevice, float>"]
    header = RegisteredOps({"Placeholder", "Relu", "MyOp"}, kernels)
    graph = Graph(nodes)
    (found,) = target_gaps(graph, "1.15", "android", selective=True, header=header)
    assert (found.op, found.cause) == ("Elu", "not registered")
    header = RegisteredOps({"Placeholder", "Relu", "MyOp", "Elu"}, kernels)
    (found,) = target_gaps(graph, "1.15", "android", selective=True, header=header)
    assert found.message == (
        "`ops_to_register.h` does not register the kernel `EluOp<CPUDevice, float>` of `Elu`"
    )
