"""Training nodes of a graph: losses, gradients, updates, and random ops."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence, Set
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError
from mobileprep.freezing.trace import (
    VARIABLE_OPS,
    Flows,
    Trace,
    extract,
    is_branch_input,
    is_inside,
    upstream,
    variable_behind,
)
from mobileprep.graph import attrs as attr
from mobileprep.graph.dropout import masked, unscaled
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS, LOSSES
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.reachability import dependents, reachable
from mobileprep.graph.refs import Ref
from mobileprep.ops.shape_inference import infer_shapes

# Ops that log, measure, or change a model but are not results of it.
ASIDE: Final = re.compile(
    r"(Shape|ShapeN|Size|Rank|Range|OnesLike|ZerosLike|Fill|BroadcastGradientArgs|ConcatOffset|"
    r".*Summary(V2)?|Assert|Print(V2)?|NoOp|Assign.*|.*Scatter.*Update|(Resource|Sparse)*Apply.*|"
    r"Save.*|Restore.*|.*Dataset.*|Log.*Tensor.*)\Z"
)
_PENALTY: Final = "L2Loss"
# Nodes that optimizers add: gradients, and the ops that apply them.
_GRADIENTS: Final = re.compile(r"(.*/)?(gradient(s|_tape)(_\d+)?/|\w+/update_)")
_UPDATES: Final = re.compile(r"((Resource|Sparse)*Apply.*|Assign(Add|Sub)(VariableOp)?)\Z")
# Scopes of TensorFlow's losses, metrics, and assertions, and those that training scripts use.
_SCORING: Final = re.compile(
    r"(.*/)?(\w*loss(es)?|cost|\w*cross_entropy\w*|xentropy|accuracy|metrics|confusion_matrix)"
    r"(_\d+)?/"
)
_ASSERTION: Final = re.compile(r"(.*/)?(assert_[a-z_]+|Assert|AssertGuard)(_\d+)?/")
_LOGARITHMS: Final = frozenset({"Log", "Log1p"})
# Ops that compute an error, unless the author has named the node.
_ERRORS: Final = _LOGARITHMS | {"Square", "Pow", "Abs"}
# Ops that clamp a probability above zero before the logarithm, or subtract it from one.
_SHIFTS: Final = frozenset({"Add", "AddV2", "Sub", "Maximum", "Minimum", "ClipByValue"})
_REDUCTIONS: Final = frozenset({"Mean", "Sum"})
# Ops that compute the condition of an assertion.
_CONDITIONS: Final = frozenset(
    {"All", "Any", "Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"}
    | {"LogicalAnd", "LogicalOr", "LogicalNot", "IsFinite", "IsNan", "IsInf"}
)
# Ops that convert the operands of a condition.
_CONVERSIONS: Final = frozenset({"Cast", "Pack", "StridedSlice"})
_PACK_NAME: Final = "stack"
_LOSS_ARITHMETIC: Final = (
    _REDUCTIONS
    | _LOGARITHMS
    | _SHIFTS
    | {"Neg", "Mul", "AddN", "RealDiv", "Div", "DivNoNan", "Pow", "Square", "SquaredDifference"}
    | {"Abs", "Exp", "Sqrt", "Identity", "Cast", "Select", "SelectV2", "GreaterEqual", "Greater"}
    | {"Less", "ZerosLike", "OnesLike", "Softplus", "Reshape", "Squeeze"}
)
_RANDOM: Final = re.compile(r"(Stateless)?(Random|TruncatedNormal|Multinomial).*\Z")


def is_gradient(node: Node) -> bool:
    """Return whether a node computes or applies a gradient."""
    return _GRADIENTS.match(node.name) is not None


def is_of_training(graph: Graph) -> bool:
    """Return whether a graph contains training nodes, so that some of its ends are not results."""
    return any(n.op in LOSSES or _UPDATES.match(n.op) or is_gradient(n) for n in graph)


def is_uncut(graph: Graph) -> bool:
    """Return whether a graph was saved whole, so that some of its ends may be leftovers.

    A graph without variables was frozen, which keeps only the nodes that its outputs need.
    """
    return is_of_training(graph) or any(n.op in VARIABLE_OPS for n in graph)


def has_default_name(node: Node) -> bool:
    """Return whether a node has a name that TensorFlow chooses, such as ``ArgMax_1``."""
    name = re.sub(r"(V\d+)?(_\d+)?\Z", "", node.name.rpartition("/")[2], count=1)
    usual = _PACK_NAME if node.op == "Pack" else re.sub(r"V\d+\Z", "", node.op).lower()
    return name.replace("_", "").lower() == usual


def scores_of(graph: Graph, flows: Flows, labels: Iterable[Ref]) -> set[str]:
    """Return the nodes that compute losses, scores, assertions, and gradients."""
    losses = [n.name for n in graph if n.op in LOSSES or n.op == _PENALTY]
    scored = {*losses, *flows.downstream([*labels, *map(Ref, losses)])}
    scored.update(n.name for n in graph if is_gradient(n) or _ASSERTION.match(n.name))
    return _with_preparation(graph, flows, scored)


def losses_among(
    graph: Graph, flows: Flows, ends: Iterable[Node], fed: Iterable[Ref], scored: Set[str]
) -> set[str]:
    """Return the nodes that only compute losses without a label, as in an autoencoder."""
    fed_nodes = {ref.node for ref in fed}

    def is_step(node: Node, part: Set[str]) -> bool:
        """Return whether a node is only part of a loss."""
        is_arithmetic = node.op in _LOSS_ARITHMETIC and node.name not in fed_nodes
        is_named = node.op == "Identity" and not has_default_name(node)
        has_weights = any(variable_behind(graph, ref) for ref in node.data_inputs)
        if not is_arithmetic or is_named or has_weights:
            return False
        takers = (n for n, _ in flows.takers(node.name) if not ASIDE.match(n.op))
        return all(taker.name in part or taker.name in scored for taker in takers)

    losses: set[str] = set()
    for end in ends:
        part = {end.name} if end.op in _LOSS_ARITHMETIC else set()
        waiting = [end] if part else []
        while waiting:
            for node in (graph[ref.node] for ref in waiting.pop().data_inputs):
                if node.name not in part and is_step(node, part):
                    part.add(node.name)
                    waiting.append(node)
        if any(graph[name].op in _REDUCTIONS for name in part):
            losses |= part
    return losses


def _with_preparation(graph: Graph, flows: Flows, scored: set[str]) -> set[str]:
    """Add the nodes that only prepare the model's results for the scores."""
    scored = set(scored)
    waiting = list(scored)
    remaining: dict[str, int] = {}
    while waiting:
        taker = graph[waiting.pop()]
        for name in dict.fromkeys(ref.node for ref in taker.data_inputs):
            if name not in remaining:
                takers = {n.name for n, _ in flows.takers(name) if not ASIDE.match(n.op)}
                remaining[name] = len(takers)
            remaining[name] -= not ASIDE.match(taker.op)
            if remaining[name] <= 0 and name not in scored and _prepares(graph, flows, graph[name]):
                scored.add(name)
                waiting.append(name)
    return scored


