"""Run graphs in the installed TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_from_bytes, graph_to_bytes

Array = np.ndarray


def tensor_name(name: str) -> str:
    """Add the output index to a name that has none."""
    return name if ":" in name else f"{name}:0"


def graph_def(tf: ModuleType, graph: Graph | Path) -> Any:
    """TensorFlow's GraphDef of a graph or of a file."""
    content = graph.read_bytes() if isinstance(graph, Path) else graph_to_bytes(graph)
    return tf.compat.v1.GraphDef.FromString(content)


def from_tensorflow(graph: Any) -> Graph:
    """Read a graph of TensorFlow."""
    return graph_from_bytes(graph.as_graph_def().SerializeToString(), "graph")


@contextmanager
def session(tf: ModuleType, graph: Graph | Path, *, optimize: bool = True) -> Iterator[Any]:
    """A session with an imported graph.

    Args:
        tf: TensorFlow.
        graph: a graph or a GraphDef file.
        optimize: whether Grappler rewrites the graph, as it does by default.
    """
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = not optimize
    definition = graph_def(tf, graph)
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(definition, name="")
    with tf.compat.v1.Session(graph=imported, config=config) as opened:
        yield opened


def run_newest(
    tf: ModuleType,
    graph: Graph | Path,
    fetches: Iterable[str],
    feeds: Mapping[str, Any],
    *,
    optimize: bool = True,
) -> list[Array]:
    """Run a graph once; names may omit the output index 0."""
    named = {tensor_name(name): value for name, value in feeds.items()}
    with session(tf, graph, optimize=optimize) as opened:
        return [np.asarray(a) for a in opened.run([tensor_name(n) for n in fetches], named)]
