"""LiteRT interpreter as an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.core.limits import set_limits
from mobileprep.errors import MemoryLimitError
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tflite import read_tflite
from mobileprep.runtime.engines.litert_engine import LiteRtEngine, LiteRtModel
from tests.litert.graphs import feed, model, op


def test_scalar_feed(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    graph = Graph([feed("x", (2,)), feed("scale", ()), op("y", "Mul", ["x", "scale"])])
    path = tmp_path / "m.tflite"
    path.write_bytes(model_bytes(model(graph, ["x", "scale"], ["y"])))
    feeds = {"x": np.array([1, 2], np.float32), "scale": np.array(3, np.float32)}
    (result,) = LiteRtModel(path).run(["y"], feeds)
    assert result.tolist() == [3, 6]


def run(path: Path) -> list[np.ndarray]:
    engine = LiteRtEngine(read_tflite(path).graph, path)
    return engine.run(["y"], {"x": np.ones((1, 4), np.float32)})


def test_file_with_huge_tensors_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    ops = [op("a", "Exp", ["x"]), op("y", "Neg", ["a"])]
    record = model(Graph([feed("x", (1, 4)), *ops]), ["x"], ["y"])
    (graph,) = record.subgraphs
    tensors = [replace(t, shape=(1 << 24, 64)) if t.name == "a" else t for t in graph.tensors]
    large = replace(record, subgraphs=(replace(graph, tensors=tuple(tensors)),))
    for name, content in (("fine", record), ("large", large)):
        (tmp_path / name).write_bytes(model_bytes(content))
    np.testing.assert_allclose(run(tmp_path / "fine")[0], np.full((1, 4), -np.e), rtol=1e-6)
    set_limits(memory=1 << 30)
    try:
        with pytest.raises(MemoryLimitError, match="what its tensors declare takes 4,29") as error:
            run(tmp_path / "large")
    finally:
        set_limits()
    assert "--memory" in error.value.hint
    assert error.value.where.endswith("large")
