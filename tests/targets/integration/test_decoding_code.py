"""Generated CTC decoders, compiled where there is a compiler, and compared with the kernels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.targets.integration.ctc import Decoding
from mobileprep.targets.integration.render import (
    OF_LITERT,
    OF_TENSORFLOW,
    AppModel,
    AppTensor,
    Language,
    integration_code,
)
from tests.ops.graphs import run_all
from tests.targets.app_models import app_model, lite_model

STUBS = Path(__file__).parents[2] / "reference/stubs"
STEPS, BATCH, CLASSES = 12, 3, 5
LENGTHS = (12, 7, 0)


def greedy(**changes: Any) -> Decoding:
    return Decoding(**{"logits": "y", "method": "greedy", "merge_repeated": True, **changes})


def beam_search(width: int, paths: int, *, merged: bool = False, **changes: Any) -> Decoding:
    return Decoding(
        logits="y",
        method="beam search",
        merge_repeated=merged,
        beam_width=width,
        top_paths=paths,
        **changes,
    )


DECODINGS = {
    "greedy": greedy(),
    "greedy, repeated": greedy(merge_repeated=False),
    "greedy, blank": greedy(blank=1),
    "fixed lengths": greedy(fixed_lengths=LENGTHS),
    "beam": beam_search(1, 1),
    "beams": beam_search(4, 2),
    "beams, merged": beam_search(5, 3, merged=True),
    "many beams": beam_search(100, 5),
    "beams, fixed lengths": beam_search(8, 2, fixed_lengths=LENGTHS),
}


def model_of(decoding: Decoding, *, lite: bool = True) -> AppModel:
    outputs = (AppTensor("y", DType.FLOAT, (-1, BATCH, CLASSES)),)
    kind = lite_model if lite else app_model
    return kind(outputs=outputs, images=None, labels=None, decoding=decoding)


def logits_of(seed: int) -> Array:
    """Logits, some of them equal, so that the order of equal labels matters."""
    values = np.random.default_rng(seed).normal(0, 2, (STEPS, BATCH, CLASSES))
    return np.float32(np.round(values) if seed % 2 else values)


def by_kernel(decoding: Decoding, logits: Array) -> list[list[tuple[list[int], float]]]:
    """The labels and the score of each path of each batch entry."""
    lengths = np.int32(LENGTHS)
    if decoding.method == "greedy":
        options = {"merge_repeated": decoding.merge_repeated, "blank_index": decoding.blank}
        indices, values, _, scores = run_all("CTCGreedyDecoder", logits, lengths, **options)
        paths = [(indices, values)]
    else:
        *parts, scores = run_all(
            "CTCBeamSearchDecoder",
            logits[:, :2],
            lengths[:2],
            merge_repeated=decoding.merge_repeated,
            beam_width=decoding.beam_width,
            top_paths=decoding.top_paths,
        )
        paths = list(zip(parts, parts[decoding.top_paths :], strict=False))[: decoding.top_paths]
    return [
        [
            (values[indices[:, 0] == entry].tolist(), float(scores[entry, place]))
            for place, (indices, values) in enumerate(paths)
        ]
        for entry in range(len(scores))
    ]


def check_printed(decoding: Decoding, logits: Array, printed: str) -> None:
    """Compare lines of an entry, a score, and the labels of a path."""
    found: list[list[tuple[list[int], float]]] = [[] for _ in LENGTHS]
    for line in printed.splitlines():
        entry, score, *labels = line.split()
        found[int(entry)].append(([int(label) for label in labels], float(score)))
    expected = by_kernel(decoding, logits)
    for got, wanted in zip(found, expected, strict=False):
        assert [labels for labels, _ in got] == [labels for labels, _ in wanted]
        np.testing.assert_allclose(
            [score for _, score in got], [score for _, score in wanted], rtol=1e-5, atol=1e-5
        )
    if decoding.method == "beam search":
        # Without a step, there is only the empty sequence, which TensorFlow refuses for two paths.
        assert found[2] == [([], 0.0)]


CPP_MAIN = """\
#include <cstdio>
#include <fstream>
#include <iterator>
#include "Classifier.h"

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  std::vector<float> logits(COUNT);
  file.read(reinterpret_cast<char*>(logits.data()), COUNT * sizeof(float));
  const auto entries = org::example::app::Classifier::Decode(logitsLENGTHS);
  for (std::size_t entry = 0; entry < entries.size(); ++entry) {
    for (const auto& path : entries[entry]) {
      std::printf("%zu %.9g", entry, path.score);
      for (const int label : path.labels) std::printf(" %d", label);
      std::printf("\\n");
    }
  }
  return org::example::app::Classifier::Decode({1.0f}LENGTHS).empty() ? 0 : 1;
}
"""
JAVA_MAIN = """\
package org.example.app;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.List;

