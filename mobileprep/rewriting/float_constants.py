"""Float constants that are to be stored in another form, and what becomes of their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import numpy as np

from mobileprep.core.parallel import at_once
from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.control_flow import conditional_nodes
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array, Tensor

# The original starts looking for a maximum here: it takes the least positive normal number of
# C++ for the most negative one.
LEAST_MAXIMUM: Final = np.finfo(np.float32).tiny
# To hand a constant of fewer elements to another thread takes longer than its arithmetic.
_LARGE: Final = 1 << 14

_Result = TypeVar("_Result")
_Stored = TypeVar("_Stored")


def float_value(node: Node, transform: str) -> Tensor | None:
    """The value of a float32 constant, or None for any other node.

    Raises:
        TransformError: a constant without type or value.
        InvalidGraphError: an attribute is of the wrong kind.
    """
    if node.op != "Const":
        return None
    for name in ("dtype", "value"):
        if name not in node.attrs:
            message = f"{transform}: the constant {node.name!r} has no attribute {name!r}"
            raise TransformError(message, "export the graph again")
    if node.attr_dtype("dtype") is not DType.FLOAT:
        return None
    value = node.attr_tensor("value")
    return value if value.dtype is DType.FLOAT else None


class ConvertedFloats(NamedTuple):
    """A graph whose float constants are stored in another form.

    Args:
        graph: the graph; the one that was given where nothing was converted.
        matched: how many constants were converted.
        skipped: how many float constants were left as they are, by reason.
    """

    graph: Graph
    matched: int
    skipped: Counter[str]


def convert_floats(
    graph: Graph,
    transform: str,
    convert: Callable[[Node, Tensor], tuple[str, _Stored | None]],
    put: Callable[[Node, _Stored], Iterable[Node]],
) -> ConvertedFloats:
    """Store the float32 constants of a graph in another form.

    Args:
        graph: the graph.
        transform: whose errors they are.
        convert: gives a constant's new form, or None and why it stays as it is. Called in several
            threads for large ones.
        put: gives the nodes that stand for a constant from now on.

    Raises:
        TransformError: a constant without type or value.
        InvalidGraphError: an attribute is of the wrong kind; and what ``convert`` raises.
    """
    skipped: Counter[str] = Counter()
    nodes: list[Node] = []
    matched = 0
    for node, result in zip(graph, _each_float(graph, transform, convert), strict=True):
        reason, stored = result or ("", None)
        if stored is not None:
            matched += 1
            nodes += put(node, stored)
            continue
        nodes.append(node)
        if reason:
            skipped[reason] += 1
    return ConvertedFloats(graph.with_nodes(nodes) if matched else graph, matched, skipped)


def _each_float(
    graph: Graph, transform: str, convert: Callable[[Node, Tensor], _Result]
) -> list[_Result | None]:
    """What ``convert`` gives for each node that is a float32 constant; None for the others."""
    # By place, for a graph may have two nodes of one name.
    values = [float_value(node, transform) for node in graph]
    large = [at for at, value in enumerate(values) if value is not None and value.size >= _LARGE]

    def converted(at: int) -> _Result | None:
        value = values[at]
        return None if value is None else convert(graph.nodes[at], value)

    def converted_large(at: int) -> _Result | None:
        result, value = converted(at), values[at]
        if value is not None:
            value.let_go()
        return result

    done = dict(zip(large, at_once(converted_large, large), strict=True))
    return [done[at] if at in done else converted(at) for at in range(len(values))]


def value_range(values: Array) -> tuple[np.float32, np.float32]:
    """The least and the greatest of float32 values, of which there must be one; NaN if one is."""
    return values.min(), values.max()


@dataclass(frozen=True)
class Replacements:
    """Makes constants that stand in for others of a graph.

    With ``tf115`` they have neither device nor control inputs, as the original's have none. Those
    that decide whether a constant exists, in a branch or a loop, have to stay.
    """

    graph: Graph
    tf115: bool

    def make(self, old: Node, name: str, value: Tensor) -> Node:
        """The constant that replaces ``old``, or is one of several that do."""
        old.attr_tensor("value").let_go()
        if not self.tf115:
            return constant(name, value, old.device, old.inputs)
        return constant(name, value, inputs=self._ties(old))

    def _ties(self, old: Node) -> tuple[Ref, ...]:
        return tuple(r for r in old.inputs if r.node in self._conditional) if old.inputs else ()

    @cached_property
    def _conditional(self) -> frozenset[str]:
        return conditional_nodes(self.graph)
