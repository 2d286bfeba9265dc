"""Tables of TensorFlow's and LiteRT's own profilers, for tests and benchmarks of device logs.

    python -m tests.reference.profiles MODEL RUNS

prints the table of a frozen graph or a .tflite file, as its runtime's summarizer formats it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.graph.files import read_graph
from mobileprep.graph.reachability import ends

Array = np.ndarray
_HANDLE = ctypes.c_void_p
# LiteRtElementType by numpy's name.
_ELEMENT_TYPES = {"float32": 1, "int32": 2, "uint8": 3, "int8": 9}


class TensorFlowRunner:
    """A graph in a session of TensorFlow with one thread."""

    def __init__(self, path: Path, inputs: dict[str, Array], output: str) -> None:
        import tensorflow as tf

        self._v1 = tf.compat.v1
        self._graph = self._v1.GraphDef()
        self._graph.ParseFromString(path.read_bytes())
        options = self._v1.ConfigProto(intra_op_parallelism_threads=1)
        options.inter_op_parallelism_threads = 1
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(self._graph, name="")
        self._session = self._v1.Session(graph=graph, config=options)
        feeds = [graph.get_tensor_by_name(f"{name}:0") for name in inputs]
        fetched = graph.get_tensor_by_name(f"{output}:0")
        self.run: Callable[[], object] = self._session.make_callable(fetched, feeds)
        values = list(inputs.values())
        run = self.run
        self.run = lambda: run(*values)
        self._traced = lambda metadata: self._session.run(
            fetched,
            dict(zip(feeds, values, strict=True)),
            options=self._v1.RunOptions(trace_level=self._v1.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )

    def table(self, runs: int) -> str:
        """Tables of StatSummarizer for some runs."""
        from tensorflow.python.util._pywrap_stat_summarizer import StatSummarizer

        summarizer = StatSummarizer(self._graph.SerializeToString())
        for _ in range(runs):
            metadata = self._v1.RunMetadata()
            self._traced(metadata)
            summarizer.ProcessStepStatsStr(metadata.step_stats.SerializeToString())
        return str(summarizer.GetOutputString())


class _Layout(ctypes.Structure):
    _fields_ = (
        ("rank", ctypes.c_uint, 7),
        ("has_strides", ctypes.c_uint, 1),
        ("dimensions", ctypes.c_int32 * 8),
        ("strides", ctypes.c_uint32 * 8),
    )


class _TensorType(ctypes.Structure):
    _fields_ = (("element_type", ctypes.c_int), ("layout", _Layout))


class LiteRtRunner:
    """A .tflite file in LiteRT's compiled model on the CPU, with its profiler, in its C API."""

    def __init__(self, path: Path) -> None:
        import ai_edge_litert
        from ai_edge_litert.interpreter import Interpreter

        self._lib = lib = ctypes.CDLL(str(Path(ai_edge_litert.__file__).parent / "libLiteRt.so"))
        environment = self._made(lib.LiteRtCreateEnvironment, 0, None)
        model = self._made(lib.LiteRtCreateModelFromFile, environment, str(path).encode())
        options = self._made(lib.LiteRtCreateOptions)
        self._check(lib.LiteRtSetOptionsHardwareAccelerators(options, 1))  # the CPU
        self._payload = ctypes.create_string_buffer(b"enable_profiling = true\n")
        self._free = ctypes.CFUNCTYPE(None, _HANDLE)(lambda _: None)
        payload = ctypes.cast(self._payload, _HANDLE)
        name = b"runtime_options_string"
        runtime = self._made(lib.LiteRtCreateOpaqueOptions, name, payload, self._free)
        self._check(lib.LiteRtAddOpaqueOptions(options, runtime))
        self._model = self._made(lib.LiteRtCreateCompiledModel, environment, model, options)
        self._profiler = self._made(lib.LiteRtCompiledModelGetProfiler, self._model)
        described = Interpreter(str(path))
        self._arguments: list[Any] = []
        for details, required in (
            (described.get_input_details(), lib.LiteRtGetCompiledModelInputBufferRequirements),
            (described.get_output_details(), lib.LiteRtGetCompiledModelOutputBufferRequirements),
        ):
            buffers = [
                self._buffer(environment, detail, required, place)
                for place, detail in enumerate(details)
            ]
            handles = (_HANDLE * len(buffers))(*[b.value for b in buffers])
            self._arguments += [ctypes.c_size_t(len(buffers)), handles]

    def run(self) -> None:
        """Run the model once."""
        signature = ctypes.c_size_t(0)
        self._check(self._lib.LiteRtRunCompiledModel(self._model, signature, *self._arguments))

    def table(self, runs: int) -> str:
        """Tables of LiteRT's profiler for some runs."""
        self._check(self._lib.LiteRtResetProfiler(self._profiler))
        self._check(self._lib.LiteRtStartProfiler(self._profiler))
        for _ in range(runs):
            self.run()
        self._check(self._lib.LiteRtStopProfiler(self._profiler))
        text = ctypes.c_char_p()
        self._check(
            self._lib.LiteRtGetProfileSummary(self._profiler, self._model, ctypes.byref(text))
        )
        return (text.value or b"").decode()

    def _buffer(self, environment: Any, detail: Any, required: Any, place: int) -> Any:
        tensor = _TensorType()
        tensor.element_type = _ELEMENT_TYPES[np.dtype(detail["dtype"]).name]
        tensor.layout.rank = len(detail["shape"])
        for axis, size in enumerate(detail["shape"]):
            tensor.layout.dimensions[axis] = int(size)
        which = ctypes.c_size_t(0), ctypes.c_size_t(place)
        requirements = self._made(required, self._model, *which)
        create = self._lib.LiteRtCreateManagedTensorBufferFromRequirements
        return self._made(create, environment, ctypes.byref(tensor), requirements)

    def _made(self, create: Any, *arguments: Any) -> Any:
        handle = _HANDLE()
        self._check(create(*arguments, ctypes.byref(handle)))
        return handle

    @staticmethod
    def _check(status: int) -> None:
        if status != 0:
            message = f"LiteRT failed with status {status}"
            raise RuntimeError(message)


def main() -> None:
    path, runs = Path(sys.argv[1]), int(sys.argv[2])
    runner: TensorFlowRunner | LiteRtRunner
    if path.suffix == ".tflite":
        runner = LiteRtRunner(path)
    else:
        graph = read_graph(path)
        feeds = {
            node.name: np.zeros([max(n, 1) for n in node.attr_shape("shape") or ()], np.float32)
            for node in graph
            if node.op == "Placeholder"
        }
        runner = TensorFlowRunner(path, feeds, ends(graph)[-1])
    runner.run()
    sys.stdout.write(runner.table(runs))
    sys.stdout.flush()
    os._exit(0)  # LiteRT's threads may outlive its handles


if __name__ == "__main__":
    main()
