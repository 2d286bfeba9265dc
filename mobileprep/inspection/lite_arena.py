"""The memory that LiteRT's interpreter plans for the tensors of a model.

Source: ``arena_planner.cc``, ``simple_memory_arena.cc``, and the kernels' ``Prepare`` functions of
LiteRT 2, for the built-in kernels without delegates.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge, edge, parse_ref
from mobileprep.graph.tflite import PREFIX
from mobileprep.inspection.lite_costs import lite_layouts
from mobileprep.runtime.accounting.costs import TensorLayout

_ALIGNMENT: Final = 64
# Tensors of at most so many bytes are not overwritten.
_SCALAR: Final = 4
_MAX_PLANNED: Final = 20_000
"""With more tensors, the arena is at least as large as those in use at the same time."""

# Operators whose first output can share the memory of an input: unchanged, or overwritten.
_UNCHANGED: Final = frozenset({"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
_OVERWRITTEN: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("ADD", "DIV", "MUL", "SUB"), (0, 1)),
    **dict.fromkeys(("DYNAMIC_UPDATE_SLICE", "SOFTMAX"), (0,)),
}
_KEPT: Final = frozenset({"RANK", "SHAPE"})


class LiteArena(Struct, frozen=True):
    """The memory of an interpreter in bytes.

    Args:
        arena: tensors of a run, which share memory.
        persistent: tensors that are computed once and kept.
    """

    arena: int
    persistent: int


class _Use(Struct):
    """Memory that is in use from one operator to another, both included.

    Args:
        nbytes: size.
        first: index of the operator that writes it.
        last: index of the last operator that reads it.
        is_whole: whether it lives for the whole run.
    """

    nbytes: int
    first: int
    last: int
    is_whole: bool = False


def lite_arena(graph: Graph, feeds: Mapping[str, TensorShape], outputs: Sequence[str]) -> LiteArena:
    """Plan the memory of the main subgraph.

    Args:
        feeds: input shapes that replace the recorded ones. Unknown sizes count as 1.
        outputs: outputs of the file.
    """
    layouts = lite_layouts(graph, feeds, 1)
    operators = [n for n in graph if n.op not in ("Const", "Placeholder")]
    plan = _Plan(graph, layouts, operators, [edge(parse_ref(name)) for name in outputs])
    uses = list(plan.uses())
    arena = _arena(uses) if len(uses) <= _MAX_PLANNED else _most(uses, len(operators))
    return LiteArena(arena, plan.persistent)


class _Plan:
    """The lifetimes of all tensors."""

    def __init__(
        self,
        graph: Graph,
        layouts: Mapping[Edge, TensorLayout],
        operators: Sequence[Node],
        outputs: Sequence[Edge],
    ) -> None:
        self._graph = graph
        self._layouts = layouts
        self._operators = operators
        self._kept = {(n.name, 0) for n in graph if n.op == "Placeholder"} | set(outputs)
        self._outputs = frozenset(outputs)
        self._owner: dict[Edge, Edge] = {}
        self.persistent = 0
        references = Counter(edge(ref) for n in operators for ref in n.data_inputs)
        self._references = references + Counter(self._kept)

    def uses(self) -> Iterator[_Use]:
        """Yield the memory of tensors and of the operators' temporary tensors."""
        end = len(self._operators)
        owned = {
            place: _Use(self._layouts[place].nbytes, 0, end, is_whole=True)
            for place in ((n.name, 0) for n in self._graph if n.op == "Placeholder")
        }
        last: dict[Edge, int] = {}
        for step, node in enumerate(self._operators):
            for place in self._own_outputs(node):
                owned[place] = _Use(self._layouts[place].nbytes, step, end)
            for ref in node.data_inputs:
                last[self._owner_of(edge(ref))] = step
            temporary, persistent = _temporaries(node, self._layouts)
            self.persistent += sum(map(_aligned, persistent))
            yield from (_Use(nbytes, step, step) for nbytes in temporary)
        final = {self._owner_of(place) for place in self._kept}
        for place, use in owned.items():
            if place not in final:
                use.last = last.get(place, end)
            elif use.first == 0:
                use.is_whole = True
        yield from owned.values()

    def _own_outputs(self, node: Node) -> Iterator[Edge]:
        """Yield the outputs with memory of their own in the arena."""
        for index in range(len(node.attr_dtypes("T"))):
            place = (node.name, index)
            shared = self._shared(node) if index == 0 else None
            if shared is not None:
                self._owner[place] = shared
            elif self._is_persistent(node):
                self.persistent += _aligned(self._layouts[place].nbytes)
            else:
                yield place

    def _owner_of(self, place: Edge) -> Edge:
        return self._owner.get(place, place)

    def _is_persistent(self, node: Node) -> bool:
        name = node.op.removeprefix(PREFIX)
        if name == "DEQUANTIZE":
            return all(self._graph[ref.node].op == "Const" for ref in node.data_inputs)
        return name in _KEPT

    def _shared(self, node: Node) -> Edge | None:
        """Return the tensor whose memory the first output shares, or None."""
        name = node.op.removeprefix(PREFIX)
        output = (node.name, 0)
        if output in self._outputs:
            return None
        for index in (0,) if name in _UNCHANGED else _OVERWRITTEN.get(name, ()):
            if index >= len(node.data_inputs):
                continue
            place = edge(node.data_inputs[index])
            source = self._graph[place[0]]
            if source.op in ("Const", "Placeholder") or self._is_persistent(source):
                continue
            sizes = (self._layouts[place].nbytes, self._layouts[output].nbytes)
            if sizes[0] != sizes[1]:
                continue
            owner = self._owner_of(place)
            if name in _UNCHANGED:
                return owner
            if sizes[0] > _SCALAR and self._references[place] <= 1:
                return owner if self._references[owner] <= 1 else None
        return None


