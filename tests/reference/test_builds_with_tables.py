"""Models with lookup tables and a vocabulary file, from a SavedModel to a validated target."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.formats.arrays import write_arrays
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from tests.reference.saved_models import image, variable, vocabulary

pytestmark = pytest.mark.reference

RECIPE = """
version: 1
name: words
engine: {engine}
check: true
source: {{saved_model: saved}}
inputs: {{text: {{dtype: string, shape: [-1]}}}}
outputs: [scores, code]
transforms:
  - strip_unused_nodes
  - remove_nodes: {{op: [Identity, CheckNumerics]}}
  - fold_constants
validation: {{data: test.npz, max_drop: 0}}
targets:
  phone: {{check: false, obfuscate: true, sort: true}}
"""


def save_word_scores(tf: ModuleType, folder: Path) -> None:
    """A SavedModel that scores words by their number in a file, and test data that it gets right.

    The file stands nowhere but in the SavedModel afterwards.
    """
    v1 = tf.compat.v1
    path = vocabulary(folder)
    words = path.read_bytes().split()
    with tf.Graph().as_default():
        text = v1.placeholder(tf.string, [None], name="text")
        lines = tf.lookup.TextFileIndex
        by_file = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(path), tf.string, lines.WHOLE_LINE, tf.int64, lines.LINE_NUMBER
            ),
            0,
        )
        by_pairs = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(words[:2], [7, 8], tf.string, tf.int64), -1
        )
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, tf.constant(str(path)))
        weights = variable(tf, "weights", [len(words), 5], resource=True)
        scores = tf.identity(tf.gather(weights, by_file.lookup(text)), name="scores")
        code = tf.identity(by_pairs.lookup(text), name="code")
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            data = np.array([words[i] for i in image(40).argsort() % len(words)], dtype=object)
            label = session.run(scores, {text: data}).argmax(axis=1)
            builder = v1.saved_model.Builder(str(folder / "saved"))
            builder.add_meta_graph_and_variables(
                session,
                ["serve"],
                {
                    "serving_default": v1.saved_model.predict_signature_def(
                        {"text": text}, {"scores": scores, "code": code}
                    )
                },
                assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
                main_op=v1.tables_initializer(),
            )
            builder.save()
    path.unlink()
    write_arrays(folder / "test.npz", {"text": data.astype("S"), "label": label})


@pytest.mark.parametrize("engine", ["numpy", "tensorflow"])
def test_a_model_with_tables_is_validated(
    engine: str,
    tf: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_word_scores(tf, tmp_path)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(engine=engine))
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "cache"))
    assert main(["build", str(recipe), "--out", str(tmp_path / "out")]) == 0
    folder = tmp_path / "out/words/phone"
    report = json.loads((folder / "report.json").read_text())
    (metric,) = report["accuracy"]["metrics"]
    assert metric["before"] == metric["after"] == 1
    assert {line["name"] for line in report["engines"]} == {engine}
    assert (folder / "assets").is_dir()

    # The app's folder is all that is needed, wherever it is run from.
    np.save(tmp_path / "feed.npy", np.array([b"no", b"never"]))
    monkeypatch.chdir(tmp_path.anchor)
    capsys.readouterr()
    feed = ["--feed", f"text={tmp_path / 'feed.npy'}"]
    assert main(["run", "--graph", str(folder / "words.pb"), *feed, "--fetch", "scores,code"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "code: int64[2] [8, -1]"


def test_a_file_for_litert_has_the_words_in_it(tf: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    save_word_scores(tf, tmp_path)
    path = tmp_path / "m.tflite"
    arguments = [f"--in_graph={tmp_path / 'saved'}", f"--out_file={path}", "--inputs=text"]
    assert main(["tflite", *arguments, "--outputs=scores,code"]) == 0
    with np.load(tmp_path / "test.npz") as data:
        words, label = data["text"].astype(object), data["label"]
    scores, code = LiteRtModel(path).run(["scores", "code"], {"text": words})
    np.testing.assert_array_equal(scores.argmax(axis=1), label)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "saved"))
        told = session.run(["scores:0", "code:0"], {"text:0": words})
    np.testing.assert_allclose(scores, told[0], rtol=1e-6)
    np.testing.assert_array_equal(code, told[1])
