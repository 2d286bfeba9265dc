"""Find the constant tensors of a graph that other nodes use, and compute their values.

Source: ``IsConstantFoldable`` and ``FindConstantFoldableNodes`` of TensorFlow 1.15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from mobileprep.core.limits import working
from mobileprep.errors import (
    InvalidGraphError,
    RunLimitError,
    TransformError,
    UnsupportedError,
    WorkLimitError,
)
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Library
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import NEWEST, TF115, op_def
from mobileprep.graph.opdefs.kernel_classes import kernel_class
from mobileprep.graph.reachability import closure, reachable
from mobileprep.graph.refs import Ref, control, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import SHAPE_OPS, evaluate_node, shape_values
from mobileprep.ops.kernel import find_kernel
from mobileprep.ops.numerics.allocation import at_most, memory_left

_CONTROL_FLOW = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration"})


_LEFT_ALONE = frozenset(
    {
        *_CONTROL_FLOW,
        *(f"Ref{op}" for op in _CONTROL_FLOW),
        "DeleteSessionTensor",
        "FakeParam",
        "GetSessionHandle",
        "GetSessionHandleV2",
        "GetSessionTensor",
    }
)


@dataclass
class FoldingRules:
    """Rules that decide whether nodes with constant inputs may be folded.

    Args:
        library: the graph's functions; calls are not folded.
        excluded_ops: ops that the user excluded.
        excluded_nodes: names of nodes that the user excluded.
        max_bytes: size limit of results.
        tf115: fold what TensorFlow 1.15 folds: also lists without values, decoded weights, and
            placeholders that are not fed, which fail when their values are needed.
        failures: names of nodes that could not be computed, with reasons.
    """

    library: Library
    excluded_ops: Collection[str]
    excluded_nodes: Collection[str]
    max_bytes: int
    tf115: bool = False
    failures: dict[str, str] = field(default_factory=dict, init=False)

    def refusal(self, node: Node) -> str:
        """Return the reason why a node must not be folded, or an empty string."""
        if node.op in self.excluded_ops or node.name in self.excluded_nodes:
            return "excluded"
        if node.op in self.library.functions:
            return "function call"
        if node.op in PLACEHOLDERS:
            return "" if self.tf115 else "placeholder"
        if node.op in _LEFT_ALONE:
            return f"{node.op} is never folded"
        release = TF115 if op_def(node.op, TF115) is not None else NEWEST
        definition = op_def(node.op, release)
        if definition is None:
            return f"unknown op {node.op}"
        if definition.is_stateful:
            return f"{node.op} has state"
        if kernel_class(node, release) is None:
            return f"TensorFlow {release} has no CPU kernel for this {node.op}"
        # A node without outputs is never computed.
        if definition.outputs and find_kernel(node.op) is None:
            return f"no kernel for {node.op}"
        return self.failures.get(node.name, "")


class Execution(Struct, frozen=True):
    """The nodes that a run needs, and the feeds that cut the graph.

    Args:
        nodes: the needed nodes by name, in stored order.
        fed: the inputs of nodes that come from a feed: the fed tensors, and control dependencies on
            the placeholders among them.
        inputs: the nodes whose tensors are fed, in the user's order.
        fetched: the tensors that are fetched.
    """

    nodes: Mapping[str, Node]
    fed: frozenset[Ref]
    inputs: tuple[str, ...]
    fetched: tuple[Ref, ...]


def execution(nodes: Iterable[Node], inputs: Iterable[str], outputs: Iterable[str]) -> Execution:
    """Return the part of a graph between fed and fetched tensors."""
    by_name = {node.name: node for node in nodes}
    tensors = [parse_ref(name) for name in inputs]
    placeholders = (r.node for r in tensors if by_name[r.node].op in PLACEHOLDERS)
    fed = frozenset(tensors).union(control(name) for name in placeholders)
    fetched = tuple(parse_ref(name) for name in outputs)
    needed = reachable(by_name, (r.node for r in fetched), fed)
    names = tuple(dict.fromkeys(r.node for r in tensors))
    return Execution({n: by_name[n] for n in by_name if n in needed}, fed, names, fetched)


class ConstantNodes:
    """The constant nodes among those that run.

    Args:
        run: the nodes.
        sinks: the nodes at which the search starts.
        rules: decide which nodes may be folded.
        shape_of: returns the statically known shape of a tensor.
    """

    def __init__(
        self,
        run: Execution,
        sinks: Iterable[str],
        rules: FoldingRules,
        shape_of: Callable[[Ref], TensorShape],
    ) -> None:
        self._run = run
        self._rules = rules
        self._shape_of = shape_of
        self.order: list[str] = []
        """Their names, inputs before consumers."""
        self.controls: dict[str, frozenset[Ref]] = {}
        """What must run before each value may be used: nodes as control references, and feeds as
        the fed tensors."""
        self.shapes: dict[str, tuple[Tensor, ...]] = {}
        """Outputs of the nodes that return a known shape."""
        self.skipped: Counter[str] = Counter()
        """Number of nodes with constant inputs that must not be folded, by reason."""
        for name in _post_order(run, sinks):
            self._visit(run.nodes[name])

    def __contains__(self, name: str) -> bool:
        return name in self.controls

    def _visit(self, node: Node) -> None:
        """Classify a node whose inputs are already classified."""
        values = node.op in SHAPE_OPS and shape_values(
            node, [self._shape_of(ref) for ref in node.data_inputs]
        )
        if values:
            self.shapes[node.name] = values
        elif not self._is_constant(node):
            return
        self.order.append(node.name)
        self.controls[node.name] = self._awaited(node)

    def _is_constant(self, node: Node) -> bool:
        if node.op == "Const":
            return node.attr_dtype("dtype") is not DType.RESOURCE
        inputs = node.data_inputs
        if not all(r.node in self.controls and r not in self._run.fed for r in inputs):
            return False
        reason = self._rules.refusal(node)
        if reason:
            self.skipped[reason] += 1
        return not reason

    def _awaited(self, node: Node) -> frozenset[Ref]:
        """Return all control inputs of a constant node and of its sources."""
        awaited: frozenset[Ref] = frozenset()
        for ref in node.inputs:
            if ref in self._run.fed:
                more = frozenset({Ref(ref.node, max(ref.index, 0))})
            elif ref.node in self.controls:
                more = self.controls[ref.node]
            else:
                more = frozenset({control(ref.node)})
            # Most nodes have no dependencies, or those of one input: share the set.
            if not more <= awaited:
                awaited = more if not awaited else awaited | more
        return awaited


def _post_order(run: Execution, sinks: Iterable[str]) -> Iterator[str]:
    """Yield names with inputs first; inputs are visited in reverse alphabetical order."""
    stack = [(name, False) for name in sinks]
    visited = set()
    while stack:
        name, is_expanded = stack.pop()
        if is_expanded:
            yield name
            continue
        if name in visited:
            continue
        visited.add(name)
        stack.append((name, True))
        producers = sorted({r.node for r in run.nodes[name].inputs if r not in run.fed})
        stack += [(p, False) for p in producers if p not in visited]


_DECODED = "it decodes weights that are stored in fewer bits"


class Folding(Struct, frozen=True):
    """Foldable parts of a graph.

    Args:
        run: the nodes that the outputs need.
        constant: the constant nodes among them.
        values: the constant tensors that other nodes or the user take, except those of Const nodes
            and those that are too large.
        skipped: number of nodes and tensors that are not folded, by reason.
        costly: nodes that are not folded because of their memory or time.
    """

    run: Execution
    constant: ConstantNodes
    values: Mapping[Ref, Tensor]
    skipped: Mapping[str, int]
    costly: Sequence[str]


def find_folding(
    run: Execution,
    sinks: Sequence[str],
    rules: FoldingRules,
    shape_of: Callable[[Ref], TensorShape],
) -> Folding:
    """Find and compute foldable tensors.

    Args:
        shape_of: returns the statically known shape of a tensor.
    """
    costly: list[str] = []
    while True:
        constant = ConstantNodes(run, sinks, rules, shape_of)
        targets = frozenset(_used_outside(run, constant))
        with working(_FLOPS):
            computed = _constant_values(run.nodes, constant, targets, tf115=rules.tf115)
        if not computed.failures:
            break
        costly += computed.costly
        # The consumers of such a node are not constant either: search again without it.
        rules.failures.update(computed.failures)
    values = {r: t for r, t in computed.tensors.items() if t.nbytes <= rules.max_bytes}
    skipped = Counter(constant.skipped)
    if len(values) < len(computed.tensors):
        skipped[f"larger than {rules.max_bytes} bytes"] = len(computed.tensors) - len(values)
    if not rules.tf115:
        # The original folds these too, which undoes the size reduction of quantization.
        decoded = {r for r, t in values.items() if is_decoded(run.nodes, r, t)}
        skipped.update([_DECODED] * len(decoded))
        values = {r: t for r, t in values.items() if r not in decoded}
    return Folding(run, constant, values, skipped, costly)


def _used_outside(run: Execution, constant: ConstantNodes) -> set[Ref]:
    """Return the outputs of constant nodes, except Const, that other nodes or users take."""
    inner = {n for n in constant.order if run.nodes[n].op != "Const"}
    used = {r for r in run.fetched if r.node in inner}
    for node in run.nodes.values():
        if inner and node.name not in constant:
            used.update(r for r in node.inputs if r.node in inner and not r.is_control)
    return used - run.fed


_LEAST: Final = 1024
"""Size in bytes below which copies do not matter: vectors, shapes, and their operands."""
_GROWTH: Final = 1.5


def is_decoded(nodes: Mapping[str, Node], ref: Ref, value: Tensor) -> bool:
    """Return whether a constant tensor results from Cast or Dequantize of smaller elements.

    Args:
        nodes: the nodes, by name; fed nodes, of which only the shape can matter, may be missing.
    """
    if value.nbytes < _LEAST:
        return False

    def inputs(name: str) -> Iterator[str]:
        return (r.node for r in nodes[name].data_inputs if r.node in nodes)

    behind = [nodes[name] for name in closure([ref.node], inputs)]
    if not any(_widens(node) for node in behind):
        return False
    stored = sum(n.attr_tensor("value").nbytes for n in behind if n.op == "Const")
    return stored * _GROWTH < value.nbytes


def _widens(node: Node) -> bool:
    if node.op == "Dequantize":
        return True
    if node.op != "Cast":
        return False
    source, result = node.attr_dtype("SrcT"), node.attr_dtype("DstT")
    return result.is_floating and source.itemsize < result.itemsize


_NAME = "fold_constants"
# Memory limit of intermediate results, also as a multiple of the existing constants: larger graphs
# are small only in their stored form.
_LEAST_MEMORY = 1 << 29
_TIMES_INPUT = 8
# Limit of arithmetic operations, some seconds of work, the same on each machine.
_FLOPS = 1 << 38


class _ConstantValues(Struct, frozen=True):
    """Values of constant tensors.

    Args:
        tensors: the requested values, except those that depend on an uncomputed node.
        failures: the nodes that cannot be computed, with reasons.
        costly: those among them that would take too much memory or time.
    """

    tensors: Mapping[Ref, Tensor]
    failures: Mapping[str, str]
    costly: tuple[str, ...] = ()


def _constant_values(
    nodes: Mapping[str, Node], constant: ConstantNodes, targets: frozenset[Ref], *, tf115: bool
) -> _ConstantValues:
    """Compute tensors of constant nodes, within limits that are the same on each machine.

    Other tensors are released when they are no longer used.
    """
    inputs = _needed_inputs(nodes, constant, targets)
    uses = Counter(ref for refs in inputs.values() for ref in refs)
    values: dict[Ref, Tensor] = {}
    used_bytes = 0
    failures: dict[str, str] = {}
    costly: list[str] = []
    limit = max(_LEAST_MEMORY, _TIMES_INPUT * sum(map(_constant_bytes, nodes.values())))
    for name in constant.order:
        refs = inputs.get(name)
        if refs is None or any(r not in values for r in refs):
            continue
        try:
            outputs = constant.shapes.get(name)
            if outputs is None:
                with at_most(limit - used_bytes):
                    outputs = _compute(nodes[name], [values[r] for r in refs], tf115)
        except (UnsupportedError, RunLimitError) as error:
            failures[name] = _reason(error, nodes[name], limit, limit - used_bytes)
            costly += [name] if isinstance(error, RunLimitError) else []
            continue
        for index, tensor in enumerate(outputs):
            ref = Ref(name, index)
            if ref in targets or uses[ref]:
                values[ref] = tensor
                used_bytes += tensor.nbytes
        for ref in refs:
            uses[ref] -= 1
            if not uses[ref] and ref not in targets:
                used_bytes -= values.pop(ref).nbytes
    return _ConstantValues(values, failures, tuple(costly))


def _reason(error: UnsupportedError | RunLimitError, node: Node, limit: int, bound: int) -> str:
    """Return why a node cannot be computed; re-raise the error if this machine lacks the memory.

    Args:
        limit: the number of bytes that folding may use for this graph.
        bound: the number of bytes that were still available within the limit.
    """
    if isinstance(error, UnsupportedError):
        return f"no kernel for this {node.op}"
    if isinstance(error, WorkLimitError):
        return f"{node.op} would take more than {_FLOPS} operations to compute"
    # The result of folding must not depend on the machine.
    if memory_left(bound) < bound:
        raise error
    return f"{node.op} would take more than {limit} bytes to compute"


def _constant_bytes(node: Node) -> int:
    value = node.attrs.get("value")
    return value.value.nbytes if value is not None and value.kind == "tensor" else 0


def _needed_inputs(
    nodes: Mapping[str, Node], constant: ConstantNodes, targets: frozenset[Ref]
) -> dict[str, tuple[Ref, ...]]:
    """Return the inputs of each node to compute; a known shape needs no inputs."""
    inputs: dict[str, tuple[Ref, ...]] = {}

    def needed(name: str) -> list[str]:
        if name not in nodes:
            message = f"{_NAME}: a constant depends on {name!r}, which is fed"
            raise TransformError(message, "look for a Const that takes tensors")
        inputs[name] = () if name in constant.shapes else nodes[name].data_inputs
        return [ref.node for ref in inputs[name]]

    closure((ref.node for ref in targets), needed)
    return inputs


def _compute(node: Node, inputs: Sequence[Tensor], tf115: bool) -> tuple[Tensor, ...]:
    if node.op in PLACEHOLDERS:
        message = f"{_NAME}: the outputs need the placeholder {node.name!r}, which is not an input"
        raise TransformError(message, "name it in the inputs")
    try:
        return evaluate_node(node, inputs, tf115=tf115)
    except RunLimitError:
        raise
    except InvalidGraphError as error:
        message = f"{_NAME}: {error.message}"
        raise TransformError(message, error.hint) from error
