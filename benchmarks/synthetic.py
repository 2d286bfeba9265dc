"""Long graphs for benchmarks: for each transform, a chain of the patterns that it matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_function_ref, parse_ref
from mobileprep.graph.statistics import ChannelStatistics, with_statistics
from mobileprep.graph.tensor import Tensor

CHANNELS = 4
INPUT, OUTPUT = "input", "output"

Unit = Callable[[str, str, int], Sequence[Node]]
"""``name prefix, input tensor, index of the unit -> nodes``; the last node is the output."""


@dataclass(frozen=True)
class Case:
    """Input of a transform.

    Args:
        unit: creates one unit of the chain.
        options: options of the transform.
        shared: nodes outside of the chain that units may use.
        library: functions that units call.
        stored: orders the nodes of the graph.
        log: returns the line of a unit in the file of ``min_max_log_file``, by name prefix.
    """

    unit: Unit
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: tuple[Node, ...] = ()
    library: Library | None = None
    stored: Callable[[Sequence[Node]], Sequence[Node]] = tuple
    log: Callable[[str], str] | None = None


def chain_of(case: Case, size: int) -> tuple[Graph, int]:
    """Create a graph of at least ``size`` nodes; return it with the number of its units."""
    nodes = [_node(INPUT, "Placeholder", dtype=DType.FLOAT, shape=attr.shape((1, 8, 8, 4)))]
    nodes += case.shared
    source = INPUT
    for number in count():
        if len(nodes) >= size - 1:
            break
        nodes += case.unit(f"block{number}", source, number)
        source = nodes[-1].name
    nodes.append(_node(OUTPUT, "Identity", source, T=DType.FLOAT))
    return Graph(case.stored(nodes), case.library), number


def options_of(case: Case, units: int, folder: Path) -> dict[str, Any]:
    """Return the options of a case, and write its log of ranges if it has one."""
    if case.log is None:
        return dict(case.options)
    path = folder / "ranges.log"
    path.write_text("\n".join(case.log(f"block{i}") for i in range(units)))
    return {**case.options, "min_max_log_file": str(path)}


def _node(name: str, op: str, inputs: str = "", **attrs: Any) -> Node:  # noqa: ANN401 - see _attr
    refs = tuple(parse_ref(text) for text in inputs.split())
    return Node(name, op, refs, attrs={k: _attr(v) for k, v in attrs.items()})


def _attr(value: Any) -> AttrValue:  # noqa: ANN401 - converted by type
    if isinstance(value, AttrValue):
        return value
    makers: dict[type, Callable[[Any], AttrValue]] = {
        bool: attr.boolean,
        int: attr.integer,
        float: attr.floating,
        str: attr.string,
        tuple: lambda values: attr.integers(*values),
    }
    return attr.dtype(value) if isinstance(value, DType) else makers[type(value)](value)


def _const(name: str, values: Any, kind: type[np.generic] = np.float32) -> Node:  # noqa: ANN401
    return constant(name, Tensor.packed(np.asarray(values, kind)))


def _some(number: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return values between 0.5 and 1.5 that differ between units."""
    flat = np.arange(np.prod(shape), dtype=np.float32) * np.float32(0.37) + np.float32(number)
    return np.asarray(np.sin(flat) / 2 + 1, np.float32).reshape(shape)


def _conv(name: str, inputs: str, **attrs: Any) -> Node:  # noqa: ANN401 - see _attr
    given = {"strides": (1, 1, 1, 1), "padding": "SAME", "data_format": "NHWC", **attrs}
    return _node(name, "Conv2D", inputs, T=DType.FLOAT, **given)


def _layer(p: str, source: str, number: int) -> list[Node]:
    weights = _const(f"{p}/weights", _some(number, 1, 1, CHANNELS, CHANNELS))
    return [weights, _conv(f"{p}/conv", f"{source} {p}/weights")]


def _relu(p: str, source: str, number: int) -> list[Node]:
    return [_node(f"{p}/relu", "Relu", source, T=DType.FLOAT)]


def _with_device(p: str, source: str, number: int) -> list[Node]:
    return [Node(f"{p}/relu", "Relu", (parse_ref(source),), "/gpu:0", {"T": _attr(DType.FLOAT)})]


def _few_attributes(p: str, source: str, number: int) -> list[Node]:
    weights, _ = _layer(p, source, number)
    attrs = {"T": DType.FLOAT, "strides": (1, 1, 1, 1), "padding": "SAME"}
    return [weights, _node(f"{p}/conv", "Conv2D", f"{source} {p}/weights", **attrs)]


