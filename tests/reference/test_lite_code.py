"""The code for apps that runs .tflite files, compiled against stubs of Android and of LiteRT."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.packaging.integration.app_model import AppModel, Pictures
from tests.packaging.app_models import hostile_model, lite_model
from tests.reference.test_integration_code import STUBS, compiled_java, run, tool, written

pytestmark = pytest.mark.reference

MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import java.util.Arrays;
import org.tensorflow.lite.Interpreter;

public final class Main {
  public static void main(String[] arguments) throws Exception {
    try (Classifier model = new Classifier(new AssetManager())) {
      model.feedImage(Classifier.pictureValues(new int[] {0xFF0A6480, 0x00010203}));
      model.feedScale(new int[] {2, 3});
      model.feedAny(new long[] {1, 2}, 2, 1);
      model.run();
      Interpreter.CALLS.add(Arrays.toString(model.fetchY()));
      Interpreter.CALLS.add(Arrays.toString(model.fetchClass()));
      Interpreter.CALLS.add(Arrays.toString(model.fetchRaw1()));
      try {
        model.feedScale(new int[7]);
      } catch (IllegalArgumentException error) {
        System.out.println(error.getMessage());
      }
    }
    Interpreter.CALLS.forEach(System.out::println);
  }
}
"""


def test_the_java_code_feeds_runs_and_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.tflite").write_bytes(b"12345")
    told = compiled_java(lite_model(), tmp_path, MAIN).splitlines()
    values = [128 - 103.5, 100 - 116.0, (10 - 123) / 2, 3 - 103.5, 2 - 116.0, (1 - 123) / 2]
    assert told == [
        "takes 2 values, not 7",
        "threads 2",
        "load 5 bytes",
        "resize 0 [1, 2, 1, 3]",
        "resize 2 [2, 1]",
        f"feed {values}",
        "feed [2, 3]",
        "feed [1, 2]",
        "run {0=null, 1=null, 2=null}",
        "[1.5, 0.0]",
        "[1069547520, 1]",
        "[0, 0, -64, 63, 2, 0, 0, 0]",
        "close",
    ]


@pytest.mark.parametrize(
    "model",
    [
        lite_model(),
        lite_model(pictures=Pictures("image", "grayscale", (0.0,), (255.0,)), threads=None),
        hostile_model(),
    ],
    ids=["all", "grayscale", "hostile"],
)
def test_the_c_code_compiles_without_a_warning(model: AppModel, tmp_path: Path) -> None:
    written(lite_model(inputs=model.inputs, outputs=model.outputs, pictures=model.pictures)
            if model.artifact != "tflite" else model, "cpp", tmp_path)  # fmt: skip
    flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{STUBS}"]
    run(tool("g++"), *flags, tmp_path / "cpp/Classifier.cc")


def test_the_kotlin_code_compiles_without_a_warning(tmp_path: Path) -> None:
    written(lite_model(), "kotlin", tmp_path)
    classes = tmp_path / "classes"
    run(tool("javac"), "-d", classes, *sorted(STUBS.rglob("*.java")))
    sources = sorted(tmp_path.glob("kotlin/**/*.kt"))
    run(tool("kotlinc"), "-Werror", "-cp", classes, "-d", tmp_path / "made.jar", *sources)
