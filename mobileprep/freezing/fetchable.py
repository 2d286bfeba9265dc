"""Distinguish the results of a graph from ends that are never fetched."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.freezing.trace import Flows
from mobileprep.freezing.training import has_default_name
from mobileprep.graph.bypass import constant_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import (
    DIVISIONS,
    ENTERS,
    EXITS,
    FUSED_BATCH_NORMS,
    MERGES,
    NEXT_ITERATIONS,
    SUMS,
)
from mobileprep.graph.reachability import SWITCHES, closure, leaves_lowered_loop
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.graph.verify import execution_order
from mobileprep.runtime.functions.inline import LOOPS

_LOOP_CONDITION: Final = "LoopCond"
_LOOP_EDGES: Final = ENTERS | NEXT_ITERATIONS
_CHECKS: Final = frozenset({"CheckNumerics", "Assert"})
# TensorFlow's names for assertions and for nodes that wait for them.
_GUARD: Final = re.compile(r"(.*/)?AssertGuard/Merge(_\d+)?\Z")
_WAITING: Final = re.compile(r"(.*/)?control_dependency(_\d+)?\Z")
_IMAGES: Final = re.compile(r"(Image|Audio)Summary(V2)?\Z")
_PASS_ON: Final = frozenset({"Identity", "Transpose", "TensorArrayGatherV2", "TensorArrayGatherV3"})
_RESHAPES: Final = frozenset({"Reshape", "ExpandDims", "Squeeze", "Transpose", "Cast"})


def always_there(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that have one value in each run, because TensorFlow fetches no others.

    A node in a loop has a value for each iteration, and a node in a branch only if the branch runs.
    """
    depths: dict[str, int] = {}
    for node in execution_order(graph, ""):
        around = max((depths.get(r.node, 0) for r in node.inputs), default=0)
        depths[node.name] = max(around + _step(graph, node), 0)
    return [n for n in nodes if depths[n.name] == 0]


def results_among(
    graph: Graph, flows: Flows, ends: Sequence[Node], fed: Sequence[Ref], *, is_uncut: bool
) -> list[Node]:
    """Return the ends that look like results; all ends if none do.

    Args:
        is_uncut: whether the graph was saved whole, so that some ends may be leftovers.
    """
    fed_nodes = {ref.node for ref in fed}
    results = list(ends)
    for is_none in (
        # Batch norms that a rewriter replaced, and whose statistics are still used.
        lambda n: n.op in FUSED_BATCH_NORMS,
        leaves_lowered_loop,
        lambda n: _is_left_of_loop(graph, flows, n),
        lambda n: _is_counter(graph, n, fed_nodes),
        lambda n: _is_check(graph, flows, n),
        lambda n: _is_image(flows, n),
    ):
        results = [n for n in results if not is_none(n)] or results
    return _without_loop_leftovers(graph, flows, results) if is_uncut else results


def _without_loop_leftovers(graph: Graph, flows: Flows, ends: list[Node]) -> list[Node]:
    """Drop unused results of a loop if another end needs its other results."""
    exits = {end.name: _exits_behind(graph, end) for end in ends}
    loops = {
        name: {frame for exit_ in nodes if (frame := loop_name(graph, exit_))}
        for name, nodes in exits.items()
    }
    if not any(loops.values()):
        return ends
    exits_of: dict[str, list[Ref]] = {}
    for node in graph:
        if node.op in EXITS and (frame := loop_name(graph, node)):
            exits_of.setdefault(frame, []).append(Ref(node.name))
    after = {frame: flows.downstream(exits_of[frame]) for frame in set().union(*loops.values())}

    used = {f: any(n.name in after[f] for n in ends if not loops[n.name]) for f in after}
    stacked = {f: any(n.name in after[f] for n in ends if n.op not in EXITS) for f in after}

    def is_left(end: Node) -> bool:
        return any(used[f] or (end.op in EXITS and stacked[f]) for f in loops[end.name])

    return [end for end in ends if not is_left(end)]


def _exits_behind(graph: Graph, node: Node) -> list[Node]:
    """Return the loop exits whose tensors reach a node without a name chosen by the author."""
    waiting, exits = [node], []
    seen = {node.name}
    while waiting:
        current = waiting.pop()
        if current.op in EXITS:
            exits.append(current)
        elif current.op in _PASS_ON and has_default_name(current):
            producers = [graph[ref.node] for ref in current.data_inputs]
            waiting += [n for n in producers if n.name not in seen]
            seen.update(n.name for n in producers)
    return exits


def loop_name(graph: Graph, node: Node) -> str:
    """Return the name of the loop of an Exit; empty for a loop of an unusual form."""
    for _ in range(3):  # Switch, Merge, Enter
        if not node.data_inputs:
            return ""
        node = graph[node.data_inputs[0].node]
    return node.attr_str("frame_name", "") if node.op in ENTERS else ""


def _step(graph: Graph, node: Node) -> int:
    """Return by how many loops and branches a node's outputs are nested deeper than its inputs."""
    if node.op in ENTERS:
        return 1
    if node.op in EXITS:
        return -1
    before = [graph[r.node].op for r in node.data_inputs]
    if node.op in SWITCHES:
        return 0 if _LOOP_CONDITION in before else 1
    if node.op in MERGES:
        return 0 if _LOOP_EDGES.intersection(before) else -1
    return 0


def _is_left_of_loop(graph: Graph, flows: Flows, node: Node) -> bool:
    """Return whether a node passes on an unused variable of a While with used variables."""
    if node.op != "Identity" or len(node.data_inputs) != 1:
        return False
    producer = graph[node.data_inputs[0].node]
    takers = flows.takers(producer.name)
    return producer.op in LOOPS and any(
        n.op != "Identity" or flows.takers(n.name) for n, _ in takers
    )


