"""Integration code for .tflite files, compiled with stubs of Android and LiteRT."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.formats.dtypes import DType
from mobileprep.targets.integration.render import AppModel, AppTensor, Images, Stream
from mobileprep.targets.memmapped import encrypt
from tests.cli.conftest import RECIPES
from tests.reference.native import PROGRAMS, kotlin_compiler, run_program, tool
from tests.reference.test_integration_code import (
    DECRYPT_MAIN,
    IMAGE_VALUES,
    KEY,
    STUBS,
    check_decrypted,
    compiled_java,
    encrypted_files,
    write_code,
)
from tests.targets.app_models import hostile_model, lite_model

pytestmark = pytest.mark.reference

ONE = (AppTensor("x", DType.FLOAT, (2,)),)

MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import java.util.Arrays;
import org.tensorflow.lite.Interpreter;

public final class Main {
  public static void main(String[] arguments) throws Exception {
    try (Classifier model = new Classifier(new AssetManager())) {
      model.feedImage(Classifier.imageValues(new int[] {0xFF0A6480, 0x00010203}));
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


def test_java_code_feeds_runs_and_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.tflite").write_bytes(b"12345")
    output = compiled_java(lite_model(), tmp_path, MAIN).splitlines()
    assert output == [
        "takes 2 values, not 7",
        "threads 2",
        "load 5 bytes",
        "resize 0 [1, 2, 1, 3]",
        "resize 2 [2, 1]",
        f"feed {IMAGE_VALUES}",
        "feed [2, 3]",
        "feed [1, 2]",
        "run {0=null, 1=null, 2=null}",
        "[1.5, 0.0]",
        "[1069547520, 1]",
        "[0, 0, -64, 63, 2, 0, 0, 0]",
        "close",
    ]


STREAM_MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import org.tensorflow.lite.Interpreter;

public final class Main {
  public static void main(String[] arguments) throws Exception {
    try (Classifier model = new Classifier(new AssetManager())) {
      model.feedX(new float[] {1, 2});
      model.run();
      model.feedX(new float[] {3, 4});
      model.run();
      model.reset();
      model.run();
    }
    Interpreter.CALLS.forEach(System.out::println);
  }
}
"""


def stream_model(**changes: Any) -> AppModel:
    """A model of one input that carries two states."""
    return lite_model(inputs=ONE, outputs=ONE, images=None, stream=Stream(2, (8, 8)), **changes)


def test_java_code_carries_and_resets_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.tflite").write_bytes(b"12345")
    lines = compiled_java(stream_model(), tmp_path, STREAM_MAIN).splitlines()
    zeros = f"feed {[0] * 8}"
    carried = [f"feed [0, 0, -64, 63, {index}, 0, 0, 0]" for index in (1, 2)]
    run = "run {0=null, 1=null, 2=null}"
    assert lines[2:-1] == [
        *("feed [1.0, 2.0]", zeros, zeros, run),
        *("feed [3.0, 4.0]", *carried, run),
        *("feed [3.0, 4.0]", zeros, zeros, run),
    ]


QUANTIZED_MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import java.util.Arrays;
import org.tensorflow.lite.Interpreter;

