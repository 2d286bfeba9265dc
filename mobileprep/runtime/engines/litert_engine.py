"""Engines that run .tflite files and graphs with the LiteRT interpreter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import MEMORY_VARIABLE
from mobileprep.core.parallel import cores
from mobileprep.errors import (
    ArtifactError,
    InvalidGraphError,
    MemoryLimitError,
    MobileprepError,
    TransformError,
    UnsupportedError,
    UsageError,
)
from mobileprep.formats.tflite.streaming import Streaming
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.graph.tflite import PREFIX, TENSOR, parse_tflite, read_tflite
from mobileprep.ops.numerics.allocation import OverBudgetError, check_total
from mobileprep.runtime.engines.agreement import Convert
from mobileprep.runtime.engines.subgraph import (
    checked_feeds,
    import_library,
    known_ref,
    nodes_to_run,
)

# Operators that run TensorFlow's kernels, in apps that link them.
_FLEX: Final = f"{PREFIX}Flex"
_INSTALL: Final = "pip install 'mobileprep[litert]'"
_CANNOT_RUN: Final = "LiteRT cannot run the file: "


class LiteRtEngine:
    """Runs a .tflite file; any tensor can be fetched, and inputs can be fed.

    Args:
        graph: the file as read by ``graph.tflite``, which has checked every offset in it.
        path: the file.
        threads: number of threads; 0 or less for LiteRT's default.
        content: the bytes to run instead of the file, whose path is then only used in messages.

    Raises:
        UnsupportedError: ai-edge-litert is not installed, or does not accept the file.
    """

    name = "litert"

    def __init__(
        self, graph: Graph, path: Path, threads: int = 0, content: bytes | None = None
    ) -> None:
        self._graph = graph
        self._path = path
        self._model = {"model_path": str(path)} if content is None else {"model_content": content}
        self._threads = threads if threads > 0 else None
        self._library = _interpreters()
        self._interpreters: dict[bool, Any] = {}
        self._allocated: set[bool] = set()

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``."""
        where = str(self._path)
        refs = [known_ref(self._graph, name, "fetch", where) for name in fetches]
        arrays = checked_feeds(self._graph, feeds, where)
        for name in arrays:
            if self._graph[Ref(name).node].op not in PLACEHOLDERS:
                message = f"{name!r} is not an input of the file, and LiteRT can only feed inputs"
                raise UsageError(message, "feed the inputs", where)
        numbers = [self._number(ref) for ref in refs]
        try:
            return self._run(numbers, arrays)
        except (RuntimeError, ValueError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> UnsupportedError:
        message = f"{_CANNOT_RUN}{' '.join(str(error).split())}"
        return UnsupportedError(message, self._hint(), str(self._path))

    def _hint(self) -> str:
        if any(node.op.startswith(_FLEX) for node in self._graph):
            return "it needs the Flex delegate, which ai-edge-litert has not"
        return "update ai-edge-litert"

    def _number(self, ref: Ref) -> int:
        """Return the file's tensor index of a reference."""
        node = self._graph[ref.node]
        numbers = node.attr_ints(TENSOR)
        if ref.index >= len(numbers):
            message = f"{ref.node!r} has no output {ref.index}"
            raise UsageError(message, "name one of its outputs", str(self._path))
        return numbers[ref.index]

    def _run(self, numbers: Sequence[int], feeds: Mapping[str, Array]) -> list[Array]:
        interpreter, outputs = self._opened(all_kept=False)
        all_kept = not set(numbers) <= outputs
        if all_kept:
            # The memory of intermediate tensors is reused, unless the interpreter preserves them.
            interpreter, _ = self._opened(all_kept=True)
        inputs = {name: self._number(Ref(name)) for name in feeds}
        details = {d["index"]: d for d in interpreter.get_input_details()}
        changed = [
            name
            for name, array in feeds.items()
            if tuple(details[inputs[name]]["shape"]) != array.shape
        ]
        for name in changed:
            interpreter.resize_tensor_input(inputs[name], feeds[name].shape)
        # A network may not run with the size 1 that a file has for open sizes.
        if changed:
            self._allocated.discard(all_kept)
        if all_kept not in self._allocated:
            interpreter.allocate_tensors()
            self._allocated.add(all_kept)
        for name, array in feeds.items():
            # ascontiguousarray would add an axis to a scalar.
            interpreter.set_tensor(inputs[name], np.asarray(array, order="C"))
        interpreter.invoke()
        return [np.asarray(interpreter.get_tensor(number)) for number in numbers]

    def _check_memory(self, interpreter: Any) -> None:  # noqa: ANN401 - of a library without types
        """Raise an error if the tensors exceed the memory limit; LiteRT would allocate them."""
        details = interpreter.get_tensor_details()
        declared = sum(
            math.prod(map(int, d["shape"])) * np.dtype(d["dtype"]).itemsize for d in details
        )
        try:
            check_total(declared, "what its tensors declare")
        except OverBudgetError as error:
            hint = f"allow more by --memory or {MEMORY_VARIABLE}"
            raise MemoryLimitError(str(error), hint, str(self._path)) from error

    def steps(self, name: str) -> tuple[float, int]:
        """Return the scale and zero point of a quantized input or output; scale 0 for others."""
        interpreter, _ = self._opened(all_kept=False)
        number = self._number(known_ref(self._graph, name, "fetch", str(self._path)))
        ends = (*interpreter.get_input_details(), *interpreter.get_output_details())
        parameters = [detail["quantization"] for detail in ends if detail["index"] == number]
        return parameters[0] if parameters else (0.0, 0)

    def _opened(self, *, all_kept: bool) -> tuple[Any, set[int]]:
        if all_kept not in self._interpreters:
            options: dict[str, Any] = {}
            if all_kept:
                # Delegates do not expose tensors between their operators.
                plain = self._library.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
                options["experimental_op_resolver_type"] = plain
                options["experimental_preserve_all_tensors"] = True
            try:
                interpreter = self._library.Interpreter(
                    **self._model, num_threads=self._threads, **options
                )
                self._check_memory(interpreter)
            except (RuntimeError, ValueError) as error:
                raise self._refused(error) from error
            self._interpreters[all_kept] = interpreter
        interpreter = self._interpreters[all_kept]
        return interpreter, {d["index"] for d in interpreter.get_output_details()}


class LiteRtModel:
    """A .tflite file with the tensor names of its source graph.

    Feeds and fetches of quantized tensors are converted from and to floats. A file that runs a few
    time steps at a time runs whole sequences, unless its states are fed.

    Args:
        path: the file, whose signature has the names.
        content: its bytes, such as those after decryption; None to read the file.
        threads: see ``LiteRtEngine``.

    Raises:
        CorruptFileError: the file is missing or damaged.
        UnsupportedError: ai-edge-litert is not installed.
    """

    name = LiteRtEngine.name

    def __init__(self, path: Path, content: bytes | None = None, threads: int = 0) -> None:
        lite = read_tflite(path) if content is None else parse_tflite(content, str(path))
        self._names = {str(parse_ref(name)): tensor for name, tensor in lite.names.items()}
        self._graph = lite.graph
        self._path = path
        self._streaming = lite.streaming
        self._engine = LiteRtEngine(lite.graph, path, threads, content)

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``; only inputs and outputs have names."""
        streaming = self._streaming
        if streaming is None or any(state.input in feeds for state in streaming.states):
            return self._run(fetches, feeds)
        return self._stream(streaming, fetches, feeds)

    def _stream(
        self, streaming: Streaming, fetches: Sequence[str], feeds: Mapping[str, Array]
    ) -> list[Array]:
        """Run a whole sequence, a few time steps at a time; missing steps at its end are zeros."""
        fed, fetched = (
            {str(parse_ref(name)): axis for name, axis in axes.items()}
            for axes in (streaming.inputs, streaming.outputs)
        )
        arrays = {str(parse_ref(name)): array for name, array in feeds.items()}
        axes = [fetched.get(str(parse_ref(name))) for name in fetches]
        length = max((a.shape[fed[name]] for name, a in arrays.items() if name in fed), default=0)
        rest = -length % streaming.steps
        if not length or (rest and None in axes):
            message = (
                f"a sequence of {length} time steps, and the file runs {streaming.steps} at a time"
            )
            hint = f"give a multiple of {streaming.steps} time steps"
            raise UnsupportedError(message, hint, str(self._path))
        padded = {n: _padded(a, fed[n], rest) if n in fed else a for n, a in arrays.items()}
        ends = [state.output for state in streaming.states]
        states = {s.input: np.zeros(s.shape, s.dtype) for s in streaming.states}
        results: list[list[Array]] = []
        for start in range(0, length, streaming.steps):
            places = range(start, start + streaming.steps)
            rows = {n: a.take(places, fed[n]) if n in fed else a for n, a in padded.items()}
            outputs = self._run([*fetches, *ends], {**rows, **states})
            results.append(outputs[: len(fetches)])
            states = dict(zip(states, outputs[len(fetches) :], strict=True))
        return [
            column[-1] if axis is None else np.concatenate(column, axis).take(range(length), axis)
            for axis, column in zip(axes, zip(*results, strict=True), strict=True)
        ]

    def _run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        named = ((self._tensor(name), array) for name, array in feeds.items())
        inputs = {name: self._quantized(name, array) for name, array in named}
        names = [self._tensor(name) for name in fetches]
        outputs = self._engine.run(names, inputs)
        return [self._floats(name, a) for name, a in zip(names, outputs, strict=True)]

    def _quantized(self, name: str, array: Array) -> Array:
        kind = self._graph[parse_ref(name).node].attr_dtype("dtype").numpy
        scale, zero = self._engine.steps(name)
        if not scale or array.dtype.kind != "f" or kind is None or kind.kind not in "iu":
            return array
        limits = np.iinfo(kind)
        rounded = np.rint(array.astype(np.float64) / scale) + zero
        values: Array = np.clip(rounded, limits.min, limits.max).astype(kind)
        return values

    def _floats(self, name: str, array: Array) -> Array:
        scale, zero = self._engine.steps(name)
        if not scale or array.dtype.kind not in "iu":
            return array
        values: Array = ((array.astype(np.float64) - zero) * scale).astype(np.float32)
        return values

    def _tensor(self, name: str) -> str:
        return self._names.get(str(parse_ref(name)), name)


def _padded(sequence: Array, axis: int, count: int) -> Array:
    """Append zeros along an axis."""
    widths = [(0, count if i == axis else 0) for i in range(sequence.ndim)]
    return np.pad(sequence, widths) if count else sequence


# A converted model holds its own copy of the weights.
_MAX_MODELS: Final = 2
_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, tuple[int, ...]], ...]]


class LiteRtGraphEngine:
    """Runs a graph with LiteRT, converted to a float .tflite file in memory.

    A model is converted for each set of fetches and shapes of feeds. Fetches are outputs of the
    model, so that no fusion removes them, and fetching intermediate tensors needs no special mode.

    Args:
        graph: the graph.
        where: name of the graph in messages.
        threads: number of threads, 0 or less for all processors.
        convert: the conversion.

    Raises:
        UnsupportedError: ai-edge-litert is not installed.
    """

    name = LiteRtEngine.name

    def __init__(self, graph: Graph, where: str, threads: int, convert: Convert) -> None:
        self._graph = graph
        self._where = where
        self._threads = threads if threads > 0 else cores()
        self._convert = convert
        self._models: dict[_Key, LiteRtModel] = {}
        _interpreters()

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """See ``Engine.run``."""
        checked = checked_feeds(self._graph, feeds, self._where)
        arrays = {str(parse_ref(name)): array for name, array in checked.items()}
        names = [str(known_ref(self._graph, name, "fetch", self._where)) for name in fetches]
        try:
            return self._model(tuple(dict.fromkeys(names)), arrays).run(names, arrays)
        except (InvalidGraphError, UnsupportedError) as error:
            raise self._refusal(error) from error

    def _model(self, fetches: tuple[str, ...], feeds: Mapping[str, Array]) -> LiteRtModel:
        key = (fetches, tuple((name, array.shape) for name, array in feeds.items()))
        model = self._models.get(key)
        if model is None:
            fetch_refs, feed_refs = (list(map(parse_ref, names)) for names in (fetches, feeds))
            nodes_to_run(self._graph, fetch_refs, feed_refs, self._where)
            try:
                content = self._convert(self._graph, feeds, fetches, self._where)
            except (ArtifactError, TransformError, UsageError) as error:
                raise self._refusal(error) from error
            if len(self._models) >= _MAX_MODELS:
                self._models.pop(next(iter(self._models)))
            model = self._models[key] = LiteRtModel(Path(self._where), content, self._threads)
        return model

    def _refusal(self, error: MobileprepError) -> UnsupportedError:
        message = f"LiteRT cannot run the graph: {error.message.removeprefix(_CANNOT_RUN)}"
        return UnsupportedError(message, "run the graph with another engine", self._where)


def _interpreters() -> Any:  # noqa: ANN401 - an optional library
    return import_library("ai_edge_litert.interpreter", "ai-edge-litert", _INSTALL)


_DELEGATE: Final = "DELEGATE"


class FastPath(Struct, frozen=True):
    """Delegation of the main subgraph to XNNPACK, LiteRT's default delegate on CPUs.

    Args:
        operators: number of all operators.
        left: number of operators of each kind that run on LiteRT's own kernels, most frequent
            first.
    """

    operators: int
    left: Mapping[str, int]


def fast_path(path: Path) -> FastPath:
    """Inspect which operators LiteRT delegates to XNNPACK.

    Raises:
        UnsupportedError: ai-edge-litert is not installed, or cannot run the file.
    """
    library = _interpreters()
    try:
        interpreter = library.Interpreter(model_path=str(path))
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        message = f"{_CANNOT_RUN}{' '.join(str(error).split())}"
        raise UnsupportedError(message, "leave --hints out", str(path)) from error
    nodes = interpreter._get_ops_details()
    plain = [node for node in nodes if node["op_name"] != _DELEGATE]
    delegated = _delegated_operators(
        plain, [node for node in nodes if node["op_name"] == _DELEGATE]
    )
    counts = Counter(node["op_name"] for node in plain if node["index"] not in delegated)
    return FastPath(len(plain), dict(counts.most_common()))


def _delegated_operators(plain: Sequence[Any], delegates: Iterable[Any]) -> frozenset[int]:
    """Return the operators between the inputs and outputs of delegates."""
    makers = {int(tensor): node for node in plain for tensor in node["outputs"]}
    indices: set[int] = set()
    for delegate in delegates:
        inputs = {int(tensor) for tensor in delegate["inputs"]}
        waiting = [int(tensor) for tensor in delegate["outputs"]]
        while waiting:
            maker = makers.get(waiting.pop())
            if maker is None or maker["index"] in indices:
                continue
            indices.add(maker["index"])
            waiting += [int(t) for t in maker["inputs"] if int(t) >= 0 and int(t) not in inputs]
    return frozenset(indices)
