"""Guess which tensors of a model are its inputs and outputs.

``summarize_graph`` reports placeholders as inputs, and nodes without consumers as outputs. In a
training graph, these include file names of savers, labels, losses, summaries, and updates. This
module distinguishes them from the inputs and outputs of an app.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.fetchable import (
    DecodedImage,
    always_there,
    decoded_images,
    loop_name,
    results_among,
)
from mobileprep.freezing.model import LoadedSource, Signature, TensorSpec
from mobileprep.freezing.trace import Flows, extract
from mobileprep.freezing.training import (
    ASIDE,
    is_uncut,
    labels_of,
    losses_among,
    of_chance_or_batch,
    scores_of,
)
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, FEEDABLE, MERGES, NEXT_ITERATIONS
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.verify import check_inputs, execution_order
from mobileprep.ops.shape_inference import infer_shapes, shape_of
from mobileprep.runtime.functions.inline import FUNCTIONAL

_QUEUES: Final = re.compile(
    r"(Iterator(FromStringHandle)?(V2)?GetNext(Sync|AsOptional)?|IteratorGetNext|"
    r"(Queue)Dequeue(Many|UpTo)?(V2)?|Reader(Read|ReadUpTo)(V2)?)\Z"
)
_SAVER_FILE: Final = "saver_filename"
_FILES: Final = frozenset(
    {"SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice", "MergeV2Checkpoints"}
)
# These log a tensor unchanged; a ScalarSummary logs a value computed only for it.
_WATCHERS: Final = re.compile(r"(Histogram|Image|Audio|Tensor)Summary(V2)?\Z")
_MEASURES: Final = frozenset({"Shape", "ShapeN", "Size", "Rank"})
_PREDICATE: Final = re.compile(r"(.*/)?pred_id(_\d+)?\Z")
DEFAULTED: Final = "PlaceholderWithDefault"
_INTERNAL: Final = (DType.VARIANT, DType.RESOURCE)
_SHOWN: Final = 6


class GuessedInterface(Struct, frozen=True):
    """The likely inputs and outputs of a model, most likely first, and the images it decodes."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    images: tuple[DecodedImage, ...] = ()


def guess(source: LoadedSource, signature: Signature | None = None) -> GuessedInterface:
    """Guess the inputs and outputs of a model; none for an invalid graph.

    The caller reports the error of the graph.
    """
    try:
        return find_interface(source, signature)
    except InvalidGraphError:
        return GuessedInterface()


def find_interface(source: LoadedSource, signature: Signature | None = None) -> GuessedInterface:
    """Guess the inputs and outputs of a model; see ``guess``.

    Raises:
        InvalidGraphError: if an input names a node that does not exist.
    """
    graph = source.graph
    if signature is not None:
        return GuessedInterface(
            _completed(graph, _distinct(signature.inputs.values())),
            _completed(graph, _distinct(signature.outputs.values())),
        )
    check_inputs(graph, source.where)
    flows = Flows(graph)
    fed, labels, images = _fed(graph, flows)
    outputs = _outputs(graph, flows, fed, labels)
    specs = [s for s in _specs(graph, outputs) if s.dtype not in _INTERNAL]
    # Sorting is stable, so that the deepest numeric output remains first.
    outs = tuple(sorted(specs, key=_is_of_control))
    return GuessedInterface(_specs(graph, fed), outs, tuple(images))


def specs_of(graph: Graph, names: Iterable[str]) -> tuple[TensorSpec, ...]:
    """Return tensors by name, with type and shape as far as the graph shows them."""
    return _completed(graph, tuple(map(TensorSpec, names)))


