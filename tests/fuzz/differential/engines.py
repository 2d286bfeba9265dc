"""LiteRT and TensorFlow in separate processes, which restart after a crash."""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from mobileprep.graph.tensor import Array

SECONDS = 20.0
STARTING_SECONDS = 180.0
"""Timeout for starting: importing TensorFlow takes long on a busy machine."""
SILENT = "no answer"
_LITERT = "ai_edge_litert.interpreter"
ENGINES = ("xnnpack", "builtin", "reference")
"""LiteRT with its default delegate, without it, and with reference kernels."""


class Answer(Struct, frozen=True):
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
    crashes: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _log: Any = None
    _log_start: int = 0

    def ask(self, request: object) -> list[Answer]:
        """The answers to a request; the last one may be a crash."""
        process = self._process or self._start()
        self._log_start = os.fstat(self._log.fileno()).st_size
        assert process.stdin is not None
        _write(process.stdin, request)
        answers: list[Answer] = []
        while True:
            message = self._read(process, SECONDS)
            if message is None:
                return answers
            answers.append(message)
            if message.error.startswith(SILENT):
                self.stop()
                return answers

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process = None
        self._log.close()
        self._log = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - until the process ends
        self._process = process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", __name__, self.program],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._read(process, STARTING_SECONDS)
        return process

    def _read(self, process: subprocess.Popen[bytes], seconds: float) -> Answer | None:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], seconds)[0]:
            return Answer(error=f"{SILENT} within {seconds:.0f} s")
        message = _read(process.stdout)
        if isinstance(message, int):
            self.crashes += 1
            return Answer(error=f"{signal.Signals(message).name}: {self._last_words()}")
        return None if message is None else Answer(*message)

    def _last_words(self) -> str:
        """The last line that the program printed."""
        text = os.pread(self._log.fileno(), 1 << 16, self._log_start).decode("utf-8", "replace")
        words = [x for x in text.splitlines() if x.strip() and not x.startswith("INFO")]
        return (words or ["no message"])[-1][:300]


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
            # Twice, as in an app: the first run may change memory that the second one reads.
            for _ in range(2):
                for detail, array in zip(details, feeds, strict=True):
                    interpreter.set_tensor(detail["index"], array)
                interpreter.invoke()
            outputs = [_fetched(interpreter, d["index"]) for d in interpreter.get_output_details()]
            # Free its memory now, so that a crash counts for this engine.
            del interpreter
            yield outputs, ""
        except (RuntimeError, ValueError) as error:
            yield (), f"{type(error).__name__}: {error}"


def _fetched(interpreter: Any, index: int) -> Array:
    """An output; the Python binding refuses those without elements."""
    detail = next(d for d in interpreter.get_tensor_details() if d["index"] == index)
    if 0 in detail["shape"]:
        return np.zeros(detail["shape"], detail["dtype"])
    value: Array = interpreter.get_tensor(index)
    return value


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
                arrays = {name if ":" in name else f"{name}:0": a for name, a in feeds.items()}
                names = [name if ":" in name else f"{name}:0" for name in outputs]
                yield session.run(names, arrays), ""
    except (tf.errors.OpError, ValueError) as error:
        yield (), f"{type(error).__name__}: {str(error)[:500]}"


def _serve(program: str) -> None:
    """Answer requests in a fork, and replace it after a crash."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    answer = {"litert": _litert, "tensorflow": _tensorflow}[program]
    importlib.import_module({"litert": _LITERT, "tensorflow": "tensorflow"}[program])
    _write(answers, None)
    if program == "tensorflow":  # it has threads, and cannot fork
        _answer_all(answer, requests, answers)
        return
    while True:
        child = os.fork()
        if child == 0:
            _answer_all(answer, requests, answers)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code >= 0:
            return
        _write(answers, -code)
        _write(answers, None)


def _answer_all(answer: Callable[[Any], Any], requests: Any, answers: Any) -> None:
    while True:
        try:
            request = _read(requests)
        except EOFError:
            return
        for result in answer(request):
            _write(answers, result)
        _write(answers, None)


if __name__ == "__main__":
    _serve(sys.argv[1])
