"""Guesses which tensors of a model are its inputs and outputs.

``summarize_graph`` takes placeholders for inputs, and nodes that nothing consumes for outputs.
In a training graph that finds the savers' file names, the labels, losses, summaries and updates;
here they are told apart from what an app feeds and fetches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.freeze.follow import upstream, variable_behind
from mobileprep.freeze.model import LoadedSource, Signature, TensorSpec
from mobileprep.freeze.subgraph import extract
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.verify import execution_order
from mobileprep.ops.functions.kinds import FUNCTIONAL
from mobileprep.ops.shapes import infer_shapes
from mobileprep.ops.signature import output_types, signature_of

_PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
_QUEUES: Final = re.compile(
    r"(Iterator(FromStringHandle)?(V2)?GetNext(Sync|AsOptional)?|IteratorGetNext|"
    r"(Queue)Dequeue(Many|UpTo)?(V2)?|Reader(Read|ReadUpTo)(V2)?)\Z"
)
_LABEL_NAME: Final = re.compile(
    r"(.*[/_])?(labels?|targets?|truths?|y_|y_true|ground_?truth|weights?_placeholder)(_\d+)?\Z",
    re.IGNORECASE,
)
_LOSSES: Final = frozenset(
    {"SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "CTCLoss", "CTCLossV2"}
)
_LABEL_SLOT: Final = 1
_PENALTY: Final = "L2Loss"
# Ops with weights, which a model's inputs flow into and labels and learning rates do not.
_WEIGHTED: Final = re.compile(
    r"(Conv[23]D|DepthwiseConv2dNative|(Batch)?MatMul(V2|V3)?|(Resource)?Gather(V2|Nd)?|"
    r"FusedBatchNorm(V2|V3)?|LookupTableFind(V2)?|.*LSTM.*|.*RNN.*)\Z"
)
# What optimizers add: gradients, and what applies them.
_GATHERS: Final = re.compile(r"(Resource)?Gather(V2|Nd)?\Z")
_GRADIENTS: Final = re.compile(r"(.*/)?(gradient(s|_tape)(_\d+)?/|\w+/update_)")
_SAVER_FILE: Final = "saver_filename"
_FILES: Final = frozenset(
    {"SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice", "MergeV2Checkpoints"}
)
# What watches, measures or changes a model without being a result of it.
_ASIDE: Final = re.compile(
    r"(Shape|ShapeN|Size|Rank|BroadcastGradientArgs|ConcatOffset|"
    r".*Summary(V2)?|Assert|Print(V2)?|NoOp|Assign.*|.*Scatter.*Update|(Resource|Sparse)*Apply.*|"
    r"Save.*|Restore.*|.*Dataset.*|Log.*Tensor.*)\Z"
)
# They take a tensor as it is; a ScalarSummary takes what was worked out for it alone.
_WATCHERS: Final = re.compile(r"(Histogram|Image|Audio|Tensor)Summary(V2)?\Z")
_PREDICATE: Final = re.compile(r"(.*/)?pred_id(_\d+)?\Z")
_RANDOM: Final = re.compile(r"(Stateless)?(Random|TruncatedNormal|Multinomial).*\Z")
_BATCH_NORMS: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_INTERNAL: Final = (DType.VARIANT, DType.RESOURCE)
_SHOWN: Final = 6


@dataclass(frozen=True)
class Interface:
    """What a model seems to take and to give, likeliest first."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


def guess(source: LoadedSource, signature: Signature | None = None) -> Interface:
    """The likely inputs and outputs of a model.

    Args:
        source: the model.
        signature: the signature that says so, if there is one.
    """
    if signature is not None:
        return Interface(
            _distinct(signature.inputs.values()), _distinct(signature.outputs.values())
        )
    graph = source.graph
    try:
        fed, labels = _fed(graph)
        outputs = _outputs(graph, fed, labels)
        specs = [s for s in _specs(graph, outputs) if s.dtype not in _INTERNAL]
        # Sorting keeps the deepest first among those of numbers.
        return Interface(_specs(graph, fed), tuple(sorted(specs, key=_is_of_control)))
    except InvalidGraphError:
        # The graph is broken; whoever asked has its own error to tell.
        return Interface()


