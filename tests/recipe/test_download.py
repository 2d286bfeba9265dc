"""The recipe section ``download``."""

from __future__ import annotations

import pytest

from mobileprep.errors import RecipeError

HEAD = "version: 1\nname: net\nsource: {frozen: model.pb}\n"


def steps_of(load, target: str) -> list[tuple[str, dict[str, object]]]:
    (resolved,) = load(f"{HEAD}targets: {{a: {{{target}}}}}\n").targets
    return [(step.name, step.options) for step in resolved.transforms]


OLD = "download: {previous: old.pb}"
ALIGN = ("align_with_previous", {"previous": "old.pb", "tolerance": 0.5})


def test_weights_are_aligned_before_their_scale_is_chosen(load) -> None:
    weights = ("quantize_weights", {"minimum_size": 1024})
    assert steps_of(load, f"{OLD}, quantize: weights, sort: true") == [
        ALIGN,
        weights,
        ("sort_by_execution_order", {}),
    ]
    assert steps_of(load, f"{OLD}, quantize: weights, obfuscate: true") == [
        ALIGN,
        weights,
        ("obfuscate_names", {}),
    ]
    names = [name for name, _ in steps_of(load, f"{OLD}, quantize: {{mode: weights, bits: 4}}")]
    assert names == ["align_with_previous", "linear_quantize_weights"]
    names = [name for name, _ in steps_of(load, f"{OLD}, quantize: nodes")]
    assert names == ["align_with_previous", "quantize_nodes"]


def test_rounded_weights_are_aligned_afterwards(load) -> None:
    steps = steps_of(load, f"{OLD}, quantize: {{mode: round, num_steps: 32}}")
    align = (ALIGN[0], {**ALIGN[1], "steps": 32})
    assert steps == [("round_weights", {"num_steps": 32}), align]


def test_litert_weights_are_aligned_before_the_conversion(load) -> None:
    tflite = "artifact: tflite, download: {previous: old.tflite}, quantize: weights"
    options = {"previous": "old.tflite", "tolerance": 0.5}
    assert steps_of(load, tflite) == [("align_with_previous", options)]


@pytest.mark.parametrize("mode", ["none", "float16", "bfloat16"])
def test_float_weights_are_not_aligned(load, mode: str) -> None:
    names = {name for name, _ in steps_of(load, f"{OLD}, quantize: {mode}")}
    assert "align_with_previous" not in names


def test_tolerance_of_zero_ships_every_change(load) -> None:
    target = "download: {previous: old.pb, tolerance: 0}, quantize: weights"
    assert [name for name, _ in steps_of(load, target)] == ["quantize_weights"]


def test_null_turns_it_off(load) -> None:
    (target,) = load(HEAD + "targets: {a: {download: null}}\n").targets
    assert (target.download, target.transforms) == (None, ())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("download: {}", "previous"),
        ("download: {tolerance: 1}", "previous"),
        ("download: {previous: 3}", "previous"),
        (f"{OLD[:-1]}, tolerance: -1}}", "tolerance"),
        (f"{OLD[:-1]}, tolerance: .nan}}", "tolerance"),
        (f"{OLD}, protect: {{encrypt: {{key: env:KEY}}}}", "an encrypted model differs"),
        ("budget: {download_bytes: 20 KB}", "needs the installed model"),
        (f"{OLD}, budget: {{download_bytes: 20 XB}}", "not a size"),
    ],
)
def test_invalid_sections_are_refused(load, target: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(f"{HEAD}targets: {{a: {{{target}}}}}\n")
