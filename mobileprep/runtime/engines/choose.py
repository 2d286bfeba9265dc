"""Choice of an engine by name, or of the fastest one that can run a graph.

The module of an engine is imported when it is chosen: most builds use only one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from mobileprep.errors import UnsupportedError, UsageError, nearest_hint
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Printer
from mobileprep.runtime.engines.agreement import Convert, Engine
from mobileprep.runtime.engines.subgraph import folders_near, with_found_assets

AUTO: Final = "auto"
_ALWAYS: Final = "numpy"
_VERIFIED_RUNS: Final = 2

Open = Callable[[Graph, str, int], Engine]

LITERT: Final = "litert"
"""The engine that runs .tflite files, and graphs that are converted to one."""


def _openvino(graph: Graph, where: str, threads: int) -> Engine:
    from mobileprep.runtime.engines.graph_engines import OpenVinoEngine

    return OpenVinoEngine(graph, where, threads)


def _litert(graph: Graph, where: str, threads: int, *, convert: Convert | None = None) -> Engine:
    from mobileprep.runtime.engines.litert_engine import LiteRtGraphEngine

    if convert is None:
        message = "LiteRT runs .tflite files, and this is a graph"
        raise UnsupportedError(message, "convert it first, with 'mobileprep tflite'", where)
    return LiteRtGraphEngine(graph, where, threads, convert)


def _tensorflow(graph: Graph, where: str, threads: int) -> Engine:
    from mobileprep.runtime.engines.graph_engines import TensorFlowEngine

    return TensorFlowEngine(graph, where, threads)


def _numpy(
    graph: Graph,
    where: str,
    threads: int,
    *,
    seed: int | None = None,
    printer: Printer | None = None,
) -> Engine:
    from mobileprep.runtime.engines.graph_engines import NumpyEngine

    return NumpyEngine(graph, where, threads, seed=seed, printer=printer)


# Fastest first, as measured on convolutional networks.
ENGINES: Final[dict[str, Open]] = {
    "openvino": _openvino,
    LITERT: _litert,
    "tensorflow": _tensorflow,
    _ALWAYS: _numpy,
}
ENGINE_NAMES: Final = (AUTO, *sorted(ENGINES))
_MODULES: Final = {LITERT: "ai_edge_litert"}


def open_engine(
    name: str,
    graph: Graph,
    path: Path | None,
    *,
    where: str = "",
    threads: int = 0,
    seed: int | None = None,
    among: Collection[str] | None = None,
    tell: Callable[[str], None] | None = None,
    printer: Printer | None = None,
    convert: Convert | None = None,
    verify: bool = False,
) -> Engine:
    """Open an engine for a graph.

    Args:
        name: "auto" for the fastest installed one that can run the graph, else the engine's name.
        path: the source of the graph: for messages, and to find files next to it that the graph
            reads.
        where: name of the graph in messages; the path by default.
        threads: number of threads; 0 or less for the engine's default.
        seed: of random numbers, for numpy.
        among: the engines that "auto" may choose, in addition to numpy.
        tell: receives a message for each engine that "auto" skips.
        printer: receives the graph's printed output, for numpy; TensorFlow prints by itself.
        convert: converts graphs for litert, which cannot run them without it.
        verify: with "auto", compare the first two runs of an engine with numpy, and use the next
            engine if they do not agree.
    """
    where = where or str(path or "graph")
    if name not in ENGINE_NAMES:
        message = f"unknown engine {name!r}"
        hint = nearest_hint(name, ENGINE_NAMES) or f"choose one of {', '.join(ENGINE_NAMES)}"
        raise UsageError(message, hint)
    if path is not None and _is_tflite(graph):
        return _of_tflite(name, graph, path, threads)
    if path is not None:
        graph = with_found_assets(graph, folders_near(path))
    if name == AUTO:
        listed = [n for n in installed_engines() if among is None or n == _ALWAYS or n in among]
        openers = {n: _opener(n, seed, printer, convert) for n in listed}
        return _Fastest(openers, graph, where, threads, tell, _VERIFIED_RUNS if verify else 0)
    return _opener(name, seed, printer, convert)(graph, where, threads)


def _is_tflite(graph: Graph) -> bool:
    from mobileprep.graph.tflite import is_tflite_graph

    return is_tflite_graph(graph)


def _of_tflite(name: str, graph: Graph, path: Path, threads: int) -> Engine:
    """Open LiteRT, the only engine for .tflite files; numpy, the default, is accepted."""
    if name not in (AUTO, _ALWAYS, LITERT):
        message = f"{name} runs no .tflite files"
        raise UnsupportedError(message, "leave the engine to mobileprep", str(path))
    from mobileprep.runtime.engines.litert_engine import LiteRtEngine

    return LiteRtEngine(graph, path, threads)


def _opener(name: str, seed: int | None, printer: Printer | None, convert: Convert | None) -> Open:
    if name == _ALWAYS:
        return partial(_numpy, seed=seed, printer=printer)
    if name == LITERT:
        return partial(_litert, convert=convert)
    return ENGINES[name]


def installed_engines() -> list[str]:
    """Return the engines that can be opened on this machine, fastest first."""
    return [n for n in ENGINES if n == _ALWAYS or _is_installed(n)]


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(_MODULES.get(name, name))
    # A directory of that name on the path has no origin.
    return spec is not None and spec.origin is not None


class _Fastest:
    """The first engine that can run a request, which is known only after a run."""

    def __init__(
        self,
        openers: Mapping[str, Open],
        graph: Graph,
        where: str,
        threads: int,
        tell: Callable[[str], None] | None,
        verified_runs: int = 0,
    ) -> None:
        self._openers = openers
        self._remaining = list(openers)
        self._graph = graph
        self._where = where
        self._threads = threads
        self._tell = tell
        self._engine: Engine | None = None
        self._verified_runs = verified_runs
        self._unverified = 0
        self._reference: Engine | None = None

    @property
    def name(self) -> str:
        """The engine's name, "auto" before the first run."""
        return AUTO if self._engine is None else self._engine.name

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``. An engine that fails is not tried again."""
        while True:
            try:
                if self._engine is None:
                    opened = self._openers[self._remaining[0]]
                    self._engine = opened(self._graph, self._where, self._threads)
                    self._unverified = self._verified_runs
                outputs = self._engine.run(fetches, feeds)
                if self._unverified and self._engine.name != _ALWAYS:
                    self._verify(self._engine, outputs, fetches, feeds)
                return outputs
            except UnsupportedError as error:
                if len(self._remaining) == 1:
                    raise
                self._engine = None
                refused = self._remaining.pop(0)
                if self._tell is not None:
                    self._tell(f"{refused} is not taken: {error.message}")

    def _verify(
        self,
        engine: Engine,
        outputs: Sequence[Array],
        fetches: Sequence[str],
        feeds: Mapping[str, Array],
    ) -> None:
        """Compare the outputs of a run with the interpreter's."""
        from mobileprep.runtime.engines.agreement import agreement_of

        self._unverified -= 1
        try:
            if self._reference is None:
                opened = self._openers[_ALWAYS]
                self._reference = opened(self._graph, self._where, self._threads)
            expected = self._reference.run(fetches, feeds)
        except UnsupportedError:  # the interpreter lacks an op: nothing to compare with
            self._unverified = 0
            return
        if not self._unverified:
            self._reference = None
        agreement = agreement_of(engine.name, outputs, _ALWAYS, expected, fetches)
        if not agreement.holds:
            raise UnsupportedError(str(agreement), "use the numpy engine", self._where)
