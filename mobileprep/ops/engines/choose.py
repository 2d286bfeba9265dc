"""Choosing an engine by name, or the fastest that can run a graph."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from mobileprep.errors import UnsupportedError, UsageError, nearest_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.ops.engines.base import Engine
from mobileprep.ops.engines.numpy_engine import NumpyEngine
from mobileprep.ops.engines.openvino_engine import OpenVinoEngine
from mobileprep.ops.engines.tensorflow_engine import TensorFlowEngine

AUTO: Final = "auto"

Open = Callable[[Graph, str, int], Engine]

# Fastest first, as measured on convolutional networks.
_ENGINES: Final[dict[str, Open]] = {
    "openvino": OpenVinoEngine,
    "tensorflow": TensorFlowEngine,
    "numpy": NumpyEngine,
}
ENGINE_NAMES: Final = (AUTO, *sorted(_ENGINES))


def open_engine(
    name: str,
    graph: Graph,
    path: Path | None,
    *,
    threads: int = 0,
    tell: Callable[[str], None] | None = None,
) -> Engine:
    """An engine for a graph.

    Args:
        name: "auto" for the fastest installed one that can run the graph, else the engine's name.
        graph: the graph.
        path: where the graph was read from, for messages.
        threads: how many to use, 0 or less for what the engine takes by itself.
        tell: with "auto", told in a sentence why an engine cannot be taken.

    Raises:
        UnsupportedError: the engine is not installed, or does not take the graph.
        UsageError: there is no engine of that name.
    """
    where = str(path) if path is not None else "graph"
    if name == AUTO:
        return _Fastest(graph, where, threads, tell)
    if name not in _ENGINES:
        message = f"there is no engine {name!r}"
        hint = nearest_hint(name, ENGINE_NAMES) or f"choose one of {', '.join(ENGINE_NAMES)}"
        raise UsageError(message, hint)
    return _ENGINES[name](graph, where, threads)


def installed_engines() -> list[str]:
    """The engines that can be opened on this machine, fastest first."""
    return [n for n in _ENGINES if n == "numpy" or importlib.util.find_spec(n) is not None]


class _Fastest:
    """The first engine that runs what is asked for; whether one can is known once it has."""

    def __init__(
        self, graph: Graph, where: str, threads: int, tell: Callable[[str], None] | None
    ) -> None:
        self._graph = graph
        self._where = where
        self._threads = threads
        self._tell = tell
        self._left = installed_engines()
        self._engine: Engine | None = None

    @property
    def name(self) -> str:
        """The engine's name, "auto" before the first run."""
        return AUTO if self._engine is None else self._engine.name

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``. An engine that cannot is not asked again."""
        while True:
            try:
                if self._engine is None:
                    engine = _ENGINES[self._left[0]]
                    self._engine = engine(self._graph, self._where, self._threads)
                return self._engine.run(fetches, feeds)
            except UnsupportedError as error:
                if len(self._left) == 1:
                    raise
                self._engine = None
                refused = self._left.pop(0)
                if self._tell is not None:
                    self._tell(f"{refused} is not taken: {error.message}")
