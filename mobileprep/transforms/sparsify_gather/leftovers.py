"""Remove the remains of a training graph around removed variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final

from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.checkpoint import Checkpoint, open_checkpoint
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import without_dangling
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.transforms.base import refuse

_NAME: Final = "sparsify_gather"
# Ops that are meaningless with a single input.
_OF_TWO: Final = frozenset({"Assign", "Reshape", "Equal", "Mean", "ScalarSummary"})
# It may restore other variables.
_KEPT: Final = frozenset({"RestoreV2"})


def without_leftovers(graph: Graph, removed: Iterable[str], protected: Collection[str]) -> Graph:
    """Return the graph without nodes that only served removed nodes.

    Inputs from removed nodes are dropped. Nodes without enough remaining inputs are removed, and so
    are nodes that only removed ones used. A ConcatV2 joins its remaining inputs.

    Source: the last part of ``sparsify_gather`` of TensorFlow 1.15's graph transforms.
    """
    cleaning = _Cleaning(graph, protected)
    cleaning.run(removed)
    nodes = cleaning.nodes
    return graph.with_nodes(without_dangling(nodes.values(), nodes))


class _Cleaning:
    def __init__(self, graph: Graph, protected: Collection[str]) -> None:
        self.nodes = dict(graph.by_name)
        self._protected = protected
        self._consumers = graph.consumers
        self._uses = Counter(_spelled(r) for n in graph for r in n.inputs)
        self._waiting: list[str] = []

    def run(self, removed: Iterable[str]) -> None:
        self._waiting += removed
        while self._waiting:
            name = self._waiting.pop()
            if name in self._protected:
                continue
            node = self.nodes.get(name)
            if node is not None and node.op not in _KEPT:
                self._drop(node)
            elif node is not None:
                continue
            for consumer in self._consumers.get(name, ()):
                if consumer.name in self.nodes:
                    self._take_off(self.nodes[consumer.name], name)

    def _drop(self, node: Node) -> None:
        del self.nodes[node.name]
        for ref in node.inputs:
            self._release(ref)

    def _release(self, ref: Ref) -> None:
        spelled = _spelled(ref)
        self._uses[spelled] -= 1
        if not self._uses[spelled]:
            self._waiting.append(spelled)

    def _take_off(self, node: Node, name: str) -> None:
        inputs = tuple(r for r in node.inputs if _spelled(r) != name)
        if len(inputs) == len(node.inputs):
            return
        node = replace(node, inputs=inputs)
        if node.op == "ConcatV2":
            node = self._joining_less(node)
        self.nodes[node.name] = node
        if not node.inputs or (node.op in _OF_TWO and len(node.inputs) == 1):
            self._waiting.append(node.name)

    def _joining_less(self, node: Node) -> Node:
        tensors = len(node.inputs) - 1
        if tensors > 1:
            return node.with_attrs(N=attr.integer(tensors))
        if tensors < 1:
            message = f"the ConcatV2 node {node.name!r} has nothing left to join"
            raise refuse(_NAME, message, "strip unused nodes first")
        axis = node.inputs[1]
        if self._uses[_spelled(axis)] != 1:
            message = f"the axis {str(axis)!r} of the ConcatV2 node {node.name!r} is used elsewhere"
            raise refuse(_NAME, message, "strip unused nodes first")
        self._release(axis)
        # Identity has neither the number of inputs nor the type of an axis.
        return replace(node, op="Identity", inputs=node.inputs[:1]).without_attrs("N", "Tidx")


def _spelled(ref: Ref) -> str:
    return str(ref).removeprefix("^")


_PART: Final = "part_"


class Restored:
    """Values of variables; a context manager that closes the checkpoint.

    Args:
        graph: the graph.
        path: the checkpoint, or an empty string for none.

    Raises:
        CorruptFileError: the checkpoint does not exist or is damaged.
    """

    def __init__(self, graph: Graph, path: str) -> None:
        self._graph = graph
        self._checkpoint: Checkpoint | None = open_checkpoint(Path(path)) if path else None

    def __enter__(self) -> Restored:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._checkpoint is not None:
            self._checkpoint.close()

    def value(self, node: Node) -> Array:
        """Return the elements of a Const, or of a variable as its restore op would fill it."""
        if node.op == "Const":
            return node.attr_tensor("value").array()
        if self._checkpoint is None:
            message = f"the values of the variable {node.name!r} are in no graph"
            raise refuse(_NAME, message, "give input_checkpoint, or freeze the graph first")
        return self._checkpoint.read(_stored_name(node.name), self._slice(node))

    def _slice(self, variable: Node) -> str:
        """Return which part of the stored tensor a variable contains; empty for all of it.

        An Assign "save*/Assign*" refers to the output of the RestoreV2 that fills the variable. The
        inputs of the RestoreV2 list the names and slices of all tensors that it restores.
        """
        restore = self._restoring(variable)
        if restore is None or len(restore.data_inputs) != 3:
            raise _not_restored(variable)
        _, names, slices = (self._graph[r.node] for r in restore.data_inputs)
        stored = [bytes(x) for x in names.attr_tensor("value").array().ravel()]
        key = _stored_name(variable.name).encode()
        if key not in stored:
            raise _not_restored(variable)
        parts = slices.attr_tensor("value").array().ravel()
        at = stored.index(key)
        return bytes(parts[at]).decode("utf-8", "replace") if at < len(parts) else ""

    def _restoring(self, variable: Node) -> Node | None:
        for node in self._graph.consumers.get(variable.name, ()):
            scope, _, rest = node.name.partition("/")
            assigns = scope.startswith("save") and rest.startswith("Assign") and "/" not in rest
            if assigns and len(node.data_inputs) > 1 and node.inputs[0].node == variable.name:
                source = self._graph[node.data_inputs[1].node]
                return source if source.op == "RestoreV2" else None
        return None


def _stored_name(variable: str) -> str:
    """Return the name of a variable's stored tensor, without a trailing ``/part_N``."""
    whole, slash, part = variable.rpartition("/")
    return whole if slash and part.startswith(_PART) else variable


def _not_restored(variable: Node) -> TransformError:
    message = f"no restore op of the graph fills the variable {variable.name!r}"
    return refuse(_NAME, message, "keep the saver's nodes, or freeze the graph first")
