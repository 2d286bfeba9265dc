"""The inputs of a graph, as data is read for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import SWITCHES
from mobileprep.ir.refs import Ref, edge
from mobileprep.runtime.sampling.inputs import FedTensor, fed_tensors

# These read one file at a time, a text without axes.
_ONE_FILE: Final = frozenset(
    {"DecodeWav", "DecodePng", "DecodeBmp", "DecodeJpeg", "DecodeImage", "DecodeGif"}
    | {"DecodeAndCropJpeg", "ParseSingleExample"}
)


def data_inputs(
    graph: Graph, names: Iterable[str], declared: Mapping[str, TensorShape]
) -> list[FedTensor]:
    """The tensors of these names. Of those without a known shape, one that a file is decoded from
    takes one file at a time, and one that decides on a branch is a scalar.

    Raises:
        InvalidGraphError, UsageError: see ``fed_tensors``.
    """
    return [_sharpened(graph, fed) for fed in fed_tensors(graph, names, declared)]


def _decides(graph: Graph, ref: Ref) -> bool:
    """Whether a tensor is the predicate of a Switch, as ``tf.cond`` makes it."""
    readers = (node for node in graph.consumers.get(ref.node, ()) if node.op in SWITCHES)
    return any(edge(node.data_inputs[1]) == edge(ref) for node in readers)


def _sharpened(graph: Graph, fed: FedTensor) -> FedTensor:
    if fed.shape is not None:
        return fed
    if fed.dtype is DType.BOOL:
        return replace(fed, shape=()) if _decides(graph, fed.ref) else fed
    if fed.dtype is not DType.STRING:
        return fed
    from mobileprep.runtime.sampling.first_ops import first_ops  # few graphs take texts

    reader = first_ops(graph, fed.ref).file
    is_one = reader is not None and reader.op in _ONE_FILE
    return replace(fed, shape=()) if is_one else fed
