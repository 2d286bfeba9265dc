"""``docs/quantization.md``: its chains of repairing and of smaller weights keep the digits."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions
from mobileprep.freezing.source import load_source
from mobileprep.transforms.chains.chain import ChainStep, run_chain
from tests.transforms.rewriting.channel_scales.test_rescaled_networks import (
    CONTEXT,
    RECIPE,
    accuracy,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "quantization.md"
SECTIONS = ("Repair", "Smaller weights")


def chains() -> list[list[ChainStep]]:
    text = PAGE.read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    chain = re.compile(r"```yaml\n(transforms:\n.*?)```", re.DOTALL)
    found = [block for section in SECTIONS for block in chain.findall(parts[section])]
    return [[_step(entry) for entry in yaml.safe_load(block)["transforms"]] for block in found]


def _step(entry) -> ChainStep:
    if isinstance(entry, str):
        return ChainStep(entry)
    ((name, options),) = entry.items()
    return ChainStep(name, options)


@pytest.mark.parametrize("steps", chains(), ids=lambda steps: steps[-1].name)
def test_a_chain_of_the_page_keeps_the_digits(steps, tmp_path, monkeypatch):
    shutil.copytree(RECIPE / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    model = RECIPE / "model"
    source = load_source(graph=model / "graph.pbtxt", checkpoint=model / "model.ckpt-1000")
    frozen = freeze(source, FreezeOptions(("probabilities",))).graph
    before = run_chain(frozen, steps[:4], CONTEXT)[0]
    after, _ = run_chain(before, steps[4:], CONTEXT)
    assert after is not before
    # Of 450 digits: a change of four bits and a change of chance.
    assert accuracy(after) >= accuracy(before) - 0.01
