"""Integration code for apps, compiled, and run with TensorFlow 1.15 or stubs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.core.keys import Key
from mobileprep.data.file_samples import ImageReading
from mobileprep.data.options import Reading
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.targets.integration.device_script import DeviceInput, DeviceModel, device_files
from mobileprep.targets.integration.render import AppModel, Language, integration_code
from mobileprep.targets.memmapped import encrypt
from tests.reference.native import PROGRAMS, compile_program, run_program, tool
from tests.targets.app_models import HOSTILE, app_model, hostile_model

pytestmark = pytest.mark.reference

STUBS = Path(__file__).parent / "stubs"
MODELS = {
    "plain": app_model(),
    "hostile": hostile_model(),
    "memmapped": app_model(artifact="memmapped"),
    "encrypted": app_model(encrypted=True),
    "text": app_model(artifact="text"),
    "encrypted text": app_model(artifact="text", encrypted=True),
}
KEY = Key(bytes(range(32)))
IMAGE_VALUES = [128 - 103.5, 100 - 116.0, (10 - 123) / 2, 3 - 103.5, 2 - 116.0, (1 - 123) / 2]
# The error and the calls that the programs of Java and Kotlin print.
APP_OUTPUT = [
    "takes 6 values per sample, not 7",
    "load file:///android_asset/digits.pb",
    "run  false init_all_tables",
    f"feed image {IMAGE_VALUES} [1, 2, 1, 3]",
    "feed scale:0 [2.0] []",
    "feed any [1, 2] [2, 1]",
    "run logits/y,class,raw:1",
    "fetch logits/y 10",
    "fetch class 3",
    "fetch raw:1 7",
    "close",
]


def write_code(model: AppModel, language: Language, folder: Path) -> Path:
    for name, text in integration_code(model, language).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def compiled_java(model: AppModel, folder: Path, main: str, *arguments: Path) -> str:
    """Compile the code with a Java program, and return the output of the program."""
    write_code(model, "java", folder)
    sources = folder / "java/org/example/app"
    (sources / "Main.java").write_text(main)
    stubs = sorted(STUBS.rglob("*.java"))
    files = [*stubs, *sources.glob("*.java")]
    run_program(tool("javac"), "-Xlint:all", "-Werror", "-d", folder / "classes", *files)
    return run_program(tool("java"), "-cp", folder / "classes", "org.example.app.Main", *arguments)


JAVA_MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import org.tensorflow.contrib.android.TensorFlowInferenceInterface;

public final class Main {
  public static void main(String[] arguments) {
    try (Classifier model = new Classifier(new AssetManager())) {
      model.feedImage(Classifier.imageValues(new int[] {0xFF0A6480, 0x00010203}));
      model.feedScale(new double[] {2});
      model.feedAny(new long[] {1, 2}, 2, 1);
      model.run();
      model.fetchY(1);
      model.fetchClass();
      model.fetchRaw1(new byte[7]);
      try {
        model.feedImage(new float[7]);
      } catch (IllegalArgumentException error) {
        System.out.println(error.getMessage());
      }
    }
    TensorFlowInferenceInterface.CALLS.forEach(System.out::println);
  }
}
"""


def test_java_code_feeds_runs_and_fetches(tmp_path: Path) -> None:
    assert compiled_java(app_model(), tmp_path, JAVA_MAIN).splitlines() == APP_OUTPUT


HOSTILE_MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.tensorflow.contrib.android.TensorFlowInferenceInterface;

