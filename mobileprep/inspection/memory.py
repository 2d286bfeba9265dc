"""Memory of a model while it is loaded and run, for each kind of artifact.

TensorFlow 1.15 without Grappler, as on Android:

- ``frozen``: ``ReadBinaryProto`` parses the file as a stream. The session keeps the parsed
  constants. The first run merges equal nodes, folds nodes of constants, such as ``Dequantize``, and
  copies each constant that a kernel reads into a tensor. Folded constants are held twice: in a node
  and in the tensor of its kernel.
- ``memmapped``: large constants stay in the mapped file as clean pages, which the system can drop.
  Such a session runs with optimization level ``L0``, so nodes of constants are computed in each
  run.
- ``tflite``: the file is mapped. LiteRT's built-in kernels run from an arena, and keep tensors that
  they compute once, such as dequantized weights, in a second one. Delegates are not included.

The memory of the runtime itself, of its node objects (5 to 10 kB per node in TensorFlow), and of
buffers that kernels allocate on their own is not included. An app that reads the file into an array
first needs ``file_bytes`` more while loading.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from msgspec.structs import replace

from mobileprep.errors import MobileprepError, UsageError
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.files import IMMUTABLE
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, FEEDABLE, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.opdefs.definitions import signature_of
from mobileprep.graph.refs import Edge, edge, parse_ref
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.tflite import is_tflite_graph, parse_tflite
from mobileprep.inspection.costs import run_once
from mobileprep.inspection.lite_costs import lite_arena
from mobileprep.runtime.accounting.costs import VIEWS, Executed, TensorLayout
from mobileprep.targets.memmapped import PAGE_SIZE
from mobileprep.targets.targets import Memory, MemoryPhase
from mobileprep.transforms.base import Context, make_transform

Kind = Literal["frozen", "memmapped", "tflite"]

ALIGNMENT: Final = 64
"""Alignment of tensors in bytes, for both TensorFlow and LiteRT."""

# Constants of more bytes are not folded; see constant_folding.h.
_MAX_FOLDED: Final = 10 << 20
_CONSTANTS: Final = frozenset({"Const", IMMUTABLE})
_CONTROL_FLOW: Final = ENTERS | EXITS | MERGES | NEXT_ITERATIONS | SWITCHES | {"LoopCond"}

# Ops that write their output over an input that nothing else reads, with the indices of such
# inputs (``forward_input_or_allocate_output``).
_UNARY: Final = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BiasAdd", "BiasAddV1", "Ceil"),
    *("ClipByValue", "Conj", "Cos", "Cosh", "Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor"),
    *("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "Inv", "LeakyRelu", "Lgamma"),
    *("Log", "Log1p", "LogSoftmax", "LogicalNot", "Neg", "Reciprocal", "Relu", "Relu6", "Rint"),
    *("Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus"),
    *("Softsign", "Sqrt", "Square", "Tan", "Tanh"),
)
_BINARY: Final = (
    *("Add", "AddV2", "Div", "DivNoNan", "FloorDiv", "FloorMod", "LogicalAnd", "LogicalOr"),
    *("Maximum", "Minimum", "Mod", "Mul", "Pow", "RealDiv", "SquaredDifference", "Sub"),
    "TruncateDiv",
)
_IN_PLACE: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(_UNARY, (0,)),
    **dict.fromkeys(_BINARY, (0, 1)),
    "AddN": tuple(range(8)),
    "Select": (1, 2),
    "SelectV2": (1, 2),
}
# Kernels that the executor runs at once in the present thread (``IsExpensive`` is false).
_VIEWS: Final = VIEWS | {"IdentityN"}
_CHEAP: Final = VIEWS | {"Rank", "Shape", "ShapeN", "Size", "NoOp", "Const", IMMUTABLE}


def memory_of(
    graph: Graph,
    inputs: Mapping[str, TensorShape],
    outputs: Sequence[str],
    *,
    kind: str,
    file_bytes: int,
) -> Memory:
    """Estimate the memory of a model that is loaded and then run.

    Args:
        graph: frozen graph; for ``tflite``, the graph of the file.
        inputs: shapes of the inputs; unknown sizes count as 1.
        outputs: tensors that the app fetches.
        kind: ``frozen``, ``memmapped``, or ``tflite``.
        file_bytes: size of the file.

    Raises:
        UsageError: the kind is unknown, or does not fit the graph.
    """
    if kind not in get_args(Kind):
        message = f"unknown kind of artifact {kind!r}"
        raise UsageError(message, f"expected one of {', '.join(get_args(Kind))}")
    if is_tflite_graph(graph) != (kind == "tflite"):
        message = f"the memory of a model of kind {kind!r} needs a graph of that format"
        raise UsageError(message, "convert the model first, and read the converted file")
    if kind == "tflite":
        return _lite(graph, _closed(inputs), outputs, file_bytes)
    return _Run(graph, inputs, outputs).memory(kind, file_bytes)


def memory_by_kind(
    graph: Graph, inputs: Mapping[str, TensorShape], outputs: Sequence[str]
) -> dict[str, Memory]:
    """Estimate the memory of a frozen graph in each format, with a float ``.tflite`` file.

    Args:
        inputs: shapes of the inputs; unknown sizes count as 1.

    Returns:
        The memory by kind, without ``tflite`` if LiteRT cannot express the graph.
    """
    run, size = _Run(graph, inputs, outputs), serialized_size(graph)
    kinds = {kind: run.memory(kind, size) for kind in ("frozen", "memmapped")}
    with contextlib.suppress(MobileprepError):
        kinds["tflite"] = _converted(graph, inputs, outputs)
    return kinds


def _converted(graph: Graph, inputs: Mapping[str, TensorShape], outputs: Sequence[str]) -> Memory:
    """Estimate the memory of the graph as a float ``.tflite`` file."""
    # Slow to import, and not needed for the memory of a single kind.
    from mobileprep.formats.tflite.writer import model_bytes
    from mobileprep.litert.convert import converted
    from mobileprep.litert.prepare import CutInput

    cut = [CutInput(name, shape) for name, shape in inputs.items()]
    file = bytes(model_bytes(converted(graph, cut, outputs, where="graph"), "graph"))
    lite = parse_tflite(file, "graph")
    return memory_of(lite.graph, {}, lite.outputs, kind="tflite", file_bytes=len(file))


def _memory(kind: str, phases: Sequence[MemoryPhase], unknown: Sequence[str] = ()) -> Memory:
    *loading, run = phases
    load_peak = max(phase.total for phase in loading)
    return Memory(kind, tuple(phases), load_peak, run.total, tuple(unknown))


def _lite(
    graph: Graph, shapes: Mapping[str, TensorShape], outputs: Sequence[str], file_bytes: int
) -> Memory:
    arena = lite_arena(graph, shapes, outputs)
    read = MemoryPhase("read", file_bytes)
    prepare = MemoryPhase("prepare", file_bytes, 0, arena.persistent, arena.arena)
    return _memory("tflite", (read, prepare, replace(prepare, name="run")))


def _closed(inputs: Mapping[str, TensorShape]) -> dict[str, TensorShape]:
    """Return the shapes with 1 for unknown sizes."""
    return {
        name: None if shape is None else tuple(1 if n < 0 else n for n in shape)
        for name, shape in inputs.items()
    }


class _Run:
    """A run of a graph in TensorFlow."""

    def __init__(
        self, graph: Graph, inputs: Mapping[str, TensorShape], outputs: Sequence[str]
    ) -> None:
        self._graph, self._ran, self._feeds = run_once(graph, outputs, _closed(inputs), "graph")
        self._outputs = outputs

    def memory(self, kind: str, file_bytes: int) -> Memory:
        """Return the memory of the graph in a file of a kind and size."""
        graph, ran = self._graph, self._ran
        if kind == "frozen":
            graph, ran = self._merged()
        folded = _folded(graph, ran) if kind == "frozen" else {}
        rest = [e for e in ran if e.node.name not in folded]
        read = {ref.node for e in rest for ref in e.node.data_inputs}
        read |= {parse_ref(name).node for name in self._outputs}
        constants = [n for n in map(graph.get, sorted(read)) if n and n.op == "Const"]
        copied = sum(n.attr_tensor("value").nbytes for n in constants)
        decoded = sum(layout.nbytes for name in read & folded.keys() for layout in folded[name])
        if kind == "memmapped":
            mapped = sum(n.attr_tensor("value").nbytes for n in constants if _is_mapped(n))
            parse = MemoryPhase("parse", mapped, file_bytes - mapped)
            prepare = replace(parse, name="prepare", weights=copied - mapped)
        else:
            parse = MemoryPhase("parse", 0, file_bytes)
            prepare = MemoryPhase("prepare", 0, file_bytes + decoded, copied + decoded)
        activations = activation_peak(rest, self._feeds, self._outputs)
        run = replace(prepare, name="run", activations=activations)
        unknown = dict.fromkeys(e.node.name for e in self._ran if not e.is_known)
        return _memory(kind, (parse, prepare, run), tuple(unknown))

    def _merged(self) -> tuple[Graph, list[Executed]]:
        """Merge equal nodes, as TensorFlow does before it folds constants."""
        fed = tuple(name for name, _ in self._feeds)
        merging = make_transform("merge_duplicate_nodes", {})
        graph = merging.apply(self._graph, Context(fed, tuple(self._outputs))).graph
        merged = (e for e in self._ran if e.node.name in graph)
        return graph, [replace(e, node=graph[e.node.name]) for e in merged]


def _is_mapped(node: Node) -> bool:
    return node.attr_tensor("value").nbytes >= PAGE_SIZE


def _folded(graph: Graph, ran: Sequence[Executed]) -> dict[str, tuple[TensorLayout, ...]]:
    """Return the nodes that TensorFlow computes once, because all their inputs are constants."""
    folded: dict[str, tuple[TensorLayout, ...]] = {}
    for executed in ran:
        node = executed.node
        definition = signature_of(node, graph.library)
        is_pure = definition is not None and not definition.is_stateful
        if not is_pure or node.op in _CONTROL_FLOW | FEEDABLE or not node.data_inputs:
            continue
        sources = (graph.get(ref.node) for ref in node.data_inputs)
        is_constant = all(s is not None and (s.op == "Const" or s.name in folded) for s in sources)
        if is_constant and sum(layout.nbytes for layout in executed.outputs) <= _MAX_FOLDED:
            folded[node.name] = executed.outputs
    return folded


class _Tensor:
    """A buffer in memory, and the number of unfinished readers of it and its views."""

    __slots__ = ("is_owned", "nbytes", "readers")

    def __init__(self, nbytes: int, *, is_owned: bool) -> None:
        self.nbytes = nbytes
        self.is_owned = is_owned
        self.readers = 0

    def can_hold(self, nbytes: int) -> bool:
        """Return whether its only reader can write an output of a size over it."""
        return self.is_owned and self.readers == 1 and self.nbytes == nbytes > 0


def activation_peak(
    ran: Sequence[Executed],
    feeds: Mapping[Edge, TensorLayout],
    outputs: Sequence[str],
) -> int:
    """Return the peak of TensorFlow's allocations in a run in bytes, with the fed tensors.

    Nodes run in the order of the executor with one thread. A buffer is freed after its last reader.
    An elementwise op overwrites an input of the same size that has no other reader. Buffers are
    multiples of ``ALIGNMENT``.
    """
    order = execution_order(ran)
    fetched = Counter(edge(parse_ref(name)) for name in outputs)
    readers = Counter(edge(ref) for e in order for ref in e.node.data_inputs) + fetched
    current = {e: _Tensor(s.nbytes, is_owned=False) for e, s in feeds.items()}
    total = peak = sum(_aligned(t.nbytes) for t in current.values())
    for executed in order:
        node = executed.node
        sources = [current.get(edge(ref)) for ref in node.data_inputs]
        for index, layout in enumerate(executed.outputs):
            tensor = _shared(node, index, layout, sources)
            if tensor is None:
                is_constant_view = node.op in _VIEWS and bool(sources)
                tensor = _Tensor(layout.nbytes, is_owned=not is_constant_view)
                total += _aligned(tensor.nbytes) * tensor.is_owned
            tensor.readers += readers[(node.name, index)]
            current[(node.name, index)] = tensor
        peak = max(peak, total)
        produced = [current[(node.name, i)] for i in range(len(executed.outputs))]
        for source in sources:
            if source is not None:
                source.readers -= 1
        for tensor in {id(t): t for t in (*sources, *produced) if t is not None}.values():
            if tensor.is_owned and tensor.readers == 0:
                total -= _aligned(tensor.nbytes)
                tensor.is_owned = False
    return peak


def _shared(
    node: Node, index: int, layout: TensorLayout, sources: Sequence[_Tensor | None]
) -> _Tensor | None:
    """Return the buffer of an input that an output shares, or None for a new one."""
    if node.op == "IdentityN":
        return sources[index]
    if node.op in VIEWS:
        return sources[0] if sources else None
    for place in _IN_PLACE.get(node.op, ()) if index == 0 else ():
        source = sources[place] if place < len(sources) else None
        if source is not None and source.can_hold(layout.nbytes):
            return source
    return None


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def execution_order(ran: Sequence[Executed]) -> list[Executed]:
    """Sort nodes into the order of TensorFlow's executor with one thread.

    A thread runs cheap nodes as they become ready. Of several expensive ones, it keeps the last if
    no cheap node is ready, and puts the others in front of the queue of tasks (``ScheduleReady`` in
    ``executor.cc``).
    """
    by_name = {e.node.name: e for e in ran}
    waiting, readers = _dependencies(ran)
    tasks = deque(name for name, count in waiting.items() if not count)
    order: list[Executed] = []
    while tasks:
        inline = deque([tasks.popleft()])
        while inline:
            name = inline.popleft()
            order.append(by_name[name])
            ready = []
            for reader in readers.get(name, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
            inline.extend(n for n in ready if by_name[n].node.op in _CHEAP)
            expensive = [n for n in ready if by_name[n].node.op not in _CHEAP]
            if expensive and not inline:
                inline.append(expensive.pop())
            tasks.extendleft(expensive)
    return order


def _dependencies(ran: Sequence[Executed]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return the number of earlier nodes that each node waits for, and the nodes waiting for it."""
    waiting: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    for executed in ran:
        name = executed.node.name
        # A source that comes later closes a loop.
        sources = {ref.node for ref in executed.node.inputs if ref.node in waiting}
        waiting[name] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(name)
    return waiting, readers
