"""The budget of a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import RecipeError
from mobileprep.recipe import load_recipe
from mobileprep.recipe.settings import Budget, OpLimits

HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\ntargets:\n  a:\n    budget: "


def budget(folder: Path, text: str) -> Budget:
    (folder / "r.yaml").write_text(HEAD + text)
    return load_recipe(folder / "r.yaml", environ={}).targets[0].budget


def test_limits_have_units(tmp_path: Path) -> None:
    text = (
        "{flops: 20 MFLOP, activation_bytes: 1 MiB, kernel_bytes: 500 KB, parameters: 1000, "
        "kernels: 40, ops: {forbid: [Cast]}}"
    )
    assert budget(tmp_path, text) == Budget(
        parameters=1000,
        flops=20_000_000,
        activation_bytes=1 << 20,
        kernels=40,
        kernel_bytes=500_000,
        ops=OpLimits(forbid=("Cast",)),
    )
    assert budget(tmp_path, "{flops: 7}").flops == 7


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{flops: 20 MB}", "'20 MB' is not a number of operations; write a number with KFLOP"),
        ("{flops: 0.1 FLOP}", "must be at least one operation"),
        ("{activation_bytes: 3 MFLOP}", "'3 MFLOP' is not a size"),
        ("{parameters: 1 M}", "expected a whole number"),
        ("{ops: {}}", "needs at least 1 key"),
        ("{ops: {forbid: []}}", "needs at least 1 item"),
        ("{ops: {deny: [A]}}", "unknown key 'deny'"),
        ("{kernels: 0}", "must be at least 1"),
    ],
)
def test_limits_that_are_none(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(RecipeError) as caught:
        budget(tmp_path, text)
    assert told in caught.value.message
