"""Runtimes confirm the verdicts of ``migrate`` on every real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.freezing.loading import ModelOptions, load_model
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import parse_ref
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.targets.migration.records import Migration, Route
from mobileprep.targets.migration.survey import surveyed
from mobileprep.transforms.base import Context, make_transform
from tests.litert.graphs import answered
from tests.reference.golden import assert_close, read_golden
from tests.reference.native import run_in_115

pytestmark = pytest.mark.reference

Array = np.ndarray
TOLERANCE = 1e-4
# Its Fourier transform subtracts nearly equal sums.
ROUNDED = {"basic-pitch-savedmodel": 3e-3}

MODELS = {
    "android-wakeword-streaming-rnn/graph.pb": "golden_graph.npz",
    "arm-kws/Basic_LSTM_S.pb": "golden_Basic_LSTM_S.npz",
    "arm-kws/CNN_S.pb": "golden_CNN_S.npz",
    "arm-kws/DS_CNN_S.pb": "golden_DS_CNN_S.npz",
    "basic-pitch-savedmodel": "golden_savedmodel_.npz",
    "made-qat-mnist-tf115/frozen_eval_graph.pb": "golden_frozen_eval_graph.npz",
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": "golden_frozen_float_fusedbn.npz",
    "mtcnn/mtcnn.pb": "golden_mtcnn.npz",
    "tf2onnx-models/fc-layers/frozen.pb": "golden_fc-layers_frozen.npz",
    "tf2onnx-models/gru/frozen.pb": "golden_gru_frozen.npz",
    "tf2onnx-models/lstm/frozen.pb": "golden_lstm_frozen.npz",
    "tf-serving-testdata/saved_model_half_plus_two_cpu/00000123": (
        "golden_savedmodel_saved_model_half_plus_two_cpu_00000123.npz"
    ),
    **{
        f"tf-serving-testdata/{name}/{version}": f"golden_savedmodel_{name}_{version}.npz"
        for name, version in (
            ("matrix_half_plus_two", "1"),
            ("saved_model_half_plus_two_tf2_cpu", "00000123"),
            ("tf_cc_half_plus_two_main_op", "00000123"),
            ("tf_cc_half_plus_two_pbtxt", "00000123"),
        )
    },
    **{
        f"tf-serving-testdata/{name}/00000123/export.meta": f"golden_{name}_00000123_export.npz"
        for name in ("session_bundle_half_plus_two_ckpt_v2", "session_bundle_half_plus_two_v1ckpt")
    },
    "musicnn/MTT_musicnn/model.meta": "golden_MTT_musicnn_model.npz",
    "sugyan-mnist-v1ckpt/graph.pb": "golden_softmax-1000.npz",
    "tfjs-facemesh/facemesh.pb": "golden_facemesh.npz",
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": "golden_nsfwjs-mobilenet-v2.npz",
    "tfjs-posenet/posenet.pb": "golden_posenet.npz",
}


# Checkpoints of graphs that do not name them.
CHECKPOINTS = {"sugyan-mnist-v1ckpt/graph.pb": "softmax-1000.ckpt"}


class Real:
    """A real model with its recorded run."""

    def __init__(self, models: Path, path: str) -> None:
        folder = models / path.split("/")[0]
        golden = read_golden(folder / MODELS[path])
        checkpoint = str(folder / CHECKPOINTS[path]) if path in CHECKPOINTS else ""
        outputs = tuple(golden.outputs) if checkpoint or path.endswith(".meta") else ()
        options = ModelOptions(outputs, checkpoint=checkpoint)
        model = load_model(models / path, options, lambda _: None)
        self.graph: Graph = model.graph
        self.feeds, self.expected = (
            {str(parse_ref(model.tensor(name))): array for name, array in arrays.items()}
            for arrays in golden
        )
        self.tolerance = ROUNDED.get(path, TOLERANCE)

    @property
    def context(self) -> Context:
        return Context(tuple(self.feeds), tuple(self.expected))

    def migration(self) -> Migration:
        return surveyed(self.graph, self.context, "generic")

    def check(self, outputs: list[Array]) -> None:
        assert_close(outputs, self.expected.values(), self.tolerance, min_peak=1e-6)

    def feeds_of(self, route: Route) -> dict[str, Array]:
        """The feeds of a route: recorded inputs, or tensors that the graph computes from them."""
        cut = [name for name in route.inputs if name not in self.feeds]
        engine = NumpyEngine(self.graph, "the graph")
        computed = dict(zip(cut, engine.run(cut, self.feeds), strict=True)) if cut else {}
        return {name: self.feeds.get(name, computed.get(name)) for name in route.inputs}


@pytest.fixture(params=sorted(MODELS))
def real(request: pytest.FixtureRequest, models: Path) -> Real:
    return Real(models, request.param)


def changed(graph: Graph, route: Route, context: Context) -> Graph:
    for name in route.transforms:
        graph = make_transform(name, {}).apply(graph, context).graph
    return graph


def test_tensorflow_route(real: Real, original: Path, tmp_path: Path) -> None:
    """The library has all kernels, like the generic platform."""
    route = real.migration().routes[0]
    graph = changed(real.graph, route, Context(route.inputs, tuple(real.expected)))
    write_graph(tmp_path / "m.pb", graph)
    assert route.verdict in ("as it is", "after changes")
    feeds = real.feeds_of(route)
    real.check(run_in_115(original, tmp_path / "m.pb", feeds, list(real.expected), tmp_path))


def test_litert_route(real: Real) -> None:
    """Unsupported ops are listed; other models convert, and match the recorded outputs."""
    route = real.migration().routes[-1]
    graph = changed(real.graph, route, Context(route.inputs, tuple(real.expected)))
    if route.verdict == "no":
        ops = {node.op for node in graph}
        assert route.left
        assert {lack.op for lack in route.left} <= ops
        return
    feeds = real.feeds_of(route)
    inputs = [CutInput(name, array.shape) for name, array in feeds.items()]
    content = model_bytes(converted(graph, inputs, list(real.expected)))
    real.check(answered(content, list(feeds.values())))
