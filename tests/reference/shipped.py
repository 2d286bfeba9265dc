"""Run published files in the runtimes that they are built for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from tests.reference.native import run_in_115
from tests.reference.newest import run_newest, session, tensor_name

Array = np.ndarray


def node_name(tensor: str) -> str:
    """The node of a tensor's name, with the index of its output unless that is 0."""
    return tensor.removesuffix(":0")


def ops_run_in_221(tf: ModuleType, graph: Path, feeds: Mapping[str, Array], fetch: str) -> set[str]:
    """Run a GraphDef file once in TensorFlow 2.21, and return the ops of the graph that ran."""
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    metadata = tf.compat.v1.RunMetadata()
    # Apps do not include Grappler.
    with session(tf, graph, optimize=False) as opened:
        named = {tensor_name(name): value for name, value in feeds.items()}
        opened.run(tensor_name(fetch), named, options, metadata)
    return {node.op for part in metadata.partition_graphs for node in part.node}


def run_in_litert(path: Path, feeds: Mapping[str, Array], fetches: Sequence[str]) -> list[Array]:
    """Run a .tflite file once in LiteRT's interpreter, by the names of its signature."""
    module = importlib.import_module("ai_edge_litert.interpreter")
    runner = module.Interpreter(model_path=str(path), num_threads=1).get_signature_runner()
    keys = {node_name(key): key for key in runner.get_input_details()}
    # Raises KeyError for an input that the file no longer has.
    arrays = {keys[node_name(name)]: array for name, array in feeds.items()}
    outputs = {node_name(key): array for key, array in runner(**arrays).items()}
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
    return run_newest(tf, path, fetches, feeds)
