"""Files that link LiteRT into the build of an app."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.targets.litert.build import LiteFile, LiteOperator, lite_files

OPERATORS = (
    LiteOperator("SOFTMAX", 1, is_custom=False),
    LiteOperator("CONV_2D", 5, is_custom=False),
    LiteOperator("Mfcc", 1, is_custom=True),
)
PLAIN = LiteFile("speech", "speech.tflite", OPERATORS, "2.3.0", has_flex=False)
FLEX = PLAIN._replace(has_flex=True)


def test_operators_are_listed_with_their_versions() -> None:
    text = lite_files("generic", (), PLAIN)["litert_ops.txt"]
    assert text.splitlines()[1:] == [
        "# releases 2.3.0 and newer have them.",
        "CONV_2D 5",
        "Mfcc 1 custom",
        "SOFTMAX 1",
    ]


@pytest.mark.parametrize(
    ("platform", "more"),
    [("generic", set()), ("android", {"app.gradle"}), ("ios", {"speech.podspec"})],
)
def test_files_of_each_platform(platform: str, more: set[str]) -> None:
    files = lite_files(platform, (), PLAIN)
    assert files.keys() == {"litert_ops.txt", "litert.BUILD"} | more


def test_bazel_builds_a_runtime_with_only_these_operators() -> None:
    text = lite_files("generic", (), PLAIN)["litert.BUILD"]
    assert 'load("//tensorflow/lite:build_def.bzl", "tflite_custom_android_library"' in text
    assert 'models = [":speech.tflite"]' in text
    flexible = lite_files("generic", (), FLEX)["litert.BUILD"]
    assert "tflite_flex_android_library(" in flexible
    assert "tflite_custom" not in flexible


def test_gradle_adds_litert_without_compressing_the_model() -> None:
    text = lite_files("android", ("arm64-v8a",), PLAIN)["app.gradle"]
    assert "noCompress 'tflite'" in text
    assert "abiFilters 'arm64-v8a'\n" in text
    assert "'com.google.ai.edge.litert:litert:" in text
    assert "select-tf-ops" not in text
    assert "select-tf-ops" in lite_files("android", (), FLEX)["app.gradle"]


def test_podspec_adds_litert_and_the_model() -> None:
    text = lite_files("ios", (), PLAIN)["speech.podspec"]
    assert "pod.resources = '{speech.tflite,speech_labels.txt,assets}'" in text
    assert "TensorFlowLiteSwift" in text
    assert "SelectTfOps" not in text
    assert "-force_load" in lite_files("ios", (), FLEX)["speech.podspec"]


def test_encrypted_model_replaces_the_plain_one() -> None:
    model = PLAIN._replace(encrypted="speech.tflite.enc")
    gradle = lite_files("android", (), model)["app.gradle"]
    assert "include 'speech.tflite.enc', 'speech_labels.txt'" in gradle
    assert "noCompress 'enc'" in gradle
    pod = lite_files("ios", (), model)
    assert "pod.resources = '{speech.tflite.enc,speech_labels.txt,assets}'" in pod["speech.podspec"]
    # CryptoKit needs iOS 13.
    assert "pod.platform = :ios, '13.0'" in pod["speech.podspec"]
    assert "pod.platform = :ios, '12.0'" in lite_files("ios", (), PLAIN)["speech.podspec"]
    assert 'models = [":speech.tflite"]' in pod["litert.BUILD"]
    assert "of a target without 'encrypt'" in pod["litert.BUILD"]


def test_unknown_platform_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="symbian"):
        lite_files("symbian", (), PLAIN)