public final class Main {
  public static void main(String[] arguments) throws Exception {
    try (Classifier model = new Classifier(new AssetManager())) {
      int[] pixels = {0xFF0A6480, 0x00010203};
      model.feedImage(Classifier.imageValues(pixels));
      model.feedScale(new float[] {1.0f, -1e9f});
      model.feedAny(new float[] {1e9f, Float.NaN}, 2, 1);
      model.run();
      model.feedImage(model.imageIntegers(pixels));
      model.feedScale(new TYPE[] {1, -1});
      model.feedAny(new TYPE[] {1, 2}, 2, 1);
      model.run();
      Interpreter.CALLS.add(Arrays.toString(model.fetchY()));
      Interpreter.CALLS.add(Arrays.toString(model.quantizedY()));
    }
    Interpreter.CALLS.stream().filter(call -> !call.startsWith("r")).forEach(System.out::println);
  }
}
"""
# The output of the stub: the float 1.5 and the index 0.
OUTPUT = bytes([0, 0, 0xC0, 0x3F, 0, 0, 0, 0])


def quantized_model(kind: DType, channels: str = "bgr", **changes: Any) -> AppModel:
    """A model of quantized integers."""
    means = (103.5, 116.0, 123.0) if channels == "bgr" else (103.5,)
    count = len(means)
    return lite_model(
        inputs=(
            AppTensor("image", DType.FLOAT, (-1, 2, 1, count), kind),
            AppTensor("scale:0", DType.FLOAT, (2,), kind),
            AppTensor("any", DType.FLOAT, None, kind),
        ),
        outputs=(AppTensor("y", DType.FLOAT, (-1, 10), kind),),
        images=Images("image", channels, means, (1.0, 1.0, 2.0)[-count:]),  # type: ignore[arg-type]
        **changes,
    )


def integers_of(values: np.ndarray, kind: DType, zero: int) -> np.ndarray:
    """Quantize values with the scale of the stub."""
    limits = np.iinfo(kind.numpy)
    rounded = np.clip(np.rint(values.astype(np.float64) / 0.5) + zero, limits.min, limits.max)
    return rounded.astype(kind.numpy)


@pytest.mark.parametrize("channels", ["bgr", "grayscale"])
@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT8, DType.INT16])
def test_java_code_quantizes_inputs_and_dequantizes_outputs(
    kind: DType, channels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.tflite").write_bytes(b"12345")
    java = "short" if kind is DType.INT16 else "byte"
    main = QUANTIZED_MAIN.replace("TYPE", java)
    lines = compiled_java(quantized_model(kind, channels), tmp_path, main).splitlines()

    rgb = np.array([[10, 100, 128], [1, 2, 3]], np.float32)
    if channels == "bgr":
        pixels = (rgb[:, ::-1] - np.float32([103.5, 116, 123])) / np.float32([1, 1, 2])
    else:
        luminance = np.floor(rgb @ np.float32([0.299, 0.587, 0.114]) + np.float32(0.5))
        pixels = (luminance - np.float32(103.5)) / np.float32(2)
    signed = np.int16 if kind is DType.INT16 else np.int8

    def fed(integers: np.ndarray) -> str:
        return f"feed {integers.astype(kind.numpy).view(signed).reshape(-1).tolist()}"

    picture = fed(integers_of(pixels, kind, 100))
    ends = np.array([np.iinfo(kind.numpy).max, 0])  # NaN becomes 0
    output = np.frombuffer(OUTPUT, kind.numpy)
    assert lines == [
        "threads 2",
        "load 5 bytes",
        *(picture, fed(integers_of(np.array([1, -1e9]), kind, 101)), fed(ends)),
        *(picture, fed(np.array([1, -1]).astype(signed)), fed(np.array([1, 2]))),
        str(((output.astype(np.float64) - 100) * 0.5).tolist()),
        str(output.view(signed).tolist()),
        "close",
    ]


def test_java_code_decrypts_into_the_interpreter_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = bytes(range(256)) * 999
    (tmp_path / "digits.tflite.enc").write_bytes(encrypt(content, KEY))
    model = lite_model(encrypted=True, file="digits.tflite.enc", inputs=ONE, outputs=ONE)
    printed = compiled_java(model, tmp_path, ENCRYPTED_MAIN)
    assert bytes.fromhex(printed) == content


def test_java_code_of_a_build_decrypts_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGITS_KEY", KEY.secret.hex())
    shutil.copytree(RECIPES / "digits", tmp_path / "digits")
    recipe = tmp_path / "digits/recipe.yaml"
    recipe.write_text(recipe.read_text("utf-8").partition("\nvalidation:")[0] + TARGETS, "utf-8")
    build([recipe], out=tmp_path / "out", warn=lambda _: None)
    folder = tmp_path / "out/digits"
    code = folder / "phone/integration"
    (code / "java/org/example/app/Main.java").write_text(
        ENCRYPTED_MAIN.replace("feedX(new float[] {1, 2})", "feedImage(new float[64])")
    )
    sources = [*sorted(STUBS.rglob("*.java")), *sorted(code.rglob("*.java"))]
    run_program(tool("javac"), "-Xlint:all", "-Werror", "-d", tmp_path / "classes", *sources)
    monkeypatch.chdir(folder / "phone")
    printed = run_program(tool("java"), "-cp", tmp_path / "classes", "org.example.app.Main")
    assert bytes.fromhex(printed) == (folder / "plain/digits.tflite").read_bytes()


TARGETS = """
calibration: {data: data/calibration.npz}
targets:
  plain:
    artifact: tflite
    quantize: {mode: int8, inference_input_type: uint8, inference_output_type: int8}
  phone:
    artifact: tflite
    quantize: {mode: int8, inference_input_type: uint8, inference_output_type: int8}
    protect: {encrypt: {key: env:DIGITS_KEY}}
    integration: {languages: [java], package: org.example.app, class_name: Classifier}
"""
ENCRYPTED_MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import java.util.HexFormat;
import org.tensorflow.lite.Interpreter;

public final class Main {
  public static void main(String[] arguments) throws Exception {
    byte[] key = new byte[32];
    for (int i = 0; i < key.length; i++) key[i] = (byte) i;
    try (Classifier model = new Classifier(new AssetManager(), key)) {
      System.gc();
      model.feedX(new float[] {1, 2});
      model.run();
    }
    System.out.println(HexFormat.of().formatHex(Interpreter.loaded));
  }
}
"""


def test_java_code_decrypts_only_intact_files(tmp_path: Path) -> None:
    files = encrypted_files(tmp_path)
    model = lite_model(encrypted=True)
    check_decrypted(files, compiled_java(model, tmp_path, DECRYPT_MAIN, *files).splitlines())