def _prepares(graph: Graph, flows: Flows, node: Node) -> bool:
    """Return whether a node only prepares a result for a score.

    Authors name the results of a model; the ops of a score keep their default names.
    """
    if _SCORING.match(node.name):
        return True
    if node.op in _ERRORS or node.op == "ArgMax":
        return has_default_name(node)
    takers = [taker for taker, _ in flows.takers(node.name) if not is_gradient(taker)]
    if node.op in _CONDITIONS or (node.op in _CONVERSIONS and has_default_name(node)):
        compared = _CONDITIONS | _CONVERSIONS
        return any(t.op in compared or _ASSERTION.match(t.name) for t in takers)
    if node.op not in _SHIFTS or not any(t.op in _ERRORS | _SHIFTS for t in takers):
        return False
    return any(graph[ref.node].op == "Const" for ref in node.data_inputs)


def of_chance_or_batch(graph: Graph, flows: Flows) -> set[str]:
    """Return the nodes that depend on random numbers or on the statistics of their batch."""
    starts = {
        n.name
        for n in graph
        if _RANDOM.match(n.op) or (n.op in FUSED_BATCH_NORMS and n.attr_bool("is_training", True))
    }
    merges = {n.name for n in graph if n.op == "Merge"}
    refs = [Ref(name, index) for name in starts for _, index in flows.takers(name)]
    return starts | flows.downstream(refs, past=merges)


