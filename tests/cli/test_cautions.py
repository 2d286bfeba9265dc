"""Chains that are known to go wrong are told of before they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.transforms.graphs import const, conv, node, normal, placeholder

NORMS = {"is_training": False, "epsilon": 0.001, "data_format": "NHWC"}


def branching() -> Graph:
    """x, passed through the taken branch of a conditional, and a layer with a batch norm."""
    return Graph(
        [
            node("x", "Placeholder", T=None, dtype=placeholder().attr_dtype("dtype")),
            const("taken", True, bool),
            node("switch", "Switch", "x taken"),
            node("left", "Identity", "switch"),
            node("right", "Identity", "switch:1"),
            node("merge", "Merge", "left right", N=2),
            const("w", normal(1, 1, 4, 4)),
            conv("layer", "merge w"),
            *(const(n, abs(normal(4)) + 1) for n in "sbmv"),
            node("out", "FusedBatchNorm", "layer s b m v", **NORMS),
        ]
    )


CASES = [
    ("remove_nodes(op=Identity)", "remove_nodes(op=Identity) on a graph with control flow"),
    ("quantize_nodes", "quantize_nodes before the batch norms are folded"),
    (
        "quantize_weights(minimum_size=4) quantize_weights(minimum_size=4)",
        "quantize_weights a second time",
    ),
]
for_each = pytest.mark.parametrize(("chain", "told"), CASES)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    write_graph(tmp_path / "model.pb", branching())
    return tmp_path / "model.pb"


def recipe(folder: Path, chain: str) -> Path:
    path = folder / "recipe.yaml"
    head = "version: 1\nname: r\nsource: {frozen: model.pb}\ninputs: {x: {}}\noutputs: [out]\n"
    path.write_text(head + f"transforms: '{chain}'\ntargets: {{phone: {{}}}}\n")
    return path


@for_each
def test_transform_tells_before_the_first_step(
    model: Path, run: Run, chain: str, told: str
) -> None:
    err = run(
        "transform",
        f"--in_graph={model}",
        "--out_graph=out.pb",
        "--inputs=x",
        "--outputs=out",
        f"--transforms=remove_device {chain}",
    ).err
    assert err.index(f"warning: {told}") < err.index("remove_device: ")


@for_each
def test_a_build_tells_before_the_step_is_done(
    model: Path, run: Run, chain: str, told: str
) -> None:
    found = run("build", recipe(model.parent, f"remove_device {chain}"))
    assert found.code == 0, found.err
    name = told.partition("(")[0].partition(" ")[0]
    lines = found.err.splitlines()
    (warning,) = [i for i, line in enumerate(lines) if line.startswith("warning: r/0")]
    done = max(i for i, line in enumerate(lines) if f"-{name}  " in line)
    assert told in lines[warning]
    assert warning < done
    assert f"  warning: {told}" in found.out


@pytest.mark.parametrize("verb", ["validate", "plan"])
@pytest.mark.parametrize(
    ("chain", "told"),
    [CASES[2], ("quantize_nodes fold_batch_norms", "fold_batch_norms after quantize_nodes")],
)
def test_what_the_chain_alone_shows_is_told_without_a_build(
    model: Path, run: Run, verb: str, chain: str, told: str
) -> None:
    found = run(verb, recipe(model.parent, chain))
    assert found.code == 0
    assert found.err.startswith("warning: ")
    assert "recipe.yaml:6:" in found.err
    assert told in found.err


LEFT = "1 batch norm is left that can be folded: put fuse_batch_norms, or optimize"


@pytest.mark.parametrize(
    ("chain", "mend"),
    [
        ("fold_constants fold_old_batch_norms(ignore_errors=true) remove_device", ""),
        ("optimize", ""),
        ("remove_device", "at the end of the chain"),
        ("quantize_weights(minimum_size=4)", "before weights are quantized"),
    ],
)
def test_a_build_tells_of_batch_norms_that_could_be_folded(
    run: Run, model: Path, chain: str, mend: str
) -> None:
    path = recipe(model.parent, chain)
    told = run("build", str(path))
    assert told.code == 0, told.err
    assert (LEFT in told.err) == bool(mend)
    report = run("report", str(path))
    assert (f"warning: {LEFT}" in report.out) == bool(mend)
    assert mend in report.out


def test_a_fold_behind_a_quantization_is_told_from_the_recipe_alone(run: Run, model: Path) -> None:
    told = run("validate", str(recipe(model.parent, "quantize_weights optimize")))
    assert "optimize after quantize_weights: quantized layers take no batch norm in" in told.err
