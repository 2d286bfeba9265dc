"""Graphs with decoders, and the generated code for their cut graphs, in TensorFlow 1.15."""

from __future__ import annotations

import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.data.options import Preprocessing
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.targets.integration.render import AppModel, AppTensor
from mobileprep.transforms.cut_preprocessing import prepared
from tests.reference.native import PROGRAMS, compile_program, run_program, tool
from tests.reference.networks import cached_network
from tests.reference.test_integration_code import STUBS, compiled_java, write_code
from tests.reference.test_kotlin_code import compiled_kotlin
from tests.targets.app_models import app_model, lite_model
from tests.transforms.graphs import apply, const, node, placeholder

pytestmark = pytest.mark.reference

RECIPE = """\
version: 1
name: model
source: {{frozen: source.pb}}
inputs: {{{contents}: {{dtype: string, shape: []}}}}
outputs: [{output}]
preprocessing: cut
integration: {{languages: [java, kotlin, cpp, objc], labels: labels.txt}}
transforms: [optimize]
calibration: {{data: {{{data}: data}}}}
targets: {{phone: {{platform: android}}}}
"""
FILES = 10


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))


def with_front(graph: Graph, name: str, size: int, *scaling: Node) -> Graph:
    """A graph with a decoder, a resize, and scaling in place of its input."""
    front = [
        placeholder("contents", DType.STRING),
        # The transform that Pillow has, too.
        node(
            "decoded", "DecodeJpeg", "contents", T=None, channels=3, dct_method="INTEGER_ACCURATE"
        ),
        node("cast", "Cast", "decoded", T=None, SrcT=DType.UINT8, DstT=DType.FLOAT),
        const("axis", 0, np.int32),
        node("batch", "ExpandDims", "cast axis", Tdim=DType.INT32),
        const("size", [size, size], np.int32),
        node("resized", "ResizeBilinear", "batch size"),
        *scaling,
    ]
    return Graph([*front, *(n for n in graph if n.name != name)])


def save_photos(folder: Path) -> Iterator[tuple[Path, np.ndarray]]:
    """Save ten crops of the photos of scikit-learn as JPEG files."""
    image = pytest.importorskip("PIL.Image")
    photos = pytest.importorskip("sklearn.datasets").load_sample_images().images
    folder.mkdir()
    for number in range(FILES):
        top, left = 20 * number, 31 * number
        crop = photos[number % 2][top : top + 200 + 17 * number, left : left + 330 - 9 * number]
        path = folder / f"{number}.jpg"
        image.fromarray(crop).save(path, quality=90)
        yield path, np.asarray(image.open(path).convert("RGB"))


def check_same_best(
    original: Path,
    folder: Path,
    graph: Graph,
    ends: tuple[str, str],
    files: list[tuple[Path, bytes, int, int, int]],
    labels: int,
) -> float:
    """Build the cut graph, and compare the best five of the C++ code with the source's.

    Returns:
        The largest difference of a score.
    """
    write_graph(folder / "source.pb", graph)
    (folder / "labels.txt").write_text("".join(f"label {n}\n" for n in range(labels)))
    sound = files[0][4] > 0
    recipe = folder / "recipe.yaml"
    data = "wav" if sound else "pictures"
    recipe.write_text(RECIPE.format(contents=ends[0], output=ends[1], data=data))
    build([recipe], out=folder / "out", warn=lambda _: None)
    target = folder / "out/model/phone"
    report = json.loads((target / "report.json").read_text())["preprocessing"]
    assert (report["data"], report["samples"]) == ("data", 4)
    code = target / "integration/cpp"
    sources = [code / "PreparedModel.cc", PROGRAMS / "run_preprocessing.cc"]
    options = [f"-I{code}", *(["-DSOUND"] if sound else [])]
    compile_program(sources, folder / "app", original / "tensorflow_core", options)
    arguments: list[object] = []
    for number, (path, raw, first, second, rate) in enumerate(files):
        (folder / f"raw{number}").write_bytes(raw)
        arguments += [path, folder / f"raw{number}", first, second, rate]
    command = [folder / "app", folder / "source.pb", *ends, target / "model.pb", *arguments]
    *best, largest = run_program(*command).splitlines()
    assert len(best) == 2 * FILES
    assert best[0::2] == best[1::2]
    return float(largest)


def photo_files(folder: Path) -> list[tuple[Path, bytes, int, int, int]]:
    photos = save_photos(folder)
    return [(path, rgb.tobytes(), rgb.shape[0], rgb.shape[1], 0) for path, rgb in photos]