def described(tensors: Sequence[TensorSpec]) -> str:
    """Format a few tensors in one line: ``image (float32 [-1, 8, 8, 1]), ...``."""
    shown = [
        f"{t.name} ({t.dtype.short} {'of any shape' if t.shape is None else list(t.shape)})"
        for t in tensors[:_SHOWN]
    ]
    more = len(tensors) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _distinct(specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple({spec.name: spec for spec in specs}.values())


def _completed(graph: Graph, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Add missing types and shapes of a signature's tensors from the graph."""
    refs = [parse_ref(s.name) for s in specs if s.dtype is DType.INVALID]
    by_name = {s.name: s for s in _specs(graph, [r for r in refs if r.node in graph])}
    return tuple(replace(by_name.get(str(parse_ref(s.name)), s), name=s.name) for s in specs)


def _fed(graph: Graph, flows: Flows) -> tuple[list[Ref], list[Ref], list[DecodedImage]]:
    """Return the tensors that an app feeds, those that only training feeds, and decoded images."""
    of_files = flows.leading_to(n.name for n in graph if n.op in _FILES)
    entries = [r for node in graph for r in _entries(flows, node)]
    entries = [r for r in entries if r.node != _SAVER_FILE and not flows.takes(r, of_files)]
    images = decoded_images(graph, flows, entries)
    entries += [i.ref for i in images if not i.is_fed and flows.is_used(i.ref.node)]
    # A default that another input determines is a step of the model: the app feeds that input.
    feeds = [r for r in entries if not _QUEUES.match(graph[r.node].op)]
    computed = flows.downstream(feeds)
    entries = [r for r in entries if graph[r.node].op != DEFAULTED or r.node not in computed]
    labels = labels_of(graph, flows, entries)
    fed = [r for r in entries if r not in labels]
    return fed, [r for r in entries if r in labels], images


def _entries(flows: Flows, node: Node) -> list[Ref]:
    if node.op in FEEDABLE:
        return [Ref(node.name)] if flows.is_used(node.name) else []
    if not _QUEUES.match(node.op):
        return []
    indices = {i for _, i in flows.takers(node.name)}
    return [Ref(node.name, i) for i in sorted(indices)]


def _outputs(graph: Graph, flows: Flows, fed: Sequence[Ref], labels: Sequence[Ref]) -> list[Ref]:
    computed = flows.downstream(fed)
    scored = scores_of(graph, flows, labels)
    ends = _ends(graph, flows, computed, scored)
    uncut = is_uncut(graph)
    if uncut:
        numbers = [
            graph[s.name] for s in _specs(graph, [Ref(n.name) for n in ends]) if _is_one(graph, s)
        ]
        losses = losses_among(graph, flows, numbers, fed, scored)
        ends = (losses and _ends(graph, flows, computed, scored | losses)) or ends
    by_training = of_chance_or_batch(graph, flows)
    plain = [n for n in ends if n.name not in by_training] or ends
    plain = results_among(graph, flows, plain, fed, is_uncut=uncut)
    depths = _depths(graph, fed)
    plain.sort(key=lambda n: (*_doubts(graph, flows, n), -depths.get(n.name, 0)))
    return [Ref(n.name) for n in plain]


def _ends(graph: Graph, flows: Flows, computed: set[str], scored: set[str]) -> list[Node]:
    """Return the nodes that only scores and summaries use, in the graph's order."""
    ends = (
        node
        for node in graph
        if node.name in computed
        and node.name not in scored
        and not ASIDE.match(node.op)
        and not _is_of_branch(graph, node)
        and _is_end(flows, node, scored)
    )
    return always_there(graph, ends)


def _is_end(flows: Flows, node: Node, scored: set[str]) -> bool:
    """Return whether only scores and summaries use a node, besides measuring its shape."""
    takers = [n for n, _ in flows.takers(node.name)]
    values = [n for n in takers if n.op not in _MEASURES]
    is_taken = all(n.name in scored or _WATCHERS.match(n.op) for n in values)
    return is_taken and (bool(values) or not takers)


def _is_one(graph: Graph, spec: TensorSpec) -> bool:
    """Return whether a tensor is a single number: a scalar, or reduced along all its axes."""
    axes = graph[spec.name].data_inputs[1:]
    is_whole = bool(axes) and graph[axes[0].node].op == "Range"
    return spec.dtype.is_floating and (spec.shape == () or (spec.shape is None and is_whole))


def _is_of_branch(graph: Graph, node: Node) -> bool:
    """Return whether a node only holds the predicate of a branch, as ``tf.cond`` creates it."""
    if node.op != "Identity" or len(node.data_inputs) != 1:
        return False
    before = graph.get(node.data_inputs[0].node)
    return _PREDICATE.match(node.name) is not None or (before is not None and before.op == "Switch")


def _depths(graph: Graph, fed: Sequence[Ref]) -> dict[str, int]:
    """Return the largest number of ops between the inputs and each node; a loop counts once.

    All results of a loop are as deep as its deepest one, because a TensorArray enters a loop
    without a tensor of the model.
    """
    depths = {ref.node: 0 for ref in fed}
    order = execution_order(graph, "")
    turns = _turns(graph)
    for _ in range(2):  # A loop's body follows its results in this order.
        for node in order:
            names = [r.node for r in node.data_inputs]
            if node.op in EXITS:
                names += turns.get(loop_name(graph, node), ())
            before = [depths[name] for name in names if name in depths]
            if before:
                depths[node.name] = max(before) + 1
    return depths


def _turns(graph: Graph) -> dict[str, list[str]]:
    """Return the nodes with the next values of each loop's variables, by the loop's name."""
    turns: dict[str, list[str]] = {}
    for node in graph:
        if node.op in MERGES:
            producers = [graph[r.node] for r in node.data_inputs]
            frames = [p.attr_str("frame_name", "") for p in producers if p.op in ENTERS]
            following = [p.name for p in producers if p.op in NEXT_ITERATIONS]
            for frame in frames:
                turns.setdefault(frame, []).extend(following)
    return turns


def _is_of_control(spec: TensorSpec) -> bool:
    """Return whether a tensor more likely controls a branch, or is a message, than is a result."""
    return spec.dtype in (DType.BOOL, DType.STRING, DType.INVALID)


def _doubts(graph: Graph, flows: Flows, node: Node) -> tuple[bool, bool]:
    """Return evidence that a node is not a result, strongest first.

    Many outputs of loops and conditionals are only for gradients. Inputs of losses and scores are
    intermediate values.
    """
    producer = graph.get(node.inputs[0].node) if node.data_inputs else None
    handed_on = node.op == "Identity" and producer is not None and producer.op in FUNCTIONAL
    return handed_on, bool(flows.takers(node.name))


def _specs(graph: Graph, refs: Sequence[Ref]) -> tuple[TensorSpec, ...]:
    if not refs:
        return ()
    part = extract(graph, sorted({r.node for r in refs}))
    shapes = infer_shapes(part, recorded=True)
    specs = []
    for ref in refs:
        dtype = tensor_dtype(graph, ref) or DType.INVALID
        specs.append(TensorSpec(str(ref), dtype, shape_of(shapes, ref)))
    return tuple(specs)
