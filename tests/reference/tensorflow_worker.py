"""Run TensorFlow in another process, with settings that cannot change after it starts.

Reads pickled (graph, names, feeds) from standard input, and writes the pickled values, or the
message of TensorFlow's error.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence

import numpy as np

_OPTIMIZING = "--optimizing"


class TensorFlow:
    """TensorFlow in another process.

    Args:
        onednn: whether to use oneDNN kernels. They are limited to AVX2: with AVX-512, signed
            convolutions of images one pixel wide skip every second row.
        optimizing: whether Grappler rewrites graphs, as by default.
    """

    def __init__(self, *, onednn: bool, optimizing: bool = False) -> None:
        settings = {
            "TF_ENABLE_ONEDNN_OPTS": str(int(onednn)),
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, *([_OPTIMIZING] if optimizing else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **settings, "CUDA_VISIBLE_DEVICES": "-1"},
        )

    def run(
        self, graph: bytes, names: Sequence[str], feeds: Mapping[str, np.ndarray]
    ) -> list[np.ndarray] | str:
        """The values of tensors, with quantized dtypes as integers, or an error message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((graph, list(names), dict(feeds)), self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def _run(tf, graph: bytes, names: list[str], feeds: dict) -> list[np.ndarray] | str:
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(graph)
    config = tf.compat.v1.ConfigProto(
        graph_options={"rewrite_options": {"disable_meta_optimizer": _OPTIMIZING not in sys.argv}}
    )
    try:
        with tf.Graph().as_default() as imported:
            tf.import_graph_def(definition, name="")
        with tf.compat.v1.Session(graph=imported, config=config) as session:
            return [unquantized(v) for v in session.run(names, feeds)]
    except (tf.errors.OpError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def unquantized(value: np.ndarray) -> np.ndarray:
    """Convert TensorFlow's quantized dtypes to integers."""
    array = np.asarray(value)
    if array.dtype.names:
        return array.view(array.dtype[0])
    return array.view(array.dtype.name[1:]) if array.dtype.name.startswith("q") else array


def _serve() -> None:
    import tensorflow as tf

    # Keep TensorFlow's output apart from the results.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_run(tf, *request), answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
