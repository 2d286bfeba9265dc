"""What verbs that run graphs know of a graph's tensors before it runs."""

from __future__ import annotations

from msgspec import Struct

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.reachability import placeholders
from mobileprep.graph.refs import parse_ref


class TensorInfo(Struct, frozen=True):
    """A tensor's name, type, and shape as far as its placeholder tells.

    Args:
        name: as the user gave it.
        dtype: None where nobody knows the op.
        shape: None for an unknown rank, -1 for an unknown size.
    """

    name: str
    dtype: DType | None
    shape: TensorShape

    def __str__(self) -> str:
        """Type and shape: ``float32[?, 784]``."""
        kind = self.dtype.short if self.dtype is not None else "unknown type"
        if self.shape is None:
            return f"{kind} of unknown shape"
        return f"{kind}[{', '.join('?' if d < 0 else str(d) for d in self.shape)}]"


def tensor_info(graph: Graph, name: str) -> TensorInfo:
    """What is known of a tensor."""
    ref = parse_ref(name)
    node = graph.get(ref.node)
    if node is None or ref.is_control:
        message = f"there is no tensor {name!r} in the graph"
        usual = f"its placeholders are {', '.join(placeholders(graph)[:5]) or 'none'}"
        raise UsageError(message, nearest_hint(ref.node, graph.by_name) or usual)
    # Old graphs leave the shape of a placeholder empty where it is unknown.
    shape = (node.attr_shape("shape") or None) if node.op in PLACEHOLDERS else None
    return TensorInfo(name, tensor_dtype(graph, ref), shape)
