"""The engine that runs graphs with TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_chunks
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.subgraph import (
    TableFiller,
    checked_feeds,
    import_library,
    known_ref,
)

_PLACES = ("Graph execution error", "Detected at", "Node:", "\t", "Original stack", "  ")


class TensorFlowEngine:
    """Runs a graph in a session of TensorFlow.

    Args:
        graph: the graph.
        where: what the graph is called, for messages.
        threads: how many to use, 0 or less for what TensorFlow takes by itself.

    Raises:
        UnsupportedError: TensorFlow is not installed, or does not take the graph.
    """

    name = "tensorflow"

    def __init__(self, graph: Graph, where: str, threads: int = 0) -> None:
        self._graph = graph
        self._where = where
        self._tf = _tensorflow()
        definition = self._tf.GraphDef.FromString(b"".join(graph_to_chunks(graph)))
        loaded = self._tf.Graph()
        try:
            with loaded.as_default():
                self._tf.import_graph_def(definition, name="")
        except (ValueError, self._tf.errors.OpError) as error:
            raise self._refusal(error) from error
        config = self._tf.ConfigProto(
            intra_op_parallelism_threads=max(threads, 0),
            inter_op_parallelism_threads=max(threads, 0),
        )
        self._session = self._tf.Session(graph=loaded, config=config)
        self._tables = TableFiller(graph, where)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``. Tables that are needed are filled first."""
        given = checked_feeds(self._graph, feeds, self._where)
        wanted = [known_ref(self._graph, name, "fetch", self._where) for name in fetches]
        fed = {}
        for name, array in given.items():
            ref = known_ref(self._graph, name, "feed", self._where)
            tensor = self._tensor(f"{ref.node}:{ref.index}")
            fed[tensor] = _as_quantized(array, tensor.dtype.base_dtype.as_numpy_dtype)
        tensors = [self._tensor(f"{r.node}:{r.index}") for r in wanted]
        due = [
            self._session.graph.get_operation_by_name(n) for n in self._tables.due(fetches, given)
        ]
        try:
            self._session.run(due)
            found = self._session.run(tensors, fed)
        except self._tf.errors.UnimplementedError as error:
            raise self._refusal(error) from error
        except self._tf.errors.OpError as error:
            message = f"TensorFlow fails: {_reason(error)}"
            hint = "check the shapes and types that are fed, and the graph's inputs"
            raise InvalidGraphError(message, hint, self._where) from error
        return [_as_plain(np.asarray(array)) for array in found]

    def _tensor(self, name: str) -> Any:  # noqa: ANN401 - a tensor of an optional library
        try:
            return self._session.graph.get_tensor_by_name(name)
        except KeyError as error:
            message = f"{name!r} is not in the graph"
            raise InvalidGraphError(message, "check the number after the colon") from error

    def _refusal(self, error: Exception) -> UnsupportedError:
        message = f"TensorFlow cannot run the graph: {_reason(error)}"
        return UnsupportedError(message, "run the graph with another engine", self._where)


def _reason(error: Exception) -> str:
    """The line of TensorFlow's message that says what is wrong, without the places around it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_PLACES)]
    return said[0].strip() if said else type(error).__name__


def _as_quantized(array: Array, kind: Any) -> Array:  # noqa: ANN401 - a numpy type
    """Integers as TensorFlow's quantized types, which are structures of one field to numpy."""
    dtype = np.dtype(kind)
    return array.view(dtype) if dtype.names else array


def _as_plain(array: Array) -> Array:
    names = array.dtype.names
    return array[names[0]] if names else array


def _tensorflow() -> Any:  # noqa: ANN401 - an optional library
    # It tells about the processor and about plug-ins on every import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return import_library("tensorflow.compat.v1", "TensorFlow", "pip install tensorflow-cpu")
