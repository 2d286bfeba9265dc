"""Prepare a frozen graph for lowering: cut it between inputs and outputs, then simplify it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, TransformError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.bodies import body_of
from mobileprep.graph.opdefs.definitions import output_types, signature_of, tensor_dtype
from mobileprep.graph.reachability import name_hint, reachable
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.litert.dequantize import QUANTIZED, dequantized
from mobileprep.litert.fills import without_computed_fills
from mobileprep.litert.recurrent import CELLS, without_cells
from mobileprep.litert.recurrent_loops import Prepare, Step
from mobileprep.litert.tables import Tables, no_tables, tables_of
from mobileprep.litert.unrolled_cells import without_unrolled_cells
from mobileprep.litert.whole_sequences import with_whole_sequences
from mobileprep.runtime.functions.inline import CALLS
from mobileprep.transforms.base import Context, make_transform
from mobileprep.transforms.raise_control_flow import RAISED_OPS, needs_raising

# Larger than any weights, so that everything computed from constants is folded.
_FOLDED_BYTES: Final = 1 << 28

_INLINED: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    ("inline_partitionedcall", {"all_calls": True}),
)
_STEPS: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    ("fold_constants", {"max_constant_size_in_bytes": _FOLDED_BYTES}),
    ("flatten_atrous_conv", {}),
    ("optimize", {}),
    ("fold_constants", {"max_constant_size_in_bytes": _FOLDED_BYTES}),
    ("merge_duplicate_nodes", {}),
)
# Checks and prints, which have no effect on outputs.
_CHECKS: Final = frozenset({"Assert", "NoOp", "PrintV2"})


class CutInput(Struct, frozen=True):
    """A tensor to feed.

    Args:
        name: its name in the graph.
        shape: its shape, -1 for unknown sizes; None for the shape in the graph.
        dtype: its dtype; None for the dtype in the graph.
    """

    name: str
    shape: TensorShape = None
    dtype: DType | None = None


class Prepared(Struct, frozen=True):
    """A graph that starts at placeholders and ends at the requested tensors.

    Args:
        graph: the graph.
        inputs: the placeholder of each input, in order.
        outputs: the requested tensors, in order.
        tables: its lookup tables.
        notes: sentences about differences from the original graph.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[Ref, ...]
    tables: Tables = field(default_factory=no_tables)
    notes: tuple[str, ...] = ()


def prepared(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    *,
    open_states: bool = True,
    masks: bool = True,
) -> Prepared:
    """Cut a graph between inputs and outputs, simplify it, and fuse its recurrent cells.

    Args:
        graph: the graph.
        inputs: the tensors to feed.
        outputs: the tensors to fetch.
        open_states: whether to fuse cells whose states have an open size, such as the batch.
        masks: whether to fuse cells that skip masked steps.
    """
    graph = _without_prints(graph)
    refs = tuple(_checked_ref(graph, name, "output") for name in outputs)
    fed = {edge(_checked_ref(graph, spec.name, "input")): spec for spec in inputs}
    cut, names = _cut(graph, fed, refs)
    fetches = tuple(Ref(names[edge(r)]) if edge(r) in names else r for r in refs)
    whole = Prepared(cut, tuple(names.values()), fetches, tables_of(graph))
    done = _simplified(whole, cast_outputs=True)
    step = prepared_step(done)
    # Folded constants may wait for a loop that the next step replaces.
    graph = done.graph.with_nodes(node.with_inputs(node.data_inputs) for node in done.graph)
    graph, refs = with_whole_sequences(
        graph, done.outputs, step, open_states=open_states, masks=masks
    )
    graph, refs = without_unrolled_cells(graph, refs, open_states=open_states)
    return replace(done, graph=without_computed_fills(graph), outputs=refs)


def prepared_step(source: Prepared) -> Prepare:
    """Return how to prepare the functions that the loops of a graph run."""

    def step(name: str, arguments: Sequence[tuple[DType, TensorShape]]) -> Step:
        function = prepared_function(source.graph, name, arguments)
        return Step(function.graph, function.inputs, function.outputs)

    return step


