"""The tensors that samples are made for: their types and shapes, as far as they are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mobileprep.errors import InvalidGraphError, UsageError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import FEEDABLE
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.opdefs.signatures import tensor_dtype
from mobileprep.ops.array.identity import LAST_AMBIGUOUS_PRODUCER
from mobileprep.ops.dims import ShapeConflictError, merge
from mobileprep.ops.shape_inference import infer_shapes, shape_of


@dataclass(frozen=True)
class FedTensor:
    """A tensor to feed.

    Args:
        name: as it is fed.
        dtype: its type.
        shape: its sizes, -1 where one is open; None where the rank is.
    """

    name: str
    dtype: DType
    shape: TensorShape = None

    @property
    def ref(self) -> Ref:
        """The tensor."""
        return parse_ref(self.name)

    @property
    def is_whole(self) -> bool:
        """Whether every size is known."""
        return self.shape is not None and all(size >= 0 for size in self.shape)


def fed_tensors(
    graph: Graph, names: Iterable[str], declared: Mapping[str, TensorShape] | None = None
) -> list[FedTensor]:
    """The tensors of these names.

    Args:
        graph: the graph.
        names: tensors to feed, placeholders or not.
        declared: shapes that a recipe gives, by name; they say more than the graph, or the same.

    Raises:
        InvalidGraphError: a name is not in the graph, or a shape contradicts the graph's.
        UsageError: the type of a tensor is not known.
    """
    names = list(names)
    for name in names:
        node = graph.get(parse_ref(name).node)
        if node is None:
            message = f"the input {name!r} is not in the graph"
            raise InvalidGraphError(message, nearest_hint(parse_ref(name).node, graph.by_name))
    shapes = known_shapes(graph, [parse_ref(name) for name in names])
    return [
        FedTensor(name, _dtype(graph, name), _merged(name, shape, (declared or {}).get(name)))
        for name, shape in zip(names, shapes, strict=True)
    ]


def known_shapes(graph: Graph, refs: Sequence[Ref]) -> list[TensorShape]:
    """The shapes of tensors; those of placeholders without a look at the rest of the graph."""
    if all(graph[ref.node].op in FEEDABLE for ref in refs):
        found = [graph[ref.node].attr_shape("shape") for ref in refs]
        # As TensorFlow reads them: old graphs leave the shape empty where it is unknown.
        is_old = graph.versions.producer <= LAST_AMBIGUOUS_PRODUCER
        return [None if shape == () and is_old else shape for shape in found]
    shapes = infer_shapes(graph, recorded=True)
    return [shape_of(shapes, ref) for ref in refs]


def fixed_batch(graph: Graph, names: Iterable[str]) -> int:
    """The number of samples that a graph's inputs insist on, or 0 for any."""
    refs = [parse_ref(name) for name in names]
    for shape in known_shapes(graph, [ref for ref in refs if ref.node in graph]):
        if shape and shape[0] > 0:
            return shape[0]
    return 0


def _dtype(graph: Graph, name: str) -> DType:
    dtype = tensor_dtype(graph, parse_ref(name))
    if dtype is None:
        node = graph[parse_ref(name).node]
        message = f"the type of the input {name!r} is not known: nobody knows the op {node.op!r}"
        raise UsageError(message, "name a tensor of a known op as the input")
    return dtype


def _merged(name: str, found: TensorShape, declared: TensorShape) -> TensorShape:
    try:
        return merge(found, declared)
    except ShapeConflictError as error:
        known = "of unknown rank" if found is None else str(list(found))
        message = f"the input {name!r} has the shape {known} in the graph, "
        message += f"which {list(declared or ())} does not fit"
        raise InvalidGraphError(message, "use the graph's sizes, -1 for any") from error