def _concat(p: str, source: str, number: int) -> list[Node]:
    axis = _const(f"{p}/axis", 1, np.int32)
    concat = _node(
        f"{p}/concat", "ConcatV2", f"{source} {source} {p}/axis", T=DType.FLOAT, N=2,
        Tidx=DType.INT32,
    )  # fmt: skip
    return [axis, concat]


def _tensor_array(p: str, source: str, number: int) -> list[Node]:
    array, write = f"{p}/array", f"{p}/write"
    return [
        _const(f"{p}/size", 1, np.int32),
        _node(array, "TensorArrayV3", f"{p}/size", dtype=DType.FLOAT),
        _node(write, "TensorArrayWriteV3", f"{array} {p}/size {source} {array}:1", T=DType.FLOAT),
        _node(f"{p}/read", "TensorArrayReadV3", f"{array} {p}/size {write}", dtype=DType.FLOAT),
    ]


def _atrous(p: str, source: str, number: int) -> list[Node]:
    types = {"T": DType.FLOAT, "Tblock_shape": DType.INT32}
    before, after = f"{source} {p}/block {p}/paddings", f"{p}/conv {p}/block_after {p}/crops"
    return [
        _const(f"{p}/block", [2, 2], np.int32),
        _const(f"{p}/block_after", [2, 2], np.int32),
        _const(f"{p}/paddings", [[2, 2], [2, 2]], np.int32),
        _const(f"{p}/crops", [[0, 0], [0, 0]], np.int32),
        _const(f"{p}/weights", _some(number, 3, 3, 1, 1)),
        _node(f"{p}/to_batch", "SpaceToBatchND", before, Tpaddings=DType.INT32, **types),
        _conv(f"{p}/conv", f"{p}/to_batch {p}/weights", padding="VALID"),
        _node(f"{p}/from_batch", "BatchToSpaceND", after, Tcrops=DType.INT32, **types),
    ]


def _scaled_layer(p: str, source: str, number: int) -> list[Node]:
    factors = _const(f"{p}/factors", _some(number, CHANNELS))
    mul = _node(f"{p}/mul", "Mul", f"{p}/conv {p}/factors", T=DType.FLOAT)
    return [*_layer(p, source, number), factors, mul]


def _scaled_and_shifted_layer(p: str, source: str, number: int) -> list[Node]:
    offsets = _const(f"{p}/offsets", _some(number, CHANNELS))
    add = _node(f"{p}/add", "Add", f"{p}/mul {p}/offsets", T=DType.FLOAT)
    return [*_scaled_layer(p, source, number), offsets, add]


def _normed_layer(p: str, source: str, number: int) -> list[Node]:
    names = [f"{p}/{what}" for what in ("gamma", "beta", "mean", "variance")]
    norm = _node(
        f"{p}/norm", "FusedBatchNorm", " ".join([f"{p}/conv", *names]), T=DType.FLOAT,
        epsilon=0.001, is_training=False, data_format="NHWC",
    )  # fmt: skip
    statistics = [_const(name, _some(number, CHANNELS)) for name in names]
    return [*_layer(p, source, number), *statistics, norm]


def _keras_normed_layer(p: str, source: str, number: int) -> list[Node]:
    """Return a layer with the arithmetic of ``tf.nn.batch_normalization``."""
    names = ("gamma", "beta", "mean", "variance")
    t = {"T": DType.FLOAT}
    return [
        *_layer(p, source, number),
        *(_const(f"{p}/{name}", _some(number, CHANNELS)) for name in names),
        _const(f"{p}/epsilon", 0.001),
        _node(f"{p}/sum", "AddV2", f"{p}/variance {p}/epsilon", **t),
        _node(f"{p}/rsqrt", "Rsqrt", f"{p}/sum", **t),
        _node(f"{p}/scale", "Mul", f"{p}/rsqrt {p}/gamma", **t),
        _node(f"{p}/scaled", "Mul", f"{p}/conv {p}/scale", **t),
        _node(f"{p}/shift", "Mul", f"{p}/mean {p}/scale", **t),
        _node(f"{p}/offset", "Sub", f"{p}/beta {p}/shift", **t),
        _node(f"{p}/out", "AddV2", f"{p}/scaled {p}/offset", **t),
    ]


