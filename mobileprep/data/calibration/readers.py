"""Find the ops that read a tensor, up to the tensors that have ranges of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.runtime.interpreter import runs_functions

# Ops whose results are elements of their inputs. In LiteRT, both have the same scale.
_MOVING: Final = IDENTITIES | {
    *("BatchToSpaceND", "Concat", "ConcatV2", "DepthToSpace", "ExpandDims", "Gather", "GatherNd"),
    *("GatherV2", "Max", "MaxPool", "Min", "MirrorPad", "Pack", "Pad", "PadV2", "Reshape"),
    *("ResizeNearestNeighbor", "ReverseV2", "Slice", "SpaceToBatchND", "SpaceToDepth", "Split"),
    *("SplitV", "Squeeze", "StridedSlice", "Tile", "Transpose", "Unpack"),
}
# Ops that read only the shape of a tensor.
_SIZES: Final = frozenset({"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"})
_SOFTMAXES: Final = frozenset({"LogSoftmax", "Softmax"})
_MOST_READERS: Final = 8


class Reader(Struct, frozen=True):
    """An op that reads a tensor, with the ops after it.

    Args:
        output: its result: a tensor with a range, or an output of the graph.
        fed: the tensors from which the result is computed, with the inputs of the graph.
    """

    output: Edge
    fed: frozenset[Edge]


class Readers(Struct, frozen=True):
    """The ops that read a tensor.

    Args:
        readers: the nearest ones; none if the tensor is an output of the graph, or if its readers
            do not return floats.
        has_softmax: whether one of them is a softmax.
    """

    readers: tuple[Reader, ...] = ()
    has_softmax: bool = False


class ReaderSearch:
    """A search for the readers of tensors.

    A reader ends at the first tensor with a range of its own, except tensors with the same elements
    as the one that it reads: these are passed.

    Args:
        graph: the graph.
        tensors: the tensors with ranges.
        inputs: the inputs of the graph.
        outputs: the outputs of the graph.
    """

    def __init__(
        self,
        graph: Graph,
        tensors: Collection[Edge],
        inputs: Collection[Edge],
        outputs: Collection[Edge],
    ) -> None:
        self._graph = graph
        self._tensors = frozenset(tensors)
        self._inputs = frozenset(inputs)
        self._outputs = frozenset(outputs)
        functions = frozenset(node.name for node in graph if runs_functions(node, graph))
        self._excluded = conditional_nodes(graph) | functions

    def of(self, tensor: Edge) -> Readers | None:
        """Return the readers of a tensor, or None if it or they are in a branch or a loop."""
        if tensor[0] in self._excluded:
            return None
        outputs: list[Edge] = []
        ends = self._tensors | self._outputs
        same, seen = {tensor}, {tensor}
        waiting, has_softmax = [tensor], False
        while waiting:
            at = waiting.pop(0)
            if at in same & self._outputs:
                return Readers()
            for node, result in self._results(at):
                if node.name in self._excluded:
                    return None
                if result in seen:
                    continue
                if not self._is_float(result):
                    return Readers()
                seen.add(result)
                has_softmax |= node.op in _SOFTMAXES
                if at in same and node.op in _MOVING:
                    same.add(result)
                if result in same or result not in ends:
                    waiting.append(result)
                else:
                    outputs.append(result)
        nearest = outputs[:_MOST_READERS]
        readers = (Reader(one, self._fed(one, tensor, same)) for one in nearest)
        return Readers(tuple(readers), has_softmax)

    def sources(self, tensor: Edge) -> frozenset[Edge]:
        """Return the tensors with ranges from which a tensor is computed, and all inputs."""
        return self._before(tensor, (self._tensors | self._inputs) - {tensor})

    def _fed(self, output: Edge, tensor: Edge, same: Collection[Edge]) -> frozenset[Edge]:
        ends = (self._tensors | self._inputs) - {output, *same}
        return self._before(output, ends | {tensor})

    def _before(self, output: Edge, ends: frozenset[Edge]) -> frozenset[Edge]:
        def before(at: Edge) -> list[Edge]:
            if at in ends:
                return []
            return [edge(ref) for ref in self._graph[at[0]].data_inputs]

        return self._inputs | (closure([output], before) & ends)

    def _results(self, tensor: Edge) -> Iterator[tuple[Node, Edge]]:
        """Yield the nodes that read the values of a tensor, with each result that is used."""
        for node in self._graph.consumers.get(tensor[0], ()):
            if node.op in _SIZES or not any(edge(ref) == tensor for ref in node.data_inputs):
                continue
            readers = self._graph.consumers.get(node.name, ())
            used = {edge(ref) for reader in readers for ref in reader.data_inputs}
            for result in sorted(used | self._outputs):
                if result[0] == node.name:
                    yield node, result

    def _is_float(self, tensor: Edge) -> bool:
        return tensor_dtype(self._graph, Ref(*tensor)) in (DType.FLOAT, None)
