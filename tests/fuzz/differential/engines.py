"""LiteRT and TensorFlow in processes of their own, which are started again if they crash."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mobileprep.ir.tensor import Array

SECONDS = 20.0
STARTING_SECONDS = 180.0
"""Until the first answer: importing TensorFlow takes long on a busy machine."""
SILENT = "no answer"
_LITERT = "ai_edge_litert.interpreter"
ENGINES = ("xnnpack", "builtin", "reference")
"""LiteRT with the delegate that it applies by default, without it, and with reference kernels."""


@dataclass(frozen=True)
class Answer:
    """The outputs of a run, or how it failed."""

    outputs: Sequence[Array] = ()
    error: str = ""


@dataclass
class Worker:
    """A process that answers requests, one after another.

    Args:
        program: ``litert`` or ``tensorflow``.
    """

    program: str
    restarts: int = 0
    _has_answered: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _log: Any = field(default_factory=tempfile.TemporaryFile)

    def ask(self, request: object) -> list[Answer]:
        """The answers to a request; a crash is an answer, too."""
        process = self._process or self._start()
        found: list[Answer] = []
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            _write(process.stdin, request)
        while True:
            message = self._read(process)
            if isinstance(message, str):
                self.stop()
                self.restarts += 1
                found.append(Answer(error=message))
                return found
            if message is None:
                return found
            found.append(Answer(*message))

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "ignore", "-m", __name__, self.program]
        self._process = process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._read(process)
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        seconds = SECONDS if self._has_answered else STARTING_SECONDS
        if not select.select([process.stdout], [], [], seconds)[0]:
            return f"{SILENT} within {seconds:.0f} s"
        self._has_answered = True
        try:
            return _read(process.stdout)
        except EOFError:
            code = process.wait()
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return f"{name}: {self._last_words()}"

    def _last_words(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log.tell() - 2000, 0))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        words = [x for x in lines if x.strip() and not x.startswith(("INFO", "Extension", "Fatal"))]
        kept = [x for x in words if re.search(r"ERROR|check|failed|assert|error", x)]
        return (kept or words or ["no message"])[-1][:300]

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    assert stream is not None
                    stream.close()
        self._process = None
        self._has_answered = False
        self._log = tempfile.TemporaryFile()


def _write(stream: Any, message: object) -> None:
    data = pickle.dumps(message, 5)
    data = memoryview(struct.pack("<I", len(data)) + data)
    while data:
        data = data[stream.write(data) :]


def _read(stream: Any) -> Any:
    (size,) = struct.unpack("<I", _exactly(stream, 4))
    return pickle.loads(_exactly(stream, size))


def _exactly(stream: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _litert(request: tuple[bytes, Sequence[Array], Sequence[str]]) -> Any:
    """The answer of each engine."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    content, feeds, engines = request
    resolvers = {
        "xnnpack": OpResolverType.BUILTIN,
        "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "reference": OpResolverType.BUILTIN_REF,
    }
    for engine in engines:
        try:
            interpreter = Interpreter(
                model_content=content,
                num_threads=1,
                experimental_op_resolver_type=resolvers[engine],
            )
            details = interpreter.get_input_details()
            for detail, array in zip(details, feeds, strict=True):
                if tuple(detail["shape"]) != array.shape:
                    interpreter.resize_tensor_input(detail["index"], array.shape)
            interpreter.allocate_tensors()
            # Twice, as an app does: the second run may find what the first has left.
            for _ in range(2):
                for detail, array in zip(details, feeds, strict=True):
                    interpreter.set_tensor(detail["index"], array)
                interpreter.invoke()
            found = [_fetched(interpreter, d["index"]) for d in interpreter.get_output_details()]
            # If freeing its memory crashes, it is this engine that crashed.
            del interpreter
            yield found, ""
        except (RuntimeError, ValueError) as error:
            yield (), f"{type(error).__name__}: {error}"


def _fetched(interpreter: Any, index: int) -> Array:
    """An output; the Python binding refuses those without elements."""
    detail = next(d for d in interpreter.get_tensor_details() if d["index"] == index)
    if 0 in detail["shape"]:
        return np.zeros(detail["shape"], detail["dtype"])
    found: Array = interpreter.get_tensor(index)
    return found


def _tensorflow(request: tuple[bytes, Mapping[str, Array], Sequence[str]]) -> Any:
    import tensorflow as tf

    content, feeds, outputs = request
    definition = tf.compat.v1.GraphDef.FromString(content)
    try:
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(definition, name="")
            options = tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
            )
            with tf.compat.v1.Session(graph=graph, config=options) as session:
                given = {name if ":" in name else f"{name}:0": a for name, a in feeds.items()}
                names = [name if ":" in name else f"{name}:0" for name in outputs]
                yield session.run(names, given), ""
    except (tf.errors.OpError, ValueError) as error:
        yield (), f"{type(error).__name__}: {str(error)[:500]}"


def _serve(program: str) -> None:
    import faulthandler

    faulthandler.disable()
    stream = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    answer = {"litert": _litert, "tensorflow": _tensorflow}[program]
    importlib.import_module({"litert": _LITERT, "tensorflow": "tensorflow"}[program])
    _write(stream, None)
    while True:
        try:
            request = _read(sys.stdin.buffer)
        except EOFError:
            return
        for found in answer(request):
            _write(stream, found)
        _write(stream, None)


if __name__ == "__main__":
    _serve(sys.argv[1])
