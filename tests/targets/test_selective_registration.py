"""Ops and kernels that graphs need, and the registration header."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.targets.op_lists import OpKernel
from mobileprep.targets.selective_registration import ops_and_kernels, registration_header
from tests.targets.graphs import network, node, with_function


def op_kernels(*nodes: Node, release: str = "1.15") -> list[tuple[str, str | None]]:
    ops = ops_and_kernels([Graph(nodes)], release, default_ops=())
    return [(pair.op, pair.kernel) for pair in ops]


@pytest.mark.parametrize(
    ("release", "matmul"),
    [
        ("1.15", "MatMulOp<CPUDevice, float, false >"),
        ("2.21", "BatchMatMulOp<CPUDevice, float, float, float, true>"),
    ],
)
def test_ops_are_sorted_with_their_kernels_and_the_defaults(release: str, matmul: str) -> None:
    ops = ops_and_kernels([network()], release)
    assert ops == (
        OpKernel("Const", "ConstantOp"),
        OpKernel("MatMul", matmul),
        OpKernel("NoOp", "NoOp"),
        OpKernel("Placeholder", "PlaceholderOp"),
        OpKernel("Softmax", "SoftmaxOp<CPUDevice, float>"),
        OpKernel("_Recv", "RecvOp"),
        OpKernel("_Send", "SendOp"),
    )


def test_kernels_of_each_dtype_are_listed_once() -> None:
    assert op_kernels(
        node("a", "Relu", T=DType.FLOAT),
        node("b", "Relu", T=DType.FLOAT),
        node("c", "Relu", T=DType.DOUBLE),
    ) == [("Relu", "ReluOp<CPUDevice, double>"), ("Relu", "ReluOp<CPUDevice, float>")]


def test_graphs_are_combined() -> None:
    graphs = [Graph([node("a", "Relu", T=DType.FLOAT)]), Graph([node("a", "Tanh", T=DType.FLOAT)])]
    assert [pair.op for pair in ops_and_kernels(graphs, "1.15", default_ops=())] == ["Relu", "Tanh"]


def test_missing_attributes_have_their_defaults() -> None:
    assert op_kernels(node("a", "ArgMax", T=DType.FLOAT)) == [
        ("ArgMax", "ArgMaxOp<CPUDevice, float, int64>")
    ]


def test_unknown_attributes_are_ignored() -> None:
    relu = node("a", "Relu", T=DType.FLOAT)
    new = relu.with_attrs(from_later_release=attrs.integer(3), _output_shapes=attrs.integers(1))
    assert op_kernels(new) == op_kernels(relu)


def test_device_of_a_node_is_ignored() -> None:
    relu = node("a", "Relu", T=DType.FLOAT)
    moved = Node("b", "Relu", device="/job:worker/device:GPU:0", attrs=relu.attrs)
    assert op_kernels(moved) == op_kernels(relu)


def test_kernel_label_is_respected() -> None:
    plain = node("a", "Fact")
    assert op_kernels(plain) == [("Fact", "FactOp")]
    assert op_kernels(plain.with_attrs(_kernel=attrs.string("sergey"))) == [
        ("Fact", "FactOpKernel2")
    ]


def test_kernels_with_other_constraints_than_dtypes_are_found() -> None:
    gather = node("a", "GatherNd", Tparams=DType.FLOAT, Tindices=DType.INT32)
    assert op_kernels(gather, release="2.21") == [
        ("GatherNd", "GatherNdOp<CPUDevice, float, int32>")
    ]
    depth = node("b", "DepthToSpace", T=DType.FLOAT)
    assert op_kernels(depth, release="2.21") == [
        ("DepthToSpace", "DepthToSpaceOp<CPUDevice, float>")
    ]
    other = depth.with_attrs(data_format=attrs.string("NCHW"))
    with pytest.raises(UnsupportedError, match="no CPU kernel of op 'DepthToSpace'"):
        op_kernels(other, release="2.21")


def test_accumulate_nv2_is_registered_without_a_kernel() -> None:
    pair = OpKernel("AccumulateNV2", None)
    graph = Graph([node("a", "AccumulateNV2", T=DType.FLOAT)])
    ops = ops_and_kernels([graph], "1.15")
    assert pair in ops
    header = registration_header(ops, "1.15")
    assert 'isequal(op, "AccumulateNV2")' in header
    assert "None" not in header


def test_functions_count_by_release_or_on_request() -> None:
    def ops(release: str, *, functions: bool) -> list[str]:
        pairs = ops_and_kernels([with_function()], release, default_ops=(), functions=functions)
        return [pair.op for pair in pairs]

    assert ops("1.15", functions=False) == ["Placeholder"]
    # The runtime passes arguments and results of functions through these.
    assert ops("1.15", functions=True) == ["Exp", "Identity", "NoOp", "Placeholder"]
    assert ops("2.21", functions=False) == ["Exp", "Placeholder"]


def test_all_unknown_ops_are_reported_with_node_and_file() -> None:
    graphs = [
        Graph([node("a", "Reluu"), node("b", "Reluu"), node("c", "Relu", T=DType.FLOAT)]),
        Graph([node("d", "Frobnicate")]),
    ]
    with pytest.raises(UnsupportedError) as caught:
        ops_and_kernels(graphs, "1.15", files=["one.pb", "two.pb"])
    assert caught.value.exit_code == 6
    assert str(caught.value).splitlines() == [
        "TensorFlow 1.15 has no op 'Frobnicate' (node 'd' of two.pb)",
        "TensorFlow 1.15 has no op 'Reluu' (node 'a' and 1 more of one.pb)",
    ]
    assert "--default_ops=Frobnicate:KERNEL" in caught.value.hint


def test_long_list_of_unknown_ops_is_truncated() -> None:
    graph = Graph([node(f"n{i}", f"Unknown{i:04}") for i in range(1000)])
    with pytest.raises(UnsupportedError) as caught:
        ops_and_kernels([graph], "2.21")
    assert len(str(caught.value).splitlines()) == 21
    assert "and 980 more" in str(caught.value)


def test_op_of_a_newer_release_is_refused() -> None:
    graph = Graph([node("a", "BatchMatMulV3", Ta=DType.FLOAT, Tb=DType.FLOAT, Tout=DType.FLOAT)])
    assert ops_and_kernels([graph], "2.21")
    with pytest.raises(UnsupportedError, match=r"1\.15 has no op 'BatchMatMulV3'") as caught:
        ops_and_kernels([graph], "1.15")
    assert caught.value.hint == (
        "build the app with TensorFlow 2.21, which has it, or run the transform `downgrade`, "
        "which replaces it with `BatchMatMulV2`"
    )


def test_unknown_op_among_the_defaults_is_accepted() -> None:
    own = OpKernel("Frobnicate", "FrobnicateOp<float>")
    ops = ops_and_kernels([Graph([node("a", "Frobnicate")])], "1.15", default_ops=[own])
    assert ops == (own,)


def test_missing_kernel_is_an_error_or_a_warning() -> None:
    graph = Graph([node("a", "Relu", T=DType.STRING), node("b", "Tanh", T=DType.FLOAT)])
    with pytest.raises(UnsupportedError, match=r"kernel of op 'Relu' for T=string \(node 'a'"):
        ops_and_kernels([graph], "1.15")
    warnings: list[str] = []
    ops = ops_and_kernels([graph], "1.15", default_ops=(), warn=warnings.append)
    assert [pair.op for pair in ops] == ["Tanh"]
    assert warnings == ["TensorFlow 1.15 has no CPU kernel of op 'Relu' for T=string (node 'a')"]


def test_unknown_op_in_a_function_is_reported_with_the_function() -> None:
    graph = with_function()
    body = graph.library.functions["grow"]
    odd = Graph(
        graph.nodes, type(graph.library)({"grow": type(body)(body.signature, (node("q", "Qq"),))})
    )
    with pytest.raises(UnsupportedError, match="node 'q' of function 'grow'"):
        ops_and_kernels([odd], "1.15", functions=True)


def test_release_without_tables_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"TensorFlow 1\.4"):
        ops_and_kernels([network()], "1.4")


GOLDEN = """\
// This file was autogenerated by mobileprep for TensorFlow 1.15
#ifndef OPS_TO_REGISTER
#define OPS_TO_REGISTER

    namespace {
      constexpr const char* skip(const char* x) {
        return (*x) ? (*x == ' ' ? skip(x + 1) : x) : x;
      }

      constexpr bool isequal(const char* x, const char* y) {
        return (*skip(x) && *skip(y))
                   ? (*skip(x) == *skip(y) && isequal(skip(x) + 1, skip(y) + 1))
                   : (!*skip(x) && !*skip(y));
      }

      template<int N>
      struct find_in {
        static constexpr bool f(const char* x, const char* const y[N]) {
          return isequal(x, y[0]) || find_in<N - 1>::f(x, y + 1);
        }
      };

      template<>
      struct find_in<0> {
        static constexpr bool f(const char* x, const char* const y[]) {
          return false;
        }
      };
    }  // end namespace
    constexpr const char* kNecessaryOpKernelClasses[] = {
"BinaryOp<CPUDevice, functor::add<float>>",
"NoOp",
};
#define SHOULD_REGISTER_OP_KERNEL(clz) (find_in<sizeof(kNecessaryOpKernelClasses) \
/ sizeof(*kNecessaryOpKernelClasses)>::f(clz, kNecessaryOpKernelClasses))

