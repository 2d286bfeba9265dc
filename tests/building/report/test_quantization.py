"""Quantization in reports."""

from __future__ import annotations

import pytest

from mobileprep.building.report.text import quantization_text
from mobileprep.building.stages.damage.report import damage_lines
from mobileprep.building.stages.damage.spec import DamageRecord, TensorRecord

TENSORS = (
    TensorRecord("net/conv", "Conv2D", False, False, 20.5, 0.99567, None, None),
    TensorRecord("net/conv/weights", "Const", True, True, 35.0, 1.0, 0.0, 0.2891),
    TensorRecord("net/relu", "Relu6", False, True, 37.0, 0.9998, 0.0123, 0.325),
    TensorRecord("net/more", "Relu6", False, True, 38.0, 1.0, 0.0, 0.3),
    TensorRecord("net/best", "Relu6", False, True, 39.0, 1.0, 0.0, 0.29),
)
DAMAGE = DamageRecord("data/test.npz", 16, TENSORS)


def step(name: str, **options: object) -> dict[str, object]:
    return {"name": name, "options": options}


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], ""),
        ([step("fold_constants"), step("sort_by_execution_order")], ""),
        ([step("quantize_weights", minimum_size=1024)], "weights"),
        ([step("linear_quantize_weights")], "weights, 8 bits"),
        ([step("linear_quantize_weights", bits=4)], "weights, 4 bits"),
        ([step("cast_weights", type="bfloat16")], "weights, bfloat16"),
        ([step("round_weights", num_steps=256)], "round"),
        ([step("quantize_nodes", ranges="observed")], "nodes, observed"),
        ([step("quantize_nodes")], "nodes, as the original"),
        ([step("round_weights"), step("quantize_weights")], "round and weights"),
    ],
)
def test_text_describes_the_quantization_of_a_chain(steps, text: str) -> None:
    assert quantization_text({"transforms": steps}) == text


def test_worst_activations_and_weights_are_listed() -> None:
    assert list(damage_lines(DAMAGE, 80)) == [
        (
            "tensors  5 compared with float on 16 samples of data/test.npz, those that lost most "
            "(rounding alone has an RMSE of 0.289 of the scale):"
        ),
        "  tensor            of         dB  cosine  clipped  RMSE/scale",
        "  net/conv          Conv2D   20.5  0.9957        -           -",
        "  net/relu          Relu6    37.0  0.9998    1.23%       0.325",
        "  net/more          Relu6    38.0  1.0000    0.00%       0.300",
        "  net/conv/weights  weights  35.0  1.0000    0.00%       0.289",
    ]


def test_narrow_terminal_has_numbers_below_names() -> None:
    lines = list(damage_lines(DAMAGE, 52))[1:]
    assert lines[1] == "  net/conv"
    assert lines[2].split() == ["Conv2D", "20.5", "0.9957", "-", "-"]
    assert max(map(len, lines)) <= 52


def test_unmeasured_damage_has_a_reason() -> None:
    damage = DamageRecord("data/test.npz", 0, unmeasured="no kernel of Foo")
    assert list(damage_lines(damage, 80)) == ["tensors  not compared with float: no kernel of Foo"]


def test_text_describes_the_quantization_of_a_tflite_target() -> None:
    assert quantization_text({"transforms": [], "quantize": {"mode": "int8"}}) == "int8"
    assert quantization_text({"transforms": [], "quantize": {"mode": "none"}}) == ""
