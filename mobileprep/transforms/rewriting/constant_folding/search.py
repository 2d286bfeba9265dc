"""Find the constant tensors of a graph that other nodes use, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.ops.numerics.allocation import at_most, memory_left
from mobileprep.transforms.rewriting.constant_folding.nodes import ConstantNodes, constant_nodes
from mobileprep.transforms.rewriting.constant_folding.rules import Execution, FoldingRules, Kernels

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
        constant = constant_nodes(run, sinks, rules.refusal, shape_of)
        targets = _used_outside(run, constant)
        computed = constant_values(run.nodes, constant, targets, rules.tf115)
        if not computed.failures:
            break
        costly += computed.costly
        # The consumers of such a node are not constant either: search again without it.
        for name, reason in computed.failures.items():
            rules.leave(name, reason)
    values = {r: t for r, t in computed.tensors.items() if t.nbytes <= rules.max_bytes}
    skipped = Counter(constant.skipped)
    if len(values) < len(computed.tensors):
        skipped[f"larger than {rules.max_bytes} bytes"] = len(computed.tensors) - len(values)
    if rules.tf115 is None:
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
    behind = [nodes[name] for name in closure([ref.node], lambda name: _inputs(nodes, name))]
    if not any(_widens(node) for node in behind):
        return False
    stored = sum(n.attr_tensor("value").nbytes for n in behind if n.op == "Const")
    return stored * _GROWTH < value.nbytes


def _inputs(nodes: Mapping[str, Node], name: str) -> Iterator[str]:
    return (r.node for r in nodes[name].data_inputs if r.node in nodes)


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


class ConstantValues(Struct, frozen=True):
    """Values of constant tensors.

    Args:
        tensors: the requested values, except those that depend on an uncomputed node.
        failures: the nodes that cannot be computed, with reasons.
        costly: those among them that would take too much memory or time.
    """

    tensors: Mapping[Ref, Tensor]
    failures: Mapping[str, str]
    costly: tuple[str, ...] = ()


def constant_values(
    nodes: Mapping[str, Node],
    constant: ConstantNodes,
    targets: Iterable[Ref],
    tf115: Kernels | None,
) -> ConstantValues:
    """Compute tensors of constant nodes, within limits that are the same on each machine.

    Other tensors are released when they are no longer used.

    Args:
        tf115: the kernels of TensorFlow 1.15, to reproduce its rounding.
    """
    with working(_FLOPS):
        return _computed(nodes, constant, frozenset(targets), tf115)


def _computed(
    nodes: Mapping[str, Node],
    constant: ConstantNodes,
    targets: frozenset[Ref],
    tf115: Kernels | None,
) -> ConstantValues:
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
    return ConstantValues(values, failures, tuple(costly))


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


def _compute(node: Node, inputs: Sequence[Tensor], tf115: Kernels | None) -> tuple[Tensor, ...]:
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
