"""Engines for graphs: the interpreter, OpenVINO, and TensorFlow."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.serde import graph_to_chunks
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Observer, Printer
from mobileprep.runtime.engines.subgraph import (
    TableFiller,
    checked_feeds,
    cut_out,
    import_library,
    known_ref,
)
from mobileprep.runtime.interpreter import Interpreter


class NumpyEngine:
    """Runs a graph with the interpreter.

    Args:
        graph: the graph.
        where: name of the graph in messages.
        threads: maximum number of threads, in this process from now on; 0 or less for all.
        combine, observer, seed, printer: as for the interpreter; filling tables is not observed.
    """

    name = "numpy"

    def __init__(
        self,
        graph: Graph,
        where: str,
        threads: int = 0,
        *,
        combine: bool = True,
        observer: Observer | None = None,
        seed: int | None = None,
        printer: Printer | None = None,
    ) -> None:
        if threads > 0:
            # The interpreter has as many threads as BLAS has at its first use.
            importlib.import_module("threadpoolctl").threadpool_limits(threads, "blas")
        self._switch = None if observer is None else _Switch(observer)
        self._interpreter = Interpreter(
            graph,
            where=where,
            combine=combine,
            observer=self._switch,
            seed=seed,
            printer=printer,
        )
        self._tables = TableFiller(graph, where)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``. Tables that are needed are filled first."""
        due = self._tables.due(fetches, feeds)
        if due:
            self._fill(list(due))
        return self._interpreter.run(fetches, feeds)

    def _fill(self, nodes: Sequence[str]) -> None:
        if self._switch is None:
            self._interpreter.run(nodes, {})
            return
        self._switch.on = False
        self._interpreter.run(nodes, {})
        self._switch.on = True


class _Switch:
    """Forwards observations while it is on."""

    def __init__(self, observer: Observer) -> None:
        self.on = True
        self._observer = observer

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """See ``Observer``."""
        if self.on:
            self._observer(nodes, start, seconds, outputs)


# A compiled model holds its own copy of the weights.
_KEPT_MODELS = 2


_ADVICE = "To facilitate"


_CONFIG = {
    # Without it, processors with bfloat16 would compute in bfloat16.
    "INFERENCE_PRECISION_HINT": "f32",
    "PERFORMANCE_HINT": "LATENCY",
    # Stages run in parallel, and pinned threads would share the same processors.
    "ENABLE_CPU_PINNING": "NO",
}


Key = tuple[tuple[str, ...], tuple[tuple[str, str, tuple[int, ...]], ...]]


