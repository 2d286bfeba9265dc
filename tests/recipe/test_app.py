"""The recipe sections about the app: ``integration``, ``protect``, and ``litert``."""

from __future__ import annotations

import pytest

from mobileprep.errors import RecipeError
from mobileprep.recipe.model import Integration

HEAD = "version: 1\nname: digits\nsource: {frozen: model.pb}\n"


def test_target_overrides_the_integration(load) -> None:
    recipe = load(
        HEAD + "integration: {languages: [java, cpp], package: org.example, threads: 2}\n"
        "targets:\n  a: {}\n  b: {integration: {languages: [objc], class_name: Digits}}\n"
        "  c: {integration: null}\n"
    )
    assert [target.integration for target in recipe.targets] == [
        Integration(("java", "cpp"), "org.example", threads=2),
        Integration(("objc",), "org.example", "Digits", 2),
        None,
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{package: org.example}", "languages"),
        ("{languages: []}", "languages"),
        ("{languages: [swift]}", "swift"),
        ("{languages: [cpp], threads: 0}", "threads"),
        ("{languages: [cpp], package: Org.Example}", "a package is lower-case words"),
        ("{languages: [cpp], package: 'a; b'}", "a package is lower-case words"),
        ("{languages: [cpp], package: org.new.x}", "'new' cannot be a part of a package"),
        ("{languages: [cpp], class_name: digits}", "a class starts with a capital"),
        ("{languages: [cpp], class_name: String}", "the code has another class of the name"),
    ],
)
def test_invalid_integration_is_refused(load, section: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(HEAD + f"integration: {section}\ntargets: {{a: {{}}}}\n")


def test_supported_languages_depend_on_the_runtime(load) -> None:
    lite = "targets: {a: {artifact: tflite}}\n"
    load(HEAD + "integration: {languages: [java, kotlin, swift, cpp]}\n" + lite)
    with pytest.raises(RecipeError, match="no code for LiteRT is here in 'objc'"):
        load(HEAD + "integration: {languages: [objc]}\n" + lite)
    with pytest.raises(RecipeError, match="no code for TensorFlow is here in 'swift'"):
        load(HEAD + "integration: {languages: [swift]}\ntargets: {a: {}}\n")


def test_encrypted_litert_model_with_integer_inputs(load) -> None:
    quantize = "quantize: {mode: int8, inference_input_type: uint8}"
    text = "integration: {languages: [java]}\ncalibration: {data: d.npz}\n"
    text += "protect: {encrypt: {key: env:KEY}}\n"
    text += f"targets: {{a: {{artifact: tflite, {quantize}}}}}\n"
    (target,) = load(HEAD + text).targets
    assert (target.protect.key, target.quantize.inference_input_type) == ("KEY", "uint8")


def test_encrypted_memory_mapped_model_is_refused(load) -> None:
    with pytest.raises(RecipeError, match="cannot be mapped into memory"):
        load(HEAD + "protect: {encrypt: {key: env:KEY}}\ntargets: {a: {artifact: memmapped}}\n")


def test_flex_requires_litert(load) -> None:
    with pytest.raises(RecipeError, match="'flex' is of"):
        load(HEAD + "targets: {a: {flex: true}}\n")
    (target,) = load(HEAD + "targets: {a: {flex: true, artifact: tflite}}\n").targets
    assert target.flex


def test_min_runtime_is_a_quoted_release_and_requires_litert(load) -> None:
    lite = "targets: {a: {artifact: tflite, litert: {min_runtime: %s}}}\n"
    (target,) = load(HEAD + lite % '"2.14"').targets
    assert target.min_runtime == "2.14"
    for wrong in ("2.20", '"2"', '"2.x"'):
        with pytest.raises(RecipeError, match=r"min_runtime|release"):
            load(HEAD + lite % wrong)
    with pytest.raises(RecipeError, match="'litert' requires 'artifact: tflite'"):
        load(HEAD + 'targets: {a: {litert: {min_runtime: "2.14"}}}\n')


def test_streaming_is_a_switch_or_a_number_of_steps_and_requires_litert(load) -> None:
    lite = "targets: {a: {artifact: tflite, streaming: %s}}\n"
    steps = {"true": 1, "{steps: 4}": 4, "{}": 1}
    for text, number in steps.items():
        (target,) = load(HEAD + lite % text).targets
        assert target.streaming.steps == number
    (target,) = load(HEAD + lite % "false").targets
    assert target.streaming is None
    for wrong in ("{steps: 0}", "4", "{step: 4}"):
        with pytest.raises(RecipeError, match="stream"):
            load(HEAD + lite % wrong)
    with pytest.raises(RecipeError, match="'streaming' requires 'artifact: tflite'"):
        load(HEAD + "targets: {a: {streaming: true}}\n")


@pytest.mark.parametrize("artifact", ["text", "memmapped"])
@pytest.mark.parametrize("language", ["java", "kotlin"])
def test_artifact_that_a_language_cannot_load_is_refused(
    load, artifact: str, language: str
) -> None:
    text = (
        f"integration: {{languages: [cpp, {language}]}}\ntargets: {{a: {{artifact: {artifact}}}}}\n"
    )
    with pytest.raises(RecipeError, match=f"loads no model with 'artifact: {artifact}'"):
        load(HEAD + text)
