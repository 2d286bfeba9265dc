"""A network with rescaled channels loses its accuracy in eight bits; repair brings it back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep import Graph, build, load_graph, run, save_graph
from mobileprep.transforms.equalize_ranges import apply_scales
from mobileprep.transforms.rewriting.channel_scales import find_scales

MNIST = Path(__file__).resolve().parents[2] / "recipes" / "mnist"
DATA = MNIST / "data"
TENSOR = "rules: [{mode: nodes, ops: [Conv2D, MatMul], granularity: tensor}]"
REPAIR = "repair: [fuse_batch_norms, equalize_ranges]"
QUANTIZE = {
    "float": "none",
    "weights": "weights",
    "tensor": f"{{mode: nodes, ranges: observed, {TENSOR}}}",
    "chosen": "{mode: nodes, ranges: observed}",
    "weights_repaired": "weights",
    "tensor_repaired": f"{{mode: nodes, ranges: observed, {TENSOR}, {REPAIR}}}",
    "chosen_repaired": f"{{mode: nodes, ranges: observed, {REPAIR}}}",
}
RECIPE = f"""\
version: 1
name: rescaled
source: {{frozen: rescaled.pb}}
inputs: {{image: {{shape: [-1, 28, 28, 1]}}}}
outputs: [probabilities]
calibration: {{data: {DATA / "calibration.npz"}, method: min_max}}
validation: {{data: {DATA / "test.npz"}, labels: label, max_drop: 1}}
targets:
"""


@pytest.fixture(scope="module")
def top1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The accuracy of each target, the source's under an empty name."""
    folder = tmp_path_factory.mktemp("rescaled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
        built = build(MNIST / "recipe.yaml", folder / "out", targets=["float"], warn=quiet).targets[
            0
        ]
        rescale(built.folder / "mnist.pb", folder / "rescaled.pb")
        recipe = folder / "recipe.yaml"
        repair = ", then: [fuse_batch_norms, equalize_ranges]"
        lines = [
            f"  {name}: {{quantize: {mode}{repair if name == 'weights_repaired' else ''}}}\n"
            for name, mode in QUANTIZE.items()
        ]
        recipe.write_text(RECIPE + "".join(lines))
        found = {}
        for target in build(recipe, folder / "out", warn=quiet).targets:
            assert target.report.accuracy is not None
            (metric,) = target.report.accuracy.metrics
            found[target.report.target] = metric.after
            found[""] = metric.before
        return found


def quiet(_: str) -> None:
    """Warnings are of other things."""


def rescale(path: Path, to: Path) -> None:
    """Divide channels by powers of two up to 64, drawn at random; the function stays."""
    graph = load_graph(path)
    protected = {"image", "probabilities"}
    scales = find_scales(graph, protected)
    roots = scales.variables.roots()
    drawn = np.random.default_rng(7).integers(-6, 7, len(roots)).astype(np.float64)
    exponents = np.where(roots < 0, 0.0, drawn[roots])
    assert np.count_nonzero(exponents) > 100
    rescaled = apply_scales(graph, scales, exponents, protected)
    save_graph(rescaled, to)
    with np.load(DATA / "test.npz") as test:
        fed = {"image": test["image"][:50]}
    before, after = (one_by_one(g, fed)["probabilities"] for g in (graph, rescaled))
    np.testing.assert_array_equal(before, after)


def one_by_one(graph: Graph, fed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values of all nodes: what is fetched is not fused with what reads it.

    Layers that are fused are summed up tile by tile, and in other tiles where their bounds are one
    for each channel.
    """
    names = [node.name for node in graph if node.op not in {"Const", "Placeholder"}]
    return run(graph, fed, names)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weights", "tensor", "chosen"])
def test_without_repair_eight_bits_ruin_it(top1, name: str) -> None:
    assert top1["float"] == top1[""] > 0.98
    assert top1[name] < 0.2  # ten classes


@pytest.mark.parametrize("name", ["weights_repaired", "tensor_repaired", "chosen_repaired"])
def test_with_ranges_equalized_it_is_within_one_point(top1, name: str) -> None:
    assert top1[name] >= top1[""] - 0.01
