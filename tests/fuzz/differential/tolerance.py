"""Tolerances of outputs, from noise of the size of rounding errors.

The interpreter runs the graph again with noise added to each tensor that a runtime rounds. Some
runs draw the sign of the noise for each element, others for each tensor, because rounding errors of
equal elements are equal. The changes of the outputs are their tolerances. Outputs of a step
function near its step differ from run to run, and are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.bodies import body_of, function_of
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.graph.tensor import Array
from mobileprep.litert.prepare import Prepared
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.litert.graphs import feed, op

RUNS, MANY_RUNS = 16, 200
"""Runs to find suspects, and to confirm them. The first two have noise of one sign; half of the
others draw signs for whole tensors."""
_RELATIVE, _OF_PEAK = 4e-7, 2e-7
"""Rounding of float32 in a runtime: a few units in the last place, and of the largest summand."""
_LOOPS = frozenset(("While", "StatelessWhile"))
_CONTROL_FLOW = frozenset(("While", "StatelessWhile", "If", "StatelessIf"))
_WITHIN = 2e-5
"""Rounding in loops and branches, whose inner tensors get no noise. The reference kernel of
LOGISTIC alone has an error of 1e-5."""
_AROUND_ONE = frozenset(("Softplus", "Log1p", "Expm1", "Xlog1py", "Erf", "Erfc"))
"""Ops that the converter composes of others with inner results near 1, whose precision counts."""
_SUMMANDS = {
    **dict.fromkeys(("Mean", "Sum", "AvgPool", "Cumsum", "EuclideanNorm"), 1),
    **dict.fromkeys(("MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "DepthwiseConv2dNative"), 2),
}
"""Ops that add up elements of their first inputs, or products of these."""
_MARGIN = {"float": 4.0, "int8": 1.5, "int16x8": 1.5}
"""Ratio of the noise to the rounding error of a tensor, since few of all signs are drawn."""
_COUNTS = {"int8": 255, "int16x8": 65534}
_LAST = {"float": 0.0, "int8": 1.5, "int16x8": 4.0}
"""Rounding of an output in steps; the tables of int16 are interpolated."""
_LEAST_SCALE = 1e-10
"""Smaller values are zeros in integers."""
_FIXED = {
    # The table of exp in int16 is off by up to 1.6 steps for each summand of the divisor.
    "Softmax": (1 / 256, 4 / 32768),
    "Sigmoid": (1 / 256, 1 / 32768),
    "Tanh": (1 / 128, 1 / 32768),
    "LogSoftmax": (16 / 256, 0.0),
}
_EQUALITIES = frozenset(("Equal", "NotEqual"))
_APPROXIMATE = frozenset(
    (
        *("ResizeBilinear", "Mean", "AvgPool", "AvgPool3D", "Exp", "Expm1", "Log", "Log1p", "Sqrt"),
        *("Rsqrt", "Reciprocal", "Inv", "Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Softmax", "Erf"),
        *("LogSoftmax", "Softplus", "Softsign", "Elu", "Selu", "Erfc", "Atan2", "Pow", "LRN"),
        *("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "Xdivy", "Xlogy", "Xlog1py"),
        "EuclideanNorm",
    )
)
"""Ops whose results depend on the order or the method of the computation."""
_LAYERS = frozenset(
    ["Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "MatMul", "BatchMatMulV2", "Einsum"]
)
"""Ops whose constants are stored in int8 in all modes."""
_SAME = frozenset(
    (
        *("Maximum", "Minimum", "Select", "SelectV2", "ConcatV2", "Pack", "PadV2", "Pad", "TopKV2"),
        *("MaxPool", "AvgPool", "Max", "Min", "Reshape", "Squeeze", "ExpandDims", "Transpose"),
        *("Unpack", "Split", "SplitV", "MirrorPad", "Slice", "StridedSlice", "GatherV2", "Tile"),
        *("GatherNd", "ResizeNearestNeighbor", "ResizeBilinear", "SpaceToBatchND", "ReverseV2"),
        *("BatchToSpaceND", "BroadcastTo", "SpaceToDepth", "DepthToSpace", "Identity", "Roll"),
        "MatrixBandPart",
    )
)
"""Ops whose integer kernels have one scale for inputs and outputs."""

Steps = Mapping[Edge, float]


def tolerances(
    source: Prepared,
    feeds: Mapping[str, Array],
    mode: str,
    rounded: Sequence[Edge],
    steps: Steps | None,
    runs: int = RUNS,
) -> list[tuple[Array | None, Array | None]]:
    """The value of each output, and the tolerance of its elements; None if any value is accepted.

    Args:
        source: the simplified graph.
        feeds: a value for each of its inputs.
        mode: the mode of conversion.
        rounded: the tensors that are rounded.
        steps: the scale of each tensor in integers, None for a graph in float.
        runs: number of runs.
    """
    limits = _moved(source, source.graph, feeds, mode, rounded, steps, runs)
    nodes = [_ordered(node) for node in source.graph]
    if nodes == list(source.graph):
        return limits
    # Noise does not make close numbers equal, but it may change their order.
    ordered = source.graph.with_nodes(nodes)
    both = zip(limits, _moved(source, ordered, feeds, mode, rounded, steps, runs), strict=True)
    return [(value, _larger(one, two)) for (value, one), (_, two) in both]


def _ordered(node: Node) -> Node:
    is_equality = node.op in _EQUALITIES and node.attr_dtype("T") is DType.FLOAT
    return replace(node, op="Less") if is_equality else node


def _larger(one: Array | None, two: Array | None) -> Array | None:
    if one is None or two is None or one.shape != two.shape:
        return None
    return np.maximum(one, two)


def _moved(
    source: Prepared,
    graph: Graph,
    feeds: Mapping[str, Array],
    mode: str,
    rounded: Sequence[Edge],
    steps: Steps | None,
    runs: int,
) -> list[tuple[Array | None, Array | None]]:
    """Like `tolerances`, for one graph with the names of the source."""
    engine = NumpyEngine(_noisy(graph, rounded), "fuzz")
    outputs = [str(ref) for ref in source.outputs]
    outer = [t for t in rounded if t[0] in graph]
    names = [str(Ref(*t)) for t in outer]
    quiet = {_name(t): np.zeros((), np.float32) for t in rounded}
    with np.errstate(all="ignore"):
        summands = {t: _summands(source.graph[t[0]]) for t in outer}
        more = list(dict.fromkeys(name for refs in summands.values() for name in refs))
        fetched = [*outputs, *names, *more]
        values = dict(zip(fetched, engine.run(fetched, {**feeds, **quiet}), strict=True))
        expected = [values[name] for name in outputs]
        floats = {}
        for t in outer:
            peaks = [float(np.abs(values[name]).max(initial=0)) for name in summands[t]]
            summand = math.prod(peaks) if peaks else 0.0
            size = _float_size(source.graph[t[0]].op, values[str(Ref(*t))], summand)
            floats[t] = _MARGIN[mode] * size
        step_of = steps or {}
        sizes = [
            np.maximum(floats.get(t, 0.0), _MARGIN[mode] * step_of.get(t, 0.0)) for t in rounded
        ]
        random = np.random.default_rng(1)
        moved: list[list[Array]] = []
        for run in range(runs):
            noise = {}
            for t, size in zip(rounded, sizes, strict=True):
                sign = random.choice([-1.0, 1.0], size.shape if run % 2 else ())
                if run < 2:
                    sign = np.float64(1 - 2 * run)
                noise[_name(t)] = np.asarray(size * sign, np.float32)
            moved.append(engine.run(outputs, {**feeds, **noise}))
    results = []
    for i, value in enumerate(expected):
        # The noise of an output does not change the output itself.
        t = edge(source.outputs[i])
        allowed = _allowed(value, [m[i] for m in moved], mode, step_of.get(t, 0.0))
        results.append((value, None if allowed is None else allowed + floats.get(t, 0.0)))
    return results


def _allowed(value: Array, moved: Sequence[Array], mode: str, last: float) -> Array | None:
    if any(m.shape != value.shape for m in moved):
        return None
    if value.dtype.kind != "f":
        changed = np.zeros(value.shape, bool)
        for m in moved:
            changed |= m != value
        return np.where(changed, np.inf, 0.0)
    if not value.size:
        return np.zeros(value.shape)
    away = np.max([np.abs(m.astype(np.float64) - value) for m in moved], axis=0)
    return np.where(np.isnan(away), np.inf, away) + least(value, mode, last)


def least(value: Array, mode: str, last: float) -> Array:
    """The lowest tolerance of an output, for its own rounding."""
    if value.dtype.kind != "f":
        return np.zeros(value.shape)
    peak = float(np.abs(value).max(initial=0))
    return np.full(
        value.shape, (3e-6 if mode == "float" else 1e-5) * peak + _LAST[mode] * last + 1e-30
    )


def _summands(node: Node) -> list[str]:
    """The inputs of a node whose largest values, multiplied, bound its summands."""
    return [str(ref) for ref in node.data_inputs[: _SUMMANDS.get(node.op, 0)]]


def _float_size(kind: str, value: Array, summand: float) -> Array:
    """The size of rounding errors of an op in float32.

    Args:
        kind: the op.
        value: its output.
        summand: an upper bound for the summands of its elements.
    """
    if not value.size:
        return np.zeros(value.shape)
    if kind in _AROUND_ONE:
        summand = max(summand, 1.0)
    relative = _WITHIN if kind in _CONTROL_FLOW else _RELATIVE
    size = relative * np.abs(value) + _OF_PEAK * max(float(np.abs(value).max()), summand)
    if kind in _APPROXIMATE:
        return size
    # Small multiples of a power of two are computed without rounding.
    scaled = value.astype(np.float64) * 1024
    is_exact = (scaled == np.rint(scaled)) & (np.abs(value) < 8192)
    return np.where(is_exact, 0.0, size)


def _name(t: Edge) -> str:
    return f"{t[0]}/noise{t[1]}"


_GROWTH = 2.0
"""Maximum ratio of the scale of a tensor to the needed scale, which avoids rescaling."""


def accepted(own: Steps, file: Steps) -> dict[Edge, float]:
    """The acceptable scales."""
    return {t: max(step, min(file[t], _GROWTH * step)) for t, step in own.items()}


def _noised(t: Edge) -> Ref:
    return Ref(f"{t[0]}/noisy{t[1]}")


def _noisy(graph: Graph, rounded: Sequence[Edge]) -> Graph:
    """The graph with a placeholder for the noise of each of some tensors."""
    targets = {t: _noised(t) for t in rounded if t[0] in graph}
    functions = dict(graph.library.functions)
    nodes = []
    for node in graph:
        inputs = tuple(r if r.is_control else targets.get(edge(r), r) for r in node.inputs)
        changed = replace(node, inputs=inputs)
        inner = [t for t in rounded if t[0] not in graph and t[0].startswith(f"{node.name}/")]
        if inner and node.op in _LOOPS:
            changed = _noisy_loop(graph, changed, inner, functions)
        nodes.append(changed)
    nodes += [feed(_name(t), None) for t in rounded]
    for t, ref in targets.items():
        nodes.append(op(ref.node, "AddV2", [str(Ref(*t)), _name(t)], T=DType.FLOAT))
    return Graph(nodes, Library(functions, graph.library.gradients), graph.versions)


def _noisy_loop(
    graph: Graph, loop: Node, inner: Sequence[Edge], functions: dict[str, Function]
) -> Node:
    """The loop with the noise of tensors of its body as further loop variables."""
    names = {(t[0].removeprefix(f"{loop.name}/"), t[1]): t for t in inner}
    body = body_of(graph.library.functions[loop.attr_func("body").name], graph.library)
    targets = {local: _noised(t) for local, t in names.items()}
    noise = tuple(Ref(_name(t)) for t in inner)
    nodes = [
        replace(n, inputs=tuple(r if r.is_control else targets.get(edge(r), r) for r in n.inputs))
        for n in body.nodes
    ]
    for local, t in names.items():
        nodes.append(op(targets[local].node, "AddV2", [str(Ref(*local)), _name(t)], T=DType.FLOAT))
    rets = tuple(targets.get(edge(r), r) for r in body.rets)
    changed = replace(body, args=(*body.args, *noise), nodes=(*nodes,), rets=(*rets, *noise))
    kinds = (*loop.attr_dtypes("T"), *[DType.FLOAT] * len(noise))
    test = body_of(graph.library.functions[loop.attr_func("cond").name], graph.library)
    test = replace(test, args=(*test.args, *noise))
    attrs = {**loop.attrs, "T": AttrValue("list(type)", kinds)}
    attrs["output_shapes"] = AttrValue("list", ())
    for key, made, ends in (("body", changed, kinds), ("cond", test, (DType.BOOL,))):
        name = f"{loop.name}_noisy_{key}"
        inputs = tuple(ArgDef(r.node, kind) for r, kind in zip(made.args, kinds, strict=True))
        outputs = tuple(ArgDef(f"ret_{i}", kind) for i, kind in enumerate(ends))
        function = Function(OpDef(name, inputs, outputs))
        functions[name] = function_of(made, function, graph.library)
        attrs[key] = AttrValue("func", FuncRef(name))
    return replace(loop, inputs=(*loop.data_inputs, *noise), attrs=attrs)


def loop_tensors(graph: Graph, edges: Collection[Edge], mode: str) -> dict[Edge, float]:
    """The tensors among some that loops compute in their bodies, and the least scale of each.

    Tensors of fixed ranges are added if the body of their loop computes in integers.
    """
    found: dict[Edge, float] = {}
    for loop in graph:
        prefix = f"{loop.name}/"
        inner = [t for t in edges if t[0] not in graph and t[0].startswith(prefix)]
        if loop.op not in _LOOPS or not inner:
            continue
        body = body_of(graph.library.functions[loop.attr_func("body").name], graph.library)
        names = {*(ref.node for ref in body.args), *(node.name for node in body.nodes)}
        found |= {t: 0.0 for t in inner if t[0].removeprefix(prefix) in names}
        fixed = [node for node in body.nodes if node.op in _FIXED]
        found |= {(f"{prefix}{n.name}", 0): _FIXED[n.op][mode != "int8"] for n in fixed}
    return found


def float_tensors(graph: Graph) -> list[Edge]:
    """The float tensors that nodes of a graph compute."""
    edges: list[Edge] = []
    for node in graph:
        definition = signature_of(node)
        if node.op in ("Const", "Placeholder") or definition is None:
            continue
        types = output_types(node, definition)
        edges += [(node.name, i) for i, kind in enumerate(types) if kind is DType.FLOAT]
    return edges


def weights(graph: Graph) -> list[Edge]:
    """The constants that are float."""
    return [(n.name, 0) for n in graph if n.op == "Const" and n.attr_dtype("dtype") is DType.FLOAT]


def own_steps(
    graph: Graph,
    values: Mapping[Edge, Array],
    calibrated: Sequence[Edge],
    within: Steps,
    mode: str,
) -> dict[Edge, float]:
    """The scale that each tensor needs for its own range and for its op.

    Args:
        graph: the calibrated graph.
        values: the values of its tensors.
        calibrated: the tensors whose ranges are measured.
        within: tensors within loops, and the least scale of each.
        mode: the mode of conversion.
    """
    steps = dict(within)
    calibrated_edges = set(calibrated)
    layers = {r.node for node in graph if node.op in _LAYERS for r in node.data_inputs}
    for node in graph:
        input_step = max((steps.get(edge(r), 0.0) for r in node.data_inputs), default=0.0)
        for i in range(8):
            t = (node.name, i)
            if t not in values:
                continue
            step = max(_own(values[t], mode), within.get(t, 0.0))
            if node.op == "Const":
                steps[t] = _own(values[t], "int8") if node.name in layers else step
                continue
            if node.op in _FIXED:
                step = max(step, _FIXED[node.op][mode != "int8"])
            elif node.op in _SAME:
                step = max(step, input_step)
            if t in calibrated_edges or node.op in _FIXED or node.op in _SAME:
                steps[t] = step
        if node.op in ("BiasAdd", "Add", "AddV2"):
            _widen_bias(graph, node, steps)
    return steps


def _widen_bias(graph: Graph, node: Node, steps: dict[Edge, float]) -> None:
    """Set the step of a bias to the product of the steps of the input and the weights."""
    layers = [graph[r.node] for r in node.data_inputs if graph[r.node].op in _LAYERS]
    for ref in node.data_inputs:
        if graph[ref.node].op == "Const" and layers:
            step = np.prod([steps.get(edge(r), 1.0) for r in layers[0].data_inputs[-2:]])
            steps[edge(ref)] = max(steps[edge(ref)], float(step))


def _own(value: Array, mode: str) -> float:
    """The scale that a tensor needs for its range; 0 if all elements are 0."""
    low, high = min(float(value.min(initial=0)), 0.0), max(float(value.max(initial=0)), 0.0)
    if mode != "int8":
        low, high = -max(-low, high), max(-low, high)
    step = (high - low) / _COUNTS[mode]
    return max(step, _LEAST_SCALE) if step else 0.0


def file_steps(record: ModelRecord, own: Mapping[Edge, float]) -> dict[Edge, float]:
    """The largest scale of each tensor in the file, if it is larger than needed."""
    scales: dict[str, float] = {}
    for tensor in record.subgraphs[0].tensors:
        if tensor.quantization is None or tensor.type not in ("INT8", "INT16"):
            continue
        name = tensor.name.split("_int8")[0].split("_int16")[0]
        scales[name] = max(scales.get(name, 0.0), float(tensor.quantization.scales.max()))
    return {t: max(step, scales.get(str(Ref(*t)), 0.0)) for t, step in own.items()}
