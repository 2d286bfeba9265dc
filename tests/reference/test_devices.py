"""Published models, headers, and code, in their runtimes and compilers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml

from mobileprep.building.builder import build
from mobileprep.building.report.collect import Report
from mobileprep.freezing.loading import ModelOptions, load_model
from mobileprep.graph.files import read_graph
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.targets.build_files import COMPILER_FLAGS
from tests.reference.golden import assert_close, read_golden
from tests.reference.native import (
    NativeError,
    compile_program,
    fetched_memmapped,
    run_in_115,
    run_program,
    tool,
)

pytestmark = pytest.mark.reference

Array = np.ndarray
RECIPES = Path(__file__).parents[2] / "recipes"
NAME = "mnist-devices"


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of recipes/mnist/devices.yaml."""
    out = tmp_path_factory.mktemp("devices")
    build([RECIPES / "mnist/devices.yaml"], out=out, warn=lambda _: None)
    return out / NAME


@pytest.fixture(scope="module")
def images() -> Array:
    with np.load(RECIPES / "mnist/data/test.npz") as data:
        return np.asarray(data["image"][:32], np.float32)


@pytest.mark.parametrize("target", ["tablet", "gate"])
def test_original_loader_runs_memmapped_models(
    original: Path, devices: Path, images: Array, target: str
) -> None:
    model = devices / target / f"{NAME}.pb"
    output = fetched_memmapped(original, model, "image", "probabilities", images)
    (expected,) = Interpreter(read_graph(model)).run(["probabilities"], {"image": images})
    # Sums in another order; the outputs are probabilities.
    np.testing.assert_allclose(output, expected.ravel(), rtol=0, atol=1e-5)


def test_float_model_matches_its_source(
    original: Path, devices: Path, images: Array, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    source = {name: str(RECIPES / "mnist/model" / file) for name, file in SOURCE.items()}
    recipe.write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "name": "source",
                "source": source,
                "outputs": ["probabilities"],
                "targets": {"source": {"registration": {"tensorflow": "2.21"}}},
            }
        )
    )
    build([recipe], out=tmp_path / "out", warn=lambda _: None)
    graph = read_graph(tmp_path / "out/source/source/source.pb")
    (expected,) = Interpreter(graph).run(["probabilities"], {"image": images})
    model = devices / "tablet" / f"{NAME}.pb"
    output = fetched_memmapped(original, model, "image", "probabilities", images)
    np.testing.assert_allclose(output, expected.ravel(), rtol=0, atol=1e-5)


SOURCE = {"graph": "graph.pbtxt", "checkpoint": "model.ckpt-4000"}


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("target", ["phone", "tablet", "gate"])
def test_header_compiles(devices: Path, target: str, compiler: str, tmp_path: Path) -> None:
    program = tmp_path / "header.cc"
    checks = 'static_assert(SHOULD_REGISTER_OP("Softmax") && !SHOULD_REGISTER_OP("Tanh"), "");\n'
    program.write_text(f'#include "ops_to_register.h"\n{checks}')
    flags = ["-std=c++14", "-fsyntax-only", "-Wall", "-Werror", *COMPILER_FLAGS]
    if compiler == "g++":
        # GCC has no such limit, and no such option.
        flags = [flag for flag in flags if not flag.startswith("-fconstexpr-depth")] + flags[-1:]
    command = [tool(compiler), *flags, f"-I{devices / target}", str(program)]
    run_program(*command)


PROGRAM = """\
#include <fstream>
#include <iostream>
#include <iterator>
#include "PreparedModel.h"
extern "C" { int _Py_CheckRecursionLimit = 1000; }
int main(int, char** argv) {
  std::unique_ptr<mobileprep::model::PreparedModel> model;
  auto status = mobileprep::model::PreparedModel::Load(argv[1], &model);
  std::ifstream file(argv[2], std::ios::binary);
  const std::string image((std::istreambuf_iterator<char>(file)), {});
  tensorflow::Tensor fed(tensorflow::DT_FLOAT, {std::stoi(argv[4]), 28, 28, 1}), fetched;
  std::copy(image.begin(), image.end(), const_cast<char*>(fed.tensor_data().data()));
  if (status.ok()) status = model->Run(fed, &fetched);
  if (!status.ok()) { std::cerr << status.ToString(); return 1; }
  const auto bytes = fetched.tensor_data();
  std::ofstream(argv[3], std::ios::binary).write(bytes.data(), bytes.size());
}
"""


