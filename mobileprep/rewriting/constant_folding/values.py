"""Computes the constant nodes of a graph whose values are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mobileprep.core.limits import working
from mobileprep.errors import (
    InvalidGraphError,
    RunLimitError,
    TransformError,
    UnsupportedError,
    WorkLimitError,
)
from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import PLACEHOLDERS
from mobileprep.ir.reachability import closure
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.numerics.allocation import at_most, memory_left
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.rewriting.constant_folding.nodes import ConstantNodes
from mobileprep.rewriting.constant_folding.rules import Kernels

_NAME = "fold_constants"
# What is computed on the way may take so much, or a multiple of the constants that there are:
# beyond it a graph grows that is small only as it is written.
_LEAST_MEMORY = 1 << 29
_TIMES_INPUT = 8
# And so much arithmetic, some seconds of it, the same on each machine.
_FLOPS = 1 << 38


@dataclass(frozen=True)
class ConstantValues:
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
        nodes: the graph's nodes by name.
        constant: which of them are constant.
        wanted: the tensors to compute, of constant nodes.
        tf115: the kernels of TensorFlow 1.15, to round as it does.

    Raises:
        TransformError: a node cannot be computed, as its inputs do not fit each other or it is a
            placeholder.
        RunLimitError: a node would take more memory than this process may.
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
        error: what computing it came to.
        node: the node.
        limit: how many bytes folding may take on this graph.
        bound: what was left of them.
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
    """For each node to compute the tensors that it takes; a known shape takes none.

    Raises:
        TransformError: one of them is fed, which only a Const with inputs of its own can lead to.
    """
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
        message = f"{_NAME}: the outputs need the placeholder {node.name!r}, which is no input"
        raise TransformError(message, "name it in the inputs")
    try:
        return evaluate_node(node, inputs, tf115=tf115)
    except RunLimitError:
        raise
    except InvalidGraphError as error:
        message = f"{_NAME}: {error.message}"
        raise TransformError(message, error.hint) from error
