"""Candidate models side by side."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from mobileprep import LabeledSamples, choose
from mobileprep.building.stages.candidate.run import counted_candidate
from mobileprep.building.stages.candidate.spec import Candidate
from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.inspection.costs import CountedRun
from mobileprep.runtime.accounting.costs import GraphCosts, NodeCost
from mobileprep.targets.op_classes import ClassRate
from mobileprep.targets.targets import Device, likely_seconds
from mobileprep.transforms.rewriting.clipping import eightbit_constant
from tests.freezing.graphs import const, node, placeholder, ref_variable
from tests.transforms.graphs import normal

WEIGHTS = normal(4, 2048)
PI = "raspberry-pi-3"


def product(weights: Node, name: str = "w", dtype: DType = DType.FLOAT) -> list[Node]:
    """A product of rows of 4 with weights of 4 by 2,048."""
    x = placeholder("x", -1, 4, dtype=dtype)
    whole = node("y", "MatMul", "x", name, T=dtype, transpose_a=False, transpose_b=False)
    return [x, weights, whole]


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("trained.pb"), Graph(product(const("w", WEIGHTS))))
    variable, read = ref_variable("w", 4, 2048)
    nodes = product(variable, "w/read")
    write_graph(Path("untrained.pb"), Graph([*nodes[:2], read, nodes[2]]))


def only(*models: str, **options: object) -> Candidate:
    (candidate,) = choose(models, **options).candidates  # type: ignore[arg-type]
    return candidate


def test_numbers_of_a_trained_model() -> None:
    candidate = only("trained.pb", device=PI)
    assert (candidate.reason, candidate.parameters, candidate.flops) == ("", 8192, 2 * 4 * 2048)
    # The 8-bit constant, and the two floats of its range.
    assert (candidate.float_bytes, candidate.eightbit_bytes) == (32768, 8192 + 8)
    # The parsed graph, the weights, the input in a buffer of 64 bytes, and the output.
    assert candidate.ram_bytes == Path("trained.pb").stat().st_size + 32768 + 64 + 8192
    assert candidate.best_seconds == 16384 / 5e9
    assert candidate.likely_seconds == (16384 / 5e9, 16384 / 2.5e9)
    assert candidate.lacks == ()


def test_trained_weights_are_compressed() -> None:
    quantized = eightbit_constant(WEIGHTS)
    assert quantized is not None
    packer = zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)
    expected = len(packer.compress(quantized.values.tobytes()) + packer.flush())
    low, high = only("trained.pb").compressed_bytes
    assert low == high
    # The stage `compress` ends each block with a few bytes more.
    assert expected <= low <= expected + 8


def test_untrained_model_has_sizes_and_a_range() -> None:
    trained, candidate = only("trained.pb"), only("untrained.pb")
    assert candidate.parameters == trained.parameters
    assert candidate.float_bytes == trained.float_bytes
    assert candidate.eightbit_bytes == trained.eightbit_bytes
    assert candidate.flops == trained.flops
    # The nodes have other names.
    assert abs(candidate.ram_bytes - trained.ram_bytes) < 100
    assert candidate.compressed_bytes == (3280, 7790)
    assert candidate.notes[-1] == "not frozen: sizes are those of the variables' shapes"
    assert "compressed without weights: 40% to 95% of the 8-bit size" in candidate.assumptions


def test_double_weights_count_as_float() -> None:
    weights = const("w", WEIGHTS.astype(np.float64))
    write_graph(Path("double.pb"), Graph(product(weights, dtype=DType.DOUBLE)))
    candidate = only("double.pb")
    assert (candidate.float_bytes, candidate.eightbit_bytes) == (32768, 8200)
    assert candidate.ram_bytes == Path("double.pb").stat().st_size + 65536 + 64 + 16384
    assert candidate.compressed_bytes == only("trained.pb").compressed_bytes


def test_uncounted_model_has_a_reason() -> None:
    Path("notes.txt").write_text("not a model\n")
    result = choose(["trained.pb", "missing.pb", "notes.txt"])
    reasons = [candidate.reason for candidate in result.candidates]
    assert reasons[:2] == ["", "does not exist"]
    assert reasons[2]
    assert result.candidates[1] == Candidate("missing.pb", "does not exist")


def test_unknown_operations_are_named() -> None:
    nodes = product(const("w", WEIGHTS))
    write_graph(Path("odd.pb"), Graph([*nodes, node("z", "Custom", "y")]))
    candidate = only("odd.pb")
    assert (candidate.flops, candidate.uncounted) == (16384, ("Custom",))
    assert candidate.notes == (
        "operations not known of: Custom; give the input shapes if they are open",
    )


def test_runtimes_lack_ops() -> None:
    nodes = product(const("w", WEIGHTS))
    write_graph(Path("odd.pb"), Graph([*nodes, node("z", "Erfinv", "y", T=DType.FLOAT)]))
    assert only("odd.pb").lacks == ("Erfinv (newer op)",)
    assert only("odd.pb", runtime="litert").lacks == ("Erfinv",)
    assert only("trained.pb", runtime="litert").lacks == ()


def test_peak_rates_are_not_reached() -> None:
    candidate = only("trained.pb", device="raspberry-pi-3-peak")
    assert candidate.best_seconds is not None
    low, high = candidate.likely_seconds
    assert low == pytest.approx(candidate.best_seconds / 0.3)
    assert high == pytest.approx(candidate.best_seconds / 0.1)
    assert "likely: 10% to 30% of a peak rate, which float convolutions usually reach" in (
        candidate.assumptions
    )


def test_own_profile_has_a_wide_range() -> None:
    board = "title: a board\ngflops: 2\nsource: its manual\n"
    Path("board.yaml").write_text(board)
    candidate = only("trained.pb", device="board.yaml")
    assert candidate.likely_seconds == (16384 / 2e9, pytest.approx(16384 / 2e8))
    Path("reached.yaml").write_text(f"{board}peak: false\n")
    assert only("trained.pb", device="reached.yaml").likely_seconds == (16384 / 2e9, 16384 / 1e9)


@pytest.mark.parametrize(
    ("error", "low", "high"), [(0.12, 0.44, 0.56), (None, 0.25, 0.75), (3.0, 0.0, 1.0)]
)
def test_fitted_profiles_give_an_estimate(error: float | None, low: float, high: float) -> None:
    rates = (ClassRate("product", 2.0),)
    device = Device("board", "a board", 1.0, "its log", error=error, rates=rates)
    costs = GraphCosts((NodeCost("y", "MatMul", 10**9, 0, 0),), 0, 0, 0)
    likely = likely_seconds(device, costs)
    assert (likely.low, likely.high) == pytest.approx((low, high))
    run = CountedRun(Graph([]), GraphCosts((), 0, 0, 0))
    candidate = counted_candidate("m", run, device, ram_bytes=None)
    assert candidate.best_seconds is None
    assert candidate.assumptions[0].startswith("likely on a board: ")


def test_metric_on_labeled_samples() -> None:
    x = normal(10, 4, seed=1)
    classes = np.argmax(x @ WEIGHTS, axis=1)
    classes[0] += 1  # one sample of ten is wrong
    np.savez("test.npz", x=x, label=classes)
    result = choose(["trained.pb", "untrained.pb"], data=LabeledSamples("test.npz"))
    assert result.metric == "top1"
    assert [candidate.metric for candidate in result.candidates] == [0.9, None]
    assert result.candidates[1].notes[-1] == "no top1: the variables have no values"
    first = LabeledSamples("test.npz", samples=1)
    assert only("trained.pb", data=first).metric == 0


def test_labels_in_a_file_and_a_failed_metric() -> None:
    x = normal(3, 4, seed=1)
    np.save("x.npy", x)
    np.save("labels.npy", np.argmax(x @ WEIGHTS, axis=1))
    assert only("trained.pb", data=LabeledSamples("x.npy", "labels.npy")).metric == 1
    candidate = only("trained.pb", data=LabeledSamples("missing.npz"))
    assert candidate.metric is None
    assert candidate.notes[-1].startswith("no top1: ")


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="no models are named"):
        choose([])
    with pytest.raises(UsageError, match="'agreement' is not a metric of labels"):
        choose(["trained.pb"], data=LabeledSamples("test.npz", metric="agreement"))
    with pytest.raises(UnsupportedError, match="unknown platform 'pi'"):
        choose(["trained.pb"], platform="pi")
    with pytest.raises(UsageError, match="unknown device"):
        choose(["trained.pb"], device="tv")


def test_untrained_shape_takes_no_memory() -> None:
    variable, read = ref_variable("w", 4, 1 << 40)
    nodes = product(variable, "w/read")
    write_graph(Path("huge.pb"), Graph([*nodes[:2], read, nodes[2]]))
    assert only("huge.pb").float_bytes == 16 << 40
