"""Pattern transforms keep the outputs of graphs in TensorFlow."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.tensor import Array
from tests.reference.conftest import Original
from tests.reference.golden import read_golden
from tests.reference.networks import NETWORKS, cached_network
from tests.reference.newest import run_newest
from tests.reference.original import OriginalError, known_to_original
from tests.reference.pattern_cases import (
    LAYER,
    MIRROR,
    MIRROR_RESIZED,
    NETWORK,
    OUT,
    PADDINGS,
    RESIZE,
    SIZE,
    W,
    atrous,
    batch_to_space,
    branches,
    concat,
    fused,
    stats,
)
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder

pytestmark = pytest.mark.reference

Run = Callable[..., list[Array]]
IMAGE = (4, 6, 6, 4)
NORMAL = [W, LAYER, *stats(), fused("norm", "layer")]


@pytest.fixture
def run(tf: ModuleType) -> Run:
    """Run a graph in TensorFlow: ``run(graph, feeds, fetches)``."""
    return lambda graph, feeds, fetches: run_newest(tf, graph, fetches, feeds)


def graph(*nodes: Any) -> Graph:
    return Graph([placeholder(), *nodes])


SAME: dict[str, tuple[str, Graph]] = {
    "fold_old_batch_norms": ("fold_old_batch_norms", graph(*NORMAL, OUT)),
    "BatchToSpaceND": ("fold_old_batch_norms", graph(*batch_to_space([W, LAYER, *stats()]))),
    "one input": ("fold_old_batch_norms", graph(*branches(3))),
    "flatten_atrous_conv": ("flatten_atrous_conv", graph(*atrous([[2, 2], [2, 2]]))),
    "flatten_atrous_conv, VALID": ("flatten_atrous_conv", graph(*atrous([[0, 0], [0, 0]]))),
    "fuse_pad_and_conv": ("fuse_pad_and_conv", graph(PADDINGS, MIRROR, W, conv("out", "pad w"))),
    "fuse_resize_and_conv": (
        "fuse_resize_and_conv",
        graph(SIZE, RESIZE, W, conv("out", "resize w")),
    ),
    "fuse_resize_pad_and_conv": (
        "fuse_resize_pad_and_conv",
        graph(SIZE, PADDINGS, RESIZE, MIRROR_RESIZED, W, conv("out", "pad w")),
    ),
    "fuse_batch_norms": (
        "fuse_batch_norms",
        graph(*NORMAL, OUT),
    ),
}  # fmt: skip


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("case", SAME)
def test_outputs_are_preserved(run: Run, case: str, tf115: bool) -> None:
    name, before = SAME[case]
    result = apply(name, before, tf115=tf115)
    assert result.matched
    # TensorFlow's kernels of the fused ops are wrong after the first image of a batch.
    batch = 1 if "_and_conv" in name else IMAGE[0]
    feeds = {"x": normal(batch, *IMAGE[1:], seed=7)}
    (expected,), (output,) = (run(g, feeds, ["out"]) for g in (before, result.graph))
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("step", ["fuse_batch_norms", "merge_scale_and_bias"])
def test_outputs_of_keras_networks_are_preserved(run: Run, step: str, name: str) -> None:
    network = cached_network(name)
    before = read_graph(network.path)
    result = apply(step, before, inputs=(network.input,), outputs=(network.output,))
    assert result.matched
    x = np.random.default_rng(0).random(network.shape, dtype=np.float32)
    (expected,), (output,) = (
        run(g, {network.input: x}, [network.output]) for g in (before, result.graph)
    )
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"fallback_min": -80.0, "fallback_max": 80.0}, {"ignore_op": ("MatMul",)}],
    ids=["measured", "fallback", "ignored ops"],
)
def test_8_bit_outputs_are_close(run: Run, options: dict[str, Any], tf115: bool) -> None:
    before = graph(*NETWORK)
    result = apply("quantize_nodes", before, tf115=tf115, **options)
    feeds = {"x": normal(1, 6, 6, 4, seed=7)}
    (expected,), (output,) = (run(g, feeds, ["dense"]) for g in (before, result.graph))
    # Five 8-bit layers, and steps of 160 / 255 with the fallback range.
    assert np.abs(output - expected).max() < 0.06 * np.abs(expected).max()


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("name", ["frozen_eval_graph", "frozen_float_fusedbn"])
def test_8_bit_outputs_of_a_trained_model_are_close(
    run: Run, models: Path, name: str, tf115: bool
) -> None:
    folder = models / "made-qat-mnist-tf115"
    before = read_graph(folder / f"{name}.pb")
    golden = np.load(folder / f"golden_{name}.npz")
    small = apply("quantize_weights", before, inputs=("input",), outputs=("output",))
    result = apply(
        "quantize_nodes", small.graph, inputs=("input",), outputs=("output",), tf115=tf115
    )
    (output,) = run(result.graph, {"input": golden["in:input"]}, ["output"])
    expected = golden["out:output"]
    assert (output.argmax(-1) == expected.argmax(-1)).all()
    assert np.abs(output - expected).max() < 0.05


@pytest.mark.parametrize(
    ("path", "name"),
    [("mtcnn/mtcnn.pb", "mtcnn"), ("android-wakeword-streaming-rnn/graph.pb", "graph")],
)
def test_backported_tensor_arrays_run(
    run: Run, theirs: Original, models: Path, path: str, name: str
) -> None:
    feeds, outputs = read_golden(models / path.split("/")[0] / f"golden_{name}.npz")
    before = known_to_original(read_graph(models / path))
    after = apply("backport_tensor_array_v3", before, inputs=tuple(feeds), outputs=tuple(outputs))
    results = run(_with_old_version(after.graph), feeds, list(outputs))
    for answer, expected in zip(results, outputs.values(), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)
    call = "backport_tensor_array_v3"
    from_original = theirs(before, call, ",".join(feeds), ",".join(outputs))
    with pytest.raises(ValueError, match="incompatible with expected resource"):
        run(_with_old_version(from_original), feeds, list(outputs))


def _with_old_version(graph: Graph) -> Graph:
    """Set a version from before version 2 of the TensorArray ops was removed."""
    return Graph(graph.nodes, graph.library, Versions(21, 0))


# Graphs that the original corrupts, or on which it hangs.

NCHW = {"data_format": "NCHW"}
SQUARE = const("w", normal(4, 4))
CORRUPTED: dict[str, tuple[str, list[Any], tuple[int, ...]]] = {
    "convolution used elsewhere": (
        "fold_old_batch_norms",
        [*NORMAL, node("r", "Relu", "layer"),
         node("out", "Add", "norm r")],
        IMAGE,
    ),
    "weights used elsewhere": (
        "fold_old_batch_norms",
        [*NORMAL, conv("y", "x w"), node("out", "Add", "norm y")],
        IMAGE,
    ),
    "batch mean used": (
        "fold_old_batch_norms",
        [*NORMAL, node("out", "Add", "norm norm:1")],
        IMAGE,
    ),
    "one input for both": (
        "fold_old_batch_norms",
        [n if n.name != "layer1" else conv("layer1", "x w1") for n in concat(3, 3, 7, 10)],
        IMAGE,
    ),
    "transposed weights": (
        "fold_batch_norms",
        [SQUARE, node("layer", "MatMul", "x w", transpose_b=True), const("f", normal(4)),
         node("out", "Mul", "layer f")],
        (3, 4),
    ),
    "VALID": ("flatten_atrous_conv", atrous([[0, 0], [0, 0]]), IMAGE),
    "half_pixel_centers": (
        "fuse_resize_and_conv",
        [SIZE, node("resize", "ResizeBilinear", "x size", half_pixel_centers=True,
                    align_corners=False), W, conv("out", "resize w")],
        IMAGE,
    ),
    "dilations": (
        "quantize_nodes",
        [W, conv("layer", "x w", dilations=(1, 2, 2, 1)), node("out", "Relu", "layer")],
        IMAGE,
    ),
    "sigmoid before a trained range": (
        "quantize_nodes",
        [W, LAYER, node("s", "Sigmoid", "layer"), const("low", 0.0), const("high", 1.0),
         node("out", "FakeQuantWithMinMaxVars", "s low high", T=None)],
        IMAGE,
    ),
    "control input": (
        "quantize_nodes",
        [W, LAYER, node("wait", "NoOp", T=None), node("out", "Relu", "layer ^wait")],
        IMAGE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CORRUPTED)
def test_graphs_that_only_the_original_corrupts(run: Run, theirs: Original, case: str) -> None:
    name, nodes, shape = CORRUPTED[case]
    before = graph(*nodes)
    feeds = {"x": normal(*shape, seed=7)}
    (expected,) = run(before, feeds, ["out"])
    tolerance = 0.1 * np.abs(expected).max() if name == "quantize_nodes" else 1e-3
    (output,) = run(apply(name, before, tf115=True).graph, feeds, ["out"])
    np.testing.assert_allclose(output, expected, rtol=0, atol=tolerance)
    assert not _agrees(run, theirs(before, name), feeds, expected, tolerance)


def _agrees(
    run: Run, graph: Graph, feeds: Mapping[str, Array], expected: Array, tolerance: float
) -> bool:
    try:
        (output,) = run(graph, feeds, ["out"])
    except Exception:  # noqa: BLE001 - TensorFlow raises many types for an invalid graph
        return False
    return output.shape == expected.shape and bool(np.abs(output - expected).max() <= tolerance)


def test_only_the_original_hangs_on_shared_statistics(original: Path, tmp_path: Path) -> None:
    before = graph(*NORMAL, node("out", "Mul", "norm gamma"))
    source = tmp_path / "in.pb"
    write_graph(source, known_to_original(before))
    command = [str(original / "transform_graph"), f"--in_graph={source}", "--inputs=x",
               f"--out_graph={tmp_path / 'out.pb'}", "--outputs=out",
               "--transforms=fold_old_batch_norms"]  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=5, check=False)
    assert apply("fold_old_batch_norms", before, tf115=True).matched == 1


FAILS: dict[str, tuple[str, list[Any]]] = {
    "factors of Keras": (
        "fold_batch_norms",
        [W, LAYER, const("f", normal(1, 1, 1, 5)), node("out", "Mul", "layer f")],
    ),
    "axis -1": ("fold_old_batch_norms", concat(-1, 5, 5, 10)),
    "one tensor twice": ("quantize_nodes", [W, LAYER, node("out", "Mul", "layer layer")]),
    "filter that is fed": (
        "flatten_atrous_conv",
        [n if n.name != "w" else placeholder("w") for n in atrous([[2, 2], [2, 2]])],
    ),
}


@pytest.mark.parametrize("case", FAILS)
def test_tf115_mode_fails_like_the_original(theirs: Original, case: str) -> None:
    name, nodes = FAILS[case]
    before = graph(*nodes)
    with pytest.raises(OriginalError):
        theirs(before, name)
    with pytest.raises(Exception, match=name):
        apply(name, before, tf115=True)
    assert apply(name, before).graph is not None


@pytest.mark.parametrize("options", ["input_min=3 input_max=1", "fallback_min=1 fallback_max=2"])
def test_original_graph_with_an_empty_range_fails(run: Run, theirs: Original, options: str) -> None:
    before = graph(*NETWORK)
    broken = theirs(before, f"quantize_nodes({options})")
    kind = np.uint8 if "input" in options else np.float32
    feeds = {"x": np.zeros((1, 6, 6, 4), kind)}
    assert not _agrees(run, broken, feeds, np.zeros((1, 3)), np.inf)
