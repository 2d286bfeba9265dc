"""The Kotlin for apps, compiled against stubs of Android and of TensorFlowInferenceInterface."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mobileprep.targets.integration.render import AppModel
from tests.reference.test_integration_code import STUBS, run, tool, written
from tests.targets.app_models import HOSTILE, app_model, hostile_model

pytestmark = pytest.mark.reference


def compiled_kotlin(model: AppModel, folder: Path, main: str) -> str:
    """What a program of Kotlin prints that uses the code; warnings are errors."""
    written(model, "kotlin", folder)
    classes, program = folder / "classes", folder / "program.jar"
    stubs = [*STUBS.rglob("*.java"), *folder.glob("java/**/*.java")]
    run(tool("javac"), "-d", classes, *sorted(stubs))
    (folder / "main.kt").write_text(main)
    sources = [folder / "main.kt", *folder.glob("kotlin/**/*.kt")]
    flags = ["-Werror", "-include-runtime", "-cp", classes, "-d", program]
    run(tool("kotlinc"), *flags, *sources)
    return run(tool("java"), "-cp", f"{program}:{classes}", "MainKt")


FEEDS = """\
import android.content.res.AssetManager
import org.example.app.Classifier
import org.tensorflow.contrib.android.TensorFlowInferenceInterface

fun main() {
    Classifier(AssetManager()).use { model ->
        model.feedImage(Classifier.pictureValues(intArrayOf(0x0A6480, 0x00010203)))
        model.feedScale(doubleArrayOf(2.0))
        model.feedAny(longArrayOf(1, 2), 2, 1)
        model.run()
        model.fetchY(1)
        model.fetchClass()
        model.fetchRaw1(ByteArray(7))
        try {
            model.feedImage(FloatArray(7))
        } catch (error: IllegalArgumentException) {
            println(error.message)
        }
    }
    TensorFlowInferenceInterface.CALLS.forEach { println(it) }
}
"""


def test_the_kotlin_code_feeds_runs_and_fetches(tmp_path: Path) -> None:
    told = compiled_kotlin(app_model(), tmp_path, FEEDS).splitlines()
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


NAMES = """\
import android.content.res.AssetManager
import org.example.app.Classifier
import org.tensorflow.contrib.android.TensorFlowInferenceInterface

fun main() {
    Classifier(AssetManager()).use { it.run() }
    TensorFlowInferenceInterface.CALLS.forEach { call ->
        println(call.toByteArray(Charsets.UTF_8).joinToString("") { "%02x".format(it) })
    }
}
"""


def test_hostile_names_stay_texts_in_kotlin(tmp_path: Path) -> None:
    told = compiled_kotlin(hostile_model(), tmp_path, NAMES).split()
    calls = [bytes.fromhex(line).decode() for line in told]
    assert calls[1] == "run  false " + ",".join(HOSTILE)
    assert calls[2] == "run " + ",".join(f"{name}:1" for name in HOSTILE)


KEYED = """\
import android.content.res.AssetManager
import org.example.app.Classifier

fun main() {
    try {
        Classifier(AssetManager(), ByteArray(31)).use { it.run() }
    } catch (error: Exception) {
        println("refused: $error")
    }
}
"""


def test_the_kotlin_code_of_an_encrypted_model_takes_a_key(tmp_path: Path) -> None:
    told = compiled_kotlin(app_model(encrypted=True), tmp_path, KEYED)
    assert re.match(r"refused: \S+", told)
