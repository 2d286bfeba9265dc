"""Find where a model wastes time, memory, and bytes, and the transforms that help.

Convolutions and matrix products should take most of the time. The findings are the usual reasons
why they do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.core.printable import shortened
from mobileprep.errors import MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import constant_behind, node_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tflite import is_tflite_graph
from mobileprep.inspection.costs import CountedRun
from mobileprep.runtime.accounting.costs import VIEWS, NodeCost
from mobileprep.targets.memmapped import reason_left_out, removal
from mobileprep.targets.op_classes import HEAVY_CLASSES, op_class
from mobileprep.transforms.base import Context, make_transform

_WIDTH: Final = 60
"""Maximum length of a node name in a sentence."""


class Finding(Struct, frozen=True):
    """Some nodes that cost more than they need to.

    Args:
        problem: their kind, in the plural.
        nodes: their names, largest share first.
        share: their fraction of the measure.
        measure: ``time``, ``FLOPs``, ``bytes moved``, ``parameters``, or ``executions``.
        transform: name of the transform that helps; empty if only another export helps.
        advice: what to do, as a clause.
    """

    problem: str
    nodes: tuple[str, ...]
    share: float
    measure: str
    transform: str
    advice: str

    @property
    def sentence(self) -> str:
        """The finding in words, without a period."""
        more = f" and {len(self.nodes) - 1} more" if len(self.nodes) > 1 else ""
        named = f"`{shortened(self.nodes[0], _WIDTH)}`{more}"
        return f"{self.problem} ({named}; {self.share:.1%} of the {self.measure}): {self.advice}"


class Diagnosis(Struct, frozen=True):
    """Findings about a model.

    Args:
        measure: ``time`` if it was measured, otherwise ``FLOPs``.
        layers: fraction of the measure in convolutions and matrix products; None if it is unknown.
        others: fraction in each other op with at least a tenth of the measure, largest first.
        findings: findings, largest share first.
    """

    measure: str
    layers: float | None
    others: Mapping[str, float]
    findings: tuple[Finding, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the diagnosis in words."""
        nothing = "" if self.findings else "; nothing to improve"
        if self.layers is None:
            yield f"the {self.measure} of convolutions and matrix products are not known{nothing}"
        else:
            others = "".join(f", {op} {share:.1%}" for op, share in self.others.items())
            share = f"{self.layers:.1%} of the {self.measure}"
            yield f"convolutions and matrix products take {share}{others}{nothing}"
        yield from (finding.sentence for finding in self.findings)


_ASIDE: Final = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2", "Print"})
_ELEMENTWISE: Final = frozenset(
    {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "Maximum", "Minimum", "Neg", "Square", "Sqrt"}
    | {"Rsqrt", "Exp", "Pow", "SquaredDifference", "Select", "SelectV2"}
)
_LAYOUTS: Final = ([0, 2, 3, 1], [0, 3, 1, 2])
# Smaller shares of elementwise ops, casts, and layers are usual.
_WASTED_BYTES: Final = 0.35
_WASTED_TIME: Final = 0.2
_CAST_SHARE: Final = 0.05
_DOUBLE_SHARE: Final = 0.01
_NOTICEABLE: Final = 0.1
_LARGE_LAYER: Final = 0.5
_LARGE_PARAMETERS: Final = 1 << 18
# Executions of ops in loops that compute next to nothing.
_TINY_FLOPS: Final = 1000
_OFTEN: Final = 10
_MANY: Final = 100
# The transforms that compute weights do not run on more elements than this.
_MAX_PARAMETERS: Final = 1 << 28

# For each transform: a noun for the nodes that it removes, and whether it computes weights.
_BY_TRANSFORM: Final[tuple[tuple[str, str, bool], ...]] = (
    ("choose_inference", "branches that choose between training and inference", False),
    ("remove_dropout", "dropout, which only training needs", False),
    ("remove_no_ops", "nodes that return their input", False),
    ("fold_constants", "nodes that compute constants", True),
    ("fuse_batch_norms", "normalizations that fit into the layer before them", True),
    ("merge_scale_and_bias", "scales and offsets that a layer or a BiasAdd can take", True),
)
_OPTIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    # Quantized and cast weights are meant to stay that way.
    "fold_constants": {"exclude_op": ("Dequantize", "Cast")},
}


