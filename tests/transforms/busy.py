"""A graph with something for every transform, and the options that make each find it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_function_ref
from tests.transforms.graphs import const, conv, node, normal, placeholder

VERSIONS = Versions(producer=134, min_consumer=12, bad_consumers=(21,))
INPUTS = ("x", "ids")
OUTPUTS = ("out", "table", "requantized", "value")
FLOATS_TWICE = AttrValue("func", FuncRef("twice", {"T": attr.dtype(DType.FLOAT)}))
SAMPLES = {"data": "samples.npz"}
LOG = ";range__print__;__requant_min_max:[-1.5][2.5]\n"

OPTIONS: dict[str, dict[str, Any]] = {
    "absorb_high_biases": SAMPLES,
    "align_with_previous": {"previous": "previous.pb", "steps": 255},
    "cast_weights": {"minimum_size": 16},
    "clip_weights": {"minimum_size": 16, "bits": 2},
    "correct_bias": {**SAMPLES, "minimum_size": 16},
    "reconstruct_weights": SAMPLES,
    "freeze_requantization_ranges": {"min_max_log_file": "run.log"},
    "fuse_remote_graph": {
        "fused_nodes": "same",
        "remote_fused_graph_executor_name": "runner",
        "remote_fused_graph_node_name": "part",
    },
    "insert_logging": {"op": ("Relu",)},
    "place_remote_graph_arguments": {
        "fused_nodes": "same",
        "remote_fused_graph_executor_name": "runner",
        "remote_fused_graph_node_name": "part",
    },
    "quantize_weights": {"minimum_size": 16},
    "remove_attribute": {"attribute_name": "data_format"},
    "remove_nodes": {"op": ("Identity",)},
    "rename_attribute": {"old_attribute_name": "data_format", "new_attribute_name": "order"},
    "rename_node": {"old_node_name": "relu", "new_node_name": "rectified"},
    "rename_op": {"old_op_name": "Relu", "new_op_name": "Relu6"},
    "set_device": {"device": "/cpu:0"},
}


def samples() -> dict[str, Any]:
    """What the busy graph may be fed: images and numbers, two of each."""
    return {"x": normal(2, 8, 8, 4), "ids": np.zeros((2, 1), np.int64)}


def busy_graph() -> Graph:
    """A graph with nodes in no particular order, devices and control inputs."""
    parts = ["scaled", "padded", "grown", "both", "sparse", "called", "clipped", "same", "twin"]
    parts.append("chosen")
    nodes = [
        placeholder(),
        *_layers(),
        *_rewritable(),
        *_ranges(),
        *_phases(),
        node("sum", "AddN", " ".join([*parts, "^idle"]), N=len(parts)),
        node("out", "Identity", "sum"),
        node("never", "Neg", "x"),
        node("idle", "NoOp", "", T=None),
    ]
    nodes = [replace(n, device="/gpu:0") if n.op == "Relu" else n for n in nodes]
    return Graph(sorted(nodes, key=lambda n: n.name), _library(), VERSIONS)


def _phases() -> list[Node]:
    """A conditional that goes by a placeholder with a default."""
    return [
        const("training", False, bool),
        node(
            "phase",
            "PlaceholderWithDefault",
            "training",
            T=None,
            dtype=DType.BOOL,
            shape=attr.shape(()),
        ),
        node("branches", "Switch", "x phase"),
        node("trained", "Neg", "branches:1"),
        node("chosen", "Merge", "branches trained", N=2),
    ]


def _layers() -> list[Node]:
    """Layers with each form of batch norm and with what else is folded into weights."""
    vectors = [const(f"{n}{i}", abs(normal(4, seed=i)) + 0.5) for i in range(3) for n in "bmsv"]
    fused = {"is_training": False, "epsilon": 0.001, "data_format": "NHWC"}
    old = {"variance_epsilon": 0.001, "scale_after_normalization": True}
    return [
        *vectors,
        *(const(f"w{i}", normal(3, 3, 4, 4, seed=i)) for i in range(7)),
        conv("layer0", "x w0"),
        node("norm0", "FusedBatchNorm", "layer0 s0 b0 m0 v0", **fused),
        node("relu", "Relu", "norm0"),
        conv("layer1", "relu w1"),
        node("norm1", "BatchNormWithGlobalNormalization", "layer1 m1 v1 b1 s1", **old),
        conv("layer2", "norm1 w2"),
        node("scaled", "Mul", "layer2 s2"),
    ]


def _rewritable() -> list[Node]:
    """What fuses, is backported, removed, folded or merged."""
    paddings = [[0, 0], [1, 1], [1, 1], [0, 0]]
    blocks = {"Tblock_shape": DType.INT32}
    types = {n: AttrValue("list(type)", (DType.FLOAT,)) for n in ("Tin", "Tout")}
    element_shape = AttrValue("shape", (2, 8, 8, 4))
    tensor_array = {"T": None, "dtype": DType.FLOAT, "element_shape": element_shape}
    return [
        const("pads", paddings, np.int32),
        node("pad", "MirrorPad", "x pads", Tpaddings=DType.INT32, mode="REFLECT"),
        conv("padded", "pad w3", padding="VALID"),
        const("size", [8, 8], np.int32),
        node("resize", "ResizeBilinear", "x size", align_corners=False),
        conv("grown", "resize w4"),
        node("resize2", "ResizeBilinear", "x size", align_corners=True),
        node("pad2", "MirrorPad", "resize2 pads", Tpaddings=DType.INT32, mode="REFLECT"),
        conv("both", "pad2 w5", padding="VALID"),
        const("block", [2, 2], np.int32),
        const("border", [[2, 2], [2, 2]], np.int32),
        const("crops", [[0, 0], [0, 0]], np.int32),
        node("apart", "SpaceToBatchND", "x block border", Tpaddings=DType.INT32, **blocks),
        conv("sparser", "apart w6", padding="VALID"),
        node("sparse", "BatchToSpaceND", "sparser block crops", Tcrops=DType.INT32, **blocks),
        node("called", "PartitionedCall", "x", T=None, f=FLOATS_TWICE, **types),
        const("low", -1.0),
        const("high", 1.0),
        const("same_high", 1.0),
        node("updated", "AssignSub", "low same_high"),
        node("clipped", "FakeQuantWithMinMaxVars", "dropped updated high", T=None, num_bits=8),
        const("four", [1, 8, 8, 4], np.int32),
        node("random", "RandomUniform", "four", T=DType.INT32, dtype=DType.FLOAT),
        const("rate", 0.25),
        node("kept", "GreaterEqual", "random rate"),
        node("mask", "Cast", "kept", T=None, SrcT=DType.BOOL, DstT=DType.FLOAT),
        const("scale", 4 / 3),
        node("scaled_up", "Mul", "x scale"),
        node("dropped", "Mul", "scaled_up mask"),
        node("start", "Add", "low high"),
        const("axis", 3, np.int32),
        node("joined", "ConcatV2", "x x axis", N=2, Tidx=DType.INT32),
        node("parts", "Split", "axis joined", num_split=2),
        node("idem", "Identity", "parts:1"),
        node("same", "Mul", "idem start"),
        node("twin", "Mul", "idem start"),
        const("two", 2, np.int32),
        node("array", "TensorArrayV3", "two", **tensor_array),
        const("first", 0, np.int32),
        node("written", "TensorArrayWriteV3", "array first x array:1"),
        node("value", "TensorArrayReadV3", "array first written", T=None, dtype=DType.FLOAT),
    ]


def _ranges() -> list[Node]:
    """Ranges that are measured, and a look-up in mostly zeros."""
    types = {"T": None, "Tinput": DType.QINT32}
    gather = {"T": None, "Tparams": DType.FLOAT, "Tindices": DType.INT64}
    return [
        placeholder("ids", DType.INT64),
        const("column", [[0], [3], [0], [0], [-2]]),
        node("column/read", "Identity", "column"),
        node("table", "Gather", "column/read ids", **gather),
        node("large", "Cast", "x", T=None, SrcT=DType.FLOAT, DstT=DType.QINT32),
        node("range", "RequantizationRange", "large low high", **types),
        node(
            "requantized",
            "Requantize",
            "large low high range range:1",
            **types,
            out_type=DType.QUINT8,
        ),
    ]


def _library() -> Library:
    """twice(a: T) = once(a) + a, once(a: T) = a, and idle, which nothing calls."""
    kind = (AttrDef("T", "type"),)

    def function(name: str, *body: Node, ret: str) -> Function:
        argument, result = ArgDef("a", type_attr="T"), ArgDef("r", type_attr="T")
        signature = OpDef(name, (argument,), (result,), kind)
        return Function(signature, body, {"r": parse_function_ref(ret)})

    def inner(name: str, op: str, inputs: str) -> Node:
        refs = tuple(parse_function_ref(i) for i in inputs.split())
        return Node(name, op, refs, attrs={"T": AttrValue("placeholder", "T")})

    functions = [
        function("twice", inner("o", "once", "a"), inner("s", "Add", "o:r:0 a"), ret="s:z:0"),
        function("once", inner("i", "Identity", "a"), ret="i:output:0"),
        function("idle", inner("n", "Neg", "a"), ret="n:y:0"),
    ]
    return Library({f.name: f for f in functions})


def write_files(folder: Path) -> None:
    """Write the files that the options of some examples name."""
    (folder / "run.log").write_text(LOG)
    write_arrays(folder / "samples.npz", samples())
    write_graph(folder / "previous.pb", Graph([const("w", normal(3, 3, 4, 4, seed=0) + 0.001)]))
