"""Whole graphs: fused, shared, dropped, and refused nodes, and the bytes of the file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import ArtifactError, InvalidGraphError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import ALIGNMENT, MAX_BYTES, model_bytes
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Ref, parse_function_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.tflite import read_tflite
from mobileprep.litert.refusals import GIVE_SHAPES
from tests.litert.graphs import codes, const, feed, model, op
from tests.litert.one_op import check_graph, numbers


def network() -> Graph:
    """Two convolutions with a bias, a batch norm and activations, and a dense layer."""
    return Graph(
        [
            feed("image", (-1, 8, 8, 3)),
            const("w1", numbers(3, 3, 3, 4)),
            const("b1", numbers(4, seed=5)),
            op("conv1", "Conv2D", ["image", "w1"], strides=[1, 2, 2, 1], padding="SAME"),
            op("bias1", "BiasAdd", ["conv1", "b1"]),
            op("relu1", "Relu6", ["bias1"], T=DType.FLOAT),
            const("w2", numbers(3, 3, 4, 1, seed=6)),
            op(
                "dw", "DepthwiseConv2dNative", ["relu1", "w2"], strides=[1, 1, 1, 1], padding="SAME"
            ),
            const("gamma", abs(numbers(4, seed=7))),
            const("beta", numbers(4, seed=8)),
            const("mean", numbers(4, seed=9)),
            const("variance", abs(numbers(4, seed=10)) + 0.5),
            op(
                "norm",
                "FusedBatchNormV3",
                ["dw", "gamma", "beta", "mean", "variance"],
                T=DType.FLOAT,
                U=DType.FLOAT,
                is_training=False,
                epsilon=0.001,
            ),
            op("relu2", "Relu", ["norm"]),
            const("flat", [-1, 64]),
            op("rows", "Reshape", ["relu2", "flat"]),
            const("w3", numbers(64, 5, seed=11)),
            const("b3", numbers(5, seed=12)),
            op("dense", "MatMul", ["rows", "w3"]),
            op("logits", "BiasAdd", ["dense", "b3"]),
            op("probabilities", "Softmax", ["logits"]),
        ]
    )


def test_biases_batch_norms_and_activations_are_fused() -> None:
    record = model(network(), ["image"], ["probabilities"])
    reference = ["CONV_2D", "DEPTHWISE_CONV_2D", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX"]
    assert codes(record) == reference
    first, second = record.subgraphs[0].operators[:2]
    assert first.options is not None
    assert second.options is not None
    assert first.options.values["fused_activation_function"] == "RELU6"
    assert second.options.values["fused_activation_function"] == "RELU"


@pytest.mark.parametrize("batch", [1, 3])
def test_results_match_for_any_batch_size(batch: int) -> None:
    check_graph(network(), {"image": numbers(batch, 8, 8, 3)}, ["probabilities"])


def test_open_sizes_are_in_the_shape_signature() -> None:
    image = model(network(), ["image"], ["probabilities"]).subgraphs[0].tensors[0]
    assert (image.shape, image.signature) == ((1, 8, 8, 3), (-1, 8, 8, 3))
    inputs = model(network(), ["image"], ["probabilities"], {"image": (2, 8, 8, 3)})
    image = inputs.subgraphs[0].tensors[0]
    assert (image.shape, image.signature) == ((2, 8, 8, 3), None)


def test_signature_names_inputs_and_outputs() -> None:
    (signature,) = model(network(), ["image"], ["probabilities", "logits"]).signatures
    assert [name for name, _ in signature.inputs] == ["image"]
    assert [name for name, _ in signature.outputs] == ["probabilities", "logits"]


def test_minimum_runtime_is_in_the_metadata() -> None:
    (entry,) = model(network(), ["image"], ["probabilities"]).metadata
    assert entry == ("min_runtime_version", b"1.5.0".ljust(16, b"\0"))


def test_constants_are_stored_once() -> None:
    w = numbers(3, 3, 2, 2)
    strides = [1, 1, 1, 1]
    nodes = [feed("x", (1, 6, 6, 2)), const("w", w), const("same", w.copy())]
    nodes += [
        op(f"y{i}", "Conv2D", ["x", name], strides=strides, padding=padding)
        for i, (name, padding) in enumerate([("w", "SAME"), ("same", "SAME"), ("w", "VALID")])
    ]
    record = model(Graph(nodes), ["x"], ["y0", "y1", "y2"])
    assert sum(len(b) == w.nbytes for b in record.buffers) == 1


def test_asserts_and_control_dependencies_are_dropped() -> None:
    nodes = [
        feed("x", (2, 3)),
        op("fine", "LogicalNot", ["none"]),
        feed("none", (), DType.BOOL),
        Node("check", "Assert", (Ref("fine"), Ref("x"))),
        Node("y", "Relu", (Ref("x"), Ref("check", -1)), "", {"T": attr.dtype(DType.FLOAT)}),
    ]
    assert codes(model(Graph(nodes), ["x"], ["y"])) == ["RELU"]


_FLOAT = attr.dtype(DType.FLOAT)


def printing(name: str, source: str, *data: str) -> Node:
    """Build the node of ``tf.Print``."""
    kinds = AttrValue("list(type)", (DType.FLOAT,) * len(data))
    return Node(name, "Print", tuple(map(Ref, (source, *data))), "", {"T": _FLOAT, "U": kinds})


@pytest.mark.parametrize("end", ["y", "again"])
def test_print_passes_its_input_through(end: str) -> None:
    nodes = [
        feed("x", (2, 3)),
        op("odd", "Erfinv", ["x"]),
        op("relu", "Relu", ["x"], T=DType.FLOAT),
        printing("once", "relu", "odd"),
        printing("again", "once", "relu"),
        Node("y", "Neg", (Ref("again"), Ref("once", -1)), "", {"T": _FLOAT}),
    ]
    record = check_graph(Graph(nodes), {"x": numbers(2, 3)}, [end], 0)
    assert codes(record) == ["RELU", "NEG"][: 2 if end == "y" else 1]


def test_print_output_can_be_fed() -> None:
    nodes = [feed("x", (2, 3)), printing("printed", "x", "x"), op("y", "Neg", ["printed"])]
    assert codes(model(Graph(nodes), ["printed"], ["y"], {"printed": (2, 3)})) == ["NEG"]


def function(name: str, kind: DType, nodes: Sequence[Node]) -> Function:
    """Build a function of one float that returns the output ``z`` of its last node."""
    signature = OpDef(name, (ArgDef("arg", DType.FLOAT),), (ArgDef("out", kind),))
    return Function(signature, tuple(nodes), {"out": parse_function_ref(f"{nodes[-1].name}:z:0")})


@pytest.mark.parametrize("call", ["PartitionedCall", "StatefulPartitionedCall", "double"])
def test_function_calls_are_inlined(call: str) -> None:
    """Keras puts grouped convolutions in functions, which freezing does not inline."""
    arg = parse_function_ref("arg")
    body = function("double", DType.FLOAT, [Node("add", "AddV2", (arg, arg), "", {"T": _FLOAT})])
    attrs: dict[str, AttrValue] = {}
    if call != "double":
        attrs = dict.fromkeys(("Tin", "Tout"), AttrValue("list(type)", (DType.FLOAT,)))
        attrs["f"] = AttrValue("func", FuncRef("double"))
    called = Node("called", call, (Ref("x"),), "", attrs)
    nodes = [feed("x", (2, 3)), called, op("y", "Neg", ["called"])]
    assert codes(model(Graph(nodes, Library({"double": body})), ["x"], ["y"])) == ["ADD", "NEG"]


@pytest.mark.parametrize("call", ["PartitionedCall", "While"])
def test_functions_that_print(call: str) -> None:
    arg, printed, most = map(parse_function_ref, ("arg", "printed:output:0", "most:output:0"))
    print_arg, kinds = printing("printed", "arg", "arg"), {"T": _FLOAT}
    less = [print_arg, const("most", 50.0), Node("less", "Less", (printed, most), "", kinds)]
    double = [print_arg, Node("add", "AddV2", (printed, arg), "", kinds)]
    bodies = [function("more", DType.BOOL, less), function("double", DType.FLOAT, double)]
    by_role = {"f": "double"} if call == "PartitionedCall" else {"cond": "more", "body": "double"}
    lists = ("Tin", "Tout") if call == "PartitionedCall" else ("T",)
    attrs = {role: AttrValue("func", FuncRef(name)) for role, name in by_role.items()}
    attrs |= dict.fromkeys(lists, AttrValue("list(type)", (DType.FLOAT,)))
    library = Library({body.name: body for body in bodies})
    graph = Graph([feed("x", ()), Node("y", call, (Ref("x"),), "", attrs)], library)
    check_graph(graph, {"x": np.array(3, np.float32)}, tolerance=0)


def test_error_names_all_unsupported_nodes() -> None:
    nodes = [
        feed("x", (2, 3)),
        op("a", "Erfinv", ["x"]),
        op("b", "Digamma", ["x"]),
        op("c", "Digamma", ["x"]),
        op("y", "AddN", ["a", "b", "c"]),
    ]
    with pytest.raises(UnsupportedError) as caught:
        model(Graph(nodes), ["x"], ["y"])
    message = str(caught.value)
    assert "Erfinv 'a': LiteRT has no such operator" in message
    assert "Digamma 'b'" in message
    assert "AddN" not in message


def test_hint_asks_for_shapes_of_inputs_of_unknown_rank() -> None:
    nodes = [feed("x", None), op("y", "Erfinv", ["x"])]
    with pytest.raises(UnsupportedError) as caught:
        model(Graph(nodes), ["x"], ["y"])
    assert caught.value.hint.startswith(f"{GIVE_SHAPES} (x); else ")
    with pytest.raises(UnsupportedError) as caught:
        model(Graph([feed("x", None, DType.STRING), *nodes[1:]]), ["x"], ["y"])
    assert "give the shape" not in caught.value.hint


def test_unknown_inputs_are_refused() -> None:
    with pytest.raises(UsageError, match="'picture' is not in the graph"):
        model(network(), ["picture"], ["probabilities"])
    with pytest.raises(UsageError, match="placeholder 'image', which is not an input"):
        model(network(), [], ["probabilities"])


def test_graph_is_cut_at_inner_tensors() -> None:
    record = model(network(), ["relu1"], ["relu2"], {"relu1": (1, 4, 4, 4)})
    assert codes(record) == ["DEPTHWISE_CONV_2D"]


def test_file_identifier_and_alignment_of_buffers() -> None:
    content = model_bytes(model(network(), ["image"], ["probabilities"]))
    assert bytes(content[4:8]) == b"TFL3"
    for weights in (numbers(4, seed=5), numbers(5, seed=12)):
        assert bytes(content).index(weights.tobytes()) % ALIGNMENT == 0


def test_files_of_2_gib_are_refused() -> None:
    # The same object many times: a large file in little memory.
    record = ModelRecord((), (bytes(1 << 20),) * ((MAX_BYTES >> 20) + 1))
    with pytest.raises(ArtifactError, match="less than 2 GiB"):
        model_bytes(record, "big.tflite")


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "import hashlib\n"
        "from tests.litert.test_convert import network\n"
        "from tests.litert.graphs import model\n"
        "from mobileprep.formats.tflite.writer import model_bytes\n"
        "content = model_bytes(model(network(), ['image'], ['probabilities']))\n"
        "print(hashlib.sha256(content).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ".", "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_sizes_computed_in_float64_are_constant() -> None:
    """LiteRT has no float64 division."""
    kinds = {"SrcT": DType.INT32, "DstT": DType.DOUBLE}
    nodes = [
        feed("x", (6, 4)),
        op("sizes", "Shape", ["x"], T=DType.FLOAT, out_type=DType.INT32),
        op("exact", "Cast", ["sizes"], **kinds),
        constant("half", Tensor.of(np.array([0.5, 2.0]))),
        op("scaled", "Mul", ["exact", "half"], T=DType.DOUBLE),
        op("whole", "Cast", ["scaled"], SrcT=DType.DOUBLE, DstT=DType.INT32),
        op("y", "Reshape", ["x", "whole"], T=DType.FLOAT),
    ]
    assert codes(model(Graph(nodes), ["x"], ["y"])) == ["RESHAPE"]


def test_op_with_too_few_inputs_is_refused() -> None:
    nodes = [feed("x", (6, 4)), op("y", "Add", ["x"], T=DType.FLOAT)]
    with pytest.raises(InvalidGraphError, match=r"'y' \(Add\) takes 1 tensors, not 2"):
        model(Graph(nodes), ["x"], ["y"])


def test_second_output_of_max_pool_with_argmax_can_be_fetched(tmp_path: Path) -> None:
    window: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    graph = Graph(
        [
            feed("x", (1, 4, 4, 1)),
            op("y", "MaxPoolWithArgmax", ["x"], Targmax=DType.INT64, **window),
        ]
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(model_bytes(model(graph, ["x"], ["y", "y:1"])))
    assert read_tflite(path).outputs == ("y", "y_1")