_LABEL_NAME: Final = re.compile(
    r"(.*[/_])?(labels?|targets?|truths?|y_|y_true|ground_?truth|weights?_placeholder)(_\d+)?\Z",
    re.IGNORECASE,
)
_LABEL_SLOT: Final = 1
# Ops with weights, which consume the inputs of a model but not labels and learning rates.
_WEIGHTED: Final = re.compile(
    r"(Conv[23]D|DepthwiseConv2dNative|Conv[23]DBackpropInput(V2)?|(Batch)?MatMul(V2|V3)?|Einsum|"
    r"Sparse(TensorDense)?MatMul|SparseSegment(Sum|Mean|SqrtN)(WithNumSegments)?|"
    r"(Resource)?Gather(V2|Nd)?|FusedBatchNorm(V2|V3)?|LookupTableFind(V2)?|.*LSTM.*|.*RNN.*)\Z"
)
# Lookups of table rows, which are weights only if the table is.
_LOOKUPS: Final = re.compile(r"((Resource)?Gather(V2|Nd)?|SparseSegment.*)\Z")
# Ops that compare the output of a model with the expected output.
_COMPARISONS: Final = frozenset({"Equal", "NotEqual", "InTopK", "InTopKV2", "SquaredDifference"})
_DISTANCES: Final = frozenset({"Square", "Abs", "Pow"})
_LOGARITHM_OPS: Final = frozenset({"Log", "LogSoftmax"})
_ONE_NUMBER: Final = ((),)


def labels_of(graph: Graph, flows: Flows, entries: Sequence[Ref]) -> set[Ref]:
    """Return the entries that an app does not feed, such as labels."""
    labels = _explicit_labels(graph, entries)
    is_frozen = not any(n.op in VARIABLE_OPS for n in graph)
    weights = [n.name for n in graph if _is_weighted(graph, n, is_frozen=is_frozen)]
    of_weights = flows.leading_to(weights)
    unnamed = [r for r in entries if r not in labels]
    others = [r for r in unnamed if not flows.takes(r, of_weights)]
    if len(others) == len(unnamed):
        return labels
    if is_of_training(graph):
        return labels.union(others)
    outputs = dependents(graph, weights, through_control=False)
    return labels.union(r for r in others if _is_scored_with(graph, flows, r, outputs))


def _explicit_labels(graph: Graph, entries: Sequence[Ref]) -> set[Ref]:
    """Return the inputs that are named like labels, or that a loss compares with the outputs."""
    labels = {r for r in entries if _LABEL_NAME.match(r.node)}
    candidates = set(entries)
    for node in graph:
        if node.op in LOSSES and len(node.data_inputs) > _LABEL_SLOT:
            last = [Ref(n.name, i) for n, i in upstream(graph, node.inputs[_LABEL_SLOT])]
            labels.update(r for r in last if r in candidates)
    return labels


def _is_weighted(graph: Graph, node: Node, *, is_frozen: bool) -> bool:
    if not _WEIGHTED.match(node.op) or is_gradient(node) or not node.data_inputs:
        return False
    # Losses gather the model's output for each label.
    table = node.inputs[0]
    return (
        not _LOOKUPS.match(node.op)
        or (is_frozen and graph[table.node].op == "Const")
        or variable_behind(graph, table) is not None
    )


def _is_scored_with(graph: Graph, flows: Flows, entry: Ref, outputs: Container[str]) -> bool:
    """Return whether an entry only serves to score the model's output.

    Such an entry is compared with the output, or only produces single numbers. An entry that is a
    single number itself applies to all samples, unlike a label.
    """
    after = flows.downstream([entry])
    ends = [n for n in after if not flows.takers(n) and not ASIDE.match(graph[n].op)]
    shapes = infer_shapes(extract(graph, [entry.node, *ends]), recorded=True)
    if shapes.get(entry.node, ())[entry.index :][:1] == _ONE_NUMBER:
        return False
    if any(_compares(graph, flows, graph[n], after, outputs) for n in after):
        return True
    return all(shapes.get(n) == _ONE_NUMBER for n in ends)


def _compares(
    graph: Graph, flows: Flows, node: Node, after: Container[str], outputs: Container[str]
) -> bool:
    """Return whether a node compares a value computed from an input with the model's output."""
    results = [r.node for r in node.data_inputs if r.node in outputs and r.node not in after]
    if not results:
        return False
    if node.op == "Mul":  # The cross entropy as separate ops.
        return any(graph[name].op in _LOGARITHM_OPS for name in results)
    if node.op == "Sub":
        takers = flows.takers(node.name)
        return bool(takers) and all(taker.op in _DISTANCES for taker, _ in takers)
    return node.op in _COMPARISONS


class Cut(Struct, frozen=True):
    """A graph without dropout, and the number of removed layers."""

    graph: Graph
    count: int = 0


def remove_dropout(graph: Graph) -> Cut:
    """Replace each dropout that has a constant keep probability with an Identity of its input."""
    nodes: list[Node] = []
    count = 0
    for node in graph:
        source = _dropped(graph, node)
        if source is None:
            nodes.append(node)
        else:
            count += 1
            inputs = (source, *node.control_inputs)
            nodes.append(
                Node(node.name, "Identity", inputs, node.device, {"T": node.attribute("T")})
            )
    return Cut(graph.with_nodes(nodes), count) if count else Cut(graph)


