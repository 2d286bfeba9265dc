"""Replace version 3 of the TensorArray ops with version 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.rewrite import Renames, rename_inputs
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform

_MAKERS: Final = {"TensorArrayV3": "TensorArrayV2", "TensorArrayGradV3": "TensorArrayGradV2"}
_USERS: Final = {
    f"TensorArray{what}V3": f"TensorArray{what}V2"
    for what in ("Write", "Read", "Gather", "Scatter", "Concat", "Split", "Size", "Close")
}
_CARRIERS: Final = frozenset(
    {"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch", "RefEnter", "RefSwitch"}
)
# Any value works: the flow of version 3 only orders reads and writes.
_FLOW: Final = Tensor.packed(np.asarray(1, np.float32))


@transform("backport_tensor_array_v3")
class BackportTensorArrayV3(Transform, frozen=True):
    """Replace TensorArray ops with version 2, and their flow with a constant.

    A version 2 handle is a string, not a resource, so control flow ops that carry handles get that
    type too. The original does not change them, and its graphs fail to load.

    Source: ``backport_tensor_array_v3`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Replaces version 3 of the TensorArray ops by version 2, for programs that are older "
        "than version 3."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace every TensorArray op of version 3."""
        carriers = _handle_carriers(graph)
        tied = conditional_nodes(graph)
        renames = Renames()
        nodes: list[Node] = []
        matched = 0
        for node in graph:
            matched += node.op in _MAKERS or node.op in _USERS
            if node.op in _MAKERS:
                name = unique_name(f"{node.name}/replacement_flow_node", graph.by_name)
                renames.tensor(Ref(node.name, 1), Ref(name))
                after = (Ref(node.name, -1),) if node.name in tied else ()
                nodes += [_version_2(node), constant(name, _FLOW, inputs=after)]
            elif node.op in _USERS:
                nodes.append(replace(node, op=_USERS[node.op]))
            elif node.name in carriers:
                nodes.append(node.with_attrs(T=attr.dtype(DType.STRING)))
            else:
                nodes.append(node)
        if not matched:
            return Result(graph)
        return Result(rename_inputs(graph.with_nodes(nodes), renames), matched)


def _version_2(node: Node) -> Node:
    # Version 2 does not have this attribute, and loading a graph that sets it fails.
    return replace(node, op=_MAKERS[node.op]).without_attrs("identical_element_shapes")


def _handle_carriers(graph: Graph) -> set[str]:
    """Return the names of control flow nodes that forward a TensorArray handle."""
    makers = {Ref(n.name) for n in graph if n.op in _MAKERS}

    def passed_on(handle: Ref) -> Iterable[Ref]:
        for node in graph.consumers.get(handle.node, ()):
            if _carries(node, handle):
                yield from _outputs(node)

    return {handle.node for handle in closure(makers, passed_on) - makers}


def _carries(node: Node, handle: Ref) -> bool:
    if node.op not in _CARRIERS or handle not in node.inputs:
        return False
    return node.attr_dtype("T", DType.INVALID) is DType.RESOURCE


def _outputs(node: Node) -> Iterable[Ref]:
    return (Ref(node.name), Ref(node.name, 1)) if "Switch" in node.op else (Ref(node.name),)