public final class Main {
  public static void main(String[] arguments) {
    try (Classifier model = new Classifier(new AssetManager())) {
      model.run();
    }
    for (String call : TensorFlowInferenceInterface.CALLS) {
      System.out.println(HexFormat.of().formatHex(call.getBytes(StandardCharsets.UTF_8)));
    }
  }
}
"""


def test_java_code_escapes_names(tmp_path: Path) -> None:
    check_hostile_names(compiled_java(hostile_model(), tmp_path, HOSTILE_MAIN))


def check_hostile_names(output: str) -> None:
    """Check the calls that a program prints in hexadecimal."""
    calls = [bytes.fromhex(line).decode() for line in output.split()]
    assert calls[1] == "run  false " + ",".join(HOSTILE)
    assert calls[2] == "run " + ",".join(f"{name}:1" for name in HOSTILE)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("kind", MODELS)
def test_cpp_code_compiles(original: Path, kind: str, compiler: str, tmp_path: Path) -> None:
    write_code(MODELS[kind], "cpp", tmp_path)
    tf = original / "tensorflow_core"
    flags = ["-std=c++14", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-isystem"]
    for file in sorted(tmp_path.glob("cpp/*.cc")):
        run_program(tool(compiler), *flags, tf / "include", file)


def test_cpp_code_escapes_names(tmp_path: Path) -> None:
    text = integration_code(hostile_model(), "cpp")["cpp/Classifier.cc"]
    listed = re.search(r"Run\(\{\}, \{\}, \{(.*)\}, nullptr\)", text)
    assert listed is not None
    program = tmp_path / "names.cc"
    literal = listed[1].replace('", "', '"\n"\\n----\\n"\n"')
    program.write_text(
        f"#include <cstdio>\nint main() {{ const char text[] = {literal};\n"
        "std::fwrite(text, 1, sizeof text - 1, stdout); }\n"
    )
    # Some compilers replace trigraphs.
    run_program(tool("g++"), "-trigraphs", program, "-o", tmp_path / "names")
    output = subprocess.run([tmp_path / "names"], capture_output=True, check=True).stdout
    assert output.decode() == "\n----\n".join(HOSTILE)


@pytest.mark.parametrize("kind", MODELS)
def test_objective_cpp_code_compiles(original: Path, kind: str, tmp_path: Path) -> None:
    write_code(MODELS[kind], "objc", tmp_path)
    flags = ["-x", "objective-c++", "-fobjc-arc", "-fobjc-runtime=macosx-10.13", "-std=c++14"]
    checks = ["-fsyntax-only", "-Wall", "-Werror", f"-I{STUBS}", f"-I{tmp_path / 'cpp'}"]
    tf = original / "tensorflow_core/include"
    run_program(
        tool("clang++"), *flags, *checks, "-isystem", tf, tmp_path / "objc/ClassifierObjC.mm"
    )


def test_benchmark_in_objective_cpp_compiles(original: Path, tmp_path: Path) -> None:
    inputs = [DeviceInput("image", DType.FLOAT, (-1, 8)), DeviceInput("name", DType.STRING, ())]
    model = DeviceModel(
        target="phone",
        platform="ios",
        abis=("arm64",),
        tool="tensorflow",
        sha256="0" * 64,
        inputs=inputs,
        outputs=HOSTILE[:2],
        init_ops=("init",),
    )
    (tmp_path / "benchmark.mm").write_text(device_files(model)["ModelBenchmark.mm"])
    flags = ["-x", "objective-c++", "-fobjc-arc", "-fobjc-runtime=macosx-10.13", "-std=c++14"]
    checks = ["-fsyntax-only", "-Wall", "-Werror", f"-I{STUBS}"]
    tf = original / "tensorflow_core/include"
    run_program(tool("clang++"), *flags, *checks, "-isystem", tf, tmp_path / "benchmark.mm")


CONTENTS = [b"", b"a model", bytes(range(256)) * 1000]
# Each damage to a file, and the error of the code.
DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "none": (lambda data: data, ""),
    "another file": (lambda data: b"GraphDef" + data[8:], "not an encrypted model"),
    "an empty file": (lambda data: b"", "not an encrypted model"),
    "cut in the header": (lambda data: data[:50], "the encrypted model is truncated"),
    "cut at the end": (lambda data: data[:-1], "the encrypted model is truncated"),
    "longer": (lambda data: data + b"x", "the encrypted model is truncated"),
    "newer": (
        lambda data: data[:8] + b"\2" + data[9:],
        "unsupported version of the encrypted format",
    ),
    "another key": (lambda data: data[:24] + bytes(16) + data[40:], "with another key"),
    "bit of the nonce": (lambda data: flipped(data, 41), "the encrypted model was changed"),
    "bit of the content": (lambda data: flipped(data, 73), "the encrypted model was changed"),
    "bit of the tag": (lambda data: flipped(data, -1), "the encrypted model was changed"),
}


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def encrypted_files(folder: Path) -> list[Path]:
    """A file for each content and damage."""
    files = []
    for number, content in enumerate(CONTENTS):
        for name, (damage, _) in DAMAGE.items():
            path = folder / f"{name.replace(' ', '_')}-{number}"
            path.write_bytes(damage(encrypt(content, KEY)))
            files.append(path)
    return files


def check_decrypted(files: list[Path], output: list[str]) -> None:
    assert len(files) == len(output)
    for path, line in zip(files, output, strict=True):
        name, _, number = path.name.replace("_", " ").rpartition("-")
        message = DAMAGE[name][1]
        content = CONTENTS[int(number)]
        assert message in line if message else line == f"ok {content.hex()}", path


DECRYPT_MAIN = """\
package org.example.app;

import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.util.HexFormat;

