"""Transforms of nodes, names, and constants give the same graphs as the original tool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.graph import attrs as attr
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Tensor
from tests.reference.conftest import Original
from tests.reference.networks import NETWORKS, cached_network
from tests.reference.original import differences, known_to_original, run_ours
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

# In larger graphs, long constants have other positions in the order.
HASHED_WHOLE = 1 << 23
LONG = 1 << 12
# Ops whose graphs the original's remove_nodes and remove_control_dependencies break.
SWITCHES = {"Switch", "Merge"}
BREAKING = ("remove_nodes", "remove_control_dependencies")
LEAST_MAXIMUM = np.finfo(np.float32).tiny


@pytest.mark.parametrize("name", PURPOSE_BUILT)
def test_purpose_built_graphs_are_equal(theirs: Original, name: str) -> None:
    assert not unequal(theirs, PURPOSE_BUILT[name])


@pytest.mark.parametrize("chain", RANDOM_CHAINS)
def test_random_graphs_are_equal(theirs: Original, chain: str) -> None:
    for seed in range(12):
        assert not unequal(theirs, random_case(seed, chain)), seed


def unequal(theirs: Original, case: Case) -> list[str]:
    mine = run_ours(known_to_original(case.graph), case.inputs, case.outputs, case.chain)
    return compared(mine, theirs(case.graph, case.chain, case.inputs, case.outputs), case.chain)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("path", MODELS)
def test_real_models_are_equal(theirs: Original, models: Path, path: str, chain: str) -> None:
    graph = known_to_original(read_graph(models / path))
    if any(name in chain for name in BREAKING) and any(n.op in SWITCHES for n in graph):
        pytest.skip(
            "the original breaks branches and loops; test_mended_faults.py checks their outputs"
        )
    assert not unequal_except_fixes(theirs, graph, chain, *MODELS[path])


@pytest.mark.parametrize("name", NETWORKS)
def test_keras_networks_are_equal(theirs: Original, name: str) -> None:
    network = cached_network(name)
    graph = known_to_original(read_graph(network.path))
    for chain in NETWORK_CHAINS:
        lines = unequal_except_fixes(theirs, graph, chain, network.input, network.output)
        assert not lines, chain


def unequal_except_fixes(
    theirs: Original, graph: Graph, chain: str, inputs: str, outputs: str
) -> list[str]:
    """List differences, except for deliberate fixes, which have their own tests."""
    mine = without_colocation(run_ours(graph, inputs, outputs, chain))
    original = without_colocation(theirs(graph, chain, inputs, outputs))
    whole = sum(n.attr_tensor("value").nbytes for n in graph if n.op == "Const") <= HASHED_WHOLE
    merged = "merge_duplicate_nodes" in chain and not whole
    if merged and "obfuscate_names" in chain:
        # Names depend on the order.
        return [] if len(mine) == len(original) else ["another number of nodes"]
    lines = compared(mine, with_fixed_ranges(original), chain, ordered=not merged)
    is_folded = "fold_constants" in chain
    if merged and not is_folded and not lines and order_of_short(mine) != order_of_short(original):
        lines.append("another order of nodes that are not long constants")
    return lines


def compared(mine: Graph, original: Graph, chain: str, *, ordered: bool = True) -> list[str]:
    """List differences; folded constants may differ in their last bits, and inputs in order."""
    if "fold_constants" in chain:
        return differences(mine, original, relative=1e-6, ordered=False)
    return differences(mine, original, ulp=0, ordered=ordered)


def order_of_short(graph: Graph) -> list[str]:
    if any(n.op == "Dequantize" for n in graph):
        return []  # sorted after it was merged
    return [n.name for n in graph if n.op != "Const" or n.attr_tensor("value").nbytes <= LONG]


def without_colocation(graph: Graph) -> Graph:
    """Only our colocation attributes follow when nodes are renamed, merged, or removed."""
    return graph.with_nodes(n.without_attrs("_class") for n in graph)


def with_fixed_ranges(graph: Graph) -> Graph:
    """Fix the ranges of all-zero constants, which become NaN in the original's graphs."""
    return graph.with_nodes(_with_fixed_range(n, graph) for n in graph)


def _with_fixed_range(node: Node, graph: Graph) -> Node:
    stem = node.name.removesuffix("_quantized_max")
    low = graph.get(f"{stem}_quantized_min")
    if stem == node.name or low is None:
        return node
    spans = [n.attr_tensor("value").array().item() for n in (low, node)]
    if spans != [0, LEAST_MAXIMUM]:
        return node
    return node.with_attrs(value=attr.tensor(Tensor.of(np.float32(1))))
