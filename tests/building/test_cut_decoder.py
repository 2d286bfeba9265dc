"""Builds with `decoding: cut`: the graph, the report, the file, and the generated code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.errors import TransformError, UnsupportedError
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from tests.building.test_cut_preprocessing import code_of
from tests.litert.graphs import answered
from tests.targets.test_decoding import BEAM, GREEDY, speech

RECIPE = """\
version: 1
name: speech
source: {{frozen: graph.pb}}
inputs: {{x: {{shape: [6, 2, 5]}}, lengths: {{dtype: int32, shape: [2]}}}}
outputs: [dense]
decoding: {decoding}
integration: {{languages: [{languages}], class_name: Speech{more}}}
targets:
  phone: {{platform: android, artifact: {artifact}}}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))


def built(
    folder: Path,
    op: str,
    artifact: str,
    *,
    languages: str = "java, kotlin, cpp",
    decoding: str = "cut",
    more: str = "",
) -> Path:
    write_graph(folder / "graph.pb", Graph(speech(op)))
    options = {"artifact": artifact, "languages": languages, "decoding": decoding, "more": more}
    (folder / "recipe.yaml").write_text(RECIPE.format(**options))
    build([folder / "recipe.yaml"], out=folder / "out", warn=lambda _: None)
    return folder / "out/speech/phone"


@pytest.mark.parametrize("op", [GREEDY, BEAM])
def test_litert_file_ends_with_the_logits(op: str, tmp_path: Path) -> None:
    folder = built(tmp_path, op, "tflite", languages="java, kotlin, cpp, swift")
    x = np.random.default_rng(0).normal(size=(6, 2, 5)).astype(np.float32)
    (logits,) = answered((folder / "speech.tflite").read_bytes(), [x])
    np.testing.assert_allclose(logits, 3 * x, rtol=1e-6)
    report = json.loads((folder / "report.json").read_text())["decoding"]
    assert report["decoding"]["logits"] == "logits"
    method = "greedy" if op == GREEDY else "beam search"
    assert report["summary"].startswith(f"CTC {method} of logits")
    text = "".join(code_of(folder).values())
    for name in ("Decode(const", "List<Decoded>> decode(", "fun decode(", "func decode("):
        assert name in text
    # The app knows the lengths, so that the model has one input.
    assert "feedLengths" not in text


def test_tensorflow_graph_ends_with_the_logits(tmp_path: Path) -> None:
    folder = built(tmp_path, BEAM, "frozen", languages="java, objc")
    assert {n.op for n in read_graph(folder / "speech.pb")} == {"Placeholder", "Const", "Mul"}
    files = code_of(folder)
    assert "decode:(const float *)logits" in files["SpeechObjC.h"]
    assert "Model::Decode(values, steps)" in files["SpeechObjC.mm"]


def test_labels_leave_out_the_blank(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\n")
    folder = built(tmp_path, BEAM, "tflite", more=", labels: labels.txt")
    assert (folder / "speech_labels.txt").read_text() == "a\nb\nc\nd\n"


def test_beam_search_in_litert_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="CTCBeamSearchDecoder") as error:
        built(tmp_path, BEAM, "tflite", decoding="keep")
    assert "decoding: cut" in error.value.hint


def test_graph_without_a_decoder_is_an_error(tmp_path: Path) -> None:
    write_graph(tmp_path / "graph.pb", Graph(speech()))
    options = {"artifact": "tflite", "languages": "java", "decoding": "cut", "more": ""}
    lengths = ", lengths: {dtype: int32, shape: [2]}"
    recipe = RECIPE.format(**options).replace("[dense]", "[other]").replace(lengths, "")
    (tmp_path / "recipe.yaml").write_text(recipe)
    with pytest.raises(TransformError, match=r"cannot be cut: .* decoder") as error:
        build([tmp_path / "recipe.yaml"], out=tmp_path / "out", warn=lambda _: None)
    assert error.value.where.endswith("recipe.yaml:6:11")
