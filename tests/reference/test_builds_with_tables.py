"""Models with lookup tables and a vocabulary file, from a SavedModel to a validated target."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.cli.main import main
from mobileprep.core.keys import Key
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.files import read_graph
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from mobileprep.runtime.interpreter import Interpreter
from tests.reference.native import PROGRAMS, compile_program, run_program
from tests.reference.saved_models import image, save_model, table_of_pairs, variable, vocabulary

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
  - downgrade
validation: {{data: test.npz, max_drop: 0}}
targets:
  phone: {{check: false, obfuscate: true, sort: true}}
"""


def save_word_scores(tf: ModuleType, folder: Path) -> None:
    """Write a SavedModel that scores words by their line in a file, and matching test data.

    Only the SavedModel keeps the file.
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
        by_pairs = table_of_pairs(tf, words[:2])
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, tf.constant(str(path)))
        weights = variable(tf, "weights", [len(words), 5], resource=True)
        scores = tf.identity(tf.gather(weights, by_file.lookup(text)), name="scores")
        code = tf.identity(by_pairs.lookup(text), name="code")
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            data = np.array([words[i] for i in image(40).argsort() % len(words)], dtype=object)
            label = session.run(scores, {text: data}).argmax(axis=1)
            outputs = {"scores": scores, "code": code}
            save_model(tf, session, folder, {"text": text}, outputs)
    path.unlink()
    write_arrays(folder / "test.npz", {"text": data.astype("S"), "label": label})


@pytest.mark.parametrize("engine", ["numpy", "tensorflow"])
def test_build_validates_a_model_with_tables(
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
    assert not (folder / "assets").exists()

    # The model file suffices, in any working directory.
    np.save(tmp_path / "feed.npy", np.array([b"no", b"never"]))
    monkeypatch.chdir(tmp_path.anchor)
    capsys.readouterr()
    feed = ["--feed", f"text={tmp_path / 'feed.npy'}"]
    assert main(["run", "--graph", str(folder / "words.pb"), *feed, "--fetch", "scores,code"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "code: int64[2] [8, -1]"


def test_tflite_file_contains_the_vocabulary(tf: ModuleType, tmp_path: Path) -> None:
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
        expected = session.run(["scores:0", "code:0"], {"text:0": words})
    np.testing.assert_allclose(scores, expected[0], rtol=1e-6)
    np.testing.assert_array_equal(code, expected[1])


APP_RECIPE = """
version: 1
name: words
source: {saved_model: saved}
inputs: {text: {dtype: string, shape: [-1]}}
outputs: [scores, ids, code, city]
transforms: [strip_unused_nodes, fold_constants]
integration: {languages: [cpp], threads: 2}
targets:
  frozen: {}
  obfuscated: {protect: {obfuscate: true, encrypt: {key: env:WORDS_KEY}}}
  memmapped: {artifact: memmapped}
  text: {artifact: text}
"""
KEY = Key(bytes(range(32)))
CITIES = ["Oslo", "Bern", "Rom", "nowhere", "Paris", "Bern"]


def save_city_tables(tf: ModuleType, folder: Path) -> list[np.ndarray]:
    """Write a SavedModel whose tables read three files, two with the same base name."""
    v1 = tf.compat.v1
    files = {
        "first/words.txt": "Oslo\r\nBern\r\nRom\r\nParis\r\n",
        "second/words.txt": "Rom,3,x\nBern,1,y\nOslo,7,z",
        "cities.tsv": "".join(f"{i}\tcity {i}\n" for i in range(5000)),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, newline="")
    lines = tf.lookup.TextFileIndex
    paths = [str(folder / name) for name in files]
    with tf.Graph().as_default():
        text = v1.placeholder(tf.string, [None], name="text")
        numbers = tf.lookup.TextFileInitializer(
            *(paths[0], tf.string, lines.WHOLE_LINE, tf.int64, lines.LINE_NUMBER, 3)
        )
        with_unknown = tf.lookup.StaticVocabularyTable(numbers, 2)
        columns = tf.lookup.TextFileInitializer(
            *(paths[1], tf.string, 0, tf.int64, 1), delimiter=","
        )
        codes = tf.lookup.StaticHashTable(columns, -1)
        names = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(paths[2], tf.int64, 0, tf.string, 1), "none"
        )
        for path in paths:
            v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, tf.constant(path))
        ids = tf.identity(with_unknown.lookup(text), name="ids")
        code = tf.identity(codes.lookup(text), name="code")
        city = tf.identity(names.lookup(code * 600), name="city")
        weights = variable(tf, "weights", [5], resource=True)
        scores = tf.identity(tf.gather(weights, ids), name="scores")
        outputs = {"scores": scores, "ids": ids, "code": code, "city": city}
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            expected = session.run([scores, ids, code, city], {text: CITIES})
            save_model(tf, session, folder, {"text": text}, outputs)
    for path in paths:
        Path(path).unlink()
    return expected


@pytest.mark.parametrize("target", ["frozen", "obfuscated", "memmapped", "text"])
def test_cpp_code_looks_up_words(
    target: str, original: Path, tf: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDS_KEY", KEY.secret.hex())
    expected = save_city_tables(tf, tmp_path)
    (tmp_path / "key").write_bytes(KEY.secret)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(APP_RECIPE)
    build([recipe], out=tmp_path / "out", targets=[target], warn=lambda _: None)
    folder = tmp_path / "out/words" / target
    code = folder / "integration/cpp"
    options = [f"-I{code}"]
    if target == "obfuscated":
        options += ["-DENCRYPTED", "-l:libcrypto.so"]
    sources = [*sorted(code.glob("*.cc")), PROGRAMS / "run_words.cc"]
    compile_program(sources, tmp_path / "app", original / "tensorflow_core", options)

    # The app has only the model file, and starts in another directory.
    app = tmp_path / "device/app"
    app.mkdir(parents=True)
    (model,) = folder.glob("words.pb*")
    moved = shutil.move(model, tmp_path / "device" / model.name)
    shutil.rmtree(tmp_path / "saved")
    shutil.rmtree(tmp_path / "out")
    command = [tmp_path / "app", moved, tmp_path / "key", *CITIES]
    scores, ids, codes, city = run_program(*command, cwd=app).splitlines()
    np.testing.assert_array_equal(np.float32(scores.split()), expected[0])
    assert [int(i) for i in ids.split()] == expected[1].tolist()
    assert [int(i) for i in codes.split()] == expected[2].tolist()
    assert city.encode().rstrip() == b" ".join(expected[3])
    if target == "frozen":
        graph = read_graph(Path(moved))
        initializers = [n.name for n in graph if n.op.startswith("InitializeTable")]
        assert len(initializers) == 3
        runner = Interpreter(graph)
        runner.run(initializers, {})
        feeds = {"text": np.array([c.encode() for c in CITIES], dtype=object)}
        outputs = runner.run(["scores", "ids", "code", "city"], feeds)
        for output, reference in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(output, reference)
