"""Insert folded constants into a graph with the names and order of the original tool.

Source: ``ReplaceTensorWithConstant``, ``ReplaceSendRecvs``, and ``RemoveUnusedNodes`` of TensorFlow
1.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import reachable, without_dangling
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Kernel, find_kernel
from mobileprep.transforms.rewriting.constant_folding.nodes import ConstantNodes
from mobileprep.transforms.rewriting.constant_folding.rules import Execution
from mobileprep.transforms.rewriting.constant_folding.search import Folding
from mobileprep.transforms.tf115.node_hashes import SerialNames

_NAME = "fold_constants"


def fetch_order(run: Execution) -> list[str]:
    """Return the fetched nodes in the order in which the original tool starts from them."""
    used = {r.node for n in run.nodes.values() for r in n.inputs}
    starts = {f"_send_{r.node}_{r.index}": r.node for r in run.fetched}
    # A node without consumers is also connected to the graph's sink directly.
    starts |= {r.node: r.node for r in run.fetched if r.node not in used}
    return [starts[key] for key in sorted(starts)]


def check_feeds(run: Execution) -> None:
    """Raise an error if a tensor is both fed and fetched."""
    for ref in run.fetched:
        if ref in run.fed:
            message = f"{_NAME}: {str(ref)!r} is an input and an output"
            raise TransformError(message, "name it as one of them only")


def folded_graph(graph: Graph, folding: Folding, serials: SerialNames) -> list[Node]:
    """Return the nodes of the folded graph in the original's order."""
    run = folding.run
    folded, sources = _constants(folding, serials)
    by_name = {n.name: _rewired(n, run.fed, sources) for n in run.nodes.values()}
    by_name |= {n.name: n for n in folded}
    by_name |= {name: graph[name] for name in run.inputs if name not in by_name}
    tensors = frozenset(r for r in run.fed if not r.is_control)
    needed = reachable(by_name, (r.node for r in run.fetched), tensors).union(run.inputs)
    inputs = frozenset(run.inputs)
    survivors = (n for n in by_name.values() if n.name in needed)
    nodes = [_placeholder(n) if n.name in inputs else n for n in survivors]
    # The original keeps constraints on removed nodes, and TensorFlow rejects its graph.
    return without_dangling(nodes, needed)


def _constants(folding: Folding, serials: SerialNames) -> tuple[list[Node], Mapping[Ref, Ref]]:
    """Create constants, and return the replacement of each tensor."""
    shape_names = _shape_names(folding.constant, serials)
    used_names = {*folding.run.nodes, *folding.run.inputs}
    nodes, sources = [], {}
    order = sorted(folding.values, key=lambda r: shape_names.get(r, (r.node, r.index)))
    for number, ref in enumerate(order):
        name = serials.constant(ref.node, number, used_names)
        awaited = _controls(folding.constant.controls[ref.node], folding.run.fed)
        nodes.append(constant(name, folding.values[ref], inputs=awaited))
        sources[ref] = Ref(name)
    return nodes, sources


def _shape_names(constants: ConstantNodes, serials: SerialNames) -> Mapping[Ref, tuple[str, int]]:
    """Return the sort keys of known shapes: the original creates their constants before folding."""
    names: dict[Ref, tuple[str, int]] = {}
    for node in constants.order:
        for index in range(len(constants.shapes.get(node, ()))):
            name = serials.constant(node, len(names))
            names[Ref(node, index)] = (name, 0)
    return names


def _rewired(node: Node, fed: frozenset[Ref], sources: Mapping[Ref, Ref]) -> Node:
    if not any(r in fed or r in sources for r in node.inputs):
        return node
    tensors = [
        Ref(r.node, r.index, explicit=True) if r in fed else sources.get(r, r)
        for r in node.data_inputs
    ]
    return replace(node, inputs=(*tensors, *_controls(node.control_inputs, fed)))


def _controls(refs: Iterable[Ref], fed: frozenset[Ref]) -> tuple[Ref, ...]:
    """Return control inputs in stored order: by name, feeds by that of their receiving nodes."""
    names = {f"_recv_{r.node}_{max(r.index, 0)}" if r in fed else r.node: r.node for r in refs}
    return tuple(dict.fromkeys(control(names[key]) for key in sorted(names)))


def _placeholder(node: Node) -> Node:
    if node.op == "Placeholder":
        return node
    if node.op == "PlaceholderWithDefault":
        return replace(node, op="Placeholder", inputs=())
    message = f"{_NAME}: the input {node.name!r} is a {node.op}, not a placeholder"
    raise TransformError(message, "run strip_unused_nodes before")


def tf115_kernel(op: str) -> Kernel | None:
    """Return the kernel of an op if TensorFlow 1.15 computes it differently, otherwise None."""
    return _range if op == "Range" else None


def _range(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    """Return a sequence of running sums of the step, with their rounding errors."""
    usual = find_kernel(node.op)
    assert usual is not None
    steps = np.array(usual(node, start, limit, delta))
    if steps.dtype.kind != "f" or not steps.size:
        return steps
    steps[:1], steps[1:] = start, delta
    return np.add.accumulate(steps, dtype=steps.dtype)