def prepared_function(
    graph: Graph, name: str, arguments: Sequence[tuple[DType, TensorShape]]
) -> Prepared:
    """Return a function of a graph's library as a simplified graph of its own.

    Args:
        graph: the graph with the library.
        name: the name of the function.
        arguments: dtype and shape of each argument.
    """
    function = graph.library.functions.get(name)
    body = None if function is None else body_of(function, graph.library)
    if body is None or len(body.args) != len(arguments):
        message = f"the function {name!r} does not exist, or accepts other arguments"
        raise InvalidGraphError(message, "export the graph again")
    fed = [
        Node(ref.node, "Placeholder", (), "", {"dtype": attr.dtype(d), "shape": attr.shape(s)})
        for ref, (d, s) in zip(body.args, arguments, strict=True)
    ]
    nodes = [n.with_inputs(n.data_inputs) for n in body.nodes if n.op not in _CHECKS]
    source = Graph([*fed, *nodes], graph.library, graph.versions)
    inputs = tuple(node.name for node in fed)
    return _simplified(Prepared(source, inputs, body.rets), cast_outputs=False)


def _simplified(source: Prepared, *, cast_outputs: bool) -> Prepared:
    """Apply transforms, split fused ops, and convert to float32."""
    context = Context(source.inputs, tuple(dict.fromkeys(map(str, source.outputs))))
    graph = _transformed(source.graph, context, _INLINED)
    graph, quantized = dequantized(graph, source.outputs)
    graph = graph.with_nodes(unfused(graph.nodes))
    graph, outputs = without_cells(graph, source.outputs)
    kinds = float_types(graph)
    if kinds:
        graph, outputs = in_float32(graph, outputs, cast_outputs=cast_outputs)
    if outputs != source.outputs:
        context = Context(source.inputs, tuple(dict.fromkeys(map(str, outputs))))
    notes = tuple(
        f"{count} nodes of type {kind.short} compute in float32" for kind, count in kinds.items()
    )
    if quantized:
        notes = (f"{quantized} quantized nodes compute in float32", *notes)
    graph = _transformed(graph, context, _STEPS)
    return replace(source, graph=graph, outputs=outputs, notes=notes)


def _transformed(
    graph: Graph, context: Context, steps: Sequence[tuple[str, dict[str, object]]]
) -> Graph:
    for name, options in steps:
        try:
            graph = make_transform(name, options).apply(graph, context).graph
        except TransformError:
            # The graph is then lowered without this simplification.
            continue
    return graph


def _without_prints(graph: Graph) -> Graph:
    """Replace every Print by an Identity, including those in functions."""
    originals = graph.library.functions
    parts = (graph.nodes, *(function.nodes for function in originals.values()))
    if not any(node.op == "Print" for nodes in parts for node in nodes):
        return graph
    functions = {name: replace(f, nodes=tuple(_passing(f.nodes))) for name, f in originals.items()}
    library = replace(graph.library, functions=functions)
    return Graph(_passing(graph.nodes), library, graph.versions)


def _passing(nodes: Sequence[Node]) -> list[Node]:
    """Replace each Print by an Identity, and remove control dependencies on them."""
    prints = {node.name for node in nodes if node.op == "Print"}

    def passing(node: Node) -> Node:
        waits = [r for r in node.control_inputs if r.node not in prints]
        if node.name not in prints:
            return node.with_inputs((*node.data_inputs, *waits))
        attrs = {key: value for key, value in node.attrs.items() if key == "T"}
        return Node(node.name, "Identity", (*node.data_inputs[:1], *waits), node.device, attrs)

    return [passing(node) for node in nodes]


def _checked_ref(graph: Graph, name: str, what: str) -> Ref:
    ref = parse_ref(name)
    if ref.node not in graph or ref.is_control:
        message = f"the {what} {name!r} is not in the graph"
        raise UsageError(message, name_hint(graph, ref.node, what))
    return ref


