"""``init`` and ``build`` work for every real model and each of its formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from mobileprep.cli.main import main
from mobileprep.graph.files import read_graph
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.recipe.load import load_recipe
from mobileprep.runtime.interpreter import Interpreter
from tests.reference.golden import assert_close, read_golden

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("work_dir")]

QAT, BUNDLES = "made-qat-mnist-tf115", "tf-serving-testdata"
V2, V1 = (f"{BUNDLES}/session_bundle_half_plus_two_{k}/00000123" for k in ("ckpt_v2", "v1ckpt"))
# Each source and its recorded run.
SOURCES = {
    "android-wakeword-streaming-rnn": "golden_graph",
    "android-wakeword-streaming-rnn/graph.pb": "golden_graph",
    "arm-kws/Basic_LSTM_S.pb": "golden_Basic_LSTM_S",
    "arm-kws/CNN_S.pb": "golden_CNN_S",
    "arm-kws/DS_CNN_S.pb": "golden_DS_CNN_S",
    "basic-pitch-savedmodel": "golden_savedmodel_",
    "basic-pitch-savedmodel/saved_model.pb": "golden_savedmodel_",
    "basic-pitch-savedmodel/variables/variables.index": "golden_savedmodel_",
    QAT: "golden_frozen_eval_graph",
    f"{QAT}/checkpoint": "golden_frozen_eval_graph",
    f"{QAT}/eval_graph.pb": "golden_frozen_eval_graph",
    f"{QAT}/eval_graph.pbtxt": "golden_frozen_eval_graph",
    f"{QAT}/frozen_eval_graph.pb": "golden_frozen_eval_graph",
    f"{QAT}/frozen_float_fusedbn.pb": "golden_frozen_float_fusedbn",
    f"{QAT}/train.ckpt-1260": "golden_frozen_eval_graph",
    f"{QAT}/train.ckpt-1260.data-00000-of-00001": "golden_frozen_eval_graph",
    f"{QAT}/train.ckpt-1260.index": "golden_frozen_eval_graph",
    f"{QAT}/train.ckpt-1260.meta": "golden_frozen_eval_graph",
    "mtcnn/mtcnn.pb": "golden_mtcnn",
    "musicnn/MTT_musicnn": "golden_MTT_musicnn_model",
    "musicnn/MTT_musicnn/model.index": "golden_MTT_musicnn_model",
    "musicnn/MTT_musicnn/model.meta": "golden_MTT_musicnn_model",
    "sugyan-mnist-v1ckpt/graph.pb": "golden_softmax-1000",
    "sugyan-mnist-v1ckpt/graph.pbtxt": "golden_softmax-1000",
    "sugyan-mnist-v1ckpt/graph_regression.pb": "golden_regression",
    "sugyan-mnist-v1ckpt/regression.ckpt": "golden_regression",
    "sugyan-mnist-v1ckpt/softmax-1000.ckpt": "golden_softmax-1000",
    "sugyan-mnist-v1ckpt/v2": "golden_v2_regression",
    "sugyan-mnist-v1ckpt/v2/regression.ckpt.index": "golden_v2_regression",
    f"{BUNDLES}/matrix_half_plus_two": "golden_savedmodel_matrix_half_plus_two_1",
    V2: "golden_session_bundle_half_plus_two_ckpt_v2_00000123_export",
    f"{V2}/export.meta": "golden_session_bundle_half_plus_two_ckpt_v2_00000123_export",
    V1: "golden_session_bundle_half_plus_two_v1ckpt_00000123_export",
    f"{V1}/export-00000-of-00001": "golden_session_bundle_half_plus_two_v1ckpt_00000123_export",
    "tf2onnx-models/fc-layers": "golden_fc-layers_frozen",
    "tf2onnx-models/gru/frozen.pb": "golden_gru_frozen",
    "tf2onnx-models/lstm/frozen.pb": "golden_lstm_frozen",
    "tfjs-facemesh/facemesh.pb": "golden_facemesh",
    "tfjs-nsfwjs-mobilenet-v2": "golden_nsfwjs-mobilenet-v2",
    "tfjs-posenet/posenet.pb": "golden_posenet",
    **{
        f"{BUNDLES}/{name}/00000123": f"golden_savedmodel_{name}_00000123"
        for name in (
            "saved_model_half_plus_two_cpu",
            "saved_model_half_plus_two_tf2_cpu",
            "tf_cc_half_plus_two_main_op",
            "tf_cc_half_plus_two_pbtxt",
        )
    },
}
SMALL_WEIGHTS = re.compile(r"^    (then|quantize): .*\n", re.MULTILINE)
# Tolerances for 8-bit weights and for rounding, as shares of an output's peak.
EIGHT_BIT, ROUNDING = 0.1, 1e-5
# The untransformed models differ as much: Fourier transforms round differently, and logarithms of
# values near zero amplify that.
COARSE = {"android-wakeword-streaming-rnn": 2e-5, "basic-pitch-savedmodel": 3e-3}


@pytest.mark.parametrize("source", SOURCES)
def test_generated_recipe_builds_and_preserves_outputs(models: Path, source: str) -> None:
    feeds, expected = read_golden(models / source.split("/")[0] / f"{SOURCES[source]}.npz")
    recipe = Path("recipe.yaml")
    assert main(["init", str(models / source)]) == 0
    assert main(["build", "recipe.yaml"]) == 0
    target = load_recipe(recipe).targets[0]
    # Recipes name tensors, recorded runs name nodes.
    assert {parse_ref(i.name).node for i in target.inputs} == {parse_ref(n).node for n in feeds}
    if source.split("/")[0] != "sugyan-mnist-v1ckpt":  # whose files renamed the graph's nodes
        assert set(map(parse_ref, expected)) <= set(map(parse_ref, target.outputs))
    rounding = COARSE.get(source.split("/")[0], ROUNDING)
    text = recipe.read_text()
    if "preprocessing: cut\n" in text:  # compared by the build itself
        text = text.replace("preprocessing: cut\n", "")
        recipe.write_text(text)
        assert main(["build", "recipe.yaml"]) == 0
    plain = SMALL_WEIGHTS.sub("", text)
    is_small = plain != text
    _compare(recipe, feeds, expected, EIGHT_BIT if is_small else rounding)
    if is_small:
        assert re.search(r"^check:", text, re.MULTILINE)
        recipe.write_text(plain)
        assert main(["build", "recipe.yaml"]) == 0
        _compare(recipe, feeds, expected, rounding)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("arm-kws", "holds 3 models: Basic_LSTM_S.pb, CNN_S.pb, DS_CNN_S.pb"),
        ("sugyan-mnist-v1ckpt", "graph_regression.pb with regression.ckpt"),
        ("tf2onnx-models", "fc-layers/frozen.pb, gru/frozen.pb, lstm/frozen.pb"),
        ("data/grace_hopper.jpg", "an image (JPEG)"),
        (f"{QAT}/eval_split.npz", "a NumPy archive"),
        ("data", "holds no model"),
        ("mtcnn/INFO.json", "is neither a graph"),
    ],
)
def test_unusable_source_is_reported(
    models: Path, capsys: pytest.CaptureFixture[str], source: str, message: str
) -> None:
    assert main(["init", str(models / source)]) in (2, 4, 6)
    assert message in capsys.readouterr().err
    assert not Path("recipe.yaml").exists()


def test_model_names_are_unique(models: Path) -> None:
    graphs = sorted(models.rglob("frozen*.pb"))
    for number, path in enumerate(graphs):
        assert main(["init", str(path), "--no-try", "--recipe", f"{number}.yaml"]) == 0
    names = {load_recipe(f"{number}.yaml").name for number in range(len(graphs))}
    assert len(names) == len(graphs)


def _compare(
    recipe: Path, feeds: Mapping[str, Array], expected: Mapping[str, Array], share: float
) -> None:
    loaded = load_recipe(recipe)
    folder = Path("out") / loaded.name / "phone"
    graph = read_graph(folder / f"{loaded.name}.pb")
    names = {parse_ref(n): n for n in loaded.targets[0].outputs}
    fetches = [names.get(parse_ref(n), loaded.targets[0].outputs[0]) for n in expected]
    outputs = Interpreter(graph).run(fetches, dict(feeds))
    assert_close(outputs, expected.values(), share, min_peak=1e-3)
