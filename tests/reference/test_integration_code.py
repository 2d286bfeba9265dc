"""The code for apps, as compilers and the runtime of TensorFlow 1.15 take it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mobileprep.api.building import build
from mobileprep.datasets.pictures import PictureReading
from mobileprep.formats.dtypes import DType
from mobileprep.ir.files import read_graph
from mobileprep.options.data import Reading
from mobileprep.packaging.integration.app_model import AppModel
from mobileprep.packaging.integration.render import Language, integration_code
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.packaging.app_models import HOSTILE, app_model, hostile_model
from tests.reference.native import PROGRAMS, compile_program

pytestmark = pytest.mark.reference

STUBS = Path(__file__).parent / "stubs"
MODELS = [app_model(), hostile_model(), app_model(artifact="memmapped"), app_model(artifact="text")]


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def written(model: AppModel, language: Language, folder: Path) -> Path:
    for name, text in integration_code(model, language).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled_java(model: AppModel, folder: Path, main: str) -> str:
    """What a program of Java prints that uses the code."""
    written(model, "java", folder)
    sources = folder / "java/org/example/app"
    (sources / "Main.java").write_text(main)
    stubs = sorted(STUBS.rglob("*.java"))
    files = [*stubs, *sources.glob("*.java")]
    run(tool("javac"), "-Xlint:all", "-Werror", "-d", folder / "classes", *files)
    return run(tool("java"), "-cp", folder / "classes", "org.example.app.Main")


JAVA_MAIN = """\
package org.example.app;

import android.content.res.AssetManager;
import org.tensorflow.contrib.android.TensorFlowInferenceInterface;

public final class Main {
  public static void main(String[] arguments) {
    try (Classifier model = new Classifier(new AssetManager())) {
      model.feedImage(Classifier.pictureValues(new int[] {0xFF0A6480, 0x00010203}));
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


def test_the_java_code_feeds_runs_and_fetches(tmp_path: Path) -> None:
    told = compiled_java(app_model(), tmp_path, JAVA_MAIN).splitlines()
    values = [128 - 103.5, 100 - 116.0, (10 - 123) / 2, 3 - 103.5, 2 - 116.0, (1 - 123) / 2]
    assert told == [
        "takes 6 values a sample, not 7",
        "load file:///android_asset/digits.pb",
        "run  false init_all_tables",
        f"feed image {values} [1, 2, 1, 3]",
        "feed scale:0 [2.0] []",
        "feed any [1, 2] [2, 1]",
        "run logits/y,class,raw:1",
        "fetch logits/y 10",
        "fetch class 3",
        "fetch raw:1 7",
        "close",
    ]


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


def test_hostile_names_stay_texts_in_java(tmp_path: Path) -> None:
    told = compiled_java(hostile_model(), tmp_path, HOSTILE_MAIN).split()
    calls = [bytes.fromhex(line).decode() for line in told]
    assert calls[1] == "run  false " + ",".join(HOSTILE)
    assert calls[2] == "run " + ",".join(f"{name}:1" for name in HOSTILE)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("model", MODELS, ids=["plain", "hostile", "memmapped", "text"])
def test_the_cpp_code_compiles(
    original: Path, model: AppModel, compiler: str, tmp_path: Path
) -> None:
    written(model, "cpp", tmp_path)
    tf = original / "tensorflow_core"
    flags = ["-std=c++14", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-isystem"]
    run(tool(compiler), *flags, tf / "include", tmp_path / "cpp/Classifier.cc")


def test_hostile_names_stay_texts_in_cpp(tmp_path: Path) -> None:
    text = integration_code(hostile_model(), "cpp")["cpp/Classifier.cc"]
    listed = re.search(r"Run\(\{\}, \{\}, \{(.*)\}, nullptr\)", text)
    assert listed is not None
    program = tmp_path / "names.cc"
    literal = listed[1].replace('", "', '"\n"\\n----\\n"\n"')
    program.write_text(
        f"#include <cstdio>\nint main() {{ const char text[] = {literal};\n"
        "std::fwrite(text, 1, sizeof text - 1, stdout); }\n"
    )
    # As compilers are called that replace trigraphs.
    run(tool("g++"), "-trigraphs", program, "-o", tmp_path / "names")
    found = subprocess.run([tmp_path / "names"], capture_output=True, check=True).stdout
    assert found.decode() == "\n----\n".join(HOSTILE)


@pytest.mark.parametrize("model", MODELS[:3], ids=["plain", "hostile", "memmapped"])
def test_the_objective_cpp_code_compiles(original: Path, model: AppModel, tmp_path: Path) -> None:
    written(model, "objc", tmp_path)
    flags = ["-x", "objective-c++", "-fobjc-arc", "-fobjc-runtime=macosx-10.13", "-std=c++14"]
    checks = ["-fsyntax-only", "-Wall", "-Werror", f"-I{STUBS}", f"-I{tmp_path / 'cpp'}"]
    tf = original / "tensorflow_core/include"
    run(tool("clang++"), *flags, *checks, "-isystem", tf, tmp_path / "objc/ClassifierObjC.mm")


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
"""


@pytest.mark.parametrize("target", ["frozen", "text", "memmapped"])
def test_the_cpp_code_runs_a_real_picture(
    original: Path, models: Path, target: str, tmp_path: Path
) -> None:
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
    pixels = np.rint(PictureReading(fed, reading, "photos").sample(photo.read_bytes(), "photo"))
    (tmp_path / "rgb").write_bytes(pixels.astype(np.uint8).tobytes())
    code = folder / "integration/cpp"
    sources = [PROGRAMS / "run_picture.cc", code / "PreparedModel.cc"]
    compile_program(
        tool("g++"), sources, tmp_path / "app", original / "tensorflow_core", [f"-I{code}"]
    )
    shipped = next(folder.glob("photos.pb*"))
    command = [tmp_path / "app", shipped, folder / "photos_labels.txt", "224", "224"]
    told = run(*command, tmp_path / "rgb", tmp_path / "output")
    assert told.split() == ["5"]

    found = np.fromfile(tmp_path / "output", np.float32)
    graph = read_graph(model)
    normalized = (np.float32(pixels) - np.float32(127.5)) / np.float32(127.5)
    wanted = Interpreter(graph).run(["Identity"], {"input": normalized.reshape(1, 224, 224, 3)})
    # Sums of float32 products in another order.
    np.testing.assert_allclose(found, np.ravel(wanted[0]), rtol=1e-4, atol=1e-6)