def _cut(
    graph: Graph, fed: dict[Edge, CutInput], outputs: Sequence[Ref]
) -> tuple[Graph, dict[Edge, str]]:
    """Return the nodes between inputs and outputs, and the placeholder of each input.

    Loops and conditionals are raised to functions. Then control dependencies are dropped, because a
    frozen graph has no stateful ops whose order matters.
    """
    fresh = FreshNames(n.name for n in graph)
    names: dict[Edge, str] = {}
    placeholders = []
    for source, spec in fed.items():
        whole = source[1] == 0 and graph[source[0]].op in (*PLACEHOLDERS, "PlaceholderWithDefault")
        names[source] = source[0] if whole else fresh.name(f"{source[0]}_{source[1]}")
        placeholders.append(_placeholder(graph, source, spec, names[source]))
    ends = [r for r in outputs if edge(r) not in names]
    if needs_raising(graph):
        switching = _between(graph, placeholders, names, ends, with_controls=True)
        context = Context(tuple(names.values()), tuple(dict.fromkeys(map(str, ends))))
        graph = make_transform("raise_control_flow", {}).apply(switching, context).graph
        fed_before = {(name, 0): name for name in names.values()}
        cut = _between(graph, placeholders, fed_before, ends, with_controls=False)
    else:
        cut = _between(graph, placeholders, names, ends, with_controls=False)
    _check_fed(cut.nodes[len(placeholders) :])
    return cut, names


def _between(
    graph: Graph,
    placeholders: Sequence[Node],
    names: dict[Edge, str],
    ends: Sequence[Ref],
    *,
    with_controls: bool,
) -> Graph:
    """Return the placeholders and the nodes that ``ends`` need besides them."""
    fed_names = {node.name for node in placeholders}
    sources = {Ref(*source) for source in names}
    needed = reachable(graph, [r.node for r in ends], sources, through_control=with_controls)
    retained = {n.name for n in graph if n.name in needed and n.op not in _CHECKS} | fed_names

    def rewired(node: Node) -> Node:
        waits = [r for r in node.control_inputs if with_controls and r.node in retained]
        inputs = [Ref(names[edge(r)]) if edge(r) in names else r for r in node.data_inputs]
        rewired_inputs = (*inputs, *waits)
        return node if rewired_inputs == node.inputs else node.with_inputs(rewired_inputs)

    nodes = [rewired(n) for n in graph if n.name in retained and n.name not in fed_names]
    return graph.with_nodes([*placeholders, *nodes])


def _check_fed(nodes: Sequence[Node]) -> None:
    missing = [node.name for node in nodes if node.op in PLACEHOLDERS]
    if missing:
        message = f"the outputs need the placeholder {missing[0]!r}, which is not an input"
        raise UsageError(message, "name it among the inputs")


def _placeholder(graph: Graph, source: Edge, spec: CutInput, name: str) -> Node:
    node = graph[source[0]]
    shape = spec.shape
    if shape is None and node.op in (*PLACEHOLDERS, "PlaceholderWithDefault"):
        shape = node.attr_shape("shape")
    attrs = {"dtype": attr.dtype(spec.dtype or _type(node, source[1])), "shape": attr.shape(shape)}
    return Node(name, "Placeholder", (), "", attrs)


def _type(node: Node, index: int) -> DType:
    definition = signature_of(node)
    types = [] if definition is None else output_types(node, definition)
    if index >= len(types):
        message = f"the type of the input {node.name}:{index} is not known"
        raise UsageError(message, "cut the graph at another tensor")
    return types[index]


_OTHER: Final = frozenset({DType.HALF, DType.BFLOAT16, DType.DOUBLE})


def float_types(graph: Graph) -> dict[DType, int]:
    """Count the nodes that compute in each floating type other than float32."""
    return dict(
        Counter(
            kind
            for node in graph
            if node.op not in ("Placeholder", "Const")
            for kind in {value.value for value in node.attrs.values() if value.kind == "type"}
            if kind in _OTHER
        )
    )