def test_cpp_code_runs(original: Path, devices: Path, images: Array, tmp_path: Path) -> None:
    folder = devices / "gate"
    code, model = folder / "integration/cpp", folder / f"{NAME}.pb"
    (tmp_path / "main.cc").write_text(PROGRAM)
    sources = [tmp_path / "main.cc", code / "PreparedModel.cc"]
    compile_program(sources, tmp_path / "app", original / "tensorflow_core", [f"-I{code}"])
    (tmp_path / "in").write_bytes(images.tobytes())
    run_program(tmp_path / "app", model, tmp_path / "in", tmp_path / "out", len(images))
    (expected,) = Interpreter(read_graph(model)).run(["probabilities"], {"image": images})
    output = np.fromfile(tmp_path / "out", np.float32)
    np.testing.assert_allclose(output, expected.ravel(), rtol=0, atol=1e-5)


# Source and recorded run of each model.
REAL = {
    "wakeword": ({"frozen": "android-wakeword-streaming-rnn/graph.pb"}, "golden_graph"),
    "mtcnn": ({"frozen": "mtcnn/mtcnn.pb"}, "golden_mtcnn"),
    "fc-layers": ({"frozen": "tf2onnx-models/fc-layers/frozen.pb"}, "golden_fc-layers_frozen"),
    "gru": ({"frozen": "tf2onnx-models/gru/frozen.pb"}, "golden_gru_frozen"),
    "lstm": ({"frozen": "tf2onnx-models/lstm/frozen.pb"}, "golden_lstm_frozen"),
    "qat": (
        {"frozen": "made-qat-mnist-tf115/frozen_eval_graph.pb"},
        "golden_frozen_eval_graph",
    ),
    "facemesh": ({"frozen": "tfjs-facemesh/facemesh.pb"}, "golden_facemesh"),
    "nsfwjs": (
        {"frozen": "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb"},
        "golden_nsfwjs-mobilenet-v2",
    ),
    "posenet": ({"frozen": "tfjs-posenet/posenet.pb"}, "golden_posenet"),
    "basic-pitch": ({"saved_model": "basic-pitch-savedmodel"}, "golden_savedmodel_"),
    "half-plus-two": (
        {"saved_model": "tf-serving-testdata/saved_model_half_plus_two_tf2_cpu/00000123"},
        "golden_savedmodel_saved_model_half_plus_two_tf2_cpu_00000123",
    ),
}
TARGETS = {
    "phone": {"platform": "android", "abis": ["arm64-v8a", "armeabi-v7a"]},
    "tablet": {"platform": "ios", "artifact": "memmapped"},
    "gate": {"platform": "raspberry-pi", "artifact": "memmapped"},
    "server": {"platform": "linux", "sort": True},
}
# Sums in another order, as a share of the largest element. One model takes logarithms of sums that
# nearly cancel; the other has a recurrence of 24 steps.
SHARES = {"basic-pitch": 3e-3, "wakeword": 1e-4}
SHARE = 2e-5


def loads(report: Report) -> bool:
    """Whether TensorFlow 1.15 can load the model, according to the report."""
    return not any("TensorFlow 1.15 has no" in warning for warning in report.warnings)


@pytest.mark.parametrize("name", REAL)
def test_real_models_for_all_targets(
    original: Path, models: Path, name: str, tmp_path: Path
) -> None:
    """Each artifact has the recorded outputs in 1.15."""
    source, file = REAL[name]
    ((kind, place),) = source.items()
    model = load_model(models / place, ModelOptions(), lambda _: None)
    path = models / place.partition("/")[0] / f"{file}.npz"
    feeds, expected = read_golden(path, model.tensor)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "name": "real",
                "source": {kind: str(models / place)},
                **({"outputs": list(expected)} if kind == "frozen" else {}),
                "transforms": ["strip_unused_nodes", "fold_constants", "downgrade"],
                "targets": TARGETS,
            }
        )
    )
    done = build([recipe], out=tmp_path / "out", warn=lambda _: None)
    assert {target.report.target for target in done.targets} == set(TARGETS)
    for target in done.targets:
        built = tmp_path / "out/real" / target.report.target / "real.pb"
        assert loads(target.report), target.report.warnings
        check_runs(original, built, feeds, expected, SHARES.get(name, SHARE))


def check_runs(
    home: Path, model: Path, feeds: Mapping[str, Array], expected: Mapping[str, Array], share: float
) -> None:
    """Compare outputs of TensorFlow 1.15, or of the loader of memory-mapped models."""
    if TARGETS[model.parent.name].get("artifact") == "memmapped":
        ((feed, value),) = list(feeds.items())[:1]
        if len(feeds) > 1 or value.dtype != np.float32:
            return
        outputs = [fetched_memmapped(home, model, feed, fetch, value) for fetch in expected]
    else:
        try:
            outputs = run_in_115(home, model, dict(feeds), list(expected), model.parent)
        except NativeError as error:
            pytest.fail(f"{model}: {error}")
    flat_outputs, flat_expected = (map(np.ravel, arrays) for arrays in (outputs, expected.values()))
    assert_close(flat_outputs, flat_expected, share, min_peak=1e-6)