def test_inception_with_a_decoder(original: Path, tmp_path: Path) -> None:
    network = cached_network("inceptionv3")
    scaling = (
        const("mean", 128.0),
        node("centered", "Sub", "resized mean"),
        const("scale", 1 / 128),
        node(network.input, "Mul", "centered scale"),
    )
    older = apply(
        "downgrade", read_graph(network.path), inputs=[network.input], outputs=[network.output]
    ).graph
    graph = with_front(older, network.input, 299, *scaling)
    ends = ("contents", network.output)
    files = photo_files(tmp_path / "data")
    assert check_same_best(original, tmp_path, graph, ends, files, 1000) <= 1e-5


def test_mobilenet_with_a_decoder(original: Path, models: Path, tmp_path: Path) -> None:
    network = read_graph(models / "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb")
    scaling = (const("most", 255.0), node("input", "RealDiv", "resized most"))
    graph = with_front(network, "input", 224, *scaling)
    files = photo_files(tmp_path / "data")
    ends = ("contents", "Identity")
    assert check_same_best(original, tmp_path, graph, ends, files, 5) <= 1e-5


def test_speech_network_with_decode_wav(original: Path, models: Path, tmp_path: Path) -> None:
    graph = read_graph(models / "arm-kws/DS_CNN_S.pb")
    (tmp_path / "data").mkdir()
    files = []
    for path in sorted((models / "data/speech_commands").rglob("*.wav"))[:FILES]:
        with wave.open(str(path)) as sound:
            facts = (sound.getnframes(), sound.getnchannels(), sound.getframerate())
            files.append((path, sound.readframes(facts[0]), *facts))
        (tmp_path / "data" / f"{len(files)}.wav").write_bytes(path.read_bytes())
    ends = ("wav_data", "labels_softmax")
    assert check_same_best(original, tmp_path, graph, ends, files, 12) <= 1e-5


IMAGES = {
    "inception": Preprocessing("d", "image", resize=(2, 3), mean=(128.0,), std=(64.0,)),
    "crop": Preprocessing("d", "image", central_crop=0.5, resize=(3, 3), half_pixel_centers=True),
    "bgr": Preprocessing(
        "d", "image", resize=(4, 2), align_corners=True, channels="bgr", mean=(1.0, 2.0, 3.0)
    ),
    "nearest": Preprocessing("d", "image", resize=(3, 2), interpolation="nearest"),
    "corners": Preprocessing(
        "d", "image", resize=(3, 2), interpolation="nearest", align_corners=True
    ),
    "own size": Preprocessing("d", "image"),
    "uint8": Preprocessing("", "image", resize=(5, 4), channels="bgr"),
}
PIXELS = np.random.default_rng(2).integers(0, 256, (8, 6, 3), np.uint8)
ARGB = ", ".join(str((r << 16) | (g << 8) | b) for r, g, b in PIXELS.reshape(-1, 3).tolist())
JAVA_MAIN = """\
package org.example.app;

public final class Main {
  public static void main(String[] arguments) {
    for (float value : Classifier.preprocess(new int[] {PIXELS}, 6, 8)) {
      System.out.println(value);
    }
    for (int index : Classifier.topK(new float[] {1, 3, 2, 3}, 3)) System.out.println(index);
  }
}
"""
KOTLIN_MAIN = """\
import org.example.app.Classifier

fun main() {
    Classifier.preprocess(intArrayOf(PIXELS), 6, 8).forEach { println(it) }
    Classifier.topK(floatArrayOf(1f, 3f, 2f, 3f), 3).forEach { println(it) }
}
"""


def image_model(preprocessing: Preprocessing, **changes: Any) -> AppModel:
    dtype = DType.UINT8 if preprocessing == IMAGES["uint8"] else DType.FLOAT
    inputs = (AppTensor("image", dtype, (1, -1, -1, 3)),)
    return app_model(inputs=inputs, images=None, preprocessing=preprocessing, ranks=True, **changes)


def check_printed(preprocessing: Preprocessing, output: str) -> None:
    """Check printed values, and the indices of the three highest scores."""
    values = [float(line) for line in output.split()]
    expected = prepared(preprocessing, PIXELS).reshape(-1)
    if preprocessing == IMAGES["uint8"]:
        assert not np.array_equal(expected, np.rint(expected))
        expected = np.rint(expected)
        values[:-3] = [value % 256 for value in values[:-3]]  # bytes of Java are signed
    # Compilers may join a product and a sum.
    np.testing.assert_allclose(values[:-3], expected, rtol=1e-6, atol=1e-4)
    assert values[-3:] == [1, 3, 2]