def _temporaries(node: Node, layouts: Mapping[Edge, TensorLayout]) -> tuple[list[int], list[int]]:
    """Return the bytes of an operator's large temporary tensors, and of those that it keeps."""
    name = node.op.removeprefix(PREFIX)
    inputs = [layouts[edge(ref)] for ref in node.data_inputs]
    output = layouts.get((node.name, 0))
    if output is None or len(inputs) < 2 or inputs[1].shape is None or inputs[0].shape is None:
        return [], []
    first, filters, out = inputs[0].shape, inputs[1].shape, output.shape or ()
    # A float input with weights in 8 bits is quantized in each run.
    is_hybrid = inputs[0].itemsize == 4 and inputs[1].itemsize == 1
    quantized = [math.prod(first)] if is_hybrid else []
    if name == "CONV_2D" and len(filters) == 4 and len(out) == 4 and len(first) == 4:
        window = filters[1] * filters[2] * filters[3]
        needs_columns = filters[1:3] != (1, 1) or out[1:3] != first[1:3]
        width = 1 if is_hybrid else inputs[0].itemsize
        columns = [math.prod(out[:3]) * window * width] if needs_columns else []
        sums = [4 * math.prod(out)] if is_hybrid else []
        return [*columns, *quantized, *sums], []
    if name == "DEPTHWISE_CONV_2D":
        return quantized, []
    if name == "FULLY_CONNECTED":
        return [*quantized, *([4 * math.prod(out)] if is_hybrid else [])], []
    if name == "TRANSPOSE_CONV" and len(inputs) > 2 and len(filters) == 4:
        image = inputs[2].shape or ()
        columns = [math.prod(image[:3]) * math.prod(filters[:3]) * 4]
        return columns, [math.prod(filters) * inputs[1].itemsize]
    return [], []


def _arena(uses: Sequence[_Use]) -> int:
    """Return the size of the arena after its greedy placement.

    Tensors of the whole run come first, then the largest ones. Each is placed in the tightest gap
    between those that are in use at the same time, or after all of them.
    """
    ordered = sorted(uses, key=lambda u: (not u.is_whole, 0 if u.is_whole else -u.nbytes, u.first))
    placed: list[tuple[int, int, _Use]] = []
    most = 0
    for number, use in enumerate(ordered):
        if not use.nbytes:
            continue
        best = fit = None
        end = 0
        for offset, _, other in placed:
            if other.last < use.first or other.first > use.last:
                continue
            start = _aligned(end)
            if start + use.nbytes <= offset and (fit is None or offset - start < fit):
                best, fit = start, offset - end
            end = max(end, offset + other.nbytes)
            if fit == 0:
                break
        offset = _aligned(end) if best is None else best
        most = max(most, offset + use.nbytes)
        bisect.insort_right(placed, (offset, number, use))
    return most


def _most(uses: Sequence[_Use], steps: int) -> int:
    """Return the highest sum of tensors that are in use at the same time."""
    change = [0] * (steps + 2)
    for use in uses:
        change[use.first] += _aligned(use.nbytes)
        change[use.last + 1] -= _aligned(use.nbytes)
    most = total = 0
    for difference in change:
        total += difference
        most = max(most, total)
    return most


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
