"""Running a graph once, on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from mobileprep.api.feeding.feeds import check_fed, with_fed_shapes
from mobileprep.api.feeding.tensors import tensor_info
from mobileprep.api.models import Model, ModelOptions, load_model
from mobileprep.api.paths import FilePath, Warn, as_warning, names_of
from mobileprep.errors import InvalidGraphError, UsageError
from mobileprep.ir.ends import ends
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.runtime.engines.agreement import Engine
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.interpreter import converted


def run(
    model: Graph | FilePath,
    feeds: Mapping[str, ArrayLike] | None = None,
    fetches: Sequence[str] = (),
    *,
    engine: str = "numpy",
    seed: int | None = None,
    threads: int = 0,
    warn: Warn | None = None,
) -> dict[str, Array]:
    """Run a graph once.

    Args:
        model: a graph, or the path of a model as ``freeze`` takes it, which is frozen first.
        feeds: values by tensor name, or by the names that a signature has for its inputs. They are
            converted to the tensor's type where that is a matter of width; of text, ``str`` or
            ``bytes``. Shapes are the placeholders' own: a batch axis is not added.
        fetches: the tensors to compute; by default a signature's outputs, or the graph's ends.
        engine: ``numpy``, ``openvino``, ``tensorflow``, or ``auto`` for the fastest installed one
            that can run the graph.
        seed: of random numbers that the graph draws; only numpy takes it.
        threads: how many to use; 0 for what the engine takes by itself.
        warn: called with what the user should know; by default it is a ``MobileprepWarning``.

    Returns:
        An array of the tensor's shape for each fetch, by the name that was asked for; not to be
        written to. Texts are object arrays of bytes.

    Raises:
        UsageError: a name is not in the graph, a placeholder that is needed is not fed, or a feed
            does not fit it; there is no such engine.
        InvalidGraphError: the graph is malformed, or a node's inputs do not fit its op.
        UnsupportedError: the engine is not installed, or cannot run the graph.
        CorruptFileError: a file is missing or damaged.
    """
    warn = warn or as_warning
    wanted = names_of(fetches)
    loaded = opened(model, wanted, warn)
    arrays = fed_arrays(loaded, feeds or {})
    names = wanted or loaded.outputs or tuple(ends(loaded.graph))
    if not names:
        message = "no tensors are named that the graph is to compute"
        raise UsageError(message, "name some in fetches")
    running = open_engine(engine, loaded.graph, loaded.path, seed=seed, threads=threads, tell=warn)
    tensors = [loaded.tensor(name) for name in names]
    return dict(zip(names, run_fed(running, loaded, arrays, tensors), strict=True))


def opened(model: Graph | FilePath, fetches: Sequence[str], warn: Warn) -> Model:
    """A model that runs; files that a graph itself reads are looked for near it, or here.

    Raises:
        CorruptFileError, InvalidGraphError, UnsupportedError, UsageError: see ``load_model``.
    """
    if isinstance(model, Graph):
        return Model(model, Path("graph"))
    return load_model(Path(model), ModelOptions(tuple(fetches)), warn)


def fed_arrays(model: Model, feeds: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """What is fed, by tensor name and in the tensors' types.

    Raises:
        UsageError: a tensor is not in the graph, or what is fed is no array.
    """
    named = {model.tensor(name): _array(name, value) for name, value in feeds.items()}
    graph = model.graph
    return {name: converted(a, tensor_info(graph, name).dtype) for name, a in named.items()}


def _array(name: str, value: ArrayLike) -> Array:
    try:
        return np.asarray(value)
    except ValueError as error:
        message = f"what is fed to {name!r} is no array: {error}"
        raise UsageError(message, "give each row as many values as the others") from error


def run_fed(
    engine: Engine, model: Model, feeds: Mapping[str, Array], fetches: Sequence[str]
) -> list[Array]:
    """The values of tensors, once it is sure that all that is needed is fed.

    Raises:
        UsageError, InvalidGraphError, UnsupportedError: see ``run``.
    """
    check_fed(model.graph, feeds, fetches, str(model.path))
    try:
        return engine.run(fetches, feeds)
    except InvalidGraphError as error:
        raise with_fed_shapes(error, model.graph, feeds) from error
