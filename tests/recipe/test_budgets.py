"""Budgets of targets and the memory limit of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import RecipeError
from mobileprep.recipe.load import load_recipe
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
    counted = budget(tmp_path, "{parameters: 1e3, kernels: 40.0}")
    assert repr((counted.parameters, counted.kernels)) == "(1000, 40)"


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_invalid_limits_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        budget(tmp_path, text)
    assert message in caught.value.message


def test_memory_limit_of_runs(tmp_path: Path) -> None:
    def memory(line: str) -> int | None:
        text = f"version: 1\nname: r\n{line}source: {{frozen: m.pb}}\ntargets: {{a: {{}}}}\n"
        (tmp_path / "r.yaml").write_text(text)
        return load_recipe(tmp_path / "r.yaml", environ={}).memory

    assert memory("") is None
    assert memory("memory: 4 GB\n") == 4 * 10**9
    assert memory("memory: 1000\n") == 1000
    for value, message in (
        ("much", "'much' is not a size; write a number with B, KB, MB"),
        ("0 MB", "must be at least one byte"),
        ("0", "must be at least 1"),
        ("[1]", "expected a whole number"),
    ):
        with pytest.raises(RecipeError) as caught:
            memory(f"memory: {value}\n")
        assert message in caught.value.message
