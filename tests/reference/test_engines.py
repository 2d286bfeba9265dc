"""The TensorFlow engine, and all engines on real networks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.runtime.engines.agreement import check_agreement
from mobileprep.runtime.engines.choose import installed_engines, open_engine
from tests.ops.lookup.test_tables import filled
from tests.ops.strings.test_conversion import texts
from tests.reference.golden import read_golden
from tests.transforms.graphs import node, normal, placeholder

pytestmark = pytest.mark.reference

NETWORKS = {
    "tfjs-facemesh/facemesh.pb": "tfjs-facemesh/golden_facemesh.npz",
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": (
        "tfjs-nsfwjs-mobilenet-v2/golden_nsfwjs-mobilenet-v2.npz"
    ),
    "made-qat-mnist-tf115/frozen_eval_graph.pb": (
        "made-qat-mnist-tf115/golden_frozen_eval_graph.npz"
    ),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_installed_engines_agree(network: str, models: Path, tf: ModuleType) -> None:
    path = models / network
    graph = read_graph(path)
    feeds, outputs = read_golden(models / NETWORKS[network])
    reference = open_engine("numpy", graph, path)
    for name in installed_engines():
        agreement = check_agreement(
            open_engine(name, graph, path, convert=tflite_in_memory),
            reference,
            list(outputs),
            feeds,
        )
        assert agreement.holds, str(agreement)


def test_auto_selects_the_fastest_engine(tf: ModuleType) -> None:
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    engine = open_engine("auto", graph, None, convert=tflite_in_memory)
    np.testing.assert_array_equal(engine.run(["out"], {"x": normal(3)})[0], normal(3).clip(0))
    assert engine.name == installed_engines()[0] != "numpy"


def test_tensorflow_initializes_tables(tf: ModuleType) -> None:
    engine = open_engine("tensorflow", filled(), None)
    assert engine.run(["find"], {"words": texts("no", "?")})[0].tolist() == [8, -1]


def test_tensorflow_accepts_quantized_types_as_integers(tf: ModuleType) -> None:
    graph = Graph(
        [
            placeholder("x", DType.QUINT8),
            placeholder("low"),
            placeholder("high"),
            node("real", "Dequantize", "x low high", T=DType.QUINT8, mode="MIN_COMBINED"),
            node("again", "QuantizeV2", "real low high", T=DType.QUINT8, mode="MIN_COMBINED"),
        ]
    )
    feeds = {"x": np.arange(256, dtype=np.uint8), "low": np.float32(-1), "high": np.float32(1)}
    ours, theirs = (
        open_engine(n, graph, None).run(["real", "again"], feeds) for n in ("numpy", "tensorflow")
    )
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.dtype == reference.dtype
        np.testing.assert_allclose(mine, reference, rtol=1e-6)


def test_tensorflow_errors_are_converted(tf: ModuleType) -> None:
    with pytest.raises(
        UnsupportedError, match="TensorFlow cannot run the graph: Op type not registered"
    ):
        open_engine("tensorflow", Graph([node("out", "Frobnicate")]), None)
    product = Graph([placeholder(), placeholder("y"), node("out", "MatMul", "x y")])
    engine = open_engine("tensorflow", product, Path("graph.pb"))
    with pytest.raises(InvalidGraphError, match=r"graph\.pb: TensorFlow fails: .*size"):
        engine.run(["out"], {"x": normal(2, 3), "y": normal(2, 3)})
    with pytest.raises(UsageError, match="'none' is not in the graph"):
        engine.run(["none"], {})
    with pytest.raises(UsageError, match="'x' takes float32"):
        engine.run(["out"], {"x": np.zeros(2)})
