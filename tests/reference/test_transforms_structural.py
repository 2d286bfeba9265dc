"""The transforms that change nodes, names and constants, against the original tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.graph import attrs as attr
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.steps import parse_transforms_flag
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, run_chain
from tests.reference.networks import NETWORKS, network
from tests.reference.original import differences, known_to_original, run_original
from tests.reference.structural_cases import (
    CHAINS,
    NETWORK_CHAINS,
    PURPOSE_BUILT,
    RANDOM_CHAINS,
    Case,
    random_case,
)
from tests.reference.test_transforms_pattern import MODELS

pytestmark = pytest.mark.reference

Original = Callable[[Graph, str, str, str], Graph]

# Where a graph holds more than this, long constants have another place in the order.
HASHED_WHOLE = 1 << 23
LONG = 1 << 12
# What marks the graphs that remove_nodes and remove_control_dependencies must not take apart.
SWITCHES = {"Switch", "Merge"}
TAKING_APART = ("remove_nodes", "remove_control_dependencies")
LEAST_MAXIMUM = np.finfo(np.float32).tiny


@pytest.fixture
def theirs(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Original:
    def run(graph: Graph, chain: str, inputs: str, outputs: str) -> Graph:
        # A folder of its own: what was read before stays mapped.
        folder = tmp_path_factory.mktemp("original")
        return run_original(original, graph, inputs, outputs, chain, folder)

    return run


def ours(graph: Graph, chain: str, inputs: str, outputs: str, *, tf115: bool = True) -> Graph:
    parsed, _ = parse_transforms_flag(chain)
    steps = [ChainStep(s.name, s.options, s.ignore_errors) for s in parsed]
    context = Context(tuple(inputs.split(",")), tuple(outputs.split(",")), tf115=tf115)
    return run_chain(known_to_original(graph), steps, context)[0]


@pytest.mark.parametrize("name", PURPOSE_BUILT)
def test_purpose_built_graphs_come_out_equal(theirs: Original, name: str) -> None:
    assert not unequal(theirs, PURPOSE_BUILT[name])


@pytest.mark.parametrize("chain", RANDOM_CHAINS)
def test_random_graphs_come_out_equal(theirs: Original, chain: str) -> None:
    for seed in range(12):
        assert not unequal(theirs, random_case(seed, chain)), seed


def unequal(theirs: Original, case: Case) -> list[str]:
    asked = (case.graph, case.chain, case.inputs, case.outputs)
    return compared(ours(*asked), theirs(*asked), case.chain)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("path", MODELS)
def test_real_models_come_out_equal(theirs: Original, models: Path, path: str, chain: str) -> None:
    graph = known_to_original(read_graph(models / path))
    if any(name in chain for name in TAKING_APART) and any(n.op in SWITCHES for n in graph):
        pytest.skip("the original takes branches and loops apart; see the test of their meaning")
    assert not unequal_but_for_mended(theirs, graph, chain, *MODELS[path])


@pytest.mark.parametrize("name", NETWORKS)
def test_keras_networks_come_out_equal(
    theirs: Original, tf: ModuleType, pytestconfig: pytest.Config, name: str
) -> None:
    folder = pytestconfig.cache.mkdir("networks")  # type: ignore[union-attr]
    found = network(tf, folder, name)
    graph = known_to_original(read_graph(found.path))
    for chain in NETWORK_CHAINS:
        unlike = unequal_but_for_mended(theirs, graph, chain, found.input, found.output)
        assert not unlike, chain


def unequal_but_for_mended(
    theirs: Original, graph: Graph, chain: str, inputs: str, outputs: str
) -> list[str]:
    """Differences, but for what is mended on purpose, each with a test of its own."""
    mine = without_colocation(ours(graph, chain, inputs, outputs))
    original = without_colocation(theirs(graph, chain, inputs, outputs))
    whole = sum(n.attr_tensor("value").nbytes for n in graph if n.op == "Const") <= HASHED_WHOLE
    merged = "merge_duplicate_nodes" in chain and not whole
    if merged and "obfuscate_names" in chain:
        # Numbers are given by the order.
        return [] if len(mine) == len(original) else ["another number of nodes"]
    found = compared(mine, with_mended_ranges(original), chain, ordered=not merged)
    is_folded = "fold_constants" in chain
    if merged and not is_folded and not found and order_of_short(mine) != order_of_short(original):
        found.append("another order of nodes that are no long constants")
    return found


def compared(mine: Graph, original: Graph, chain: str, *, ordered: bool = True) -> list[str]:
    """Differences; folded constants may differ in their last bits, and inputs in their order."""
    if "fold_constants" in chain:
        return differences(mine, original, relative=1e-6, ordered=False)
    return differences(mine, original, ulp=0, ordered=ordered)


def order_of_short(graph: Graph) -> list[str]:
    if any(n.op == "Dequantize" for n in graph):
        return []  # sorted after it was merged
    return [n.name for n in graph if n.op != "Const" or n.attr_tensor("value").nbytes <= LONG]


def without_colocation(graph: Graph) -> Graph:
    """Names of colocated nodes follow renaming, merging and removal here, and there they do not."""
    return graph.with_nodes(n.without_attrs("_class") for n in graph)


def with_mended_ranges(graph: Graph) -> Graph:
    """Ranges of constants of zeros, from which the original's graph makes NaN."""
    return graph.with_nodes(_mended(n, graph) for n in graph)


def _mended(node: Node, graph: Graph) -> Node:
    stem = node.name.removesuffix("_quantized_max")
    low = graph.get(f"{stem}_quantized_min")
    if stem == node.name or low is None:
        return node
    spans = [n.attr_tensor("value").array().item() for n in (low, node)]
    if spans != [0, LEAST_MAXIMUM]:
        return node
    return node.with_attrs(value=attr.tensor(Tensor.of(np.float32(1))))
