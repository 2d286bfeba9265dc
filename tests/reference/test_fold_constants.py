"""fold_constants gives the same graphs as the original tool."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mobileprep.errors import MobileprepError
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import without_dangling
from mobileprep.graph.refs import Ref
from tests.reference.golden import read_golden
from tests.reference.networks import NETWORKS, cached_network
from tests.reference.original import (
    OriginalError,
    differences,
    known_to_original,
    run_original,
    run_ours,
)
from tests.reference.real_graphs import GRAPHS
from tests.reference.small_graphs import FOLDED, REFUSED, SHAPES, Case

pytestmark = pytest.mark.reference

# The original approximates roots, exponentials, and logarithms, and orders inputs by a hash table.
RELATIVE = 1e-6
FOLD = "fold_constants"
CHAINS = [FOLD, "strip_unused_nodes fold_constants(ignore_errors=true)"]


def _importable(graph: Graph) -> Graph:
    """The original's graph without constraints on nodes that it removed."""
    return graph.with_nodes(without_dangling(graph, graph.by_name))


def _differences(
    original: Path, graph: Graph, inputs: str, outputs: str, chain: str, folder: Path
) -> list[str]:
    theirs = _importable(run_original(original, graph, inputs, outputs, chain, folder))
    ours = run_ours(known_to_original(graph), inputs, outputs, chain)
    return differences(ours, theirs, relative=RELATIVE, ordered=False)


@pytest.mark.parametrize("case", [*FOLDED.values(), *SHAPES.values()], ids=[*FOLDED, *SHAPES])
def test_small_graphs_are_equal(original: Path, case: Case, tmp_path: Path) -> None:
    theirs = run_original(original, case.graph, case.inputs, case.outputs, case.chain, tmp_path)
    ours = run_ours(case.graph, case.inputs, case.outputs, case.chain)
    assert differences(ours, theirs, relative=RELATIVE, ordered=False) == []


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_invalid_graphs_are_rejected(original: Path, case: Case, tmp_path: Path) -> None:
    with pytest.raises(OriginalError):
        run_original(original, case.graph, case.inputs, case.outputs, case.chain, tmp_path)
    with pytest.raises(MobileprepError) as caught:
        run_ours(case.graph, case.inputs, case.outputs, FOLD)
    assert caught.value.hint


def test_second_step_continues_the_numbering(original: Path, tmp_path: Path) -> None:
    case = SHAPES["sizes multiplied"]
    chain = "fold_constants(exclude_op=Mul) fold_constants"
    theirs = run_original(original, case.graph, case.inputs, case.outputs, chain, tmp_path)
    ours = run_ours(case.graph, case.inputs, case.outputs, chain)
    assert differences(ours, theirs, ordered=False) == []


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", NETWORKS)
def test_keras_networks_are_equal(original: Path, name: str, chain: str, tmp_path: Path) -> None:
    network = cached_network(name)
    graph = read_graph(network.path)
    assert _differences(original, graph, network.input, network.output, chain, tmp_path) == []


def test_parts_of_a_network_are_equal(original: Path, tmp_path: Path) -> None:
    network = cached_network("mobilenet")
    graph = read_graph(network.path)
    convolutions = [n.name for n in graph if n.op == "DepthwiseConv2dNative"]
    outputs = f"{convolutions[3]},{convolutions[1]}"
    assert _differences(original, graph, network.input, outputs, FOLD, tmp_path) == []
    inputs, outputs = convolutions[1], convolutions[5]
    assert _differences(original, graph, inputs, outputs, CHAINS[1], tmp_path) == []


FROZEN = [*GRAPHS, "made-qat-mnist-tf115/frozen_float_fusedbn.pb"]


@pytest.mark.parametrize("path", FROZEN)
def test_real_models_are_equal(original: Path, models: Path, path: str, tmp_path: Path) -> None:
    graph = read_graph(models / path)
    inputs, outputs = _ends(models / path, graph)
    assert _differences(original, graph, inputs, outputs, FOLD, tmp_path) == []


def _ends(path: Path, graph: Graph) -> tuple[str, str]:
    """The inputs and outputs of the recorded run, or else all ends of the graph."""
    recorded = path.with_name(f"golden_{path.stem}.npz")
    if recorded.exists():
        golden = read_golden(recorded)
        return ",".join(golden.feeds), ",".join(golden.outputs)
    inputs = [n.name for n in graph if n.op == "Placeholder"]
    silent = ("NoOp", "Const", "Assert")
    outputs = [n.name for n in graph if n.name not in graph.consumers and n.op not in silent]
    return ",".join(inputs), ",".join(outputs)


# Bugs of the original that are fixed here.


def test_only_the_original_keeps_dangling_constraints(
    original: Path, models: Path, tmp_path: Path
) -> None:
    graph = read_graph(models / "mtcnn/mtcnn.pb")
    inputs, outputs = _ends(models / "mtcnn/mtcnn.pb", graph)
    theirs = run_original(original, graph, inputs, outputs, FOLD, tmp_path)
    ours = run_ours(known_to_original(graph), inputs, outputs, FOLD)
    assert differences(_importable(theirs), theirs) != []
    assert differences(_importable(ours), ours) == []


def test_only_the_original_copies_constants(original: Path, tmp_path: Path) -> None:
    graph = FOLDED["a copy of a constant"].graph
    more = replace(graph["out"], name="more", inputs=(Ref("c"), Ref("x")))
    graph = graph.with_nodes([*graph, more])
    theirs = run_original(original, graph, "x", "out,more", FOLD, tmp_path)
    ours = run_ours(graph, "x", "out,more", FOLD, tf115=False)
    assert [n.op for n in theirs].count("Const") == 2
    assert [n.op for n in ours].count("Const") == 1


def test_only_the_original_skips_a_constant_output(original: Path, tmp_path: Path) -> None:
    graph = FOLDED["a chain"].graph
    theirs = run_original(original, graph, "x", "f", FOLD, tmp_path)
    ours = run_ours(graph, "x", "f", FOLD, tf115=False)
    assert theirs["f"].op == "Add"
    assert ours["f"].op == "Const"