@pytest.mark.parametrize("kind", IMAGES)
def test_java_code_prepares_images(kind: str, tmp_path: Path) -> None:
    main = JAVA_MAIN.replace("PIXELS", ARGB)
    check_printed(IMAGES[kind], compiled_java(image_model(IMAGES[kind]), tmp_path, main))


@pytest.mark.parametrize("kind", ["crop", "bgr", "corners", "uint8"])
def test_kotlin_code_prepares_images(kind: str, tmp_path: Path) -> None:
    main = KOTLIN_MAIN.replace("PIXELS", ARGB)
    check_printed(IMAGES[kind], compiled_kotlin(image_model(IMAGES[kind]), tmp_path, main))


CPP_MAIN = """\
#include <cstdio>
#include "Classifier.h"
extern "C" { int _Py_CheckRecursionLimit = 1000; }
int main() {
  const std::uint8_t pixels[] = {PIXELS};
  const auto values = org::example::app::Classifier::Preprocess(pixels, 8, 6, 4);
  const auto flat = values.flat<float>();
  for (int i = 0; i < flat.size(); ++i) std::printf("%.9g\\n", flat(i));
  for (int i : org::example::app::Classifier::TopK({1, 3, 2, 3}, 3)) std::printf("%d\\n", i);
}
"""


@pytest.mark.parametrize("kind", IMAGES)
def test_cpp_code_prepares_images(original: Path, kind: str, tmp_path: Path) -> None:
    code = write_code(image_model(IMAGES[kind]), "cpp", tmp_path) / "cpp"
    rgba = np.dstack([PIXELS, np.full((8, 6), 255, np.uint8)]).reshape(-1).tolist()
    main = CPP_MAIN.replace("PIXELS", ", ".join(map(str, rgba)))
    if kind == "uint8":
        main = main.replace("<float>", "<std::uint8_t>").replace("flat(i))", "1.0 * flat(i))")
    (tmp_path / "main.cc").write_text(main)
    sources = [tmp_path / "main.cc", code / "Classifier.cc"]
    compile_program(sources, tmp_path / "app", original / "tensorflow_core", [f"-I{code}"])
    check_printed(IMAGES[kind], run_program(tmp_path / "app"))


SOUND = Preprocessing("wav", "image", desired_samples=4, desired_channels=1, is_audio=True)


@pytest.mark.parametrize("preprocessing", [IMAGES["crop"], SOUND], ids=["image", "sound"])
def test_objective_cpp_code_compiles(
    original: Path, preprocessing: Preprocessing, tmp_path: Path
) -> None:
    write_code(image_model(preprocessing), "objc", tmp_path)
    flags = ["-x", "objective-c++", "-fobjc-arc", "-fobjc-runtime=macosx-10.13", "-std=c++14"]
    checks = ["-fsyntax-only", "-Wall", "-Werror", f"-I{STUBS}", f"-I{tmp_path / 'cpp'}"]
    tf = original / "tensorflow_core/include"
    run_program(
        tool("clang++"), *flags, *checks, "-isystem", tf, tmp_path / "objc/ClassifierObjC.mm"
    )


@pytest.mark.parametrize("kind", ["crop", "nearest"])
def test_litert_code_prepares_images_in_java(kind: str, tmp_path: Path) -> None:
    inputs = (AppTensor("image", DType.FLOAT, (1, -1, -1, 3)),)
    preprocessing = IMAGES[kind]
    model = lite_model(inputs=inputs, images=None, preprocessing=preprocessing, ranks=True)
    check_printed(preprocessing, compiled_java(model, tmp_path, JAVA_MAIN.replace("PIXELS", ARGB)))


@pytest.mark.parametrize("preprocessing", [IMAGES["crop"], SOUND], ids=["image", "sound"])
def test_litert_cpp_code_compiles_without_warnings(
    preprocessing: Preprocessing, tmp_path: Path
) -> None:
    inputs = (AppTensor("image", DType.FLOAT, (1, -1, -1, 3)),)
    model = lite_model(inputs=inputs, images=None, preprocessing=preprocessing, ranks=True)
    code = write_code(model, "cpp", tmp_path) / "cpp"
    flags = ["-std=c++14", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{STUBS}"]
    run_program(tool("g++"), *flags, code / "Classifier.cc")
