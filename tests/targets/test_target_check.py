"""Gaps of a TensorFlow build for a graph, their causes, and fixes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import OLDER_OPS
from mobileprep.targets.op_lists import RegisteredOps
from mobileprep.targets.target_check import AppBuild, TargetGap, check_loads, ops_of, target_gaps
from mobileprep.transforms.older_ops import REPLACEMENTS
from tests.targets.graphs import with_function
from tests.transforms.graphs import const, conv, node, placeholder


def gaps(
    *nodes: Node, platform: str = "android", release: str = "1.15", selective: bool = False
) -> list[TargetGap]:
    graph = Graph([placeholder(), *nodes])
    return list(target_gaps(graph, release, platform, selective=selective))


def causes(*nodes: Node, **options: Any) -> list[str]:
    return [gap.cause for gap in gaps(*nodes, **options)]


def test_supported_ops_have_no_gaps() -> None:
    nodes = [
        node("a", "Relu", "x"),
        node("b", "Conv2D", "x x"),
        node("c", "ImmutableConst", T=None, dtype=DType.FLOAT),
    ]
    for platform in ("android", "ios", "raspberry-pi", "linux", "generic"):
        assert gaps(*nodes, platform=platform) == []


@pytest.mark.parametrize(
    ("op", "cause"),
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
def test_each_cause(op: Node, cause: str) -> None:
    (gap,) = [g for g in gaps(op) if g.node]
    assert gap.cause == cause
    assert gap.message and gap.mend


def test_grouped_convolutions_have_no_kernel() -> None:
    """The op of 1.15 accepts groups, but its kernel refuses them at run time."""
    nodes = [
        node("images", "Placeholder", T=None, dtype=DType.FLOAT, shape=attr.shape((1, 8, 8, 4))),
        const("half", np.ones((3, 3, 2, 6))),
        const("all", np.ones((3, 3, 4, 6))),
        conv("grouped", "images half"),
        conv("plain", "images all"),
    ]
    (gap,) = gaps(*nodes, platform="linux")
    assert (gap.op, gap.cause, gap.node, gap.count) == ("Conv2D", "no kernel", "grouped", 1)
    assert "groups of channels" in gap.message
    assert "TensorFlow 2.21" in gap.mend
    assert gaps(*nodes, platform="linux", release="2.21") == []


def test_missing_source_files_are_named() -> None:
    (gap,) = gaps(node("n", "Ceil", "x"), node("m", "Ceil", "x"))
    assert gap.files == ("cwise_op_ceil.cc",)
    assert (gap.node, gap.count) == ("n", 2)
    assert gap.mend == "add cwise_op_ceil.cc to the build"


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("android", ["not compiled", "type not compiled"]),
        ("ios", ["not compiled", "type not compiled"]),
        ("raspberry-pi", ["not compiled"]),
        ("linux", []),
        ("generic", []),
    ],
)
def test_gaps_differ_by_platform(platform: str, expected: list[str]) -> None:
    nodes = [node("c", "Ceil", "x"), node("e", "Equal", "x x", T=DType.INT32)]
    assert causes(*nodes, platform=platform) == expected
    assert causes(*nodes, platform=platform, selective=True) == []


def test_image_library_is_missing_from_selective_builds() -> None:
    assert causes(node("n", "DecodeJpeg", "x", T=None), selective=True) == ["image library"]


def test_tensorflow_2_compiles_all_dtypes_and_more_ops() -> None:
    nodes = [node("c", "Ceil", "x"), node("e", "Equal", "x x", T=DType.INT32)]
    assert causes(*nodes, release="2.21") == []
    assert causes(node("n", "Acos", "x"), release="2.21") == ["not compiled"]


@pytest.mark.parametrize(
    ("op", "dtype", "supported"),
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
def test_dtypes_of_the_makefile_build(op: str, dtype: DType, supported: bool) -> None:
    assert (causes(node("n", op, "x x", T=dtype)) == []) == supported


def test_index_dtypes_are_always_registered() -> None:
    assert gaps(node("n", "Sum", "x x", Tidx=DType.INT64)) == []


def test_graph_version_that_excludes_the_release() -> None:
    for versions in (Versions(900, 900), Versions(900, 0, (134,))):
        (gap,) = target_gaps(Graph([placeholder()], versions=versions), "1.15", "linux")
        assert (gap.cause, gap.op, gap.node) == ("newer graph", "", "")
        assert target_gaps(Graph([], versions=versions), "2.21", "linux") == ()


def test_removed_op() -> None:
    old = node("n", "BatchNormWithGlobalNormalization", "x x x x x")
    for producer, expected in ((8, []), (21, ["removed op"])):
        graph = Graph([placeholder(), old], versions=Versions(producer))
        assert [g.cause for g in target_gaps(graph, "1.15", "android")] == expected


def test_function_bodies_are_checked() -> None:
    body = Function(OpDef("f"), (node("n", "Xlog1py", "a a"),))
    graph = Graph([placeholder(), Node("call", "f")], Library({"f": body}))
    (gap,) = target_gaps(graph, "1.15", "android")
    assert gap.sentence.endswith("the op `Xlog1py` (node `n` of function `f`)")


def test_unknown_platform_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="platform"):
        target_gaps(Graph(), "1.15", "andriod")


def test_downgrade_is_suggested_if_it_has_a_rule() -> None:
    assert OLDER_OPS.keys() == REPLACEMENTS.keys()
    (gap,) = gaps(node("n", "MatrixDiagV3", "x", align="LEFT_LEFT"))
    assert "`downgrade` replaces it with `MatrixDiagV2`" in gap.mend
    (dropped,) = gaps(node("n", "MatMul", "x x", grad_a=True))
    assert "`downgrade` removes attributes" in dropped.mend
    (own,) = gaps(node("n", "MyOp", "x"))
    assert "register the op in the app" in own.mend


@pytest.mark.parametrize(
    ("op", "release", "what", "fix"),
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
def test_attributes_that_cpu_kernels_do_not_support(
    op: Node, release: str, what: str, fix: str
) -> None:
    (gap,) = target_gaps(with_placeholders(op), release, "linux")
    assert (gap.cause, gap.what) == ("no kernel", what)
    assert fix in gap.mend


def with_placeholders(op: Node) -> Graph:
    return Graph([*map(placeholder, dict.fromkeys(map(str, op.inputs))), op])


@pytest.mark.parametrize(
    "op",
    [
        node("n", "BiasAdd", "x b", data_format="NCHW"),
        node(
            "n", "Conv2D", "x w", data_format="NHWC", dilations=(1, 2, 2, 1), strides=(1, 1, 2, 1)
        ),
        node("n", "DepthwiseConv2dNative", "x w", dilations=(1, 1, 1, 1), strides=(1, 2, 2, 1)),
        node("n", "MaxPool", "x", strides=(1, 1, 2, 1)),
    ],
)
def test_attributes_that_cpu_kernels_support(op: Node) -> None:
    assert target_gaps(with_placeholders(op), "1.15", "linux") == ()


def test_custom_ops_are_not_checked() -> None:
    graph = Graph([placeholder(), node("n", "MyOp", "x"), node("m", "OtherOp", "x")])
    (gap,) = target_gaps(graph, "1.15", "android", custom_ops=["MyOp"])
    assert gap.op == "OtherOp"


def test_header_must_register_the_ops_and_kernels_of_a_graph() -> None:
    nodes = [placeholder(), node("a", "Relu", "x"), node("b", "Elu", "x"), node("c", "MyOp", "x")]
    kernels = ["PlaceholderOp", "ReluOp<CPUDevice, float>"]
    header = RegisteredOps({"Placeholder", "Relu", "MyOp"}, kernels)
    graph = Graph(nodes)
    (gap,) = target_gaps(graph, "1.15", "android", selective=True, header=header)
    assert (gap.op, gap.cause) == ("Elu", "not registered")
    header = RegisteredOps({"Placeholder", "Relu", "MyOp", "Elu"}, kernels)
    (gap,) = target_gaps(graph, "1.15", "android", selective=True, header=header)
    assert gap.message == (
        "`ops_to_register.h` does not register the kernel `EluOp<CPUDevice, float>` of `Elu`"
    )


NEWER = Graph([placeholder(), node("n", "Xlog1py", "x x")], versions=Versions(1200, 900))


def refused(build: AppBuild, graph: Graph = NEWER) -> tuple[list[str], str]:
    with pytest.raises(UnsupportedError) as caught:
        check_loads(graph, build)
    return caught.value.message.splitlines(), caught.value.hint


def test_all_problems_of_all_releases_are_reported_at_once() -> None:
    lines, hint = refused(AppBuild(("1.15", "2.21"), "android"))
    assert lines == [
        "TensorFlow 1.15 (GraphDef version 134) rejects a graph with `min_consumer=900`",
        "TensorFlow 1.15 does not have the op `Xlog1py` (node `n`)",
    ]
    assert hint == (
        'build the app with TensorFlow 2.21: `registration: {tensorflow: "2.21"}`; to ship it '
        'anyway, write `registration: {tensorflow: ["1.15", "2.21"], allow: [Xlog1py, versions]}`'
    )


def test_only_allowed_problems_are_accepted() -> None:
    one = AppBuild(("1.15",), "android", allow=["versions"])
    lines, hint = refused(one)
    assert len(lines) == 1
    assert "allow: [Xlog1py, versions]" in hint
    (warning,) = one.accepted(NEWER)
    assert warning == (
        "TensorFlow 1.15 (GraphDef version 134) rejects a graph with `min_consumer=900`; `allow` "
        "lists `versions`, so the model ships, but TensorFlow 1.15 cannot load it unless the app "
        "adds the support"
    )
    both = AppBuild(("1.15",), "android", allow=["versions", "Xlog1py"])
    check_loads(NEWER, both)
    assert len(list(both.accepted(NEWER))) == 2


def test_missing_kernel_is_a_warning_if_allowed() -> None:
    graph = Graph([placeholder(), node("p", "DecodePng", "x", T=None)])
    (warning,) = AppBuild(("1.15",), "ios", allow=["DecodePng"]).accepted(graph)
    assert "but TensorFlow 1.15 cannot run it" in warning


def test_declared_custom_ops_are_accepted() -> None:
    graph = Graph([placeholder(), node("n", "FancyOp", "x")])
    check_loads(graph, AppBuild(("1.15", "2.21"), "android", custom_ops=["FancyOp"]))
    lines, hint = refused(AppBuild(("1.15",), "android"), graph)
    assert lines == ["TensorFlow 1.15 does not have the op `FancyOp` (node `n`)"]
    assert hint.startswith("if the app registers `FancyOp` itself, declare it: `ops: {FancyOp: {")


def test_downgrade_is_suggested_only_if_it_helps() -> None:
    graph = Graph([placeholder(), node("n", "MaxPool", "x", padding="EXPLICIT")])
    _, hint = refused(AppBuild(("1.15",), "android"), graph)
    assert "downgrade" not in hint


def test_ops_of_functions_are_included() -> None:
    assert ops_of(with_function()) == {"Placeholder", "grow", "Exp"}
