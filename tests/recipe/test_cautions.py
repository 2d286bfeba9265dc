"""Warnings about transform chains before the graph is read."""

from __future__ import annotations

import pytest

from mobileprep.cli._shared.folders import recipe_cautions
from mobileprep.recipe.load import load_recipe

HEAD = "version: 1\nname: x\nsource: {frozen: m.pb}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "transforms: [quantize_nodes, fold_batch_norms]\ntargets: {a: {}, b: {}}\n",
            "recipe.yaml:4:30: fold_batch_norms after quantize_nodes: ",
        ),
        (
            "transforms: 'quantize_weights round_weights quantize_weights'\ntargets: {a: {}}\n",
            "recipe.yaml:4:45: quantize_weights a second time: ",
        ),
        (
            "transforms: [quantize_weights]\ntargets:\n  a: {}\n  b: {quantize: weights}\n",
            "recipe.yaml:7:17: quantize_weights a second time: ",
        ),
        (
            "transforms: 'round_weights (num_steps=5)'\ntargets: {a: {}, b: {}}\n",
            "recipe.yaml:4:14: white space before '(', which the original tool refuses",
        ),
    ],
)
def test_known_pitfall_is_reported_once_at_its_location(write, text, message):
    (caution,) = recipe_cautions(load_recipe(write(HEAD + text)))
    assert caution.startswith(message)


@pytest.mark.parametrize(
    "chain",
    [
        "fold_batch_norms quantize_weights quantize_nodes",
        "fold_batch_norms fold_batch_norms round_weights round_weights",
    ],
)
def test_valid_chain_has_no_warnings(write, chain):
    path = write(HEAD + f"transforms: '{chain}'\ntargets: {{a: {{}}, b: {{}}}}\n")
    assert recipe_cautions(load_recipe(path)) == ()
