"""Kotlin code for apps, compiled with stubs of Android and TensorFlowInferenceInterface."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mobileprep.targets.integration.render import AppModel
from tests.reference.native import kotlin_compiler, run_program, tool
from tests.reference.test_integration_code import (
    APP_OUTPUT,
    STUBS,
    check_hostile_names,
    write_code,
)
from tests.targets.app_models import app_model, hostile_model

pytestmark = pytest.mark.reference


def compiled_kotlin(model: AppModel, folder: Path, main: str) -> str:
    """Compile the code with a Kotlin program, and return the output; warnings are errors."""
    write_code(model, "kotlin", folder)
    classes, program = folder / "classes", folder / "program.jar"
    stubs = [*STUBS.rglob("*.java"), *folder.glob("java/**/*.java")]
    run_program(tool("javac"), "-d", classes, *sorted(stubs))
    (folder / "main.kt").write_text(main)
    sources = [folder / "main.kt", *folder.glob("kotlin/**/*.kt")]
    flags = ["-Werror", "-include-runtime", "-cp", classes, "-d", program]
    run_program(kotlin_compiler(), *flags, *sources)
    return run_program(tool("java"), "-cp", f"{program}:{classes}", "MainKt")


FEEDS = """\
import android.content.res.AssetManager
import org.example.app.Classifier
import org.tensorflow.contrib.android.TensorFlowInferenceInterface

fun main() {
    Classifier(AssetManager()).use { model ->
        model.feedImage(Classifier.imageValues(intArrayOf(0x0A6480, 0x00010203)))
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


def test_kotlin_code_feeds_runs_and_fetches(tmp_path: Path) -> None:
    assert compiled_kotlin(app_model(), tmp_path, FEEDS).splitlines() == APP_OUTPUT


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


def test_kotlin_code_escapes_names(tmp_path: Path) -> None:
    check_hostile_names(compiled_kotlin(hostile_model(), tmp_path, NAMES))


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


def test_kotlin_code_rejects_a_wrong_key_length(tmp_path: Path) -> None:
    output = compiled_kotlin(app_model(encrypted=True), tmp_path, KEYED)
    assert re.match(r"refused: \S+", output)