public final class Main {
  public static void main(String[] arguments) throws Exception {
    float[] logits = new float[COUNT];
    byte[] bytes = Files.readAllBytes(Paths.get(arguments[0]));
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(logits);
    int entry = 0;
    for (List<Classifier.Decoded> paths : Classifier.decode(logitsLENGTHS)) {
      for (Classifier.Decoded path : paths) {
        System.out.print(entry + " " + path.score);
        for (int label : path.labels) System.out.print(" " + label);
        System.out.println();
      }
      entry++;
    }
  }
}
"""


KOTLIN_MAIN = """\
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import org.example.app.Classifier

fun main(arguments: Array<String>) {
    val logits = FloatArray(COUNT)
    ByteBuffer.wrap(File(arguments[0]).readBytes()).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(logits)
    Classifier.decode(logitsLENGTHS).forEachIndexed { entry, paths ->
        for (path in paths) println("$entry ${path.score} " + path.labels.joinToString(" "))
    }
}
"""


def write_main(folder: Path, name: str, text: str, decoding: Decoding, lengths: str) -> Path:
    given = "" if decoding.fixed_lengths else f", {lengths}"
    path = folder / name
    path.write_text(
        text.replace("COUNT", str(STEPS * BATCH * CLASSES)).replace("LENGTHS", given),
        encoding="utf-8",
    )
    return path


def write_code(model: AppModel, language: Language, folder: Path) -> list[Path]:
    files = []
    for name, text in integration_code(model, language).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        files.append(path)
    return files


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("kind", DECODINGS)
def test_cpp_decoders_match_the_kernels(kind: str, tmp_path: Path) -> None:
    decoding = DECODINGS[kind]
    write_code(model_of(decoding), "cpp", tmp_path)
    main = write_main(tmp_path, "main.cc", CPP_MAIN, decoding, "{12, 7, 0}")
    flags = ["-std=c++14", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{STUBS}", f"-I{tmp_path}/cpp"]
    # Decoding calls no function of LiteRT, so that the code that does can be dropped.
    used = ["-ffunction-sections", "-Wl,--gc-sections"]
    run("g++", *flags, *used, main, tmp_path / "cpp/Classifier.cc", "-o", tmp_path / "app")
    for seed in range(4):
        logits = logits_of(seed)
        logits.tofile(tmp_path / "logits.f32")
        check_printed(decoding, logits, run(tmp_path / "app", tmp_path / "logits.f32"))


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
@pytest.mark.parametrize("kind", ["greedy", "fixed lengths", "beams", "beams, merged"])
@pytest.mark.parametrize("lite", [False, True], ids=["tensorflow", "litert"])
def test_java_decoders_match_the_kernels(kind: str, lite: bool, tmp_path: Path) -> None:
    decoding = DECODINGS[kind]
    sources = write_code(model_of(decoding, lite=lite), "java", tmp_path)
    main = write_main(tmp_path, "Main.java", JAVA_MAIN, decoding, "new int[] {12, 7, 0}")
    stubs = sorted(STUBS.rglob("*.java"))
    run("javac", "-Xlint:all,-options", "-Werror", "-d", tmp_path, *stubs, main, *sources)
    for seed in range(3):
        logits = logits_of(seed)
        logits.tofile(tmp_path / "logits.f32")
        printed = run("java", "-cp", tmp_path, "org.example.app.Main", tmp_path / "logits.f32")
        check_printed(decoding, logits, printed)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kotlinc") is None, reason="no Kotlin compiler")
@pytest.mark.parametrize("kind", ["greedy", "fixed lengths", "beams", "beams, merged"])
def test_kotlin_decoders_match_the_kernels(kind: str, tmp_path: Path) -> None:
    decoding = DECODINGS[kind]
    sources = write_code(model_of(decoding, lite=False), "kotlin", tmp_path)
    main = write_main(tmp_path, "main.kt", KOTLIN_MAIN, decoding, "intArrayOf(12, 7, 0)")
    classes, program = tmp_path / "classes", tmp_path / "program.jar"
    run("javac", "-d", classes, *sorted(STUBS.rglob("*.java")))
    flags = ["-Werror", "-include-runtime", "-cp", classes, "-d", program]
    run("kotlinc", *flags, main, *sources)
    for seed in range(2):
        logits = logits_of(seed)
        logits.tofile(tmp_path / "logits.f32")
        command = ["java", "-cp", f"{program}:{classes}", "MainKt", tmp_path / "logits.f32"]
        check_printed(decoding, logits, run(*command))


@pytest.mark.skipif(shutil.which("clang++") is None, reason="no Objective-C++ compiler")
@pytest.mark.parametrize("kind", ["greedy", "fixed lengths", "beams"])
def test_objective_cpp_decoders_compile(kind: str, tmp_path: Path) -> None:
    """Check the part of the code that does not need TensorFlow."""
    code = integration_code(model_of(DECODINGS[kind], lite=False), "objc")
    header, body = code["objc/ClassifierObjC.h"], code["objc/ClassifierObjC.mm"]
    start = body.index("+ (NSArray<NSArray<NSArray<NSNumber *> *> *> *)decode:")
    method = body[start : body.index("\n}\n", start) + 3]
    declaration = header[header.index("+ (NSArray<NSArray<NSArray") :].partition(";")[0]
    plain = code["cpp/Classifier.h"]
    decoded = plain[plain.index("  struct Decoded {") : plain.index(");", plain.index("Decode("))]
    (tmp_path / "part.mm").write_text(
        "#import <Foundation/Foundation.h>\n#include <vector>\n"
        f"struct Model {{\n{decoded});\n}};\n"
        f"@interface ClassifierObjC : NSObject\n{declaration};\n@end\n"
        f"@implementation ClassifierObjC\n{method}@end\n"
    )
    flags = ["-fobjc-arc", "-fobjc-runtime=macosx-10.13", "-std=c++14", "-fsyntax-only"]
    run("clang++", *flags, "-Wall", "-Werror", f"-I{STUBS}", tmp_path / "part.mm")


@pytest.mark.parametrize("kind", DECODINGS)
@pytest.mark.parametrize("language", sorted({*OF_LITERT, *OF_TENSORFLOW}))
def test_every_language_decodes(language: Language, kind: str) -> None:
    decoding = DECODINGS[kind]
    code = integration_code(model_of(decoding, lite=language in OF_LITERT), language)
    text = "".join(code.values())
    assert ("CtcSearch" in text) is (decoding.method == "beam search")
    assert ("12, 7, 0" in text) is bool(decoding.fixed_lengths)
    assert text.count("{") == text.count("}")
    assert text.count("(") == text.count(")")


def test_unknown_classes_are_refused() -> None:
    outputs = (AppTensor("y", DType.FLOAT, (-1, 1, -1)),)
    model = lite_model(outputs=outputs, images=None, decoding=greedy())
    with pytest.raises(UnsupportedError, match="the shape of 'y' is"):
        integration_code(model, "java")
