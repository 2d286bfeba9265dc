"""Nodes are decoded as declared types, and values that do not fit leave the other keys alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import ValidationError

from mobileprep.data.options import Reading
from mobileprep.recipe.decode import Decoder
from mobileprep.recipe.settings import Check, Data, InputFile
from mobileprep.recipe.tree import SourceText
from mobileprep.recipe.validation_settings import Calibration
from mobileprep.recipe.yaml_tree import parse_yaml

RECIPE = "version: 1\nname: x\nsource: {frozen: m.pb}\noutputs: [y]\ntargets:\n"


def decode(text: str, kind: type) -> tuple[object, list[ValidationError]]:
    decoder = Decoder()
    node = parse_yaml(SourceText("recipe.yaml", Path("app"), text))
    return decoder.decode(node, kind), decoder.errors


def test_fields_have_the_declared_types() -> None:
    text = "{data: {pictures: d, std: 2, resize: [8, 8.0]}, samples: 1e1, percentile: 99}"
    calibration, errors = decode(text, Calibration)
    file = InputFile("d", Path("app/d"), "recipe.yaml:1:19")
    data = Data(file, "pictures", Reading(std=(2.0,), resize=(8, 8)))
    assert calibration == Calibration(data, percentile=99.0, samples=10)
    assert not errors


def test_value_that_does_not_fit_has_its_default() -> None:
    check, errors = decode("{samples: [1], max_difference: 1, engine: other}", Check)
    assert check == Check(max_difference=1.0)
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("quantize: [int8], artifact: tflite", "expected text or a mapping, found a list"),
        ("quantize: {mode: int4, bits: [1]}", "is a mode for LiteRT"),
        ("calibration: {data: [1], decay: 0.5}", "'decay' applies only to 'moving_average'"),
        ("validation: {data: [1], at_most: 1}", "'at_most' is not a limit of 'auto'"),
        ("ops: {A: {kernel: [[1]], source: [a/b.cc, c/b.cc]}}", "have the same file name"),
    ],
)
def test_checks_of_other_keys_go_on(
    problems: Callable[..., list[str]], target: str, expected: str
) -> None:
    messages = problems(f"{RECIPE}  p: {{{target}}}\n")
    assert any(expected in message for message in messages)
    assert any("expected" in message and "found" in message for message in messages)
