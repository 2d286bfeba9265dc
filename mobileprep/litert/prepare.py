"""A frozen graph made ready for lowering: cut between its ends, then simplified by transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.errors import TransformError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.ends import name_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import PLACEHOLDERS
from mobileprep.ir.reachability import reachable
from mobileprep.ir.refs import Edge, Ref, edge, parse_ref
from mobileprep.opdefs.signatures import output_types, signature_of
from mobileprep.transforms.base import Context, make_transform

# Larger than any weights: what follows from constants is constant in the file, too.
_FOLDED_BYTES: Final = 1 << 28

_STEPS: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    ("inline_partitionedcall", {}),
    ("fold_constants", {"max_constant_size_in_bytes": _FOLDED_BYTES}),
    ("flatten_atrous_conv", {}),
    ("optimize", {}),
    ("fold_constants", {"max_constant_size_in_bytes": _FOLDED_BYTES}),
    ("merge_duplicate_nodes", {}),
)
# They decide nothing where nobody looks at an error.
_CHECKS: Final = frozenset({"Assert", "NoOp", "Print", "PrintV2"})


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
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[Ref, ...]


def prepared(graph: Graph, inputs: Sequence[CutInput], outputs: Sequence[str]) -> Prepared:
    """Cut a graph out between inputs and outputs, and simplify it.

    Raises:
        UsageError: a name is not in the graph, or a placeholder that is needed is no input.
        InvalidGraphError: the graph is malformed.
    """
    refs = tuple(_known(graph, name, "output") for name in outputs)
    fed = {edge(_known(graph, spec.name, "input")): spec for spec in inputs}
    cut, names = _cut(graph, fed, refs)
    wanted = tuple(Ref(names[edge(r)]) if edge(r) in names else r for r in refs)
    context = Context(tuple(names.values()), tuple(dict.fromkeys(map(str, wanted))))
    for name, options in _STEPS:
        try:
            cut = make_transform(name, options).apply(cut, context).graph
        except TransformError:
            # The graph is then lowered without this simplification.
            continue
    return Prepared(cut, tuple(names.values()), wanted)


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

    Control dependencies are dropped: a frozen graph has nothing whose order matters.
    """
    fresh = FreshNames(n.name for n in graph)
    names: dict[Edge, str] = {}
    placeholders = []
    for source, spec in fed.items():
        whole = source[1] == 0 and graph[source[0]].op in (*PLACEHOLDERS, "PlaceholderWithDefault")
        names[source] = source[0] if whole else fresh.name(f"{source[0]}_{source[1]}")
        placeholders.append(_placeholder(graph, source, spec, names[source]))
    made = {node.name for node in placeholders}
    ends = [r.node for r in outputs if edge(r) not in names]
    given = {Ref(*source) for source in fed}
    needed = reachable(graph, ends, given, through_control=False)
    nodes = [
        _rewired(node, names)
        for node in graph
        if node.name in needed and node.name not in made and node.op not in _CHECKS
    ]
    _check_fed(nodes)
    return graph.with_nodes([*placeholders, *nodes]), names


def _rewired(node: Node, names: dict[Edge, str]) -> Node:
    inputs = tuple(Ref(names[edge(r)]) if edge(r) in names else r for r in node.data_inputs)
    return node if inputs == node.inputs else node.with_inputs(inputs)


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
