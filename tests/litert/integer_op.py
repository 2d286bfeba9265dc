"""One node in integers, run by LiteRT's interpreter, against our own kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import INTEGERS, Mode, converted
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import EndType, Integers, Range
from tests.litert.graphs import codes, const, expected, feed, numpy_type, op

ENDS: Mapping[Mode, EndType] = {"int8": "int8", "int16x8": "int16"}


def check_integers(
    kind: str,
    arrays: Sequence[Any],
    *,
    form: Mode = "int8",
    constant: Collection[int] = (),
    outputs: int = 1,
    steps: float = 1.01,
    **attrs: Any,
) -> list[str]:
    """Convert a graph of one node to integers, run it, compare all outputs; what ran.

    It is fed with integers, and our kernel with the numbers that these stand for.

    Args:
        kind: the node's op.
        arrays: its inputs.
        form: the mode: which activations.
        constant: which inputs are constants.
        outputs: how many outputs the node has.
        steps: the largest difference, in steps of each output.
        attrs: its attributes.
    """
    nodes, feeds = [], {}
    for index, array in enumerate(map(_as_float32, arrays)):
        name = f"x{index}"
        if index in constant:
            nodes.append(const(name, array))
            continue
        nodes.append(feed(name, array.shape, numpy_type(array)))
        feeds[name] = array
    nodes.append(op("y", kind, [f"x{i}" for i in range(len(arrays))], **attrs))
    graph, wanted = Graph(nodes), ["y", *(f"y:{i}" for i in range(1, outputs))]
    record = integer_model(graph, feeds, wanted, mode=form, ends=ENDS[form])
    compare_integers(graph, feeds, wanted, record, steps)
    return codes(record)


def integer_model(
    graph: Graph,
    feeds: Mapping[str, Array],
    wanted: Sequence[str],
    *,
    mode: Mode = "int8",
    ends: EndType = "float",
    **asked: Any,
) -> ModelRecord:
    """The records of a graph in integers, by the ranges that its tensors have for some feeds."""
    ranges = ranges_of(graph, feeds)
    integers = Integers(INTEGERS[mode], ranges, input_type=ends, output_type=ends, **asked)
    specs = [CutInput(name) for name in feeds]
    return converted(graph, specs, wanted, mode=mode, integers=integers)


def ranges_of(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Range]:
    """The least and the greatest number of each first output of a graph, and others of its end."""
    names = [n.name for n in graph if n.op not in ("Const", "NoOp")]
    names += [f"{name}:{i}" for name in names for i in range(1, 4) if _has(graph, feeds, name, i)]
    found = expected(graph, feeds, names)
    return {
        name: (float(a.min()), float(a.max()))
        for name, a in zip(names, found, strict=True)
        if a.dtype == np.float32 and a.size
    }


def _has(graph: Graph, feeds: Mapping[str, Array], name: str, index: int) -> bool:
    if graph[name].op not in ("Split", "SplitV", "Unpack", "TopKV2"):
        return False
    count = graph[name].attr_int("num_split", graph[name].attr_int("num", 2))
    return index < count


def compare_integers(
    graph: Graph,
    feeds: Mapping[str, Array],
    wanted: Sequence[str],
    record: ModelRecord,
    steps: float,
) -> None:
    """Run a file of integers, and compare it with our kernels, in steps of each output."""
    interpreter = opened(record)
    given = {}
    for detail, (name, array) in zip(interpreter.get_input_details(), feeds.items(), strict=True):
        stored = as_integers(detail, array)
        interpreter.set_tensor(detail["index"], stored)
        given[name] = as_floats(detail, stored)
    interpreter.invoke()
    told = expected(graph, given, wanted)
    for detail, right in zip(interpreter.get_output_details(), told, strict=True):
        left = interpreter.get_tensor(detail["index"])
        assert left.shape == right.shape
        scale = detail["quantization"][0]
        if not scale:
            np.testing.assert_array_equal(left, right)
            continue
        low, high = (as_floats(detail, np.array(end, left.dtype)) for end in _ends(left.dtype))
        np.testing.assert_allclose(
            as_floats(detail, left), np.clip(right, low, high), rtol=0, atol=steps * scale
        )


def opened(record: ModelRecord) -> Any:
    """LiteRT's interpreter for a file; the test is skipped where it is not installed."""
    module = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    interpreter = module.Interpreter(model_content=bytes(model_bytes(record)), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def as_integers(detail: Mapping[str, Any], values: Array) -> Array:
    """Floats as a tensor of the file takes them."""
    scale, zero = detail["quantization"]
    if not scale:
        return values
    low, high = _ends(detail["dtype"])
    found: Array = np.clip(np.rint(values / scale) + zero, low, high).astype(detail["dtype"])
    return found


def as_floats(detail: Mapping[str, Any], values: Array) -> Array:
    """What the numbers of a tensor of the file stand for."""
    scale, zero = detail["quantization"]
    if not scale:
        return values
    found: Array = ((values.astype(np.float64) - zero) * scale).astype(np.float32)
    return found


def _ends(kind: Any) -> tuple[int, int]:
    limits = np.iinfo(kind)
    return limits.min, limits.max


def _as_float32(array: Any) -> Array:
    found = np.asarray(array)
    return found.astype(np.float32) if found.dtype == np.float64 else found
