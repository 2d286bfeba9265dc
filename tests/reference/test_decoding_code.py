"""A recognizer with a CTC decoder: LiteRT and the generated decoder match TensorFlow."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.graph.tensor import Array
from tests.litert.graphs import answered
from tests.reference.native import run_program, tool
from tests.reference.test_integration_code import STUBS

pytestmark = pytest.mark.reference

STEPS, BATCH, FEATURES, CLASSES, UNITS = 40, 3, 8, 29, 16
LENGTHS = np.int32([40, 25, 7])
RECIPE = """\
version: 1
name: model
source: {{frozen: graph.pb}}
inputs:
  x: {{shape: [{batch}, {steps}, {features}]}}
  lengths: {{dtype: int32, shape: [{batch}]}}
outputs: [{outputs}]
decoding: cut
integration: {{languages: [cpp], package: org.example.app}}
targets: {{phone: {{platform: android, artifact: tflite}}}}
"""
MAIN = """\
#include <cstdio>
#include <fstream>
#include "PreparedModel.h"

int main(int, char** arguments) {
  std::vector<float> logits(COUNT);
  std::ifstream(arguments[1], std::ios::binary)
      .read(reinterpret_cast<char*>(logits.data()), COUNT * sizeof(float));
  for (const auto& paths : org::example::app::PreparedModel::Decode(logits, {LENGTHS})) {
    for (const auto& path : paths) {
      std::printf("%.9g", path.score);
      for (const int label : path.labels) std::printf(" %d", label);
      std::printf("\\n");
    }
  }
}
"""


def write_network(tf: ModuleType, folder: Path, decode: Any, x: Array) -> tuple[list[str], Any]:
    """Write a recurrent network with a decoder, and return its outputs with TensorFlow's values.

    The first outputs are a matrix of labels for each path, the last one the scores.
    """
    cells = pytest.importorskip("tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl")
    rnn = pytest.importorskip("tensorflow.python.ops.rnn")
    v1: Any = tf.compat.v1
    v1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.set_random_seed(1)
        fed = v1.placeholder(tf.float32, x.shape, name="x")
        lengths = v1.placeholder(tf.int32, [BATCH], name="lengths")
        start = v1.random_normal_initializer(stddev=1.0)
        with v1.variable_scope("net", use_resource=False, initializer=start):
            rows = rnn.bidirectional_dynamic_rnn(
                cells.BasicLSTMCell(UNITS), cells.BasicLSTMCell(UNITS), fed, dtype=tf.float32
            )[0]
            weights = v1.get_variable("weights", [2 * UNITS, CLASSES])
        logits = tf.tensordot(tf.concat(rows, 2), weights, 1)
        decoded, scores = decode(v1.nn, tf.transpose(logits, [1, 0, 2]), lengths)
        paths = [
            v1.sparse_tensor_to_dense(path, -1, name=f"y{i}") for i, path in enumerate(decoded)
        ]
        names = [*(f"y{i}" for i in range(len(paths))), "scores"]
        ends = [*paths, tf.identity(scores, name="scores")]
        session.run(v1.global_variables_initializer())
        frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), names)
        (folder / "graph.pb").write_bytes(frozen.SerializeToString())
        return names, session.run(ends, {fed: x, lengths: LENGTHS})


DECODERS = {
    "greedy": lambda nn, x, n: nn.ctc_greedy_decoder(x, n),
    "greedy, repeated": lambda nn, x, n: nn.ctc_greedy_decoder(x, n, merge_repeated=False),
    "beams": lambda nn, x, n: nn.ctc_beam_search_decoder(x, n, 100, 3, merge_repeated=False),
    "few beams": lambda nn, x, n: nn.ctc_beam_search_decoder(x, n, 5, 2, merge_repeated=False),
    "beams, merged": lambda nn, x, n: nn.ctc_beam_search_decoder(x, n, 20, 2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("seed", range(2))
def test_decoded_sequences(
    kind: str, seed: int, tf: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    x = np.random.default_rng(seed).normal(size=(BATCH, STEPS, FEATURES)).astype(np.float32)
    names, (*paths, scores) = write_network(tf, tmp_path, DECODERS[kind], x)
    sizes = {"batch": BATCH, "steps": STEPS, "features": FEATURES}
    recipe = RECIPE.format(outputs=", ".join(names), **sizes)
    (tmp_path / "recipe.yaml").write_text(recipe)
    build([tmp_path / "recipe.yaml"], out=tmp_path / "out", warn=lambda _: None)
    folder = tmp_path / "out/model/phone"
    (logits,) = answered((folder / "model.tflite").read_bytes(), [x])
    logits.tofile(tmp_path / "logits.f32")
    lengths = ", ".join(map(str, LENGTHS))
    main = MAIN.replace("COUNT", str(logits.size)).replace("LENGTHS", lengths)
    (tmp_path / "main.cc").write_text(main)
    code = folder / "integration/cpp"
    flags = ["-std=c++14", "-O1", f"-I{STUBS}", f"-I{code}"]
    used = ["-ffunction-sections", "-Wl,--gc-sections"]
    sources = [tmp_path / "main.cc", code / "PreparedModel.cc"]
    run_program(tool("g++"), *flags, *used, *sources, "-o", tmp_path / "app")
    lines = iter(run_program(tmp_path / "app", tmp_path / "logits.f32").splitlines())
    for entry in range(BATCH):
        for place, path in enumerate(paths):
            score, *labels = next(lines).split()
            assert [int(label) for label in labels] == path[entry][path[entry] >= 0].tolist()
            np.testing.assert_allclose(float(score), scores[entry, place], rtol=1e-4)
    assert next(lines, None) is None
