"""The engine that runs graphs with OpenVINO, which reads frozen GraphDefs by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.subgraph import checked_feeds, cut_out, import_library

# A compiled model holds its own copy of the weights.
_KEPT_MODELS = 2

_ADVICE = "To facilitate"

_CONFIG = {
    # Without it, processors with bfloat16 would compute in it.
    "INFERENCE_PRECISION_HINT": "f32",
    "PERFORMANCE_HINT": "LATENCY",
    # Stages run side by side, and threads tied to processors would all be tied to the same.
    "ENABLE_CPU_PINNING": "NO",
}

Key = tuple[tuple[str, ...], tuple[tuple[str, str, tuple[int, ...]], ...]]


class OpenVinoEngine:
    """Runs a graph with OpenVINO on the processor, in single precision.

    A model is compiled for each set of fetches and shapes of feeds.

    Args:
        graph: the graph.
        where: what the graph is called, for messages.
        threads: how many to use, 0 or less for what OpenVINO takes by itself.

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
        given = checked_feeds(self._graph, feeds, self._where)
        self._check_types(given)
        model = self._model(tuple(fetches), given)
        inputs = [np.asarray(a, order="C") for a in given.values()]
        try:
            model.infer(dict(zip(model.model_inputs, inputs, strict=True)))
        except RuntimeError as error:
            raise self._refusal(error) from error
        # The next run writes over the tensors that this one leaves.
        return [model.get_tensor(output).data.copy() for output in model.model_outputs]

    def _check_types(self, feeds: Mapping[str, Array]) -> None:
        texts = [name for name, array in feeds.items() if array.dtype == object]
        if texts:
            message = f"OpenVINO takes no text, which is fed to {texts[0]!r}"
            raise UnsupportedError(message, "run the graph with another engine", self._where)

    def _model(self, fetches: tuple[str, ...], feeds: Mapping[str, Array]) -> Any:  # noqa: ANN401
        """A request of a compiled model, whose inputs and outputs are in our order."""
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
        # Its messages begin with places in its sources, and end with what is wrong, to which
        # advice for those who extend it may be added.
        told = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
        lines = [line for line in told if not line.startswith(_ADVICE)]
        message = f"OpenVINO cannot run the graph: {lines[-1] if lines else 'it does not say why'}"
        return UnsupportedError(message, "run the graph with another engine", self._where)


class _Request:
    """An inference request, with its ports in the order of feeds and fetches."""

    def __init__(self, compiled: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:  # noqa: ANN401
        self._request = compiled.create_infer_request()
        self.infer = self._request.infer
        self.get_tensor = self._request.get_tensor
        self.model_inputs = [compiled.input(f"{name}:0") for name in inputs]
        self.model_outputs = [compiled.output(f"{name}:0") for name in outputs]
