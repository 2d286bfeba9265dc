"""FlatBuffers and FlexBuffers match the output of the flatbuffers library byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.formats.tflite.flatbuffer import FlatBufferWriter, number_map, root_table
from mobileprep.formats.tflite.layout import layout

REASON = "flatbuffers, a dependency of ai-edge-litert, is not installed"


@pytest.mark.parametrize("room", [0, 7, 1024])
@pytest.mark.parametrize("name", ["", "x", "a longer name", "größe"])
def test_file_matches_the_library(name: str, room: int) -> None:
    flatbuffers: Any = pytest.importorskip("flatbuffers", reason=REASON)
    schema: Any = pytest.importorskip("ai_edge_litert.schema_py_generated")
    shape, scales = np.int32([1, -1, 3]), np.float32([0.5])
    points = np.int64([1, 2, 3])

    builder = flatbuffers.Builder(16)
    text, numbers = builder.CreateString(name), builder.CreateNumpyVector(shape)
    tensors = []
    for kind in (0, 9, 0):
        quantized = [builder.CreateNumpyVector(a) for a in (scales, points)]
        schema.QuantizationParametersStart(builder)
        schema.QuantizationParametersAddScale(builder, quantized[0])
        schema.QuantizationParametersAddZeroPoint(builder, quantized[1])
        schema.QuantizationParametersAddQuantizedDimension(builder, 0)
        details = schema.QuantizationParametersEnd(builder)
        schema.TensorStart(builder)
        schema.TensorAddShape(builder, numbers)
        schema.TensorAddType(builder, kind)
        schema.TensorAddBuffer(builder, 300)
        schema.TensorAddName(builder, text)
        schema.TensorAddQuantization(builder, details)
        schema.TensorAddIsVariable(builder, kind == 9)
        tensors.append(schema.TensorEnd(builder))
    builder.StartVector(4, len(tensors), 4)
    for tensor in reversed(tensors):
        builder.PrependUOffsetTRelative(tensor)
    listed = builder.EndVector()
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, listed)
    schema.SubGraphAddDebugMetadataIndex(builder, -1)
    builder.Finish(schema.SubGraphEnd(builder), b"TFL3")

    file = FlatBufferWriter(layout(), room)
    ours_text, ours_shape = file.text(name), file.array(shape)
    ours = []
    for kind in (0, 9, 0):
        scale, zero_point = file.array(scales), file.array(points)
        quantization = file.table(
            "QuantizationParameters", scale=scale, zero_point=zero_point, quantized_dimension=0
        )
        values = {"type": kind, "buffer": 300, "name": ours_text, "quantization": quantization}
        ours.append(file.table("Tensor", shape=ours_shape, **values, is_variable=kind == 9))
    root = file.table("SubGraph", tensors=file.offsets(ours), debug_metadata_index=-1)
    content = file.finished(root, b"TFL3")
    assert bytes(content) == bytes(builder.Output())

    read = list(root_table(layout(), "SubGraph", content).tables("tensors"))
    assert [t.text("name") for t in read] == [name] * 3
    assert [t.number("type") for t in read] == [0, 9, 0]
    assert [t.array("shape", "<i4").tolist() for t in read] == [[1, -1, 3]] * 3
    assert not read[0].has("is_variable")
    assert read[0].table("variant_tensors") is None


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"a": 1},
        {"flag": True, "other": False},
        {"small": -1, "byte": 200, "word": 70_000, "long": 1 << 40},
        {"half": 0.5, "third": 1 / 3, "count": 40},
        {f"name_{i}" * 9: i for i in range(40)},
    ],
    ids=lambda numbers: "-".join(list(numbers)[:2]) or "empty",
)
def test_map_matches_the_library(numbers: dict[str, int | bool | float]) -> None:
    flexbuffers: Any = pytest.importorskip("flatbuffers.flexbuffers", reason=REASON)
    content = number_map(numbers)
    assert content == bytes(flexbuffers.Dumps(dict(sorted(numbers.items()))))
    assert flexbuffers.Loads(bytearray(content)) == pytest.approx(numbers)
