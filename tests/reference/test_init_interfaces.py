"""``init`` writes the inputs and outputs of every real model, and reports unknown shapes.

``INFO.json`` of each model lists its inputs and outputs, with the shapes of a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mobileprep.cli.main import main
from mobileprep.graph.refs import parse_ref
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.settings import InputSpec
from tests.reference.real_graphs import model_parts

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("work_dir")]

# Each model and part of it, with the inputs whose shape its graph does not record.
PARTS: dict[str, tuple[str, ...]] = {
    "android-wakeword-streaming-rnn/graph.pb": ("model/inputX",),
    "arm-kws/Basic_LSTM_S.pb": (),
    "arm-kws/CNN_S.pb": (),
    "arm-kws/DS_CNN_S.pb": (),
    "basic-pitch-savedmodel/.": (),
    "made-qat-mnist-tf115/frozen_eval_graph.pb": (),
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": (),
    "made-qat-mnist-tf115/train.ckpt-1260.meta": (),
    "mtcnn/mtcnn.pb": (),
    "musicnn/MTT_musicnn/model.meta": (),
    "tf-serving-testdata/matrix_half_plus_two/1": (),
    "tf-serving-testdata/saved_model_half_plus_two_cpu/00000123": (),
    "tf-serving-testdata/saved_model_half_plus_two_tf2_cpu/00000123": (),
    "tf-serving-testdata/session_bundle_half_plus_two_ckpt_v2/00000123/export.meta": (),
    "tf-serving-testdata/session_bundle_half_plus_two_v1ckpt/00000123/export.meta": (),
    "tf-serving-testdata/tf_cc_half_plus_two_main_op/00000123": (),
    "tf-serving-testdata/tf_cc_half_plus_two_pbtxt/00000123": (),
    "tf2onnx-models/fc-layers/frozen.pb": (),
    "tf2onnx-models/gru/frozen.pb": ("X",),
    "tf2onnx-models/lstm/frozen.pb": (),
    "tfjs-facemesh/facemesh.pb": (),
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": (),
    "tfjs-posenet/posenet.pb": (),
}
# The interfaces of models whose INFO.json does not list one for each graph.
OTHERS = {
    "sugyan-mnist-v1ckpt/graph.pb": ("x", "y"),
    "sugyan-mnist-v1ckpt/graph_regression.pb": ("x", "regression/y"),
    "sugyan-mnist-v1ckpt/v2": ("x", "regression/y"),
}


@pytest.mark.parametrize("part", PARTS)
def test_interface_matches_the_info_file(models: Path, part: str) -> None:
    info = _parts(models)[part]
    unknown = PARTS[part]
    flags = [] if unknown else ["--no-try"]
    assert main(["init", str(models / part), *flags]) == 0
    target = load_recipe(Path("recipe.yaml")).targets[0]
    declared = {parse_ref(i.name): i for i in target.inputs}
    expected = {parse_ref(i["name"]): i for i in info["run_inputs"]}
    assert set(declared) == set(expected)
    assert {*map(parse_ref, target.outputs)} == {parse_ref(o["name"]) for o in info["outputs"]}
    for ref, spec in declared.items():
        assert spec.dtype == expected[ref]["dtype"]
        assert (spec.shape is None) == (spec.name in unknown)
        assert _fits(spec, expected[ref]["shape"])
    text = Path("recipe.yaml").read_text()
    assert text.count("# The graph does not record its shape, and the check feeds") == len(unknown)


@pytest.mark.parametrize("model", OTHERS)
def test_interface_of_a_graph_with_a_checkpoint(models: Path, model: str) -> None:
    assert main(["init", str(models / model), "--no-try"]) == 0
    target = load_recipe(Path("recipe.yaml")).targets[0]
    (spec,) = target.inputs
    assert (spec.name, *target.outputs) == OTHERS[model]
    assert spec.shape == (-1, 784)


def test_table_covers_every_model(models: Path) -> None:
    assert set(PARTS) == set(_parts(models))


def _parts(models: Path) -> dict[str, Any]:
    """The parts of all models that have inputs and outputs, by path."""
    return {
        f"{folder.name}/{part.get('file') or part['dir']}": part
        for folder, part in model_parts(models)
        if "run_inputs" in part
    }


def _fits(spec: InputSpec, shape: list[int]) -> bool:
    """Whether an input accepts arrays of a shape."""
    if spec.shape is None:
        return True
    pairs = zip(spec.shape, shape, strict=False)
    return len(spec.shape) == len(shape) and all(size in (-1, actual) for size, actual in pairs)
