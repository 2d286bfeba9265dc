"""The verb ``choose``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.freezing.graphs import const, node, placeholder
from tests.transforms.graphs import normal

COSTS = ("best", "likely", "RAM", "lacks ops")

pytestmark = pytest.mark.usefixtures("workdir")


def network(*sizes: int) -> Graph:
    """Products of a row of 4 with weights."""
    nodes, last = [placeholder("x", -1, 4)], "x"
    for at, (rows, columns) in enumerate(zip((4, *sizes), sizes, strict=False)):
        nodes.append(const(f"w{at}", normal(rows, columns)))
        flags = {"transpose_a": False, "transpose_b": False}
        nodes.append(
            node(
                f"y{at}", "MatMul", last, f"w{at}", T=placeholder("x").attr_dtype("dtype"), **flags
            )
        )
        last = f"y{at}"
    return Graph(nodes)


@pytest.fixture(autouse=True)
def _models(workdir: Path) -> None:
    write_graph(Path("small.pb"), network(500))
    write_graph(Path("large.pb"), network(1000, 250))


def test_table_has_a_row_for_each_model(run: Run) -> None:
    result = run("choose", "small.pb", "large.pb", "missing.pb", "--device=phone-2016")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [re.split(" {2,}", line) for line in lines[:4]] == [
        ["model", "parameters", "float", "8-bit", "compressed", "FLOPs", *COSTS],
        # 4 times 500 weights; 508,000 operations at 20 GFLOP/s are 25.4 us.
        [
            *("small.pb", "2k", "8 KB", "2.01 KB", "1.9 KB", "4k"),
            *("0.2 us", "0.2 us to 0.4 us", "18.3 KB", "0"),
        ],
        [
            *("large.pb", "254k", "1.02 MB", "254 KB", "218 KB", "508k"),
            *("25.4 us", "25.4 us to 50.8 us", "2.04 MB", "0"),
        ],
        ["missing.pb", *["-"] * 9],
    ]
    assert lines[4:] == [
        "  missing.pb is not counted: does not exist",
        "  best on a high-end phone of 2016: 20 GFLOP/s, a rule of thumb for what networks reach",
        "  likely: 50% to 100% of a rate that networks reach",
        "  RAM: peak while the model is loaded and run, without the runtime itself",
    ]


def test_exit_code_is_1_if_no_model_is_counted(run: Run) -> None:
    result = run("choose", "missing.pb", "gone.pb")
    assert result.code == 1
    assert "gone.pb is not counted: does not exist" in result.out


def test_sort_puts_unknown_numbers_last(run: Run) -> None:
    for column in ("parameters", "size", "flops", "latency", "ram"):
        result = run("choose", "missing.pb", "large.pb", "small.pb", f"--sort={column}", "--json")
        models = [one["model"] for one in json.loads(result.out)["candidates"]]
        assert models == ["small.pb", "large.pb", "missing.pb"], column


def test_sort_by_metric_depends_on_its_direction(run: Run) -> None:
    x, exact = normal(4, 4, seed=1), normal(4, 500)
    np.savez("test.npz", x=x, label=x @ exact)
    wrong = network(500).with_nodes(
        const("w0", exact + 1) if n.name == "w0" else n for n in network(500)
    )
    write_graph(Path("wrong.pb"), wrong)
    options = ("--data=test.npz", "--sort=metric", "--json")
    for metric in ("mean_absolute_error", "cosine"):
        result = run("choose", "wrong.pb", "small.pb", *options, f"--metric={metric}")
        data = json.loads(result.out)
        assert data["metric"] == metric
        assert [one["model"] for one in data["candidates"]] == ["small.pb", "wrong.pb"]


def test_part_of_a_model_and_its_shapes(run: Run) -> None:
    options = ("--inputs=y0", "--outputs=y1", "--input_shapes=3,1000")
    data = json.loads(run("choose", "large.pb", *options, "--json").out)
    (candidate,) = data["candidates"]
    assert (candidate["flops"], candidate["parameters"]) == (2 * 3 * 1000 * 250, 250_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--labels=y",), "--labels and --samples need --data"),
        (("--data=d.npz", "--samples=0"), "--samples is at least 1"),
        (("--data=d.npz", "--metric=best"), "'best' is not a metric of labels"),
        (("--device=tv",), "unknown device 'tv'"),
    ],
)
def test_wrong_options_are_refused(run: Run, options: tuple[str, ...], message: str) -> None:
    result = run("choose", "small.pb", *options)
    assert result.code == 2
    assert message in result.err