def _is_counter(graph: Graph, node: Node, fed_nodes: set[str]) -> bool:
    """Return whether a loop's variable depends on the inputs only by the number of iterations."""

    def before(name: str) -> Iterable[str]:
        producers = (graph[r.node] for r in graph[name].data_inputs)
        return (p.name for p in producers if p.op != _LOOP_CONDITION)

    return node.op in EXITS and closure([node.name], before).isdisjoint(fed_nodes)


def _is_check(graph: Graph, flows: Flows, node: Node) -> bool:
    """Return whether a node only checks a tensor, or passes on one that others use unchecked."""
    if node.op == "CheckNumerics":
        return flows.is_used(node.name)
    if node.op in MERGES:
        return _GUARD.match(node.name) is not None
    if node.op != "Identity" or not node.control_inputs or len(node.data_inputs) != 1:
        return False
    tensor = node.data_inputs[0]
    takers = (n for n, index in flows.takers(tensor.node) if index == tensor.index)
    is_taken_unchecked = any(n.name != node.name and n.op not in _CHECKS for n in takers)
    return is_taken_unchecked and _WAITING.match(node.name) is not None


def _is_image(flows: Flows, node: Node) -> bool:
    """Return whether a node only reshapes a tensor for a summary."""
    takers = flows.takers(node.name)
    return node.op in _RESHAPES and bool(takers) and all(_IMAGES.match(n.op) for n, _ in takers)


_DECODERS: Final = frozenset(
    {"DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeAndCropJpeg"}
)
_PREPROCESSING_MOVES: Final = frozenset(
    {"Cast", "ExpandDims", "Squeeze", "Reshape", "Identity", "Pack", "Slice", "StridedSlice"}
    | {"ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea", "Reverse"}
    | {"ReverseV2", "Transpose"}
)
_MEASURES: Final = frozenset({"Shape", "Size", "Rank"})
# More steps than any preprocessing has.
_MOST_STEPS: Final = 40
# Maximum channels of an image: larger constants are not a mean or a deviation.
_MOST_CHANNELS: Final = 4


class DecodedImage(Struct, frozen=True):
    """An image that a graph decodes.

    Args:
        ref: the decoded and preprocessed tensor, which the app can feed.
        contents: the tensor with the content of the file.
        formula: computation of ``ref`` from pixels ``x`` from 0 to 255.
        is_fed: whether the app feeds the content, so that it is not constant.
    """

    ref: Ref
    contents: Ref
    formula: str
    is_fed: bool = False


def decoded_images(graph: Graph, flows: Flows, entries: Collection[Ref]) -> list[DecodedImage]:
    """Return the images that a graph decodes from a constant or from content that the app feeds."""
    fed = {ref.node for ref in entries}
    images = []
    for node in graph:
        if node.op in _DECODERS and node.data_inputs:
            image = _followed(graph, flows, node)
            if always_there(graph, [graph[image.ref.node]]):
                is_fed = not fed.isdisjoint(flows.leading_to([node.name]))
                images.append(replace(image, is_fed=is_fed))
    return images


def _followed(graph: Graph, flows: Flows, decoder: Node) -> DecodedImage:
    """Follow an image to the last op of its preprocessing."""
    ref = Ref(decoder.name)
    scale, offset = np.ones(()), np.zeros(())
    for _ in range(_MOST_STEPS):
        takers = [n for n, _ in flows.takers(ref.node) if n.op not in _MEASURES]
        if len(takers) != 1:
            break
        (node,) = takers
        if node.op not in _PREPROCESSING_MOVES:
            step = _affine_step(graph, node, ref, scale, offset)
            if step is None:
                break
            scale, offset = step
        elif node.data_inputs.index(ref) or _is_split(node):
            break
        ref = Ref(node.name)
    return DecodedImage(ref, decoder.data_inputs[0], _formula(scale, offset))


def _is_split(node: Node) -> bool:
    """Return whether an op combines the image with others."""
    return node.op == "Pack" and len(node.data_inputs) > 1


def _affine_step(
    graph: Graph, node: Node, ref: Ref, scale: Array, offset: Array
) -> tuple[Array, Array] | None:
    """Return the scale and offset after an op; None for an op that is not preprocessing."""
    tensors = node.data_inputs
    if len(tensors) != 2 or ref not in tensors:
        return None
    slot = tensors.index(ref)
    constant = constant_behind(graph, tensors[1 - slot])
    if constant is None or constant.size > _MOST_CHANNELS or not constant.dtype.is_floating:
        return None
    value = constant.array().astype(np.float64).ravel()
    value = value[0] if value.size == 1 else value
    if node.op in SUMS:
        return scale, offset + value
    if node.op == "Sub":
        return (scale, offset - value) if not slot else (-scale, value - offset)
    if node.op == "Mul":
        return scale * value, offset * value
    if node.op in DIVISIONS and not slot and np.all(value):
        return scale / value, offset / value
    return None


def _formula(scale: Array, offset: Array) -> str:
    """Format the formula, such as ``(x - 128) / 128`` for a scale of 1/128 and an offset of -1."""
    if not np.all(scale):
        return "x"
    mean, deviation = -offset / scale, 1 / scale
    shifted = "x" if not np.any(mean) else f"x - {_shown(mean)}"
    if np.all(np.isclose(deviation, 1)):
        return shifted
    return f"({shifted}) / {_shown(deviation)}" if np.any(mean) else f"x / {_shown(deviation)}"


def _shown(value: Array) -> str:
    numbers = [f"{number:.6g}" for number in np.atleast_1d(value)]
    return numbers[0] if len(set(numbers)) == 1 else f"[{', '.join(numbers)}]"