def _either_norm(p: str, source: str, number: int) -> list[Node]:
    make = _keras_normed_layer if number % 2 else _normed_layer
    return make(p, source, number)


def _resized(p: str, source: str, number: int) -> list[Node]:
    size = _const(f"{p}/size", [8, 8], np.int32)
    resize = _node(f"{p}/resize", "ResizeBilinear", f"{source} {p}/size", T=DType.FLOAT)
    return [size, resize, *_layer(p, f"{p}/resize", number)]


def _padded(p: str, source: str, number: int) -> list[Node]:
    return [*_pad(p, source), *_layer(p, f"{p}/pad", number)]


def _resized_and_padded(p: str, source: str, number: int) -> list[Node]:
    size, resize, *_ = _resized(p, source, number)
    return [size, resize, *_padded(p, f"{p}/resize", number)]


def _pad(p: str, source: str) -> list[Node]:
    paddings = _const(f"{p}/paddings", [[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
    attrs = {"T": DType.FLOAT, "Tpaddings": DType.INT32, "mode": "REFLECT"}
    return [paddings, _node(f"{p}/pad", "MirrorPad", f"{source} {p}/paddings", **attrs)]


def _computed_constant(p: str, source: str, number: int) -> list[Node]:
    t = {"T": DType.FLOAT}
    return [
        _const(f"{p}/first", _some(number, CHANNELS)),
        _const(f"{p}/second", _some(number + 1, CHANNELS)),
        _node(f"{p}/read", "Identity", f"{p}/first", **t),
        _node(f"{p}/product", "Mul", f"{p}/read {p}/second", **t),
        _node(f"{p}/add", "Add", f"{source} {p}/product", **t),
    ]


def _measured_range(p: str, source: str, number: int) -> list[Node]:
    low, high = f"{p}/low", f"{p}/high"
    bias, wide, measured, narrow = (f"{p}/{n}" for n in ("bias", "wide", "range", "narrow"))
    eight = {"T1": DType.QUINT8, "T2": DType.QUINT8, "out_type": DType.QINT32}
    first = f"{source} {low} {high}"
    types = {"Tinput": DType.QINT32}
    return [
        _const(low, -1.0),
        _const(high, 1.0),
        _node(f"{p}/eight", "QuantizeV2", first, T=DType.QUINT8, mode="MIN_FIRST"),
        constant(bias, Tensor.packed(np.zeros(CHANNELS, np.uint8), DType.QUINT8)),
        _node(
            wide, "QuantizedBiasAdd",
            f"{p}/eight {bias} {p}/eight:1 {p}/eight:2 {low} {high}", **eight,
        ),
        _node(measured, "RequantizationRange", f"{wide} {wide}:1 {wide}:2", **types),
        _node(
            narrow, "Requantize", f"{wide} {wide}:1 {wide}:2 {measured} {measured}:1",
            out_type=DType.QUINT8, **types,
        ),
        _node(
            f"{p}/float", "Dequantize", f"{narrow} {narrow}:1 {narrow}:2",
            T=DType.QUINT8, mode="MIN_FIRST",
        ),
    ]  # fmt: skip


def _range_line(p: str) -> str:
    return f";{p}/range__print__;__requant_min_max:[-1.5][2.5]"


def _remote(p: str, source: str, number: int) -> list[Node]:
    neg = _node(f"{p}/neg", "Neg", source, T=DType.FLOAT)
    return [neg, *_relu(p, f"{p}/neg", number)]


def _call(p: str, source: str, number: int) -> list[Node]:
    types = AttrValue("list(type)", (DType.FLOAT,))
    function = AttrValue("func", FuncRef("twice"))
    return [_node(f"{p}/call", "PartitionedCall", source, f=function, Tin=types, Tout=types)]


def _called() -> Library:
    argument, result = ArgDef("a", DType.FLOAT), ArgDef("sum", DType.FLOAT)
    refs = (parse_function_ref("a"), parse_function_ref("a"))
    body = Node("add", "AddV2", refs, attrs={"T": attr.dtype(DType.FLOAT)})
    signature = OpDef("twice", (argument,), (result,))
    return Library({"twice": Function(signature, (body,), {"sum": parse_function_ref("add:z:0")})})


def _twins(p: str, source: str, number: int) -> list[Node]:
    """Return two equal nodes, which are detected only after their inputs are merged."""
    twins = [_node(f"{p}/{name}", "Relu", source, T=DType.FLOAT) for name in ("a", "b")]
    return [*twins, _node(f"{p}/add", "Add", f"{p}/a {p}/b", T=DType.FLOAT)]


def _two_branches(p: str, source: str, number: int) -> list[Node]:
    """Return a unit of two parallel chains with equal nodes."""
    before = ("a", "b") if number else None
    sources = [f"block{number - 1}/{b}" for b in before] if before else [source, source]
    return [
        _node(f"{p}/{name}", "Relu", s, T=DType.FLOAT)
        for name, s in zip(("b", "a"), reversed(sources), strict=True)
    ]


def _quantizable(p: str, source: str, number: int) -> list[Node]:
    bias = _const(f"{p}/bias", _some(number, CHANNELS))
    t = {"T": DType.FLOAT}
    nodes = [
        *_layer(p, source, number),
        bias,
        _node(f"{p}/sum", "BiasAdd", f"{p}/conv {bias.name}", **t),
    ]
    if number % 2:
        return [*nodes, *_relu(p, f"{p}/sum", number)]
    low, high = _const(f"{p}/low", -1.0), _const(f"{p}/high", 6.0)
    inputs = f"{p}/relu {low.name} {high.name}"
    fake = _node(f"{p}/fake", "FakeQuantWithMinMaxVars", inputs, num_bits=8)
    return [*nodes, *_relu(p, f"{p}/sum", number), low, high, fake]


def _with_statistics(p: str, source: str, number: int) -> list[Node]:
    """Return a layer whose channel statistics are far above zero."""
    bias = _const(f"{p}/bias", _some(number, CHANNELS) + 9)
    total = _node(f"{p}/sum", "BiasAdd", f"{p}/conv {bias.name}", T=DType.FLOAT)
    means, deviations = np.full(CHANNELS, 10.0), np.full(CHANNELS, 0.1)
    told = with_statistics(total, ChannelStatistics(means, deviations))
    return [*_layer(p, source, number), bias, told, *_relu(p, total.name, number)]


def _activated_layer(p: str, source: str, number: int) -> list[Node]:
    """Return a layer whose channels have different ranges."""
    weights = _some(number, 1, 1, CHANNELS, CHANNELS) * np.float32(3) ** np.arange(CHANNELS)
    kernel = _const(f"{p}/weights", weights)
    return [kernel, _conv(f"{p}/conv", f"{source} {kernel.name}"), *_relu(p, f"{p}/conv", number)]


def _one_far_weight(p: str, source: str, number: int) -> list[Node]:
    weights = np.random.default_rng(number).standard_normal((1, 1, CHANNELS, CHANNELS))
    weights[0, 0, 0, 0] = 40
    kernel = _const(f"{p}/weights", weights)
    return [kernel, _conv(f"{p}/conv", f"{source} {kernel.name}")]


def _picture(p: str, source: str, number: int) -> list[Node]:
    """Return a constant that is large enough to compensate for its decoding nodes."""
    value = _const(f"{p}/value", _some(number, 2, 8, 8, CHANNELS))
    return [value, _node(f"{p}/add", "Add", f"{source} {value.name}", T=DType.FLOAT)]


def _conditional(p: str, source: str, number: int) -> list[Node]:
    t = {"T": DType.FLOAT}
    return [
        _node(f"{p}/switch", "Switch", f"{source} phase", **t),
        _node(f"{p}/off", "Neg", f"{p}/switch", **t),
        _node(f"{p}/on", "Relu", f"{p}/switch:1", **t),
        _node(f"{p}/merge", "Merge", f"{p}/off {p}/on", N=2, **t),
    ]


def _newer_ops(p: str, source: str, number: int) -> list[Node]:
    add = _node(f"{p}/add", "AddV2", f"{source} {INPUT}", T=DType.FLOAT)
    return [add, _node(f"{p}/checked", "CheckNumericsV2", add.name, T=DType.FLOAT, message="add")]


def _waiting(p: str, source: str, number: int) -> list[Node]:
    waits = "" if source == INPUT else f" ^{source}"
    return [
        _node(f"{p}/before", "NoOp", f"^{source}"),
        _node(f"{p}/add", "Add", f"{source} {INPUT} ^{p}/before{waits}", T=DType.FLOAT),
    ]


def _dropout(p: str, source: str, number: int) -> list[Node]:
    t = {"T": DType.FLOAT}
    return [
        _const(f"{p}/shape", [1, 8, 8, 4], np.int32),
        _node(f"{p}/random", "RandomUniform", f"{p}/shape", T=DType.INT32, dtype=DType.FLOAT),
        _const(f"{p}/rate", 0.25),
        _const(f"{p}/scale", 4 / 3),
        _node(f"{p}/kept", "GreaterEqual", f"{p}/random {p}/rate", **t),
        _node(f"{p}/mask", "Cast", f"{p}/kept", SrcT=DType.BOOL, DstT=DType.FLOAT),
        _node(f"{p}/scaled", "Mul", f"{source} {p}/scale", **t),
        _node(f"{p}/dropped", "Mul", f"{p}/scaled {p}/mask", **t),
        _node(f"{p}/relu", "Relu", f"{p}/dropped", **t),
    ]


def _moving_average(p: str, source: str, number: int) -> list[Node]:
    t = {"T": DType.FLOAT}
    return [
        _const(f"{p}/min", -1.0),
        _const(f"{p}/max", 1.0),
        _const(f"{p}/axes", [0, 1, 2, 3], np.int32),
        _node(f"{p}/least", "Min", f"{source} {p}/axes", Tidx=DType.INT32, **t),
        _node(f"{p}/gap", "Sub", f"{p}/min {p}/least", **t),
        _node(f"{p}/update", "AssignSub", f"{p}/min {p}/gap", **t),
        _node(f"{p}/passed", "Identity", f"{p}/update", **t),
        _node(
            f"{p}/fake", "FakeQuantWithMinMaxVars", f"{source} {p}/passed {p}/max", num_bits=8
        ),
    ]  # fmt: skip


def _no_ops(p: str, source: str, number: int) -> list[Node]:
    t = {"T": DType.FLOAT}
    return [
        _node(f"{p}/relu", "Relu", source, **t),
        _node(f"{p}/identity", "Identity", f"{p}/relu", **t),
        _const(f"{p}/order", [0, 3, 1, 2], np.int32),
        _const(f"{p}/back", [0, 2, 3, 1], np.int32),
        _node(f"{p}/first", "Transpose", f"{p}/identity {p}/order", Tperm=DType.INT32, **t),
        _node(f"{p}/second", "Transpose", f"{p}/first {p}/back", Tperm=DType.INT32, **t),
        _const(f"{p}/flat", [1, 256], np.int32),
        _const(f"{p}/whole", [1, 8, 8, 4], np.int32),
        _node(f"{p}/flattened", "Reshape", f"{p}/second {p}/flat", Tshape=DType.INT32, **t),
        _node(f"{p}/out", "Reshape", f"{p}/flattened {p}/whole", Tshape=DType.INT32, **t),
    ]


def _identities(p: str, source: str, number: int) -> list[Node]:
    first = _node(f"{p}/first", "Identity", source, T=DType.FLOAT)
    second = _node(f"{p}/second", "CheckNumerics", first.name, T=DType.FLOAT)
    return [first, second, *_relu(p, second.name, number)]


def _common(p: str, source: str, number: int) -> list[Node]:
    """Return a node that uses the node shared by all units."""
    return [_node(f"{p}/add", "Add", f"{source} common", T=DType.FLOAT)]


def _rounded(p: str, source: str, number: int) -> list[Node]:
    weights = _const(f"{p}/weights", _some(number, CHANNELS, CHANNELS))
    return [weights, _node(f"{p}/add", "Add", f"{source} {weights.name}", T=DType.FLOAT)]


def _same_constant(p: str, source: str, number: int) -> list[Node]:
    """Return one of seven constants."""
    value = _const(f"{p}/value", _some(number % 7, CHANNELS))
    return [value, _node(f"{p}/add", "Add", f"{source} {value.name}", T=DType.FLOAT)]


def _look_up(p: str, source: str, number: int) -> list[Node]:
    table, read = f"{p}/table", f"{p}/read"
    column = np.zeros((8, 1), np.float32)
    column[number % 8] = 1
    types = {"Tparams": DType.FLOAT, "Tindices": DType.INT64}
    return [
        _const(table, column),
        _node(read, "Identity", table, T=DType.FLOAT),
        _node(f"{p}/ids", "Cast", source, SrcT=DType.FLOAT, DstT=DType.INT64),
        _node(f"{p}/gather", "Gather", f"{read} {p}/ids", **types),
    ]


def _unused_branch(p: str, source: str, number: int) -> list[Node]:
    unused = _node(f"{p}/unused", "Neg", source, T=DType.FLOAT)
    rest = _node(f"{p}/rest", "Abs", unused.name, T=DType.FLOAT)
    return [unused, rest, *_relu(p, source, number)]


def _anything(p: str, source: str, number: int) -> list[Node]:
    units = (_either_norm, _no_ops, _dropout, _computed_constant, _scaled_and_shifted_layer)
    return list(units[number % len(units)](p, source, number // len(units)))


def _mixed_up(nodes: Sequence[Node]) -> Sequence[Node]:
    order = np.random.default_rng(0).permutation(len(nodes))
    return [nodes[i] for i in order]


_SMALL = {"minimum_size": CHANNELS * CHANNELS}
_REMOTE = {"remote_fused_graph_executor_name": "runner", "remote_fused_graph_node_name": "part"}

CASES: Mapping[str, Case] = {
    "absorb_high_biases": Case(_with_statistics),
    "add_default_attributes": Case(_few_attributes),
    "backport_concatv2": Case(_concat),
    "backport_tensor_array_v3": Case(_tensor_array),
    "cast_weights": Case(_layer, _SMALL),
    "choose_inference": Case(
        _conditional,
        shared=(
            constant("inference", Tensor.of(np.asarray(True))),
            _node(
                "phase",
                "PlaceholderWithDefault",
                "inference",
                dtype=DType.BOOL,
                shape=attr.shape(()),
            ),
        ),
    ),
    "clip_weights": Case(_one_far_weight, {"bits": 4, **_SMALL}),
    "correct_bias": Case(_with_statistics, {"bits": 2, **_SMALL}),
    "downgrade": Case(_newer_ops),
    "equalize_ranges": Case(_activated_layer),
    "flatten_atrous_conv": Case(_atrous),
    "fold_batch_norms": Case(_scaled_layer),
    "fold_constants": Case(_computed_constant),
    "fold_old_batch_norms": Case(_normed_layer),
    "freeze_requantization_ranges": Case(_measured_range, log=_range_line),
    "fuse_batch_norms": Case(_either_norm),
    "fuse_pad_and_conv": Case(_padded),
    "fuse_remote_graph": Case(_remote, {"fused_op_types": "Neg", **_REMOTE}),
    "fuse_resize_and_conv": Case(_resized),
    "fuse_resize_pad_and_conv": Case(_resized_and_padded),
    "inline_partitionedcall": Case(_call, library=_called()),
    "insert_logging": Case(_relu, {"op": ("Relu",), "show_name": True}),
    "linear_quantize_weights": Case(_picture, _SMALL),
    "merge_duplicate_nodes": Case(_twins),
    "merge_scale_and_bias": Case(_scaled_and_shifted_layer),
    "obfuscate_names": Case(_relu),
    "optimize": Case(_anything),
    "place_remote_graph_arguments": Case(_remote, {"fused_op_types": "Neg", **_REMOTE}),
    "quantize_nodes": Case(_quantizable),
    "quantize_weights": Case(_layer, _SMALL),
    "raise_control_flow": Case(
        _conditional,
        shared=(_node("phase", "Placeholder", dtype=DType.BOOL, shape=attr.shape(())),),
    ),
    "remove_attribute": Case(_relu, {"attribute_name": "T", "op_name": "Relu"}),
    "remove_control_dependencies": Case(_waiting),
    "remove_device": Case(_with_device),
    "remove_dropout": Case(_dropout),
    "remove_ema": Case(_moving_average),
    "remove_no_ops": Case(_no_ops),
    "remove_nodes": Case(_identities, {"op": ("Identity", "CheckNumerics")}),
    "rename_attribute": Case(
        _relu, {"old_attribute_name": "T", "new_attribute_name": "U", "op_name": "Relu"}
    ),
    "rename_node": Case(
        _common,
        {"old_node_name": "common", "new_node_name": "renamed"},
        shared=(_const("common", 1.0),),
    ),
    "rename_op": Case(_relu, {"old_op_name": "Relu", "new_op_name": "Relu6"}),
    "round_weights": Case(_rounded),
    "set_device": Case(_relu, {"device": "/cpu:0"}),
    "share_constants": Case(_same_constant),
    "sort_by_execution_order": Case(_relu, stored=_mixed_up),
    "sparsify_gather": Case(_look_up),
    "strip_unused_nodes": Case(_unused_branch),
}