constexpr inline bool ShouldRegisterOp(const char op[]) {
  return false
     || isequal(op, "Add")
     || isequal(op, "NoOp")
  ;
}
#define SHOULD_REGISTER_OP(op) ShouldRegisterOp(op)

#define SHOULD_REGISTER_OP_GRADIENT false
#endif
"""


def test_header_matches_the_golden_text() -> None:
    pairs = [OpKernel("NoOp", "NoOp"), OpKernel("Add", "BinaryOp<CPUDevice, functor::add<float>>")]
    assert registration_header(pairs, "1.15") == GOLDEN


def test_symbolic_gradient_enables_gradients() -> None:
    header = registration_header([OpKernel("SymbolicGradient", "SymbolicGradientOp")], "1.15")
    assert "#define SHOULD_REGISTER_OP_GRADIENT true" in header


def test_header_of_everything_is_always_true() -> None:
    lines = registration_header([], "2.21", everything=True).splitlines()
    assert lines[1:] == [
        "#ifndef OPS_TO_REGISTER",
        "#define OPS_TO_REGISTER",
        "#define SHOULD_REGISTER_OP(op) true",
        "#define SHOULD_REGISTER_OP_KERNEL(clz) true",
        "#define SHOULD_REGISTER_OP_GRADIENT true",
        "#endif",
    ]


def lowered(op: str, **attributes: object) -> Node:
    """A functional conditional or loop with the attribute that TensorFlow 2 sets."""
    functional = node("n", op, **attributes)
    return functional.with_attrs(_lower_using_switch_merge=attrs.boolean(True))


@pytest.mark.parametrize(
    ("op", "created"),
    [
        ("StatelessIf", {"Switch", "Merge", "Identity", "IdentityN", "NoOp"}),
        ("If", {"Switch", "Merge", "Identity", "IdentityN", "NoOp"}),
        ("Case", {"_SwitchN", "Merge", "Identity", "IdentityN", "NoOp"}),
        (
            "StatelessWhile",
            {"Enter", "Exit", "Identity", "IdentityN", "LoopCond", "Merge", "NextIteration"}
            | {"NoOp", "Switch"},
        ),
        ("PartitionedCall", {"Identity", "NoOp"}),
    ],
)
def test_ops_of_lowered_functional_nodes_are_registered(op: str, created: set[str]) -> None:
    graph = Graph([lowered(op)])
    pairs = ops_and_kernels([graph], "1.15", default_ops=(), functions=True)
    assert {pair.op for pair in pairs} == {op, *created}
    assert all(pair.kernel for pair in pairs)


def test_functional_node_that_is_not_lowered_needs_no_other_ops() -> None:
    graph = Graph([node("n", "StatelessIf")])
    pairs = ops_and_kernels([graph], "1.15", default_ops=(), functions=True)
    assert [pair.op for pair in pairs] == ["StatelessIf"]


def test_ops_of_lowered_nodes_require_functions() -> None:
    pairs = ops_and_kernels([Graph([lowered("StatelessIf")])], "1.15", default_ops=())
    assert [pair.op for pair in pairs] == ["StatelessIf"]


@pytest.mark.parametrize("release", ["1.15", "2.21"])
def test_replacements_of_sums_and_stacks_are_registered(release: str) -> None:
    total = node("n", "AccumulateNV2", T=DType.DOUBLE)
    stack = node("m", "ParallelConcat", T=DType.DOUBLE)
    pairs = ops_and_kernels([Graph([total, stack])], release, default_ops=(), functions=True)
    kernels = {pair.op: pair.kernel for pair in pairs}
    assert {"Assign", "AssignAdd", "Const", "DestroyTemporaryVariable", "Fill"} <= set(kernels)
    assert {"Identity", "Shape", "TemporaryVariable", "_ParallelConcatStart"} <= set(kernels)
    for op in ("Assign", "AssignAdd", "Fill"):
        assert "double" in str(kernels[op])
