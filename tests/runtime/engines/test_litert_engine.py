"""LiteRT interpreter as an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from tests.litert.graphs import feed, model, op


def test_scalar_feed(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    graph = Graph([feed("x", (2,)), feed("scale", ()), op("y", "Mul", ["x", "scale"])])
    path = tmp_path / "m.tflite"
    path.write_bytes(model_bytes(model(graph, ["x", "scale"], ["y"])))
    feeds = {"x": np.array([1, 2], np.float32), "scale": np.array(3, np.float32)}
    (result,) = LiteRtModel(path).run(["y"], feeds)
    assert result.tolist() == [3, 6]