public final class Main {
  public static void main(String[] arguments) throws Exception {
    byte[] key = new byte[32];
    for (int i = 0; i < key.length; i++) key[i] = (byte) i;
    for (String file : arguments) {
      try {
        byte[] content = EncryptedModel.read(Files.newInputStream(Paths.get(file)), key);
        System.out.println("ok " + HexFormat.of().formatHex(content));
      } catch (GeneralSecurityException error) {
        System.out.println(error.getMessage());
      }
    }
  }
}
"""


def test_java_code_decrypts_only_intact_files(tmp_path: Path) -> None:
    files = encrypted_files(tmp_path)
    model = app_model(encrypted=True)
    check_decrypted(files, compiled_java(model, tmp_path, DECRYPT_MAIN, *files).splitlines())


DECRYPT_PROGRAM = """\
#include <cstdio>
#include <iostream>
#include "EncryptedModel.h"
#include "tensorflow/core/platform/env.h"
extern "C" { int _Py_CheckRecursionLimit = 1000; }
int main(int argc, char** argv) {
  std::uint8_t key[32];
  for (int i = 0; i < 32; ++i) key[i] = i;
  for (int i = 1; i < argc; ++i) {
    std::string file, content;
    tensorflow::ReadFileToString(tensorflow::Env::Default(), argv[i], &file);
    const auto status = org::example::app::DecryptModel(file, key, &content);
    if (!status.ok()) std::cout << status.error_message() << content;
    if (status.ok()) std::cout << "ok ";
    for (unsigned char c : content) std::printf("%02x", c), std::fflush(stdout);
    std::cout << std::endl;
  }
}
"""


def test_cpp_code_decrypts_only_intact_files(original: Path, tmp_path: Path) -> None:
    files = encrypted_files(tmp_path)
    code = write_code(app_model(encrypted=True), "cpp", tmp_path) / "cpp"
    (tmp_path / "main.cc").write_text(DECRYPT_PROGRAM)
    sources, program = [tmp_path / "main.cc", code / "EncryptedModel.cc"], tmp_path / "decrypt"
    options = [f"-I{code}", "-l:libcrypto.so"]
    compile_program(sources, program, original / "tensorflow_core", options)
    check_decrypted(files, run_program(program, *files).splitlines())


RECIPE = """\
version: 1
name: photos
source: {{frozen: {model}}}
inputs: {{input: {{dtype: float32, shape: [1, 224, 224, 3]}}}}
outputs: [Identity]
integration: {{languages: [cpp], threads: 2}}
validation: {{data: {{pictures: photos, classes: classes.txt, mean: 127.5, std: 127.5}}}}
targets:
  frozen: {{validation: {{max_drop: 1}}}}
  text: {{artifact: text}}
  memmapped: {{artifact: memmapped}}
  encrypted: {{protect: {{obfuscate: true, encrypt: {{key: env:PHOTOS_KEY}}}}}}
  encrypted_text: {{artifact: text, protect: {{encrypt: {{key: env:PHOTOS_KEY}}}}}}
"""


@pytest.mark.parametrize("target", ["frozen", "text", "memmapped", "encrypted", "encrypted_text"])
def test_cpp_code_classifies_an_image(
    original: Path, models: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHOTOS_KEY", KEY.secret.hex())
    (tmp_path / "key").write_bytes(KEY.secret)
    model = models / "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb"
    photo = models / "data/grace_hopper.jpg"
    (tmp_path / "photos/first").mkdir(parents=True)
    shutil.copy(photo, tmp_path / "photos/first/photo.jpg")
    (tmp_path / "classes.txt").write_text("first\nsecond\nthird\nfourth\nfifth\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(model=model))
    build([recipe], out=tmp_path / "out", targets=[target], warn=lambda _: None)
    folder = tmp_path / "out/photos" / target

    reading = Reading(mean=(0.0,), std=(1.0,))
    fed = FedTensor("input", DType.FLOAT, (-1, 224, 224, 3))
    pixels = np.rint(ImageReading(fed, reading, "photos").sample(photo.read_bytes(), "photo"))
    (tmp_path / "rgb").write_bytes(pixels.astype(np.uint8).tobytes())
    code = folder / "integration/cpp"
    sources = [*sorted(code.glob("*.cc")), PROGRAMS / "run_picture.cc"]
    options = [f"-I{code}"]
    if target.startswith("encrypted"):
        options += ["-DENCRYPTED", "-l:libcrypto.so"]
    compile_program(sources, tmp_path / "app", original / "tensorflow_core", options)
    shipped = next(folder.glob("photos.pb*"))
    command = [tmp_path / "app", shipped, folder / "photos_labels.txt", "224", "224"]
    output = run_program(*command, tmp_path / "rgb", tmp_path / "output", tmp_path / "key")
    assert output.split() == ["5"]

    scores = np.fromfile(tmp_path / "output", np.float32)
    graph = read_graph(model)
    normalized = (np.float32(pixels) - np.float32(127.5)) / np.float32(127.5)
    (expected,) = Interpreter(graph).run(
        ["Identity"], {"input": normalized.reshape(1, 224, 224, 3)}
    )
    # Sums of float32 products in another order.
    np.testing.assert_allclose(scores, np.ravel(expected), rtol=1e-4, atol=1e-6)
