"""Finds the constant tensors of a graph that something else uses, and their values."""

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
    """What can be folded.

    Args:
        run: the nodes that the outputs need.
        constant: which of them are constant.
        values: the constant tensors that other nodes or the user take; those of Const nodes, and
            those that are too large, left out.
        skipped: what was left, by reason.
        costly: nodes that were left for the memory or the time that they would take.
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
    """Find and compute what can be folded.

    Args:
        shape_of: the statically known shape of a tensor.
    """
    costly: list[str] = []
    while True:
        constant = constant_nodes(run, sinks, rules.refusal, shape_of)
        wanted = _used_outside(run, constant)
        found = constant_values(run.nodes, constant, wanted, rules.tf115)
        if not found.left:
            break
        costly += found.costly
        # What such a node feeds is not constant either: search again without it.
        for name, reason in found.left.items():
            rules.leave(name, reason)
    values = {r: t for r, t in found.tensors.items() if t.nbytes <= rules.max_bytes}
    skipped = Counter(constant.skipped)
    if len(values) < len(found.tensors):
        skipped[f"larger than {rules.max_bytes} bytes"] = len(found.tensors) - len(values)
    if rules.tf115 is None:
        # The original folds these too, and the file is as large as before they were quantized.
        decoded = {r for r, t in values.items() if is_decoded(run.nodes, r, t)}
        skipped.update([_DECODED] * len(decoded))
        values = {r: t for r, t in values.items() if r not in decoded}
    return Folding(run, constant, values, skipped, costly)


def _used_outside(run: Execution, constant: ConstantNodes) -> set[Ref]:
    """The tensors of constant nodes, Const ones apart, that nodes or users from outside take."""
    inner = {n for n in constant.order if run.nodes[n].op != "Const"}
    used = {r for r in run.fetched if r.node in inner}
    for node in run.nodes.values():
        if inner and node.name not in constant:
            used.update(r for r in node.inputs if r.node in inner and not r.is_control)
    return used - run.fed


_LEAST: Final = 1024
"""Bytes below which copies do not matter: vectors, shapes, and their operands."""
_GROWTH: Final = 1.5


def is_decoded(nodes: Mapping[str, Node], ref: Ref, value: Tensor) -> bool:
    """Whether a constant tensor is made by Cast or Dequantize of stored elements of fewer bits.

    Args:
        nodes: the nodes, by name; what is fed, of which only the shape can count, may be missing.
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
# What is computed on the way may take so much, or a multiple of the constants that there are:
# beyond it a graph grows that is small only as it is written.
_LEAST_MEMORY = 1 << 29
_TIMES_INPUT = 8
# And so much arithmetic, some seconds of it, the same on each machine.
_FLOPS = 1 << 38


class ConstantValues(Struct, frozen=True):
    """Values of constant tensors.

    Args:
        tensors: the values asked for, but for those that need a node that was left out.
        left: the nodes that cannot be computed here, with the reason.
        costly: those among them that are left for the memory or the time that they would take.
    """

    tensors: Mapping[Ref, Tensor]
    left: Mapping[str, str]
    costly: tuple[str, ...] = ()


def constant_values(
    nodes: Mapping[str, Node],
    constant: ConstantNodes,
    wanted: Iterable[Ref],
    tf115: Kernels | None,
) -> ConstantValues:
    """Compute tensors of constant nodes, within bounds that are the same on each machine.

    No others are kept for longer than they are used.

    Args:
        tf115: the kernels of TensorFlow 1.15, to round as it does.
    """
    with working(_FLOPS):
        return _computed(nodes, constant, frozenset(wanted), tf115)


def _computed(
    nodes: Mapping[str, Node],
    constant: ConstantNodes,
    kept: frozenset[Ref],
    tf115: Kernels | None,
) -> ConstantValues:
    inputs = _needed_inputs(nodes, constant, kept)
    uses = Counter(ref for refs in inputs.values() for ref in refs)
    values: dict[Ref, Tensor] = {}
    taken = 0  # by all of them
    left: dict[str, str] = {}
    costly: list[str] = []
    limit = max(_LEAST_MEMORY, _TIMES_INPUT * sum(map(_constant_bytes, nodes.values())))
    for name in constant.order:
        refs = inputs.get(name)
        if refs is None or any(r not in values for r in refs):
            continue
        try:
            outputs = constant.shapes.get(name)
            if outputs is None:
                with at_most(limit - taken):
                    outputs = _compute(nodes[name], [values[r] for r in refs], tf115)
        except (UnsupportedError, RunLimitError) as error:
            left[name] = _reason(error, nodes[name], limit, limit - taken)
            costly += [name] if isinstance(error, RunLimitError) else []
            continue
        for index, tensor in enumerate(outputs):
            ref = Ref(name, index)
            if ref in kept or uses[ref]:
                values[ref] = tensor
                taken += tensor.nbytes
        for ref in refs:
            uses[ref] -= 1
            if not uses[ref] and ref not in kept:
                taken -= values.pop(ref).nbytes
    return ConstantValues(values, left, tuple(costly))


def _reason(error: UnsupportedError | RunLimitError, node: Node, limit: int, bound: int) -> str:
    """Why a node is left; raises the error where it is this machine that lacks the memory.

    Args:
        limit: how many bytes folding may take on this graph.
    """
    if isinstance(error, UnsupportedError):
        return f"no kernel for this {node.op}"
    if isinstance(error, WorkLimitError):
        return f"{node.op} would take more than {_FLOPS} operations to compute"
    # What is folded may not depend on the machine that does it.
    if memory_left(bound) < bound:
        raise error
    return f"{node.op} would take more than {limit} bytes to compute"


def _constant_bytes(node: Node) -> int:
    value = node.attrs.get("value")
    return value.value.nbytes if value is not None and value.kind == "tensor" else 0


def _needed_inputs(
    nodes: Mapping[str, Node], constant: ConstantNodes, wanted: frozenset[Ref]
) -> dict[str, tuple[Ref, ...]]:
    """For each node to compute the tensors that it takes; a known shape takes none."""
    inputs: dict[str, tuple[Ref, ...]] = {}

    def needed(name: str) -> list[str]:
        if name not in nodes:
            message = f"{_NAME}: a constant depends on {name!r}, which is fed"
            raise TransformError(message, "look for a Const that takes tensors")
        inputs[name] = () if name in constant.shapes else nodes[name].data_inputs
        return [ref.node for ref in inputs[name]]

    closure((ref.node for ref in wanted), needed)
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