def _dropped(graph: Graph, node: Node) -> Ref | None:
    """Return the input of a dropout, given its last node; None for other nodes."""
    match = masked(graph, node) if "T" in node.attrs else None
    if match is None:
        return None
    scaled, rate = match
    keep_probability = rate.constant
    source = unscaled(graph, scaled, rate)
    if source is None or keep_probability is None or not 0 < keep_probability <= 1:
        return None
    # In a branch, the app selects training or inference at run time.
    return None if is_branch_input(graph, source) else source


_HINT: Final = "choose other outputs, or list the variable under variable_names_blacklist"


class Settled(Struct, frozen=True):
    """A graph without updates of variables, and warnings for the user."""

    graph: Graph
    warnings: tuple[str, ...] = ()


def without_updates(
    graph: Graph, roots: Sequence[str], uses: Trace, initial: Container[str], where: str
) -> Settled:
    """Remove ops that change variables, and the ops that use their results.

    Training adds such ops with control dependencies: updates of moving averages, and step counters.
    An Assign whose result an output uses is replaced with its value.

    Args:
        initial: ops that run first and initialize the variables.

    Raises:
        UnsupportedError: if an output needs the variable after a change.
    """
    by_data = reachable(graph, roots, through_control=False)
    plain: dict[str, Node] = {}
    late = [(variable, name) for variable, name in uses.blocked if name not in initial]
    after = dependents(graph, [name for _, name in late])
    for variable, name in late:
        if name in by_data:
            plain[name] = _result(graph, variable, graph[name], where)
        _check_not_read_after(graph, variable, name, by_data & after, where)
    lost_updates = {name for _, name in uses.blocked if name not in plain}
    gone = dependents(graph, lost_updates, through_control=False)
    stays = {n: node for n in gone if (node := _replacement(graph, graph[n], gone))}
    lost = [graph[name].op for _, name in late if name in gone]
    gone -= stays.keys()
    plain.update(stays)
    nodes = [_not_waiting_for(plain.get(n.name, n), gone) for n in graph if n.name not in gone]
    message = (
        f"{len(lost)} ops that change variables were removed, as outputs only wait for them: "
        + ", ".join(sorted(set(lost)))
    )
    return Settled(extract(graph.with_nodes(nodes), roots), (message,) if lost else ())


def _result(graph: Graph, variable: str, node: Node, where: str) -> Node:
    """Replace an Assign with the value that it stores, if that does not depend on the variable."""
    value = node.data_inputs[1] if len(node.data_inputs) > 1 else None
    if node.op != "Assign" or value is None or variable in reachable(graph, [value.node]):
        message = (
            f"an output takes the result of {node.name!r} ({node.op}), for which {variable!r} "
            "has to stay a variable"
        )
        raise UnsupportedError(message, _HINT, where)
    return Node(
        node.name, "Identity", (value, *node.control_inputs), "", {"T": node.attribute("T")}
    )


def _replacement(graph: Graph, node: Node, gone: Container[str]) -> Node | None:
    """Return a replacement for a removed op in a loop or branch that other nodes may wait for.

    Without control inputs, constants that wait for it would be outside of the loop or branch.
    """
    if not is_inside(graph, node):
        return None
    inputs = [r for r in node.data_inputs[1:] if r.node not in gone] or node.data_inputs[:1]
    producer = graph[inputs[0].node]
    definition = signature_of(producer, graph.library)
    types = output_types(producer, definition) if definition else []
    if producer.name in gone or inputs[0].index >= len(types):
        return None
    kind = {"T": attr.dtype(types[inputs[0].index].base)}
    return Node(node.name, "Identity", (inputs[0],), "", kind)


def _check_not_read_after(
    graph: Graph, variable: str, update: str, suspects: set[str], where: str
) -> None:
    for reader in graph.consumers.get(variable, ()):
        is_suspect = reader.name in suspects and reader.name != update
        if is_suspect and update in reachable(graph, [reader.name]):
            message = (
                f"an output reads the variable {variable!r} after {update!r} "
                f"({graph[update].op}) has changed it"
            )
            raise UnsupportedError(message, _HINT, where)


def _not_waiting_for(node: Node, gone: set[str]) -> Node:
    inputs = tuple(r for r in node.inputs if r.node not in gone)
    return node if len(inputs) == len(node.inputs) else replace(node, inputs=inputs)
