"""A frozen graph made ready for lowering: cut between its ends, then simplified by transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from mobileprep.errors import InvalidGraphError, TransformError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.control_flow import GATES
from mobileprep.ir.ends import name_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import PLACEHOLDERS
from mobileprep.ir.reachability import reachable
from mobileprep.ir.refs import Edge, Ref, edge, parse_ref
from mobileprep.litert.dequantize import dequantized
from mobileprep.litert.float_types import float_types, in_float32
from mobileprep.litert.recurrent import without_cells
from mobileprep.litert.tables import Tables, no_tables, tables_of
from mobileprep.litert.unfuse import unfused
from mobileprep.opdefs.bodies import body_of
from mobileprep.opdefs.signatures import output_types, signature_of
from mobileprep.transforms.base import Context, make_transform

# Larger than any weights: what follows from constants is constant in the file, too.
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
_RAISED: Final = GATES | {"TensorArrayV3"}
# They decide nothing where nobody looks at an error.
_CHECKS: Final = frozenset({"Assert", "NoOp", "PrintV2"})


@dataclass(frozen=True)
class CutInput:
    """A tensor that is fed.

    Args:
        name: its name in the graph.
        shape: its sizes, -1 for those left open; None for what the graph says.
        dtype: its type; None for what the graph says.
    """

    name: str
    shape: TensorShape = None
    dtype: DType | None = None


@dataclass(frozen=True)
class Prepared:
    """A graph that ends at placeholders and at the tensors wanted.

    Args:
        graph: the graph.
        inputs: the placeholder of each input, in order.
        outputs: the tensors wanted, in order.
        tables: what fills its lookup tables.
        notes: sentences on what differs from the graph as it was given.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[Ref, ...]
    tables: Tables = field(default_factory=no_tables)
    notes: tuple[str, ...] = ()


def prepared(graph: Graph, inputs: Sequence[CutInput], outputs: Sequence[str]) -> Prepared:
    """Cut a graph out between inputs and outputs, and simplify it.

    Raises:
        UsageError: a name is not in the graph, or a placeholder that is needed is no input.
        InvalidGraphError: the graph is malformed.
    """
    graph = _without_prints(graph)
    refs = tuple(_known(graph, name, "output") for name in outputs)
    fed = {edge(_known(graph, spec.name, "input")): spec for spec in inputs}
    cut, names = _cut(graph, fed, refs)
    wanted = tuple(Ref(names[edge(r)]) if edge(r) in names else r for r in refs)
    whole = Prepared(cut, tuple(names.values()), wanted, tables_of(graph))
    return _simplified(whole, cast_outputs=True)


def prepared_function(
    graph: Graph, name: str, given: Sequence[tuple[DType, TensorShape]]
) -> Prepared:
    """A function of a graph's library as a graph of its own, simplified.

    Args:
        graph: has the library.
        name: the function's.
        given: type and shape of each argument.

    Raises:
        InvalidGraphError: the function is not there, or its arguments are not as many.
        UnsupportedError: its body cannot be taken apart.
    """
    function = graph.library.functions.get(name)
    body = None if function is None else body_of(function, graph.library)
    if body is None or len(body.args) != len(given):
        message = f"the function {name!r} is not there, or takes other arguments"
        raise InvalidGraphError(message, "export the graph again")
    fed = [
        Node(ref.node, "Placeholder", (), "", {"dtype": attr.dtype(d), "shape": attr.shape(s)})
        for ref, (d, s) in zip(body.args, given, strict=True)
    ]
    nodes = [n.with_inputs(n.data_inputs) for n in body.nodes if n.op not in _CHECKS]
    source = Graph([*fed, *nodes], graph.library, graph.versions)
    inputs = tuple(node.name for node in fed)
    return _simplified(Prepared(source, inputs, body.rets), cast_outputs=False)


def _simplified(source: Prepared, *, cast_outputs: bool) -> Prepared:
    """The same after the transforms that apply to it, with fused ops split, in float32."""
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
    """A graph in which every Print, also of functions, passes on what it takes, and no more."""
    made = graph.library.functions
    parts = (graph.nodes, *(function.nodes for function in made.values()))
    if not any(node.op == "Print" for nodes in parts for node in nodes):
        return graph
    functions = {name: replace(f, nodes=tuple(_passing(f.nodes))) for name, f in made.items()}
    library = replace(graph.library, functions=functions)
    return Graph(_passing(graph.nodes), library, graph.versions)


def _passing(nodes: Sequence[Node]) -> list[Node]:
    """Nodes with an Identity in place of each Print, for which nothing waits."""
    prints = {node.name for node in nodes if node.op == "Print"}

    def passing(node: Node) -> Node:
        waits = [r for r in node.control_inputs if r.node not in prints]
        if node.name not in prints:
            return node.with_inputs((*node.data_inputs, *waits))
        attrs = {key: value for key, value in node.attrs.items() if key == "T"}
        return Node(node.name, "Identity", (*node.data_inputs[:1], *waits), node.device, attrs)

    return [passing(node) for node in nodes]


def _known(graph: Graph, name: str, what: str) -> Ref:
    ref = parse_ref(name)
    if ref.node not in graph or ref.is_control:
        message = f"the {what} {name!r} is not in the graph"
        raise UsageError(message, name_hint(graph, ref.node, what))
    return ref


def _cut(
    graph: Graph, fed: dict[Edge, CutInput], outputs: Sequence[Ref]
) -> tuple[Graph, dict[Edge, str]]:
    """The nodes between inputs and outputs, and the placeholder of each input.

    Loops and conditionals are raised to functions. Then control dependencies are dropped: a frozen
    graph has nothing whose order matters.
    """
    fresh = FreshNames(n.name for n in graph)
    names: dict[Edge, str] = {}
    placeholders = []
    for source, spec in fed.items():
        whole = source[1] == 0 and graph[source[0]].op in (*PLACEHOLDERS, "PlaceholderWithDefault")
        names[source] = source[0] if whole else fresh.name(f"{source[0]}_{source[1]}")
        placeholders.append(_placeholder(graph, source, spec, names[source]))
    ends = [r for r in outputs if edge(r) not in names]
    if any(node.op in _RAISED for node in graph):
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
    """Placeholders, and the nodes that tensors need besides them."""
    made = {node.name for node in placeholders}
    given = {Ref(*source) for source in names}
    needed = reachable(graph, [r.node for r in ends], given, through_control=with_controls)
    known = {n.name for n in graph if n.name in needed and n.op not in _CHECKS} | made

    def rewired(node: Node) -> Node:
        waits = [r for r in node.control_inputs if with_controls and r.node in known]
        inputs = [Ref(names[edge(r)]) if edge(r) in names else r for r in node.data_inputs]
        taken = (*inputs, *waits)
        return node if taken == node.inputs else node.with_inputs(taken)

    nodes = [rewired(n) for n in graph if n.name in known and n.name not in made]
    return graph.with_nodes([*placeholders, *nodes])


def _check_fed(nodes: Sequence[Node]) -> None:
    missing = [node.name for node in nodes if node.op in PLACEHOLDERS]
    if missing:
        message = f"the outputs need the placeholder {missing[0]!r}, which is no input"
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
