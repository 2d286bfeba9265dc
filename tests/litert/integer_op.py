"""Compare integer operators in LiteRT's interpreter with our own kernels."""

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
from tests.litert.graphs import codes, expected
from tests.litert.one_op import one_node, output_names

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
    """Convert one node to integers, compare all its outputs, and return the builtins in the file.

    The interpreter reads quantized inputs, and our kernel reads their dequantized values.

    Args:
        kind: the node's op.
        arrays: its inputs.
        form: the mode, which sets the type of activations.
        constant: indices of constant inputs.
        outputs: number of outputs of the node.
        steps: the largest difference, in steps of each output.
        attrs: its attributes.
    """
    graph, feeds = one_node(kind, arrays, constant, **attrs)
    names = output_names(outputs)
    record = integer_model(graph, feeds, names, mode=form, ends=ENDS[form])
    compare_integers(graph, feeds, names, record, steps)
    return codes(record)


def integer_model(
    graph: Graph,
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
    *,
    mode: Mode = "int8",
    ends: EndType = "float",
    **options: Any,
) -> ModelRecord:
    """Convert a graph to integers with the ranges of its tensors for some feeds."""
    ranges = ranges_of(graph, feeds)
    integers = Integers(INTEGERS[mode], ranges, input_type=ends, output_type=ends, **options)
    specs = [CutInput(name) for name in feeds]
    return converted(graph, specs, outputs, mode=mode, integers=integers)


def ranges_of(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Range]:
    """Minimum and maximum of each float tensor of a graph."""
    names = [n.name for n in graph if n.op not in ("Const", "NoOp")]
    names += [f"{name}:{i}" for name in names for i in range(1, 4) if _has(graph, feeds, name, i)]
    arrays = expected(graph, feeds, names)
    return {
        name: (float(a.min()), float(a.max()))
        for name, a in zip(names, arrays, strict=True)
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
    outputs: Sequence[str],
    record: ModelRecord,
    steps: float,
) -> None:
    """Run an integer file, and compare it with our kernels in steps of each output."""
    interpreter = opened(record)
    dequantized = {}
    for detail, (name, array) in zip(interpreter.get_input_details(), feeds.items(), strict=True):
        stored = as_integers(detail, array)
        interpreter.set_tensor(detail["index"], stored)
        dequantized[name] = as_floats(detail, stored)
    interpreter.invoke()
    references = expected(graph, dequantized, outputs)
    for detail, reference in zip(interpreter.get_output_details(), references, strict=True):
        result = interpreter.get_tensor(detail["index"])
        assert result.shape == reference.shape
        scale = detail["quantization"][0]
        if not scale:
            np.testing.assert_array_equal(result, reference)
            continue
        low, high = (as_floats(detail, np.array(end, result.dtype)) for end in _ends(result.dtype))
        floats = as_floats(detail, result)
        np.testing.assert_allclose(
            floats, np.clip(reference, low, high), rtol=0, atol=steps * scale
        )


def opened(record: ModelRecord) -> Any:
    """Open a file in LiteRT's interpreter; skip the test if it is not installed."""
    module = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    interpreter = module.Interpreter(model_content=bytes(model_bytes(record)), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def as_integers(detail: Mapping[str, Any], values: Array) -> Array:
    """Quantize values with the scale and zero point of a tensor."""
    scale, zero = detail["quantization"]
    if not scale:
        return values
    low, high = _ends(detail["dtype"])
    quantized: Array = np.clip(np.rint(values / scale) + zero, low, high).astype(detail["dtype"])
    return quantized


def as_floats(detail: Mapping[str, Any], values: Array) -> Array:
    """Dequantize values with the scale and zero point of a tensor."""
    scale, zero = detail["quantization"]
    if not scale:
        return values
    floats: Array = ((values.astype(np.float64) - zero) * scale).astype(np.float32)
    return floats


def _ends(kind: Any) -> tuple[int, int]:
    limits = np.iinfo(kind)
    return limits.min, limits.max
