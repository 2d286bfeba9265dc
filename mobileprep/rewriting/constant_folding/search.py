"""Finds the constant tensors of a graph that something else uses, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.rewriting.constant_folding.decoded import is_decoded
from mobileprep.rewriting.constant_folding.execution import Execution
from mobileprep.rewriting.constant_folding.nodes import ConstantNodes, constant_nodes
from mobileprep.rewriting.constant_folding.rules import FoldingRules
from mobileprep.rewriting.constant_folding.values import constant_values

_DECODED = "it decodes weights that are stored in fewer bits"


@dataclass(frozen=True)
class Folding:
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
        run: the nodes that the outputs need.
        sinks: names to start the search from, in order.
        rules: what to leave, and how to compute.
        shape_of: the statically known shape of a tensor.

    Raises:
        TransformError: a node cannot be computed.
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
