"""Transform chains with known problems cause warnings before they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.transforms.graphs import const, conv, node, normal, placeholder

NORMS = {"is_training": False, "epsilon": 0.001, "data_format": "NHWC"}


def branching() -> Graph:
    """A conditional followed by a layer with a batch norm."""
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
for_each = pytest.mark.parametrize(("chain", "message"), CASES)


@pytest.fixture
def model(workdir: Path) -> Path:
    write_graph(workdir / "model.pb", branching())
    return workdir / "model.pb"


def recipe(folder: Path, chain: str) -> Path:
    path = folder / "recipe.yaml"
    head = "version: 1\nname: r\nsource: {frozen: model.pb}\ninputs: {x: {}}\noutputs: [out]\n"
    path.write_text(head + f"transforms: '{chain}'\ntargets: {{phone: {{}}}}\n")
    return path


@for_each
def test_transform_warns_before_the_first_step(
    model: Path, run: Run, chain: str, message: str
) -> None:
    err = run(
        "transform",
        f"--in_graph={model}",
        "--out_graph=out.pb",
        "--inputs=x",
        "--outputs=out",
        f"--transforms=remove_device {chain}",
    ).err
    assert err.index(f"warning: {message}") < err.index("remove_device: ")


@for_each
def test_build_warns_before_the_step(model: Path, run: Run, chain: str, message: str) -> None:
    result = run("build", recipe(model.parent, f"remove_device {chain}"))
    assert result.code == 0, result.err
    name = message.partition("(")[0].partition(" ")[0]
    lines = result.err.splitlines()
    (warning,) = [i for i, line in enumerate(lines) if line.startswith("warning: r/0")]
    done = max(i for i, line in enumerate(lines) if f"-{name}  " in line)
    assert message in lines[warning]
    assert warning < done
    assert f"  warning: {message}" in result.out


@pytest.mark.parametrize("verb", ["validate", "plan"])
@pytest.mark.parametrize(
    ("chain", "message"),
    [CASES[2], ("quantize_nodes fold_batch_norms", "fold_batch_norms after quantize_nodes")],
)
def test_validate_and_plan_warn_about_the_chain(
    model: Path, run: Run, verb: str, chain: str, message: str
) -> None:
    result = run(verb, recipe(model.parent, chain))
    assert result.code == 0
    assert result.err.startswith("warning: ")
    assert "recipe.yaml:6:" in result.err
    assert message in result.err


LEFT = "1 batch norm is left that can be folded: put fuse_batch_norms, or optimize"


@pytest.mark.parametrize(
    ("chain", "hint"),
    [
        ("fold_constants fold_old_batch_norms(ignore_errors=true) remove_device", ""),
        ("optimize", ""),
        ("remove_device", "at the end of the chain"),
        ("quantize_weights(minimum_size=4)", "before weights are quantized"),
    ],
)
def test_build_warns_about_unfolded_batch_norms(
    run: Run, model: Path, chain: str, hint: str
) -> None:
    path = recipe(model.parent, chain)
    result = run("build", str(path))
    assert result.code == 0, result.err
    assert (LEFT in result.err) == bool(hint)
    report = run("report", str(path))
    assert (f"warning: {LEFT}" in report.out) == bool(hint)
    assert hint in report.out


def test_validate_warns_about_folding_after_quantization(run: Run, model: Path) -> None:
    result = run("validate", str(recipe(model.parent, "quantize_weights optimize")))
    assert "optimize after quantize_weights: quantized layers take no batch norm in" in result.err