def described(tensors: Sequence[TensorSpec]) -> str:
    """A few tensors in one line: ``image (float32 [-1, 8, 8, 1]), ...``."""
    shown = [
        f"{t.name} ({t.dtype.short} {'of any shape' if t.shape is None else list(t.shape)})"
        for t in tensors[:_SHOWN]
    ]
    more = len(tensors) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _distinct(specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple({spec.name: spec for spec in specs}.values())


def _fed(graph: Graph) -> tuple[list[Ref], list[Ref]]:
    """The tensors that an app would feed, and those that only training feeds."""
    entries = [r for node in graph for r in _entries(graph, node)]
    flows = {ref: _downstream(graph, [ref]) for ref in entries}
    entries = [r for r in entries if not _names_file(graph, r, flows[r])]
    labels = _compared(graph, entries)
    weighted = {r for r in entries if any(_is_weighted(graph, graph[n]) for n in flows[r])}
    if weighted - labels:
        labels.update(r for r in entries if r not in weighted)
    return [r for r in entries if r not in labels], [r for r in entries if r in labels]


def _entries(graph: Graph, node: Node) -> list[Ref]:
    if node.op in _PLACEHOLDERS:
        return [Ref(node.name)] if node.name in graph.consumers else []
    if not _QUEUES.match(node.op):
        return []
    taken = {r for c in graph.consumers.get(node.name, ()) for r in c.data_inputs}
    return sorted((r for r in taken if r.node == node.name), key=lambda r: r.index)


def _names_file(graph: Graph, ref: Ref, flow: set[str]) -> bool:
    return ref.node == _SAVER_FILE or any(graph[name].op in _FILES for name in flow)


def _is_weighted(graph: Graph, node: Node) -> bool:
    if not _WEIGHTED.match(node.op) or _GRADIENTS.match(node.name) or not node.data_inputs:
        return False
    # Losses gather what the model gives for each label.
    table = node.inputs[0]
    return (
        not _GATHERS.match(node.op)
        or graph[table.node].op == "Const"
        or variable_behind(graph, table) is not None
    )


def _compared(graph: Graph, entries: Sequence[Ref]) -> set[Ref]:
    """Entries that are named as labels, or that a loss compares with what the model gives."""
    labels = {r for r in entries if _LABEL_NAME.match(r.node)}
    for node in graph:
        if node.op in _LOSSES and len(node.data_inputs) > _LABEL_SLOT:
            last = [Ref(n.name, i) for n, i in upstream(graph, node.inputs[_LABEL_SLOT])]
            labels.update(r for r in last if r in entries)
    return labels


def _outputs(graph: Graph, fed: Sequence[Ref], labels: Sequence[Ref]) -> list[Ref]:
    computed = _downstream(graph, fed)
    losses = [n.name for n in graph if n.op in _LOSSES or n.op == _PENALTY]
    scored = {*losses, *_downstream(graph, [*labels, *map(Ref, losses)])}
    scored.update(n.name for n in graph if _GRADIENTS.match(n.name))
    ends = [
        node
        for node in graph
        if node.name in computed
        and node.name not in scored
        and not _ASIDE.match(node.op)
        and not _is_of_branch(graph, node)
        and all(c.name in scored or _WATCHERS.match(c.op) for c in _takers(graph, node))
    ]
    plain = [n for n in ends if not _is_of_training(graph, n)] or ends
    depths = _depths(graph, fed)
    plain.sort(key=lambda n: (*_doubts(graph, n), -depths.get(n.name, 0)))
    return [Ref(n.name) for n in plain]


def _is_of_branch(graph: Graph, node: Node) -> bool:
    """Whether a node only holds which branch is taken, as ``tf.cond`` makes them."""
    if node.op != "Identity" or len(node.data_inputs) != 1:
        return False
    before = graph.get(node.data_inputs[0].node)
    return _PREDICATE.match(node.name) is not None or (before is not None and before.op == "Switch")


def _depths(graph: Graph, fed: Sequence[Ref]) -> dict[str, int]:
    """How many ops at most stand between the inputs and each node; a loop counts once."""
    depths = {ref.node: 0 for ref in fed}
    for node in execution_order(graph, ""):
        before = [depths[r.node] for r in node.data_inputs if r.node in depths]
        if before:
            depths[node.name] = max(before) + 1
    return depths


def _takers(graph: Graph, node: Node) -> list[Node]:
    found = graph.consumers.get(node.name, ())
    return [c for c in found if any(r.node == node.name and not r.is_control for r in c.inputs)]


def _downstream(graph: Graph, refs: Iterable[Ref]) -> set[str]:
    """The nodes that tensors flow into, directly or not."""
    found: set[str] = set()
    waiting: list[str] = []
    for ref in refs:
        waiting += [c.name for c in graph.consumers.get(ref.node, ()) if ref in c.inputs]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [c.name for c in _takers(graph, graph[name])]
    return found


def _is_of_training(graph: Graph, node: Node) -> bool:
    """Whether a tensor depends on chance, or on the statistics of its batch."""
    seen = {node.name}
    waiting = [node]
    while waiting:
        before = waiting.pop()
        if _RANDOM.match(before.op):
            return True
        if before.op in _BATCH_NORMS and before.attr_bool("is_training", True):
            return True
        if before.op == "Merge":
            continue  # what lies in branches is chosen when the model runs
        for ref in before.data_inputs:
            if ref.node not in seen:
                seen.add(ref.node)
                waiting.append(graph[ref.node])
    return False


def _is_of_control(spec: TensorSpec) -> bool:
    """Whether a tensor rather steers a branch, or is a message, than being a result."""
    return spec.dtype in (DType.BOOL, DType.STRING, DType.INVALID)


def _doubts(graph: Graph, node: Node) -> tuple[bool, bool]:
    """Signs that a node is no result, the stronger one first.

    Of what a loop or a conditional gives, much is only for gradients. What losses and scores take
    is rather a step towards a result.
    """
    producer = graph.get(node.inputs[0].node) if node.data_inputs else None
    handed_on = node.op == "Identity" and producer is not None and producer.op in FUNCTIONAL
    return handed_on, bool(_takers(graph, node))


def _specs(graph: Graph, refs: Sequence[Ref]) -> tuple[TensorSpec, ...]:
    part = extract(graph, sorted({r.node for r in refs}))
    shapes = infer_shapes(part, recorded=True)
    specs = []
    for ref in refs:
        node = graph[ref.node]
        definition = signature_of(node, graph.library)
        types = output_types(node, definition) if definition else []
        dtype = types[ref.index].base if ref.index < len(types) else DType.INVALID
        known = shapes.get(ref.node, ())
        shape = known[ref.index] if ref.index < len(known) else None
        specs.append(TensorSpec(str(ref), dtype, shape))
    return tuple(specs)
