"""Load and run files as they ship, in the runtimes that they are for."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.reference.native import run_in_115

Array = np.ndarray


def node_name(tensor: str) -> str:
    """The node of a tensor's name, with the index of its output unless that is 0."""
    return tensor.removesuffix(":0")


def run_in_221(
    tf: ModuleType, graph: Path, feeds: Mapping[str, Array], fetches: Sequence[str]
) -> list[Array]:
    """Load a GraphDef file in TensorFlow 2.21, and run it once."""
    with _session(tf, graph) as session:
        return [np.asarray(a) for a in session.run(_tensors(fetches), _feed_dict(feeds))]


def ops_run_in_221(tf: ModuleType, graph: Path, feeds: Mapping[str, Array], fetch: str) -> set[str]:
    """Run a GraphDef file once in TensorFlow 2.21, and return the ops of the graph that ran."""
    config = tf.compat.v1.ConfigProto()
    # No app has Grappler.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    metadata = tf.compat.v1.RunMetadata()
    with _session(tf, graph, config) as session:
        session.run(_tensors([fetch]), _feed_dict(feeds), options, metadata)
    return {node.op for part in metadata.partition_graphs for node in part.node}


@contextmanager
def _session(tf: ModuleType, graph: Path, config: Any = None) -> Iterator[Any]:
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(graph.read_bytes())
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(definition, name="")
    with tf.compat.v1.Session(graph=loaded, config=config) as session:
        yield session


def _tensors(names: Iterable[str]) -> list[str]:
    return [name if ":" in name else f"{name}:0" for name in names]


def _feed_dict(feeds: Mapping[str, Array]) -> dict[str, Array | bytes]:
    return dict(zip(_tensors(feeds), map(_fed, feeds.values()), strict=True))


def _fed(array: Array) -> Array | bytes:
    """Return bytes for a scalar of bytes, whose zeros at the end NumPy would cut off."""
    return array.tobytes() if array.dtype.kind == "S" else array


def run_in_litert(path: Path, feeds: Mapping[str, Array], fetches: Sequence[str]) -> list[Array]:
    """Run a .tflite file once in LiteRT's interpreter, by the names of its signature."""
    module = importlib.import_module("ai_edge_litert.interpreter")
    runner = module.Interpreter(model_path=str(path), num_threads=1).get_signature_runner()
    keys = {node_name(key): key for key in runner.get_input_details()}
    # `keys` lacks an input that the file no longer has, which raises KeyError.
    given = {keys[node_name(name)]: array for name, array in feeds.items()}
    outputs = {node_name(key): array for key, array in runner(**given).items()}
    return [outputs[node_name(name)] for name in fetches]


def run_shipped(
    path: Path,
    release: str,
    feeds: Mapping[str, Array],
    fetches: Sequence[str],
    *,
    home: Path,
    tf: ModuleType,
    folder: Path,
    memmapped: bool = False,
) -> list[Array]:
    """Run a file that a build published, in the runtime that its target names.

    Args:
        path: a GraphDef, a memory-mapped model, or a .tflite file.
        release: the release of TensorFlow; not used for a .tflite file.
        feeds: an array for each input, by tensor.
        fetches: the tensors to return.
        home: the directory of the original tools.
        tf: TensorFlow 2.21.
        folder: an existing directory for temporary files.
        memmapped: whether the file is a memory-mapped model.

    Raises:
        Exception: the runtime cannot load or run the file.
    """
    if path.suffix == ".tflite":
        return run_in_litert(path, feeds, fetches)
    if release == "1.15":
        return run_in_115(home, path, feeds, fetches, folder, memmapped=memmapped)
    if memmapped:
        message = "TensorFlow 2.21 has no loader for memory-mapped files in Python"
        raise ValueError(message)
    return run_in_221(tf, path, feeds, fetches)
