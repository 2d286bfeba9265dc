"""Ops that the Flex delegate runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.flatbuffer import string_pair
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.litert.convert import converted
from mobileprep.litert.flex import flex_of
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from tests.litert.graphs import codes, const, feed, op


def graph(kind: str, **attrs: Any) -> Graph:
    """Build a graph of an op between two supported ones."""
    return Graph(
        [
            feed("x", (2, 3)),
            op("above", "Relu", ["x"], T=DType.FLOAT),
            op("odd", kind, ["above"], T=DType.FLOAT, **attrs),
            const("two", 2.0),
            op("y", "Mul", ["odd", "two"], T=DType.FLOAT),
        ]
    )


def record(source: Graph) -> ModelRecord:
    return converted(source, [CutInput("x")], ["y"], flex=True)


@pytest.mark.parametrize("content", [b"", b"\x00\xff\x00", bytes(range(256)) * 3])
def test_options_are_two_strings(content: bytes) -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    root = flexbuffers.GetRoot(bytearray(string_pair("Erfinv", content))).AsVector
    assert len(root) == 2
    assert root[0].AsString == "Erfinv"
    assert bytes(root[1].AsStringBytes) == content


def test_unsupported_op_becomes_a_flex_op() -> None:
    file = record(graph("Erfinv"))
    assert codes(file) == ["RELU", "FlexErfinv", "MUL"]
    assert flex_of(file) == ("Erfinv",)
    assert file.description == "written by mobileprep; needs the Flex delegate for Erfinv"
    assert bytes(model_bytes(file)) == bytes(model_bytes(record(graph("Erfinv"))))


def test_supported_op_does_not_need_flex() -> None:
    assert not flex_of(record(graph("Sigmoid")))


def test_unsupported_op_without_flex_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Erfinv"):
        converted(graph("Erfinv"), [CutInput("x")], ["y"])


def test_control_flow_is_refused_with_flex() -> None:
    switch = Graph(
        [
            feed("x", (2, 3)),
            feed("p", (), DType.BOOL),
            op("s", "Switch", ["x", "p"], T=DType.FLOAT),
            op("y", "Neg", ["s:1"], T=DType.FLOAT),
        ]
    )
    with pytest.raises(UnsupportedError, match="in one branch"):
        converted(switch, [CutInput("x"), CutInput("p")], ["y"], flex=True)


def test_missing_flex_delegate_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    path = tmp_path / "m.tflite"
    path.write_bytes(model_bytes(record(graph("Erfinv"))))
    with pytest.raises(UnsupportedError) as caught:
        LiteRtModel(path).run(["y"], {"x": np.ones((2, 3), np.float32)})
    assert caught.value.hint == "it needs the Flex delegate, which ai-edge-litert has not"