def in_float32(
    graph: Graph, outputs: Sequence[Ref], *, cast_outputs: bool
) -> tuple[Graph, tuple[Ref, ...]]:
    """Convert a graph to float32.

    Placeholders keep their dtypes and are followed by a Cast.

    Returns:
        The graph and its outputs, which are cast back to their dtypes if ``cast_outputs``.
    """
    fresh = FreshNames(node.name for node in graph)
    fed = {
        (node.name, 0): fresh.name(f"{node.name}/float32")
        for node in graph
        if node.op == "Placeholder" and node.attr_dtype("dtype") in _OTHER
    }
    nodes: list[Node] = []
    for node in graph:
        if (node.name, 0) in fed:
            kind = node.attr_dtype("dtype")
            nodes += [node, _cast(fed[node.name, 0], Ref(node.name), kind, DType.FLOAT)]
            continue
        inputs = tuple(Ref(fed[edge(r)]) if edge(r) in fed else r for r in node.inputs)
        plain = node if inputs == node.inputs else node.with_inputs(inputs)
        nodes.append(_in_float32(plain))
    ends = []
    for ref in outputs:
        before = tensor_dtype(graph, ref)
        if before in _OTHER and before is not None and cast_outputs and edge(ref) not in fed:
            ends.append(Ref(fresh.name(f"{ref.node}/{before.short}")))
            nodes.append(_cast(ends[-1].node, ref, DType.FLOAT, before))
        else:
            ends.append(ref)
    return graph.with_nodes(nodes), tuple(ends)


def _in_float32(node: Node) -> Node:
    if node.op == "Const":
        tensor = node.attr_tensor("value")
        return node if tensor.dtype not in _OTHER else _constant(node, tensor)
    changes = {key: _changed(value) for key, value in node.attrs.items() if _is_other(value)}
    return node.with_attrs(**changes) if changes else node


def _constant(node: Node, tensor: Tensor) -> Node:
    wide = tensor.array().astype(np.float64)
    with np.errstate(over="ignore"):
        values = wide.astype(np.float32)
    if not np.array_equal(np.isfinite(values), np.isfinite(wide)):
        message = f"the constant {node.name!r} has numbers beyond the range of float32"
        raise UnsupportedError(message, "scale it down, or cut the graph behind it")
    return constant(node.name, Tensor.of(values), node.device, node.inputs)


def _is_other(value: AttrValue) -> bool:
    if value.kind == "type":
        return value.value in _OTHER
    return value.kind == "list(type)" and any(kind in _OTHER for kind in value.value)


def _changed(value: AttrValue) -> AttrValue:
    if value.kind == "type":
        return attr.dtype(DType.FLOAT)
    kinds = tuple(DType.FLOAT if kind in _OTHER else kind for kind in value.value)
    return AttrValue(value.kind, kinds)


def _cast(name: str, ref: Ref, before: DType, after: DType) -> Node:
    attrs = {"SrcT": attr.dtype(before), "DstT": attr.dtype(after)}
    return Node(name, "Cast", (ref,), "", attrs)


_CONVOLUTION: Final = ("strides", "padding", "explicit_paddings", "data_format", "dilations")
_PRODUCTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "_FusedConv2D": ("Conv2D", _CONVOLUTION),
    "_FusedDepthwiseConv2dNative": ("DepthwiseConv2dNative", _CONVOLUTION),
    "_FusedMatMul": ("MatMul", ("transpose_a", "transpose_b")),
}
_ACTIVATIONS: Final = frozenset({"Elu", "LeakyRelu", "Relu", "Relu6", "Sigmoid", "Tanh"})
_OPERANDS: Final = {"BiasAdd": 1, "Add": 1, "FusedBatchNorm": 4}
_FILTERS: Final = "HWIO"


def unfused(nodes: Sequence[Node]) -> list[Node]:
    """Split every fused op into plain ops, the last of which keeps the name.

    Ops with an unknown activation or too few inputs are unchanged.
    """
    fresh = FreshNames(node.name for node in nodes)
    result: list[Node] = []
    for node in nodes:
        split = _SPLIT.get(node.op)
        work = _Split(node, fresh)
        result += work.nodes if split is not None and split(work) else [node]
    return result


