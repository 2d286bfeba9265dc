"""Names with control characters are escaped by verbs that print them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mobileprep.core.printable import plain
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from tests.cli.conftest import Run
from tests.transforms.graphs import placeholder

HOSTILE = [
    "<script>alert(1)</script>",
    "a\"b'c`d",
    "a\nb\rc\td",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m\x7f",
    "\u202egnp\u2066x\u200f",
    "line\u2028paragraph\u2029",
    "n" * 10_000,
]
names = pytest.mark.parametrize("name", HOSTILE, ids=lambda n: ascii(n)[:20])


pytestmark = pytest.mark.usefixtures("workdir")


def graph(name: str, op: str = "Relu") -> Graph:
    x = placeholder(name, DType.FLOAT).with_attrs(shape=attr.shape((1, 2)))
    of_float = {"T": attr.dtype(DType.FLOAT)}
    return Graph(
        [
            x,
            Node(f"{name}/in", op, (parse_ref(name),), attrs=of_float),
            Node("out", "Tanh", (parse_ref(f"{name}/in"),), attrs=of_float),
        ]
    )


def harmless(text: str) -> bool:
    """Whether a text has only printable characters and newlines."""
    return plain(text, keep="\n") == text


@names
def test_diff_escapes_names(name: str, run: Run) -> None:
    write_graph(Path("a.pb"), graph(name))
    write_graph(Path("b.pb"), graph(name, "Elu"))
    write_graph(Path("c.pb"), graph(f"{name}2"))
    changed = run("diff", "a.pb", "b.pb")
    renamed = run("diff", "a.pb", "c.pb", "--names")
    sampled = run("diff", "a.pb", "c.pb", "--samples=1")
    for result, code in ((changed, 1), (renamed, 0), (sampled, 0)):
        assert result.code == code, result.err
        assert harmless(result.out + result.err)
    assert "Elu" in changed.out
    assert f"= {plain(name)} is {plain(name)}2\n" in renamed.out
    data = json.loads(run("diff", "a.pb", "b.pb", "--json").out)
    assert any(name in str(d["name"]) for d in data["differences"])


@names
def test_dot_escapes_names(name: str, run: Run) -> None:
    write_graph(Path("a.pb"), graph(name))
    for flags in ([], ["--colors", "--shapes"], ["--collapse=1"], ["--around=out"]):
        result = run("dot", "--graph=a.pb", "--dot_output=-", *flags)
        assert result.code == 0, result.err
        assert harmless(result.out + result.err)
    missing = run("dot", "--graph=a.pb", "--dot_output=-", f"--around={name}?")
    assert missing.code == 2
    assert harmless(missing.out + missing.err)


@names
def test_summarize_escapes_names_of_broken_graphs(name: str, run: Run) -> None:
    write_graph(Path("gone.pb"), Graph([Node(name, "Relu", (parse_ref(f"{name}x"),))]))
    write_graph(Path("alone.pb"), Graph([Node("first", "NoOp"), Node(name, name)]))
    circle = [Node(n, "Relu", (parse_ref(o),)) for n, o in ((name, "b"), ("b", name))]
    write_graph(Path("circle.pb"), Graph(circle))
    for file in ("gone.pb", "alone.pb", "circle.pb"):
        result = run("summarize", f"--in_graph={file}", "--print_structure")
        assert result.code in (0, 5), result.err
        assert harmless(result.out + result.err)


def replaced(data: Any, name: str) -> Any:
    """A report in which all strings are replaced by another."""
    if isinstance(data, list):
        return [replaced(item, name) for item in data]
    if isinstance(data, dict):
        return {key: replaced(item, name) for key, item in data.items()}
    return name if isinstance(data, str) else data


@names
def test_report_and_comparison_escape_names(name: str, built: Path, run: Run) -> None:
    report = json.loads(Path("out/digits/phone/report.json").read_text())
    shutil.copytree("out/digits/phone", "hostile")
    other = {
        **report,
        **{k: replaced(report[k], name) for k in ("steps", "warnings") if k in report},
    }
    other["ops"] = {name: 1, **report["ops"]}
    other["warnings"] = [name]
    Path("hostile/report.json").write_text(json.dumps(other))
    for flags in ([], ["--compare", "out/digits/phone"], ["--format", "markdown"]):
        result = run("report", "hostile", *flags)
        assert result.code == 0, result.err
        assert harmless(result.out + result.err)
    compared = run("report", "out/digits/phone", "--compare", "hostile", "--format", "markdown")
    assert compared.code == 0, compared.err
    assert harmless(compared.out)
    assert "<script>" not in compared.out
