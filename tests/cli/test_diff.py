"""``mobileprep diff`` compares models, also with different node names."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import mobileprep
from mobileprep.errors import UsageError
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.freezing.saved import write_saved_model
from tests.transforms.graphs import const, node, placeholder


def network(shift: float = 0.5, prefix: str = "", op: str = "Relu") -> Graph:
    x = placeholder().with_attrs(shape=attr.shape((2, 3)))
    p = prefix
    return Graph(
        [
            x,
            const(f"{p}b", np.full(3, shift)),
            node(f"{p}sum", "Add", f"x {p}b"),
            node(f"{p}out", op, f"{p}sum"),
        ]
    )


@pytest.fixture(autouse=True)
def _graphs(workdir: Path) -> None:
    write_graph(Path("a.pb"), network())
    write_graph(Path("other.pb"), network(prefix="q"))
    write_graph(Path("shifted.pb"), network(0.75, "q"))
    write_graph(Path("tanh.pb"), network(op="Tanh"))


SAME = "4 nodes matched, 3 of them under another name; 0 added, 0 removed, 0 changed\n"


def test_renamed_nodes_are_equal(run: Run) -> None:
    result = run("diff", "a.pb", "other.pb")
    assert (result.code, result.out, result.err) == (0, SAME, "")
    result = run("diff", "a.pb", "other.pb", "--names")
    assert result.out == f"= b is qb\n= sum is qsum\n= out is qout\n{SAME}"


def test_changed_constant_is_reported(run: Run) -> None:
    result = run("diff", "a.pb", "shifted.pb", "--samples=2")
    assert result.code == 1
    constant, output, _ = result.out.splitlines()
    assert constant.startswith("~ qb: constant value: ")
    assert constant.endswith("largest difference 0.25")
    assert output.startswith("output out (qout there): largest difference 0.25, ")
    assert run("diff", "a.pb", "shifted.pb", "--samples=2", "--tolerance=0.2501").code == 0


def test_changed_op_is_reported(run: Run) -> None:
    result = run("diff", "a.pb", "tanh.pb")
    assert result.code == 1
    assert "Relu" in result.out
    assert "Tanh" in result.out
    data = json.loads(run("diff", "a.pb", "tanh.pb", "--json").out)
    assert (data["equal"], data["matched"], data["nodes_a"]) == (False, 3, 4)


def test_saved_model_is_frozen(run: Run) -> None:
    Path("saved").mkdir()
    write_saved_model(Path("saved"))
    flags = ["--input_saved_model_dir=saved", "--output_graph=frozen.pb"]
    assert run("freeze", *flags).code == 0
    result = run("diff", "saved", "frozen.pb", "--samples=1")
    assert result.code == 0, result.out
    assert "largest difference 0" in result.out


def test_missing_outputs_are_refused(run: Run) -> None:
    result = run("diff", "a.pb", "tanh.pb", "--samples=1")
    assert result.code == 1
    assert "output out (out there)" in result.out  # of another op, but of the same name
    write_graph(Path("qtanh.pb"), network(prefix="q", op="Tanh"))
    result = run("diff", "a.pb", "qtanh.pb", "--samples=1")
    assert result.code == 2
    assert "--outputs" in result.err
    assert run("diff", "a.pb", "other.pb", "--samples=1", "--outputs=gone").code == 2
    result = run("diff", "a.pb", "tanh.pb", "--samples=1", "--outputs=sum")
    assert result.code == 1  # for the op
    assert "output sum (sum there): largest difference 0" in result.out


def test_outputs_of_one_name_with_different_ops_are_compared(run: Run) -> None:
    result = run("diff", "a.pb", "tanh.pb", "--samples=1")
    assert result.code == 1
    assert "output out (out there): largest difference 0." in result.out


def test_nan_on_one_side_is_not_comparable(run: Run) -> None:
    write_graph(Path("nan.pb"), network(math.nan))
    result = run("diff", "a.pb", "nan.pb", "--samples=1", "--outputs=sum", "--tolerance=1e30")
    assert result.code == 1
    assert "not comparable" in result.out
    result = run("diff", "nan.pb", "nan.pb", "--samples=1", "--outputs=sum")
    assert result.code == 0


def test_function_compares_graphs() -> None:
    result = mobileprep.diff(network(), network(prefix="q"))
    assert result.equal
    assert result.renamed == {"b": "qb", "sum": "qsum", "out": "qout"}
    with pytest.raises(UsageError, match="gone"):
        mobileprep.diff(network(), network(), samples=1, outputs=["gone"])


def test_html_page_contains_the_differences(run: Run) -> None:
    result = run("diff", "a.pb", "shifted.pb", "--samples=2", "--html", "page.html")
    assert (result.code, result.out, result.err) == (1, "Created page.html.\n", "")
    text = Path("page.html").read_text()
    match = re.search(r'id="data">([^<]*)<', text)
    assert match is not None
    data = json.loads(match[1])
    (change,) = data["difference"]["differences"]
    assert (change["name"], change["kind"], change["largest"]) == ("qb", "constant", 0.25)
    assert [graph["names"][1] for graph in data["graphs"]] == ["b", "qb"]
    printed = json.loads(run("diff", "a.pb", "shifted.pb", "--samples=2", "--json").out)
    assert {**data["difference"], **printed} == data["difference"]
    assert run("diff", "a.pb", "other.pb", "--html", "page.html").code == 0
    assert run("diff", "a.pb", "other.pb", "--html", "page.html", "--json").code == 2


def test_comparison_page_is_refused_by_report(run: Run) -> None:
    assert run("diff", "a.pb", "other.pb", "--html", "page.html").code == 0
    result = run("report", "page.html", "--html", "again.html")
    assert (result.code, "does not contain a target" in result.err) == (4, True)