def diagnose(
    run: CountedRun,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    seconds: Mapping[str, float] | None = None,
    is_frozen: bool = True,
) -> Diagnosis:
    """Find the nodes of a run that cost more than they need to.

    Args:
        seconds: measured time of nodes, by name; None to compare operations and bytes.
        is_frozen: whether constants have the model's values, so that weights can be folded.
    """
    subject = _Subject(run, inputs, outputs, seconds)
    findings: list[Finding] = []
    if not is_tflite_graph(run.graph):
        findings += _by_transforms(subject, is_frozen=is_frozen)
        for find in _FINDERS:
            findings += find(subject)
    findings += _large_layers(subject)
    findings.sort(key=lambda finding: -finding.share)
    return Diagnosis(subject.measure, *_shares(subject), tuple(findings))


def _shares(subject: _Subject) -> tuple[float | None, dict[str, float]]:
    """Return the share of all layers, and of other ops that take much."""
    ops: dict[str, list[str]] = {}
    for cost in subject.costs.values():
        ops.setdefault(cost.op, []).append(cost.name)
    shares = {op: subject.share(names) for op, names in ops.items()}
    others = {op: s for op, s in shares.items() if s >= _NOTICEABLE and not _is_layer(op)}
    uncounted = () if subject.seconds is not None else subject.run.costs.uncounted
    if not sum(shares.values()) or any(map(_is_layer, uncounted)):
        return None, {}
    layers = sum(share for op, share in shares.items() if _is_layer(op))
    return layers, dict(sorted(others.items(), key=lambda item: -item[1]))


def _is_layer(op: str) -> bool:
    return op_class(op) in HEAVY_CLASSES


