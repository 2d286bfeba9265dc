"""Computes the constant nodes of a graph that somebody needs the value of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.ops.constants import evaluate_node
from mobileprep.transforms._constant_nodes import ConstantNodes
from mobileprep.transforms._execution import reachable
from mobileprep.transforms.base import refuse


@dataclass(frozen=True)
class ConstantValues:
    """Values of constant tensors.

    Args:
        tensors: the values asked for.
        unsupported: nodes that no kernel can compute, each with the reason. Where there are
            any, values are missing.
    """

    tensors: Mapping[Ref, Tensor]
    unsupported: Mapping[str, str]


def constant_values(
    nodes: Mapping[str, Node], constant: ConstantNodes, wanted: Iterable[Ref]
) -> ConstantValues:
    """Compute tensors of constant nodes.

    Args:
        nodes: the graph's nodes by name.
        constant: which of them are constant.
        wanted: the tensors to compute, of constant nodes.

    Raises:
        TransformError: a node cannot be computed, as its inputs do not fit each other.
    """
    wanted = frozenset(wanted)
    inner = {n: nodes[n] for n in constant.order if n not in constant.shapes}
    needed = _needed(inner, wanted)
    uses = Counter(r for n in needed & inner.keys() for r in inner[n].data_inputs)
    values: dict[Ref, Tensor] = {}
    unsupported: dict[str, str] = {}
    for name in constant.order:
        if name in needed:
            outputs = constant.shapes.get(name)
            if outputs is None:
                outputs = 
