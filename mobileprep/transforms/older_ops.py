"""Replace ops and attributes with those of older releases of TensorFlow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Final, Literal

import numpy as np
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import TF115, check_input_count
from mobileprep.graph.opdefs.release_gaps import (
    GRAPH_VERSIONS,
    ReleaseGap,
    release_gaps,
    spare_attributes,
)
from mobileprep.graph.reachability import closure, conditional_nodes
from mobileprep.graph.refs import Ref, parse_ref, unique_name
from mobileprep.graph.rewrite import Renames, rename_inputs
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.transforms.base import Context, Result, Transform, edited, transform
from mobileprep.transforms.rewriting.constants import lazy_shapes


@transform("backport_concatv2")
class BackportConcatV2(Transform, frozen=True):
    """Replace ConcatV2, whose axis is the last input, with Concat, whose axis is the first.

    Source: ``backport_concatv2`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Replaces ConcatV2 with Concat, for runtimes without ConcatV2."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace every ConcatV2 whose axis is int32."""
        return edited(graph, _as_concat)


def _as_concat(node: Node) -> Node | str:
    if node.op != "ConcatV2":
        return node
    if node.attr_dtype("Tidx", DType.INT32) is not DType.INT32:
        return "the axis is int64, which Concat does not take"
    if not node.data_inputs:
        return "it takes no tensors"
    *values, axis = node.data_inputs
    # Like the original, use the last input as the axis even if it is a control input.
    inputs = (axis, *values, *node.control_inputs)
    return replace(node, op="Concat", inputs=inputs).without_attrs("Tidx")


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
        "Replaces version 3 of the TensorArray ops with version 2, for runtimes without version 3."
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
                # Version 2 does not have this attribute, and loading a graph that sets it fails.
                older = node.without_attrs("identical_element_shapes")
                nodes.append(replace(older, op=_MAKERS[node.op]))
                nodes.append(constant(name, _FLOW, inputs=after))
            elif node.op in _USERS:
                nodes.append(replace(node, op=_USERS[node.op]))
            elif node.name in carriers:
                nodes.append(node.with_attrs(T=attr.dtype(DType.STRING)))
            else:
                nodes.append(node)
        if not matched:
            return Result(graph)
        return Result(rename_inputs(graph.with_nodes(nodes), renames), matched)


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


Release = Literal["1.15"]

_MOST_TOLD: Final = 20
_LACKS: Final = {
    "op": "no op {op}",
    "attribute": "no attribute {what} of {op}",
    "value": "no {what} of {op}",
    "kernel": "no CPU kernel of {op} for {what}",
    "removed": "{op} in graphs before {what} alone",
}


@transform("downgrade")
class Downgrade(Transform, frozen=True):
    """Replace newer ops with equivalent older ones, and drop attributes that are not needed.

    The remaining incompatibilities are reported op by op. If there are none, the minimum consumer
    version of the graph is lowered.
    """

    summary = (
        "Replaces ops and attributes that are newer than a release of TensorFlow with equivalent "
        "older ones, and reports what still prevents that release from loading the graph."
    )

    tensorflow: Annotated[Release, Option("TensorFlow release that must load the graph.")] = TF115

    def apply(self, graph: Graph, context: Context) -> Result:
        """Downgrade the graph and report the remaining incompatibilities."""
        skipped: Counter[str] = Counter()
        facts = Facts(graph, context.outputs)
        nodes = [self._older(n, facts, skipped, graph.library) for n in graph]
        matched = sum(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
        library, changed = self._older_functions(graph.library)
        done = Graph(nodes, library, graph.versions)
        gaps = list(self._gaps(done))
        done = Graph(nodes, library, self._versions(graph.versions, lowered=not gaps))
        if not matched and not changed and done.versions == graph.versions:
            done = graph
        return Result(done, matched + changed, skipped, tuple(self._warnings(gaps)))

    def _older(self, node: Node, facts: Facts, skipped: Counter[str], library: Library) -> Node:
        """Replace a node with ops and attributes that the release supports, as far as possible."""
        replacement = REPLACEMENTS.get(node.op)
        while replacement is not None and node.op not in library.functions:
            check_input_count(node, "")
            older = replacement(node, facts)
            if isinstance(older, str):
                skipped[f"{node.op}: {older}"] += 1
                break
            node = older
            replacement = REPLACEMENTS.get(node.op)
        spare = spare_attributes(node, self.tensorflow)
        return node.without_attrs(*spare) if spare else node

    def _older_functions(self, library: Library) -> tuple[Library, int]:
        functions: dict[str, Function] = {}
        changed = 0
        for name, function in library.functions.items():
            nodes = tuple(self._older_in_body(n, library) for n in function.nodes)
            count = sum(a is not b for a, b in zip(nodes, function.nodes, strict=True))
            functions[name] = replace(function, nodes=nodes) if count else function
            changed += count
        return (Library(functions, library.gradients) if changed else library), changed

    def _older_in_body(self, node: Node, library: Library) -> Node:
        if node.op in REPLACEMENTS and node.op not in IN_FUNCTIONS:
            spare = spare_attributes(node, self.tensorflow)
            return node.without_attrs(*spare) if spare else node
        return self._older(node, Facts(Graph()), Counter(), library)

    def _gaps(self, graph: Graph) -> Iterable[tuple[str, ReleaseGap, str]]:
        """Yield unsupported features as (op, gap, node name)."""
        producer = min(graph.versions.producer, GRAPH_VERSIONS[self.tensorflow])
        bodies = [f.nodes for f in graph.library.functions.values()]
        for nodes in (graph.nodes, *bodies):
            for node in nodes:
                if node.op not in graph.library.functions:
                    for gap in release_gaps(node, self.tensorflow, producer):
                        yield node.op, gap, node.name

    def _versions(self, versions: Versions, *, lowered: bool) -> Versions:
        newest = GRAPH_VERSIONS[self.tensorflow]
        least = min(versions.min_consumer, newest) if lowered else versions.min_consumer
        return replace(versions, producer=min(versions.producer, newest), min_consumer=least)

    def _warnings(self, gaps: Iterable[tuple[str, ReleaseGap, str]]) -> Iterable[str]:
        places: dict[tuple[str, ReleaseGap], list[str]] = {}
        for op, gap, name in gaps:
            places.setdefault((op, gap), []).append(name)
        for (op, gap), names in sorted(places.items())[:_MOST_TOLD]:
            lack = _LACKS[gap.kind].format(op=op, what=gap.what)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"TensorFlow {self.tensorflow} has {lack} (node {names[0]!r}{more})"
        if len(places) > _MOST_TOLD:
            yield f"and {len(places) - _MOST_TOLD} more that TensorFlow {self.tensorflow} lacks"


_BROADCAST: Final = "its inputs are broadcast, or their shapes are not known in full"
_TYPES: Final = "its types differ from each other, or the older op does not take them"
_FLAT: Final = frozenset({"NHWC", "NCHW"})
_BATCH_NORM_OUTPUTS: Final = 5


class Facts:
    """Facts about a graph that replacements need, computed on first use.

    Args:
        graph: the graph.
        fetched: names of tensors that count as used, as the user spelled them.
    """

    def __init__(self, graph: Graph, fetched: tuple[str, ...] = ()) -> None:
        self._graph = graph
        self._fetched = fetched
        self.shape = lazy_shapes(lambda: infer_shapes(graph))

    @cached_property
    def _used(self) -> frozenset[tuple[str, int]]:
        refs = [ref for node in self._graph for ref in node.inputs]
        return frozenset((r.node, r.index) for r in [*refs, *map(parse_ref, self._fetched)])

    def is_used(self, node: str, index: int) -> bool:
        """Return whether an output has a consumer or is fetched."""
        return (node, index) in self._used

    def is_one_number(self, ref: Ref) -> bool:
        """Return whether a tensor is a constant with equal elements."""
        node = self._graph.get(ref.node)
        if node is None or node.op != "Const":
            return False
        return len(set(node.attr_tensor("value").array().ravel().tolist())) == 1


Replacement = Callable[[Node, Facts], Node | str]
"""Function that returns an equivalent older node, or the reason why there is none."""


def _add(node: Node, _: Facts) -> Node | str:
    if node.attr_dtype("T") is DType.STRING:
        return _TYPES
    return replace(node, op="Add")


def _batch_product_v3(node: Node, _: Facts) -> Node | str:
    types = {node.attr_dtype(name) for name in ("Ta", "Tb", "Tout")}
    if len(types) > 1:
        return _TYPES
    typed = replace(node, op="BatchMatMulV2").with_attrs(T=attr.dtype(types.pop()))
    return typed.without_attrs("Ta", "Tb", "Tout")


def _batch_product(node: Node, facts: Facts) -> Node | str:
    shapes = [facts.shape(ref) for ref in node.data_inputs]
    if not _are_same([None if s is None else s[:-2] for s in shapes]):
        return _BROADCAST
    return replace(node, op="BatchMatMul")


def _select(node: Node, facts: Facts) -> Node | str:
    if not _are_same([facts.shape(ref) for ref in node.data_inputs]):
        return _BROADCAST
    return replace(node, op="Select")


def _batch_norm(node: Node, facts: Facts) -> Node | str:
    factor = node.attr_float("exponential_avg_factor", 1.0)
    if node.attr_bool("is_training", True) and factor != 1:
        return "it updates statistics by a factor"
    if facts.is_used(node.name, _BATCH_NORM_OUTPUTS):
        return "its last output, which the older op does not have, is used"
    statistics = node.attr_dtype("U", DType.FLOAT)
    if node.attr_str("data_format", "NHWC") not in _FLAT or statistics is not DType.FLOAT:
        return _TYPES
    plain = node.without_attrs("exponential_avg_factor")
    if node.attr_dtype("T") is DType.FLOAT:
        return replace(plain, op="FusedBatchNorm").without_attrs("U")
    return replace(plain, op="FusedBatchNormV2")


def _diagonal(older: str, position: int) -> Replacement:
    """Create a replacement whose ``position``-th input selects the diagonals."""

    def replacement(node: Node, facts: Facts) -> Node | str:
        aligned = node.attr_str("align", "RIGHT_LEFT")
        if aligned != "LEFT_LEFT" and not facts.is_one_number(node.data_inputs[position]):
            return "several diagonals, which the older op aligns in another way"
        return replace(node, op=older).without_attrs("align")

    return replacement


def _renamed(older: str) -> Replacement:
    def replacement(node: Node, _: Facts) -> Node | str:
        return replace(node, op=older)

    return replacement


REPLACEMENTS: Final[Mapping[str, Replacement]] = {
    "AddV2": _add,
    "BatchMatMulV2": _batch_product,
    "BatchMatMulV3": _batch_product_v3,
    "CheckNumericsV2": _renamed("CheckNumerics"),
    "FusedBatchNormV3": _batch_norm,
    "MatrixDiagPartV3": _diagonal("MatrixDiagPartV2", 1),
    "MatrixDiagV3": _diagonal("MatrixDiagV2", 1),
    "MatrixSetDiagV3": _diagonal("MatrixSetDiagV2", 2),
    "QuantizeAndDequantizeV4": _renamed("QuantizeAndDequantizeV2"),
    "SelectV2": _select,
}
"""Functions that replace a node with an older op, by op."""

IN_FUNCTIONS: Final = frozenset({"AddV2", "BatchMatMulV3", "CheckNumericsV2"})
"""Ops whose replacement depends only on the node, and therefore works in function bodies."""


def _are_same(shapes: list[TensorShape]) -> bool:
    """Return whether all shapes are fully known and equal."""
    first = shapes[0]
    return first is not None and -1 not in first and all(shape == first for shape in shapes)
