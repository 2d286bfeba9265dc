"""A network whose channels were rescaled by powers of two: the same in float, lost in 8 bits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions
from mobileprep.freezing.source import load_source
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, run_chain
from mobileprep.transforms.equalize_ranges import apply_scales
from mobileprep.transforms.rewriting.channel_scales import find_scales

RECIPE = Path(__file__).resolve().parents[4] / "recipes" / "digits"
CONTEXT = Context(("image",), ("probabilities",))


@cache
def digits() -> Graph:
    """The network of the digits recipe, its batch normalizations fused."""
    model = RECIPE / "model"
    source = load_source(graph=model / "graph.pbtxt", checkpoint=model / "model.ckpt-1000")
    frozen = freeze(source, FreezeOptions(("probabilities",))).graph
    steps = [ChainStep("strip_unused_nodes"), ChainStep("remove_no_ops")]
    steps += [ChainStep("fold_constants"), ChainStep("fuse_batch_norms")]
    return run_chain(frozen, steps, CONTEXT)[0]


def rescaled(seed: int) -> Graph:
    """The network with each channel divided by a random power of two, from 1/64 to 64."""
    graph = digits()
    scales = find_scales(graph, CONTEXT.protected)
    roots = scales.variables.roots()
    random = np.random.default_rng(seed).integers(-6, 7, len(roots) + 1).astype(float)
    return apply_scales(graph, scales, np.where(roots < 0, 0, random[roots]), CONTEXT.protected)


def accuracy(graph: Graph) -> float:
    with np.load(RECIPE / "data" / "test.npz") as data:
        images, labels = data["image"], data["label"]
    found = Interpreter(graph).run(["probabilities"], {"image": images})[0]
    return float((found.argmax(axis=-1) == labels).mean())


def changed(graph: Graph, name: str, **options) -> Graph:
    return run_chain(graph, [ChainStep(name, options)], CONTEXT)[0]


@pytest.mark.parametrize("seed", range(3))
def test_it_collapses_without_repair_and_is_within_a_point_with_it(seed):
    graph = rescaled(seed)
    exact = accuracy(digits())
    assert accuracy(graph) == exact
    stored = changed(graph, "quantize_weights", minimum_size=16)
    repaired = changed(changed(graph, "equalize_ranges"), "quantize_weights", minimum_size=16)
    assert accuracy(stored) < exact - 0.1
    assert accuracy(repaired) >= exact - 0.01