class OpenVinoEngine:
    """Runs a graph with OpenVINO on the processor, in single precision.

    A model is compiled for each set of fetches and shapes of feeds.

    Args:
        graph: the graph.
        where: name of the graph in messages.
        threads: number of threads; 0 or less for OpenVINO's default.

    Raises:
        UnsupportedError: OpenVINO is not installed.
    """

    name = "openvino"

    def __init__(self, graph: Graph, where: str, threads: int = 0) -> None:
        self._graph = graph
        self._where = where
        self._config = dict(_CONFIG)
        if threads > 0:
            self._config["INFERENCE_NUM_THREADS"] = str(threads)
        library = import_library("openvino", "OpenVINO", "pip install 'mobileprep[openvino]'")
        self._core = library.Core()
        self._models: dict[Key, Any] = {}

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``."""
        arrays = checked_feeds(self._graph, feeds, self._where)
        self._check_types(arrays)
        model = self._model(tuple(fetches), arrays)
        inputs = [np.asarray(a, order="C") for a in arrays.values()]
        try:
            model.infer(dict(zip(model.model_inputs, inputs, strict=True)))
        except RuntimeError as error:
            raise self._refusal(error) from error
        # The next run overwrites the tensors of this one.
        return [model.get_tensor(output).data.copy() for output in model.model_outputs]

    def _check_types(self, feeds: Mapping[str, Array]) -> None:
        texts = [name for name, array in feeds.items() if array.dtype == object]
        if texts:
            message = f"OpenVINO takes no text, which is fed to {texts[0]!r}"
            raise UnsupportedError(message, "run the graph with another engine", self._where)

    def _model(self, fetches: tuple[str, ...], feeds: Mapping[str, Array]) -> Any:  # noqa: ANN401
        """Return a request of a compiled model, with inputs and outputs in our order."""
        key = (fetches, tuple((n, a.dtype.str, a.shape) for n, a in feeds.items()))
        model = self._models.get(key)
        if model is None:
            model = self._compiled(fetches, feeds)
            if len(self._models) >= _KEPT_MODELS:
                self._models.pop(next(iter(self._models)))
            self._models[key] = model
        return model

    def _compiled(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> _Request:
        part = cut_out(self._graph, fetches, feeds, self._where)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.pb"
            write_graph(path, part.graph)
            try:
                compiled = self._core.compile_model(
                    self._core.read_model(path), "CPU", self._config
                )
                return _Request(compiled, part.inputs, part.outputs)
            except RuntimeError as error:
                raise self._refusal(error) from error

    def _refusal(self, error: RuntimeError) -> UnsupportedError:
        # Its messages begin with source locations and end with the problem, and may add advice for
        # its developers.
        lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
        reasons = [line for line in lines if not line.startswith(_ADVICE)]
        message = (
            f"OpenVINO cannot run the graph: {reasons[-1] if reasons else 'it does not say why'}"
        )
        return UnsupportedError(message, "run the graph with another engine", self._where)


class _Request:
    """An inference request, with its ports in the order of feeds and fetches."""

    def __init__(self, compiled: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:  # noqa: ANN401
        self._request = compiled.create_infer_request()
        self.infer = self._request.infer
        self.get_tensor = self._request.get_tensor
        self.model_inputs = [compiled.input(f"{name}:0") for name in inputs]
        self.model_outputs = [compiled.output(f"{name}:0") for name in outputs]


_PLACES = ("Graph execution error", "Detected at", "Node:", "\t", "Original stack", "  ")


class TensorFlowEngine:
    """Runs a graph in a session of TensorFlow.

    Args:
        graph: the graph.
        where: name of the graph in messages.
        threads: number of threads; 0 or less for TensorFlow's default.

    Raises:
        UnsupportedError: TensorFlow is not installed, or does not accept the graph.
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
        arrays = checked_feeds(self._graph, feeds, self._where)
        refs = [known_ref(self._graph, name, "fetch", self._where) for name in fetches]
        fed = {}
        for name, array in arrays.items():
            ref = known_ref(self._graph, name, "feed", self._where)
            tensor = self._tensor(f"{ref.node}:{ref.index}")
            fed[tensor] = _as_quantized(array, tensor.dtype.base_dtype.as_numpy_dtype)
        tensors = [self._tensor(f"{r.node}:{r.index}") for r in refs]
        due = [
            self._session.graph.get_operation_by_name(n) for n in self._tables.due(fetches, arrays)
        ]
        try:
            self._session.run(due)
            outputs = self._session.run(tensors, fed)
        except self._tf.errors.UnimplementedError as error:
            raise self._refusal(error) from error
        except self._tf.errors.OpError as error:
            message = f"TensorFlow fails: {_reason(error)}"
            hint = "check the shapes and types that are fed, and the graph's inputs"
            raise InvalidGraphError(message, hint, self._where) from error
        return [_as_plain(np.asarray(array)) for array in outputs]

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
    """Return the line of TensorFlow's message that describes the problem, without locations."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_PLACES)]
    return said[0].strip() if said else type(error).__name__


def _as_quantized(array: Array, kind: Any) -> Array:  # noqa: ANN401 - a numpy type
    """Convert integers to TensorFlow's quantized types, in numpy structures of one field."""
    dtype = np.dtype(kind)
    return array.view(dtype) if dtype.names else array


def _as_plain(array: Array) -> Array:
    names = array.dtype.names
    return array[names[0]] if names else array


def _tensorflow() -> Any:  # noqa: ANN401 - an optional library
    # TensorFlow logs messages about the processor and plug-ins on every import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return import_library("tensorflow.compat.v1", "TensorFlow", "pip install tensorflow-cpu")