class _Split:
    """The plain ops of one fused node, in order."""

    def __init__(self, node: Node, fresh: FreshNames) -> None:
        self.node = node
        self.inputs = node.data_inputs
        self._fresh = fresh
        self._nodes: list[Node] = []

    def add(self, op: str, *inputs: Ref, attr_names: Sequence[str] = (), **attrs: AttrValue) -> Ref:
        own = {key: self.node.attrs[key] for key in ("T", *attr_names) if key in self.node.attrs}
        name = self._fresh.name(f"{self.node.name}/{op}")
        self._nodes.append(Node(name, op, inputs, self.node.device, {**own, **attrs}))
        return Ref(name)

    def activate(self, name: str, value: Ref) -> Ref:
        if name != "LeakyRelu":
            return self.add(name, value)
        alpha = attr.floating(self.node.attr_float("leakyrelu_alpha", 0.2))
        return self.add(name, value, alpha=alpha)

    def normalize(self, value: Ref, *statistics: Ref) -> Ref:
        parameters = {"U": attr.dtype(DType.FLOAT), "is_training": attr.boolean(value=False)}
        attr_names = ("epsilon", "data_format")
        return self.add("FusedBatchNormV3", value, *statistics, attr_names=attr_names, **parameters)

    def in_order(self, filters: Ref) -> Ref | None:
        """Return the filters in the order of Conv2D, or None if their order is unknown."""
        order = self.node.attr_str("filter_format", _FILTERS)
        if order == _FILTERS:
            return filters
        if sorted(order) != sorted(_FILTERS):
            return None
        name = self._fresh.name(f"{self.node.name}/permutation")
        axes = np.array([order.index(axis) for axis in _FILTERS], np.int32)
        self._nodes.append(constant(name, Tensor.of(axes)))
        return self.add("Transpose", filters, Ref(name), Tperm=attr.dtype(DType.INT32))

    @property
    def nodes(self) -> list[Node]:
        """The ops; the last has the name and control inputs of the fused node."""
        *before, last = self._nodes
        inputs = (*last.inputs, *self.node.control_inputs)
        return [*before, Node(self.node.name, last.op, inputs, last.device, last.attrs)]


def _product(work: _Split) -> bool:
    op, attr_names = _PRODUCTS[work.node.op]
    if len(work.inputs) < 2:
        return False
    image, filters, *rest = work.inputs
    ordered = work.in_order(filters)
    if ordered is None:
        return False
    value = work.add(op, image, ordered, attr_names=attr_names)
    for name in (fused.decode() for fused in work.node.attr_strings("fused_ops")):
        count = _OPERANDS.get(name, 0)
        if count > len(rest) or not (count or name in _ACTIVATIONS):
            return False
        operands, rest = rest[:count], rest[count:]
        if name == "FusedBatchNorm":
            value = work.normalize(value, *operands)
        elif name == "BiasAdd":
            value = work.add("BiasAdd", value, *operands, attr_names=("data_format",))
        else:
            value = work.add("AddV2", value, *operands) if count else work.activate(name, value)
    return True


def _norm(work: _Split) -> bool:
    activation = work.node.attr_str("activation_mode", "Identity")
    is_known = activation in (*_ACTIVATIONS, "Identity")
    if not is_known or len(work.inputs) < 5 or work.node.attr_bool("is_training", False):
        return False
    image, *statistics = work.inputs[:5]
    value = work.normalize(image, *statistics)
    for side in work.inputs[5:]:
        value = work.add("AddV2", value, side)
    if activation != "Identity":
        work.activate(activation, value)
    return True


def _padded(work: _Split) -> bool:
    is_resized = work.node.op == "FusedResizeAndPadConv2D"
    if len(work.inputs) != (4 if is_resized else 3):
        return False
    image, *sizes, paddings, filters = work.inputs
    if is_resized:
        aligned = attr.boolean(work.node.attr_bool("resize_align_corners", False))
        image = work.add("ResizeBilinear", image, *sizes, align_corners=aligned)
    padded = work.add(
        "MirrorPad", image, paddings, attr_names=("mode",), Tpaddings=attr.dtype(DType.INT32)
    )
    work.add("Conv2D", padded, filters, attr_names=("strides", "padding"))
    return True


_SPLIT: Final[Mapping[str, Callable[[_Split], bool]]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    "_FusedBatchNormEx": _norm,
    **dict.fromkeys(("FusedPadConv2D", "FusedResizeAndPadConv2D"), _padded),
}

REPLACED_OPS: Final = frozenset(
    {"Const", "LoopCond", "Print", "Dequantize"}
    | {*PLACEHOLDERS, *_CHECKS, *RAISED_OPS, *CALLS, *QUANTIZED, *CELLS, *_SPLIT}
)
"""Ops without operators of their own: stored in the file, removed, or replaced by other ops."""
