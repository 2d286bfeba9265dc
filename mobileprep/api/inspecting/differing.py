"""What two models differ in: node by node, whatever nodes are called, and in what they compute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mobileprep.api.paths import FilePath, Warn, as_warning, names_of
from mobileprep.api.running import opened
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.frozen import dataclass
from mobileprep.inspection.matching import matching_nodes, renamed
from mobileprep.ir.compare import GraphDifference, compare_graphs
from mobileprep.ir.ends import ends, placeholders
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.reachability import reachable
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.runtime.engines.agreement import Engine
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.sampling.draw import draw_samples
from mobileprep.runtime.sampling.inputs import fed_tensors


@dataclass(frozen=True)
class OutputDifference:
    """How far an output is from what the first model gives for the same samples.

    Args:
        output: its tensor in the first model.
        other: its tensor in the second.
        largest: the largest absolute difference; of texts, how many differ; infinite or NaN where
            shapes or types differ, or numbers on one side only.
        peak: the largest absolute value of the first model's.
    """

    output: str
    other: str
    largest: float
    peak: float


@dataclass(frozen=True)
class ModelDifference:
    """What two models differ in.

    Args:
        a: the first model.
        b: the second.
        nodes_a: how many nodes the first has.
        nodes_b: how many the second has.
        matched: how many nodes are matched, equal or changed.
        renamed: names in the second of matched nodes that have another there, by those in the
            first; they do not count as differences.
        differences: what became of the first in the second, by names of the second; of nodes that
            only the first has, by their names there.
        samples: on how many samples both were run.
        outputs: how far their outputs are apart.
        equal: whether nothing differs that is looked at.
    """

    a: str
    b: str
    nodes_a: int
    nodes_b: int
    matched: int
    renamed: Mapping[str, str]
    differences: tuple[GraphDifference, ...]
    samples: int
    outputs: tuple[OutputDifference, ...]
    equal: bool

    def as_data(self) -> dict[str, Any]:
        """All of it as JSON takes it; what is no finite number is null."""
        return asdict(self) | {
            "differences": [d.as_data() for d in self.differences],
            "outputs": [
                asdict(o) | {"largest": _finite(o.largest), "peak": _finite(o.peak)}
                for o in self.outputs
            ],
        }


def diff(
    a: Graph | FilePath,
    b: Graph | FilePath,
    *,
    tolerance: float = 0.0,
    samples: int = 0,
    outputs: Sequence[str] = (),
    warn: Warn | None = None,
) -> ModelDifference:
    """Compare two models: which nodes were added, removed and changed, whatever their names.

    Args:
        a: a graph, or the path of a model as ``freeze`` takes it, which is frozen first.
        b: the other.
        tolerance: absolute differences up to this do not count, of constants and of outputs.
        samples: on how many drawn samples to run both; 0 to compare the graphs alone.
        outputs: the tensors of ``a`` to compare on samples; by default a signature's, or what
            nothing else takes.
        warn: called with what the user should know; by default it is a ``MobileprepWarning``.

    Raises:
        UsageError: an output is not in the first model, or no samples can be drawn for it.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: a graph is malformed.
        UnsupportedError: a model cannot be frozen or run.
    """
    warn = warn or as_warning
    first, second = (opened(model, (), warn) for model in (a, b))
    names = matching_nodes(first.graph, second.graph)
    alone = _alone(first.graph, names, second.graph)
    there = renamed(first.graph, {**names, **alone})
    own = {name: before for before, name in alone.items()}
    differences = tuple(
        replace(d, name=own.get(d.name, d.name)) if d.kind == "removed" else d
        for d in compare_graphs(there, second.graph, tolerance=tolerance)
    )
    found: tuple[OutputDifference, ...] = ()
    if samples:
        wanted = [first.tensor(n) for n in names_of(outputs) or first.outputs or ends(first.graph)]
        engines = [open_engine("numpy", m.graph, m.path, tell=warn) for m in (first, second)]
        # What an app feeds and fetches keeps its name where all that lies between is another.
        alike = {n.name: n.name for n in first.graph if n.name in second.graph}
        found = _on_samples(
            (first.graph, second.graph), engines, {**alike, **names}, wanted, samples
        )
    return ModelDifference(
        str(first.path) if isinstance(a, Graph) else str(a),
        str(second.path) if isinstance(b, Graph) else str(b),
        len(first.graph),
        len(second.graph),
        len(names),
        {name: other for name, other in names.items() if name != other},
        differences,
        samples,
        found,
        not differences and all(o.largest <= tolerance for o in found),
    )


def _alone(graph: Graph, names: Mapping[str, str], other: Graph) -> dict[str, str]:
    """Names for the nodes that only the first graph has: their own, where the second has no such.

    Others are told apart from the second one's by words that no node's name of TensorFlow has.
    """
    fresh = FreshNames([*other.by_name])
    return {
        n.name: fresh.name(f"{n.name} (of the first)" if n.name in other else n.name)
        for n in graph
        if n.name not in names
    }


def _on_samples(
    graphs: Sequence[Graph],
    engines: Sequence[Engine],
    names: Mapping[str, str],
    wanted: Sequence[str],
    samples: int,
) -> tuple[OutputDifference, ...]:
    others = [_other(name, names, graphs[0]) for name in wanted]
    needed = reachable(graphs[0], [parse_ref(name).node for name in wanted])
    fed = fed_tensors(graphs[0], [name for name in placeholders(graphs[0]) if name in needed])
    drawn = draw_samples(graphs[0], fed, samples, lambda f: engines[0].run(wanted, f))
    pairs: list[list[tuple[Array, Array]]] = [[] for _ in wanted]
    for feeds, given in zip(drawn.feeds, drawn.outputs, strict=True):
        there = {_other(name, names, graphs[0]): array for name, array in feeds.items()}
        for column, x, y in zip(pairs, given, _run(engines[1], others, there), strict=True):
            column.append((x, y))
    return tuple(
        OutputDifference(name, other, max(_gap(x, y) for x, y in column), _peak(column))
        for name, other, column in zip(wanted, others, pairs, strict=True)
    )


def _run(engine: Engine, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    try:
        return engine.run(fetches, feeds)
    except MobileprepError as error:
        message = f"the second model does not run on the first one's samples: {error.message}"
        raise UsageError(message, error.hint, error.where) from error


def _other(name: str, names: Mapping[str, str], graph: Graph) -> str:
    """The tensor of the second model that a tensor of the first one is.

    Raises:
        UsageError: it is not in the first model, or has no counterpart.
    """
    ref = parse_ref(name)
    if ref.node in names:
        return str(ref.renamed(names[ref.node]))
    if ref.node not in graph:
        message = f"there is no tensor {name!r} in the first model"
        raise UsageError(message, "name tensors of the first model in --outputs")
    message = f"the second model has nothing that stands for {name!r} of the first"
    raise UsageError(message, "name outputs that both have: --outputs a,b")


def _gap(x: Array, y: Array) -> float:
    if x.shape != y.shape or (x.dtype == object) != (y.dtype == object):
        return math.inf
    if x.dtype == object:
        return float(np.sum(x != y))
    same = (x == y) | ((x != x) & (y != y))  # NaN alone differs from itself
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        gaps = np.abs(x[~same].astype(np.complex128) - y[~same].astype(np.complex128))
    # NaN of a maximum would pass every comparison.
    return math.inf if np.isnan(gaps).any() else float(gaps.max())


def _peak(column: Sequence[tuple[Array, Array]]) -> float:
    numbers = [x for x, _ in column if x.size and x.dtype != object]
    return max((float(np.abs(x).max()) for x in numbers), default=0.0)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
