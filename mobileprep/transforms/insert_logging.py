"""Insert Print nodes that print the outputs of other nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import SWITCHES
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_NAME: Final = "insert_logging"
_ONE_OUTPUT: Final = "only one of its outputs has a value"
_NO_OUTPUT: Final = "it has no output"
_LOOP: Final = "loops are known by it"
_REFERENCE: Final = "it is a variable, which Print would turn into its value"
# A node does not run if one of its inputs has no value, so a Print of all outputs would not run.
_CHOOSING: Final = SWITCHES | {"_SwitchN"}
# The graph loader expects these right before a Merge or a Switch.
_LOOP_OPS: Final = frozenset({"NextIteration", "RefNextIteration", "LoopCond"})


@transform(_NAME)
class InsertLogging(Transform, frozen=True):
    """Route a node's first output through a Print node that shows all used outputs.

    Source: ``insert_logging`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Inserts Print nodes that print the outputs of other nodes."
    of_graph_transform_tool = True

    op: Annotated[
        tuple[str, ...],
        Option("An op whose nodes are logged. Repeated for several; without it, any op's are."),
    ] = ()
    prefix: Annotated[
        tuple[str, ...],
        Option(
            "The beginning of the names of nodes to log. Repeated for several; without it, any "
            "node is logged."
        ),
    ] = ()
    message: Annotated[str, Option("Printed before the values.")] = ""
    show_op: Annotated[bool, Option("Put the op into the message.")] = False
    show_name: Annotated[
        bool,
        Option("Put the name of the printing node into the message."),
    ] = False
    first_n: Annotated[int, Option("How often each node prints at most; -1 for ever.")] = -1
    summarize: Annotated[int, Option("How many elements of each output are printed.")] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        """Insert a Print node after each selected node that has consumers."""
        used = _used_outputs(graph)
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        printed: dict[str, Ref] = {}
        for node in graph:
            nodes.append(node)
            if node.name not in used or not self._is_chosen(node):
                continue
            types = _types(node, graph)
            reason = _unfit(node, types, used[node.name])
            if reason:
                skipped[reason] += 1
                continue
            name = unique_name(f"{node.name}__print__", graph.by_name)
            nodes.append(self._printer(node, name, sorted(used[node.name]), types))
            printed[node.name] = Ref(name, explicit=True)
        if not printed:
            return Result(graph, skipped=skipped)
        printers = {ref.node for ref in printed.values()}
        nodes = [n if n.name in printers else _redirected(n, printed) for n in nodes]
        return Result(graph.with_nodes(nodes), len(printed), skipped)

    def _is_chosen(self, node: Node) -> bool:
        if self.op and node.op not in self.op:
            return False
        return not self.prefix or node.name.startswith(self.prefix)

    def _printer(self, node: Node, name: str, indices: list[int], types: list[DType]) -> Node:
        if indices[-1] >= len(types):
            message = f"output {indices[-1]} of node {node.name!r} ({node.op}) is used"
            raise refuse(_NAME, f"{message}, which has {len(types)}", "export the graph again")
        shown = [types[i].base for i in indices]
        attrs: Mapping[str, AttrValue] = {
            "T": attr.dtype(types[0]),
            "U": AttrValue("list(type)", tuple(shown)),
            "message": attr.string(self._message(node, name)),
            "first_n": attr.integer(self.first_n),
            "summarize": attr.integer(self.summarize),
        }
        inputs = tuple(Ref(node.name, i, explicit=True) for i in (0, *indices))
        return Node(name, "Print", inputs, attrs=attrs)

    def _message(self, node: Node, name: str) -> str:
        op = f";{node.op};" if self.show_op else ""
        return f"{op}{f';{name};' if self.show_name else ''}{self.message}"


def _redirected(node: Node, printed: Mapping[str, Ref]) -> Node:
    """Redirect first outputs to the Print nodes."""
    inputs = tuple([printed.get(r.node, r) if r.index == 0 else r for r in node.inputs])
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _used_outputs(graph: Graph) -> Mapping[str, set[int]]:
    """Return the used outputs of each node with consumers; a control input counts as the first."""
    used: dict[str, set[int]] = defaultdict(set)
    for node in graph:
        for ref in node.inputs:
            used[ref.node].add(max(ref.index, 0))
    return used


def _unfit(node: Node, types: list[DType], used: set[int]) -> str:
    """Return the reason why a Print node would break the graph, or an empty string."""
    if not types:
        return _NO_OUTPUT
    if types[0].is_ref:
        return _REFERENCE
    # The Print node always takes the first output.
    if node.op in _CHOOSING and used != {0}:
        return _ONE_OUTPUT
    return _LOOP if node.op in _LOOP_OPS else ""


def _types(node: Node, graph: Graph) -> list[DType]:
    definition = signature_of(node, graph.library)
    if definition is None:
        message = f"unknown outputs of the op {node.op} of node {node.name!r}"
        raise refuse(_NAME, message, "name the ops to log: insert_logging(op=Conv2D)")
    return output_types(node, definition)