class _Subject:
    """A run, with the shares of its nodes."""

    def __init__(
        self,
        run: CountedRun,
        inputs: Sequence[str],
        outputs: Sequence[str],
        seconds: Mapping[str, float] | None,
    ) -> None:
        self.run = run
        self.graph: Graph = run.graph
        self.context = Context(tuple(inputs), tuple(outputs))
        self.costs: Mapping[str, NodeCost] = {cost.name: cost for cost in run.costs.nodes}
        self.seconds = seconds
        self._flops: Mapping[str, float] = {c.name: c.flops or 0 for c in run.costs.nodes}
        self._moved: Mapping[str, float] = {c.name: c.moved for c in run.costs.nodes}
        self.measure = "FLOPs" if seconds is None else "time"
        self.after = run.graph
        """The graph after the transforms that were tried."""

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes that run and that no transform removes, except constants."""
        return (n for n in self.graph if n.name in self.costs and not _is_gone(n, self.after))

    def share(self, names: Iterable[str]) -> float:
        """Return the fraction of the time, or of the operations."""
        amounts = self._flops if self.seconds is None else self.seconds
        total = sum(amounts.values())
        return sum(amounts.get(name, 0) for name in names) / total if total else 0.0

    def finding(self, problem: str, nodes: Sequence[str], transform: str, advice: str) -> Finding:
        """Return a finding with the share of the time, or of the bytes moved."""
        amounts, measure = self._moved, "bytes moved"
        if self.seconds is not None:
            amounts, measure = self.seconds, self.measure
        total = sum(amounts.values())
        names = tuple(sorted(nodes, key=lambda name: -amounts.get(name, 0)))
        share = sum(amounts.get(name, 0) for name in names) / total if total else 0.0
        return Finding(problem, names, share, measure, transform, advice)


def _by_transforms(subject: _Subject, *, is_frozen: bool) -> Iterator[Finding]:
    """Yield a finding for each transform that changes nodes that run, one after the other."""
    is_small = subject.run.costs.parameters <= _MAX_PARAMETERS
    for name, problem, computes_weights in _BY_TRANSFORM:
        if computes_weights and not (is_frozen and is_small):
            continue
        try:
            step = make_transform(name, dict(_OPTIONS.get(name, {})))
            after = step.apply(subject.after, subject.context).graph
        except MobileprepError:
            continue
        nodes = [node.name for node in subject.nodes if _is_gone(node, after)]
        subject.after = after
        if nodes:
            yield subject.finding(problem, nodes, name, f"`{name}` removes them")


def _is_gone(node: Node, after: Graph) -> bool:
    rest = after.get(node.name)
    return rest is None or rest.op != node.op


def _training_ops(subject: _Subject) -> Iterator[Finding]:
    """Yield ops that only training and debugging need, by fix."""
    by_fix: dict[str, list[Node]] = {}
    for node in subject.nodes:
        # A transposed convolution is named after the gradient.
        is_needed = node.op in VIEWS or _is_layer(node.op)
        is_of_training = reason_left_out(node.op) == "training" and not is_needed
        if node.op in _ASIDE or is_of_training:
            advice = removal(node.op) or f"`remove_nodes: {{op: [{node.op}]}}` removes it"
            by_fix.setdefault(advice, []).append(node)
    for advice, nodes in by_fix.items():
        ops = ", ".join(dict.fromkeys(node.op for node in nodes))
        named = re.search("`([a-z_]+)", advice)
        transform = "strip_unused_nodes" if named is None else named[1]
        problem = f"{ops}, for training or debugging"
        yield subject.finding(problem, [node.name for node in nodes], transform, advice)


def _unused(subject: _Subject) -> Iterator[Finding]:
    """Yield nodes that the outputs do not need, such as gradients, summaries, and savers."""
    graph = subject.graph
    ran = (node for node in graph if node.name in subject.costs)
    needed = {r.node for node in ran for r in node.inputs} | set(subject.costs)
    needed |= {parse_ref(name).node for name in (*subject.context.inputs, *subject.context.outputs)}
    names = tuple(n.name for n in graph if n.name not in needed and n.op != "NoOp")
    if names:
        share = len(names) / len(graph)
        problem, name = "nodes that the outputs do not need", "strip_unused_nodes"
        yield Finding(problem, names, share, "nodes", name, f"`{name}` removes them")


def _batch_statistics(subject: _Subject) -> Iterator[Finding]:
    norms = (n for n in subject.nodes if n.op in FUSED_BATCH_NORMS)
    names = [n.name for n in norms if n.attr_bool("is_training", True)]
    if names:
        problem = "normalizations with statistics of the batch, as in training"
        advice = "export the model for inference, or select it with `choose_inference`"
        yield subject.finding(problem, names, "choose_inference", advice)


def _fake_quantization(subject: _Subject) -> Iterator[Finding]:
    names = [n.name for n in subject.nodes if n.op.startswith("FakeQuant")]
    if names:
        problem = "fake quantization, which computes in float"
        advice = "`quantize_nodes` computes in 8 bits with its ranges"
        yield subject.finding(problem, names, "quantize_nodes", advice)


def _casts(subject: _Subject) -> Iterator[Finding]:
    """Yield casts of computed tensors if they take a noticeable share."""
    names = [
        node.name
        for node in subject.nodes
        if node.op == "Cast"
        and node.data_inputs
        and node_behind(subject.graph, node.data_inputs[0]).name in subject.costs
        and "Placeholder" not in node_behind(subject.graph, node.data_inputs[0]).op
    ]
    if names:
        finding = subject.finding(
            "casts between dtypes",
            names,
            "remove_no_ops",
            "export the model with one dtype; `remove_no_ops` removes casts back and forth",
        )
        if finding.share >= _CAST_SHARE:
            yield finding


def _transposes(subject: _Subject) -> Iterator[Finding]:
    names = [
        node.name
        for node in subject.nodes
        if node.op == "Transpose" and _order(subject.graph, node) in _LAYOUTS
    ]
    if names:
        problem = "transposes between channels first and channels last"
        advice = "export the model with channels last; `remove_no_ops` removes adjacent pairs"
        yield subject.finding(problem, names, "remove_no_ops", advice)


def _order(graph: Graph, node: Node) -> list[int]:
    value = constant_behind(graph, node.data_inputs[1]) if node.data_inputs[1:] else None
    return [] if value is None or value.size > len(_LAYOUTS[0]) else value.array().ravel().tolist()


def _tiny_ops(subject: _Subject) -> Iterator[Finding]:
    """Yield ops in loops whose overhead exceeds their work."""
    costs = subject.costs.values()
    tiny = [c for c in costs if c.calls >= _OFTEN and (c.flops or 0) < _TINY_FLOPS * c.calls]
    calls = sum(cost.calls for cost in tiny)
    total = sum(cost.calls for cost in costs)
    if calls < _MANY or calls * 2 < total:
        return
    names = tuple(cost.name for cost in tiny)
    share, measure = calls / total, "executions"
    if subject.seconds is not None:
        share, measure = subject.share(names), subject.measure
    problem = f"ops in loops with less than {_TINY_FLOPS:,} FLOPs for each execution"
    advice = "`raise_control_flow` makes one While of the loop, for a fused op or LiteRT"
    yield Finding(problem, names, share, measure, "raise_control_flow", advice)


def _elementwise(subject: _Subject) -> Iterator[Finding]:
    """Yield elementwise ops if they move many bytes for few operations."""
    names = [node.name for node in subject.nodes if node.op in _ELEMENTWISE]
    if not names:
        return
    finding = subject.finding(
        "elementwise ops that the runtime does not fuse",
        names,
        "merge_scale_and_bias",
        "`fuse_batch_norms` and `merge_scale_and_bias` merge those with constants; "
        "a simpler activation or quantization reduces the rest",
    )
    limit = _WASTED_BYTES if subject.seconds is None else _WASTED_TIME
    if finding.share >= limit and subject.share(names) >= limit / 2:
        yield finding


def _doubles(subject: _Subject) -> Iterator[Finding]:
    names = [
        node.name
        for node in subject.nodes
        if any(a.kind == "type" and a.value is DType.DOUBLE for a in node.attrs.values())
    ]
    if names:
        problem = "float64, which takes twice the bytes and time of float32"
        finding = subject.finding(problem, names, "", "export the model with float32")
        if finding.share >= _DOUBLE_SHARE:
            yield finding


def _large_layers(subject: _Subject) -> Iterator[Finding]:
    """Yield fully connected layers with most of the parameters, if their weights are float."""
    graph, sizes, layers = subject.graph, dict[str, int](), dict[str, int]()
    for node in subject.nodes:
        if node.op not in ("MatMul", "FULLY_CONNECTED") or len(node.data_inputs) < 2:
            continue
        source = node_behind(graph, node.data_inputs[1])
        weights = source.attr_tensor("value") if source.op == "Const" else None
        if weights is not None and weights.dtype.is_floating:
            # Layers of a recurrent network can share weights.
            sizes[source.name] = layers[node.name] = weights.size
    total = subject.run.costs.parameters
    share = sum(sizes.values()) / total if total else 0.0
    if share < _LARGE_LAYER or sum(sizes.values()) < _LARGE_PARAMETERS:
        return
    names = tuple(sorted(layers, key=lambda name: -layers[name]))
    problem, name = "large fully connected layers", "quantize_weights"
    advice = (
        f"`{name}` stores them in a quarter of the bytes; a pooling layer before them shrinks them"
    )
    yield Finding(problem, names, share, "parameters", name, advice)


_FINDERS: Final[Collection[Callable[[_Subject], Iterator[Finding]]]] = (
    _training_ops,
    _unused,
    _batch_statistics,
    _fake_quantization,
    _casts,
    _transposes,
    _tiny_ops,
    _elementwise,
    _doubles,
)