CPP_MAIN = """\
#include <cstdio>
#include "Classifier.h"

int main(int argc, char** argv) {
  std::uint8_t key[32];
  for (int i = 0; i < 32; ++i) key[i] = i;
  for (int i = 1; i < argc; ++i) {
    std::string error = "no reason";
    const auto model = org::example::app::Classifier::Load(argv[i], key, &error);
    if (!model) {
      std::printf("%s\\n", error.c_str());
      continue;
    }
    const std::uint8_t rgb[] = {10, 100, 128, 1, 2, 3};
    std::vector<VALUE> integers;
    std::vector<float> values;
    if (!model->FeedX(model->ImageIntegers(rgb, 1, 2)) || !model->Run()) return 1;
    if (!model->QuantizedX(&integers) || integers != model->ImageIntegers(rgb, 1, 2)) return 5;
    if (!model->FeedX(model->Image(rgb, 1, 2)) || !model->Run()) return 2;
    if (!model->QuantizedX(&integers) || !model->FetchX(&values)) return 3;
    if (integers != model->ImageIntegers(rgb, 1, 2)) return 4;
    for (int integer : integers) std::printf("%d ", integer);
    for (float value : values) std::printf("%g ", value);
    std::printf("\\n");
  }
}
"""


@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT8, DType.INT16])
def test_cpp_code_decrypts_and_quantizes(kind: DType, tmp_path: Path) -> None:
    tensor = AppTensor("x", DType.FLOAT, (2, 3), kind)
    images = Images("x", "bgr", (103.5, 116.0, 123.0), (1.0, 1.0, 2.0))
    model = lite_model(encrypted=True, inputs=(tensor,), outputs=(tensor,), images=images)
    code = write_code(model, "cpp", tmp_path) / "cpp"
    (tmp_path / "main.cc").write_text(CPP_MAIN.replace("VALUE", f"std::{kind.short}_t"))
    stub = PROGRAMS / "litert_stub.cc"
    sources = [tmp_path / "main.cc", stub, *sorted(code.glob("*.cc"))]
    flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-g"]
    checks = ["-fsanitize=address,undefined", f"-I{STUBS}", f"-I{code}"]
    program = tmp_path / "app"
    run_program(tool("g++"), *flags, *checks, *sources, "-o", program, "-l:libcrypto.so")

    content = bytes(range(256)) * 99
    files = {name: encrypt(content, KEY) for name in ("good", "changed", "none")}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data if name == "good" else data[:-1] + b"x")
    (tmp_path / "none").unlink()
    lines = run_program(program, *(tmp_path / name for name in files)).splitlines()
    rgb = np.array([[128, 100, 10], [3, 2, 1]], np.float32)
    pixels = ((rgb - np.float32([103.5, 116, 123])) / np.float32([1, 1, 2])).reshape(-1)
    integers = integers_of(pixels, kind, 100)
    values = ((integers.astype(np.float64) - 100) * 0.5).astype(np.float32)
    assert lines == [
        *(f"model {content.hex()}", f"model {content.hex()}"),
        " ".join([*map(str, integers), *(f"{v:g}" for v in values), ""]),
        "the encrypted model was changed",
        f"the file {tmp_path / 'none'} cannot be read",
    ]


@pytest.mark.parametrize(
    "model",
    [
        lite_model(),
        lite_model(images=Images("image", "grayscale", (0.0,), (255.0,)), threads=None),
        hostile_model(),
        quantized_model(DType.INT16, "grayscale"),
        stream_model(),
    ],
    ids=["all", "grayscale", "hostile", "quantized", "stream"],
)
def test_cpp_code_compiles_without_warnings(model: AppModel, tmp_path: Path) -> None:
    write_code(lite_model(inputs=model.inputs, outputs=model.outputs, images=model.images)
            if model.artifact != "tflite" else model, "cpp", tmp_path)  # fmt: skip
    flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{STUBS}"]
    run_program(tool("g++"), *flags, tmp_path / "cpp/Classifier.cc")


@pytest.mark.parametrize(
    "model",
    [
        lite_model(),
        quantized_model(DType.UINT8, encrypted=True),
        quantized_model(DType.INT16, "grayscale"),
        stream_model(),
    ],
    ids=["plain", "encrypted", "quantized", "stream"],
)
def test_kotlin_code_compiles_without_warnings(model: AppModel, tmp_path: Path) -> None:
    write_code(model, "kotlin", tmp_path)
    classes = tmp_path / "classes"
    run_program(
        tool("javac"), "-d", classes, *sorted([*STUBS.rglob("*.java"), *tmp_path.rglob("*.java")])
    )
    sources = sorted(tmp_path.glob("kotlin/**/*.kt"))
    run_program(kotlin_compiler(), "-Werror", "-cp", classes, "-d", tmp_path / "app.jar", *sources)
