"""``mobileprep diff``: what two models differ in, also where names do."""

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
def _graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("a.pb"), network())
    write_graph(Path("other.pb"), network(prefix="q"))
    write_graph(Path("shifted.pb"), network(0.75, "q"))
    write_graph(Path("tanh.pb"), network(op="Tanh"))


SAME = "4 nodes matched, 3 of them under another name; 0 added, 0 removed, 0 changed\n"


def test_names_alone_are_no_difference(run: Run) -> None:
    told = run("diff", "a.pb", "other.pb")
    assert (told.code, told.out, told.err) == (0, SAME, "")
    told = run("diff", "a.pb", "other.pb", "--names")
    assert told.out == f"= b is qb\n= sum is qsum\n= out is qout\n{SAME}"


def test_a_changed_constant_is_one_difference(run: Run) -> None:
    told = run("diff", "a.pb", "shifted.pb", "--samples=2")
    assert told.code == 1
    constant, output, _ = told.out.splitlines()
    assert constant.startswith("~ qb: constant value: ")
    assert constant.endswith("largest difference 0.25")
    assert output.startswith("output out (qout there): largest difference 0.25, ")
    assert run("diff", "a.pb", "shifted.pb", "--samples=2", "--tolerance=0.2501").code == 0


def test_another_op_is_a_node_less_and_a_node_more(run: Run) -> None:
    told = run("diff", "a.pb", "tanh.pb")
    assert told.code == 1
    assert "Relu" in told.out
    assert "Tanh" in told.out
    found = json.loads(run("diff", "a.pb", "tanh.pb", "--json").out)
    assert (found["equal"], found["matched"], found["nodes_a"]) == (False, 3, 4)


def test_a_model_is_frozen_first(run: Run) -> None:
    Path("saved").mkdir()
    write_saved_model(Path("saved"))
    flags = ["--input_saved_model_dir=saved", "--output_graph=frozen.pb"]
    assert run("freeze", *flags).code == 0
    told = run("diff", "saved", "frozen.pb", "--samples=1")
    assert told.code == 0, told.out
    assert "largest difference 0" in told.out


def test_outputs_that_are_not_there(run: Run) -> None:
    told = run("diff", "a.pb", "tanh.pb", "--samples=1")
    assert told.code == 1
    assert "output out (out there)" in told.out  # of another op, but of the same name
    write_graph(Path("qtanh.pb"), network(prefix="q", op="Tanh"))
    told = run("diff", "a.pb", "qtanh.pb", "--samples=1")
    assert told.code == 2
    assert "--outputs" in told.err
    assert run("diff", "a.pb", "other.pb", "--samples=1", "--outputs=gone").code == 2
    told = run("diff", "a.pb", "tanh.pb", "--samples=1", "--outputs=sum")
    assert told.code == 1  # for the op
    assert "output sum (sum there): largest difference 0" in told.out


def test_outputs_of_one_name_are_compared_though_their_ops_differ(run: Run) -> None:
    told = run("diff", "a.pb", "tanh.pb", "--samples=1")
    assert told.code == 1
    assert "output out (out there): largest difference 0." in told.out


def test_numbers_on_one_side_only_are_not_equal(run: Run) -> None:
    write_graph(Path("nan.pb"), network(math.nan))
    told = run("diff", "a.pb", "nan.pb", "--samples=1", "--outputs=sum", "--tolerance=1e30")
    assert told.code == 1
    assert "not comparable" in told.out
    told = run("diff", "nan.pb", "nan.pb", "--samples=1", "--outputs=sum")
    assert told.code == 0


def test_graphs_in_memory() -> None:
    found = mobileprep.diff(network(), network(prefix="q"))
    assert found.equal
    assert found.renamed == {"b": "qb", "sum": "qsum", "out": "qout"}
    with pytest.raises(UsageError, match="gone"):
        mobileprep.diff(network(), network(), samples=1, outputs=["gone"])


def test_the_page(run: Run) -> None:
    told = run("diff", "a.pb", "shifted.pb", "--samples=2", "--html", "page.html")
    assert (told.code, told.out, told.err) == (1, "Created page.html.\n", "")
    text = Path("page.html").read_text()
    found = re.search(r'id="data">([^<]*)<', text)
    assert found is not None
    data = json.loads(found[1])
    (change,) = data["difference"]["differences"]
    assert (change["name"], change["kind"], change["largest"]) == ("qb", "constant", 0.25)
    assert [graph["names"][1] for graph in data["graphs"]] == ["b", "qb"]
    printed = json.loads(run("diff", "a.pb", "shifted.pb", "--samples=2", "--json").out)
    assert {**data["difference"], **printed} == data["difference"]
    assert run("diff", "a.pb", "other.pb", "--html", "page.html").code == 0
    assert run("diff", "a.pb", "other.pb", "--html", "page.html", "--json").code == 2


def test_a_page_of_a_comparison_is_no_page_of_a_build(run: Run) -> None:
    assert run("diff", "a.pb", "other.pb", "--html", "page.html").code == 0
    told = run("report", "page.html", "--html", "again.html")
    assert (told.code, "does not contain a target" in told.err) == (4, True)
