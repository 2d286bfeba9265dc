"""TensorFlow 1.15 runs TensorFlow 2 graphs after ``downgrade``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.building.transforming import transform
from mobileprep.freezing.loading import ModelOptions, load_model
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.reference.golden import assert_close, read_golden
from tests.reference.native import NativeError, run_in_115

pytestmark = pytest.mark.reference

Array = np.ndarray

# Sums in another order, as a share of the largest element.
SHARE = 2e-5
# It takes logarithms of sums that nearly cancel, which amplifies rounding errors.
SHARES = {"basic-pitch-savedmodel": 3e-3}

REAL = {
    "tfjs-facemesh": ("facemesh.pb", "golden_facemesh.npz"),
    "tfjs-nsfwjs-mobilenet-v2": ("nsfwjs-mobilenet-v2.pb", "golden_nsfwjs-mobilenet-v2.npz"),
    "tfjs-posenet": ("posenet.pb", "golden_posenet.npz"),
    "basic-pitch-savedmodel": (".", None),
    "tf-serving-testdata": (
        "saved_model_half_plus_two_tf2_cpu/00000123",
        "golden_savedmodel_saved_model_half_plus_two_tf2_cpu_00000123.npz",
    ),
}


def downgraded(graph: Graph, outputs: list[str]) -> Graph:
    done = transform(graph, "downgrade", outputs=outputs, warn=lambda text: pytest.fail(text))
    return done.graph


def assert_runs(
    home: Path,
    graph: Graph,
    feeds: dict[str, Array],
    expected: dict[str, Array],
    folder: Path,
    share: float = SHARE,
) -> None:
    """Run a graph in TensorFlow 1.15, and compare its outputs."""
    write_graph(folder / "older.pb", downgraded(graph, list(expected)))
    outputs = run_in_115(home, folder / "older.pb", feeds, list(expected), folder)
    assert_close(outputs, expected.values(), share, min_peak=1e-6)


@pytest.mark.parametrize("name", REAL)
def test_real_models(original: Path, models: Path, name: str, tmp_path: Path) -> None:
    file, golden = REAL[name]
    folder = models / name
    archive = folder / golden if golden else next(folder.glob("golden_*.npz"))
    model = load_model(folder / file, ModelOptions(), lambda _: None)
    feeds, expected = read_golden(archive, model.tensor)
    assert feeds
    assert expected
    share = SHARES.get(name, SHARE)
    assert_runs(original, model.graph, feeds, expected, tmp_path, share)


def attention(tf: ModuleType) -> Any:
    layers = tf.keras.layers
    x = layers.Input((6, 8), batch_size=2)
    y = layers.MultiHeadAttention(2, 4)(x, x)
    y = layers.LayerNormalization()(layers.Add()([x, y]))
    return tf.keras.Model(x, layers.Dense(3, activation="gelu")(y))


def convolutions(tf: ModuleType) -> Any:
    layers = tf.keras.layers
    x = layers.Input((12, 12, 3), batch_size=2)
    y = layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
    y = layers.LeakyReLU()(layers.BatchNormalization()(y))
    y = layers.MaxPooling2D()(layers.DepthwiseConv2D(3, strides=2)(y))
    y = layers.UpSampling2D(interpolation="bilinear")(y)
    y = layers.GlobalAveragePooling2D()(layers.SeparableConv2D(5, 2, activation="swish")(y))
    return tf.keras.Model(x, layers.Dense(4, activation="softmax")(y))


def recurrent(tf: ModuleType) -> Any:
    layers = tf.keras.layers
    x = layers.Input((5, 4), batch_size=2)
    y = layers.GRU(3, return_sequences=True)(
        layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    )
    return tf.keras.Model(x, layers.Dense(2)(y))


@pytest.mark.parametrize("build", [attention, convolutions, recurrent])
def test_keras_models(
    original: Path, tf: ModuleType, build: Callable[[ModuleType], Any], tmp_path: Path
) -> None:
    tf.keras.utils.set_random_seed(3)
    model = build(tf)
    value = np.random.default_rng(5).standard_normal(model.input_shape).astype(np.float32)
    expected = model(value, training=False).numpy()
    model.export(str(tmp_path / "saved"), format="tf_saved_model", verbose=False)
    loaded = load_model(tmp_path / "saved", ModelOptions(), lambda _: None)
    (feed,) = [n.name for n in loaded.graph if n.op.startswith("Placeholder")]
    (output,) = loaded.outputs
    assert_runs(original, loaded.graph, {feed: value}, {output: expected}, tmp_path)


def test_unsupported_op_is_named(original: Path, tf: ModuleType, tmp_path: Path) -> None:
    with tf.Graph().as_default() as built:
        x = tf.compat.v1.placeholder(tf.float32, [4], "x")
        tf.math.xlog1py(x, x, name="y")
    (tmp_path / "g.pb").write_bytes(built.as_graph_def().SerializeToString())
    graph = load_model(tmp_path / "g.pb", ModelOptions(), lambda _: None).graph
    warnings: list[str] = []
    older = transform(graph, "downgrade", outputs=["y/Xlog1py"], warn=warnings.append).graph
    assert warnings == ["TensorFlow 1.15 has no op Xlog1py (node 'y/Xlog1py')"]
    write_graph(tmp_path / "older.pb", older)
    with pytest.raises(NativeError, match="Xlog1py"):
        run_in_115(original, tmp_path / "older.pb", {"x": np.ones(4, np.float32)}, [], tmp_path)
