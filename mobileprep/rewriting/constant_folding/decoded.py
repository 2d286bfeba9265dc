"""Constants that are larger than all they are decoded from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor

_LEAST: Final = 1024
"""Bytes below which it does not matter: vectors, shapes, and what they are worked out from."""
_GROWTH: Final = 1.5


def is_decoded(nodes: Mapping[str, Node], ref: Ref, value: Tensor) -> bool:
    """Whether a constant tensor is made by Cast or Dequantize of stored elements of fewer bits.

    Args:
        nodes: the nodes, by name; what is fed, of which only the shape can count, may be missing.
        ref: the tensor.
        value: its value.
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
