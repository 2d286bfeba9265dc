"""``mobileprep dot``: drawings in DOT, SVG, PNG, and Model Explorer formats."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.inspection.drawing_files import original_dot
from tests.cli.conftest import Run
from tests.freezing.saved import write_saved_model
from tests.transforms.graphs import const, conv, node, placeholder


def network() -> Graph:
    return Graph(
        [
            placeholder().with_attrs(shape=attr.shape((-1, 4, 4, 1))),
            const("a/b/w", np.ones((3, 3, 1, 2))),
            conv("a/b/conv", "x a/b/w"),
            node("a/relu", "Relu", "a/b/conv"),
            node("out", "Identity", "a/relu:0 ^x"),
        ]
    )


@pytest.fixture(autouse=True)
def _here(workdir: Path) -> None:
    write_graph(Path("g.pb"), network())


ORIGINAL = """digraph graphname {
  "x" [label="Placeholder"];
  "a/b/w" [label="Const"];
  "a/b/conv" [label="Conv2D"];
  "x" -> "a/b/conv";
  "a/b/w" -> "a/b/conv";
  "a/relu" [label="Relu"];
  "a/b/conv" -> "a/relu";
  "out" [label="Identity"];
  "a/relu" -> "out";
  "x" -> "out";
}
"""


@pytest.mark.parametrize("name", ["graph_to_dot", "dot"])
def test_drawing_matches_the_original(name: str, run: Run) -> None:
    result = run(name, "--graph=g.pb", "--dot_output=g.dot", "--input_binary=true")
    assert (result.code, result.out, result.err) == (0, "Created DOT file 'g.dot'.\n", "")
    assert Path("g.dot").read_text() == ORIGINAL
    result = run(name, "--graph", "g.pb", "--dot-output", "-")
    assert (result.out, result.err) == (ORIGINAL, "Created DOT file '-'.\n")


def test_collapse_merges_scopes(run: Run) -> None:
    result = run("dot", "--graph=g.pb", "--dot_output=-", "--collapse=1", "--shapes", "--colors")
    lines = result.out.splitlines()[2:-1]
    assert lines == [
        '  "x" [label="x\\nPlaceholder", fillcolor="#d8dee9"];',
        '  "a/" [label="a/\\n3 nodes", fillcolor="#eeeeee"];',
        '  "out" [label="out\\nIdentity", fillcolor="#d8dee9"];',
        '  "x" -> "a/" [label="?x4x4x1"];',
        '  "a/" -> "out" [label="?x4x4x2"];',
        '  "x" -> "out" [style=dashed];',
    ]
    deeper = run("dot", "--graph=g.pb", "--dot_output=-", "--collapse=2").out
    assert '"a/b/" [label="a/b/\\n2 nodes"' in deeper
    assert '"a/relu" [label="a/relu\\nRelu"]' in deeper


@pytest.mark.parametrize(
    ("radius", "names"), [(0, ["a/relu"]), (1, ["a/b/conv", "a/relu", "out"]), (9, None)]
)
def test_around_draws_neighbors_of_a_node(radius: int, names: list[str] | None, run: Run) -> None:
    flags = ["--around=a/relu", f"--radius={radius}"]
    shown = run("dot", "--graph=g.pb", "--dot_output=-", *flags).out
    drawn = [line.split('"')[1] for line in shown.splitlines() if "label" in line]
    assert drawn == (names or [n.name for n in network()])


def test_model_explorer_neighbors_keep_shapes_and_costs(run: Run) -> None:
    flags = ["--format=model-explorer", "--around=a/relu", "--radius=1"]
    assert run("dot", "--graph=g.pb", "--dot_output=me.json", *flags).code == 0
    (graph,) = json.loads(Path("me.json").read_text())["graphs"]
    conv, relu, _ = graph["nodes"]
    assert conv["incomingEdges"] == []
    assert relu["outputsMetadata"][0]["attrs"][0]["value"] == "?x4x4x2"
    flops = json.loads(Path("me.flops.json").read_text())[graph["id"]]["results"]
    assert flops["a/b/conv"] == {"value": 576}


def test_event_files_for_tensorboard(run: Run) -> None:
    result = run("dot", "--graph=g.pb", "--dot_output=logs", "--format=tensorboard")
    created = Path("logs") / "events.out.tfevents.0.mobileprep"
    assert (result.code, result.out) == (0, f"Created {created}.\n")
    assert created.is_file()
    result = run("dot", "--graph=g.pb", "--dot_output=-", "--format=tensorboard")
    assert result.code == 2
    assert "the format tensorboard cannot go to stdout" in result.err


def test_missing_node_is_reported_with_a_suggestion(run: Run) -> None:
    result = run("dot", "--graph=g.pb", "--dot_output=-", "--around=a/rely")
    assert result.code == 2
    assert "a/relu" in result.err


def fake_graphviz(folder: Path, body: str) -> None:
    program = folder / "dot"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def test_graphviz_renders_images(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    fake_graphviz(tmp_path / "bin", 'echo "<svg>$1</svg>"; cat > seen.dot')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    result = run("dot", "--graph=g.pb", "--dot_output=g.svg")
    assert (result.code, result.out) == (0, "Created g.svg.\n")
    assert Path("g.svg").read_text() == "<svg>-Tsvg</svg>\n"
    assert Path("seen.dot").read_text() == ORIGINAL
    fake_graphviz(tmp_path / "bin", "echo 'syntax error' >&2; exit 1")
    result = run("dot", "--graph=g.pb", "--dot_output=g.png")
    assert result.code == 6
    assert "syntax error" in result.err
    assert not Path("g.png").exists()


def test_missing_graphviz_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = run("dot", "--graph=g.pb", "--dot_output=g.svg")
    assert result.code == 6
    assert "install graphviz" in result.err


TEXT, STRINGS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
# The format declared in graph_builder.py of ai-edge-model-explorer.
COLLECTION = {
    "type": "object", "additionalProperties": False, "required": ["label", "graphs"],
    "properties": {"label": TEXT, "graphs": {"type": "array", "items": {
        "type": "object", "additionalProperties": False, "required": ["id", "nodes"],
        "properties": {"id": TEXT, "nodes": {"type": "array", "items": {
            "type": "object", "additionalProperties": False, "required": ["id", "label"],
            "properties": {
                "id": TEXT, "label": TEXT, "namespace": TEXT, "subgraphIds": STRINGS,
                "attrs": {"type": "array", "items": {"$ref": "#/$defs/pair"}},
                "incomingEdges": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False,
                    "required": ["sourceNodeId", "sourceNodeOutputId", "targetNodeInputId"],
                    "properties": {
                        "sourceNodeId": TEXT, "sourceNodeOutputId": TEXT, "targetNodeInputId": TEXT,
                    },
                }},
                "outputsMetadata": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False, "required": ["id", "attrs"],
                    "properties": {"id": TEXT, "attrs": {
                        "type": "array", "items": {"$ref": "#/$defs/pair"},
                    }},
                }},
            },
        }}},
    }}},
    "$defs": {"pair": {
        "type": "object", "additionalProperties": False, "required": ["key", "value"],
        "properties": {"key": TEXT, "value": TEXT},
    }},
}  # fmt: skip


def test_model_explorer_collection_and_overlays(run: Run) -> None:
    Path("damage.json").write_text(
        json.dumps({"tensors": [{"tensor": "a/b/conv", "damage": {"sqnr": 31.5}}]})
    )
    flags = ["--format=model-explorer", "--damage=damage.json"]
    result = run("dot", "--graph=g.pb", "--dot_output=me.json", *flags)
    files = ["me.json", "me.bytes.json", "me.flops.json", "me.error.json"]
    assert (result.code, result.out) == (0, "".join(f"Created {f}.\n" for f in files)), result.err
    collection, size, flops, error = (json.loads(Path(f).read_text()) for f in files)
    jsonschema.validate(collection, COLLECTION)
    (graph,) = collection["graphs"]
    nodes = {n["id"]: n for n in graph["nodes"]}
    assert nodes["a/b/conv"]["namespace"] == "a/b"
    assert nodes["a/b/conv"]["outputsMetadata"][0]["attrs"][0]["value"] == "?x4x4x2"
    assert [e["sourceNodeId"] for e in nodes["out"]["incomingEdges"]] == ["a/relu", "x"]
    assert nodes["out"]["incomingEdges"][1]["sourceNodeOutputId"] == "control"
    assert size[graph["id"]]["results"] == {"a/b/w": {"value": 72}}
    assert flops[graph["id"]]["results"] == {"a/b/conv": {"value": 576}, "a/relu": {"value": 32}}
    assert error[graph["id"]]["results"] == {"a/b/conv": {"value": -31.5}}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"tensors": 3}', '{"tensors": [{}]}', "[" * 9, "[" * 50_000),
        f'{{"tensors": [{{"tensor": "a", "damage": {{"sqnr": {10**400}}}}}]}}',
    ],
    ids=lambda text: text[:20],
)
def test_invalid_damage_file_is_refused(text: str, run: Run) -> None:
    Path("damage.json").write_text(text)
    flags = ["--format=model-explorer", "--damage=damage.json"]
    result = run("dot", "--graph=g.pb", "--dot_output=me.json", *flags)
    assert result.code == 4
    assert not Path("me.json").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["--dot_output=-", "--format=model-explorer"],
        ["--dot_output=g.json", "--format=model-explorer", "--collapse=1"],
        ["--dot_output=g.dot", "--damage=damage.json"],
    ],
)
def test_conflicting_flags_are_refused(flags: list[str], run: Run) -> None:
    assert run("dot", "--graph=g.pb", *flags).code == 2


def test_saved_model_is_drawn_without_freezing(run: Run) -> None:
    Path("saved").mkdir()
    write_saved_model(Path("saved"))
    assert '"w" [label="VariableV2"];' in run("dot", "--graph=saved", "--dot_output=-").out


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("<script>", '"<script>"'),
        ('a"b', '"a\\"b"'),
        ("ends\\", '"ends\\\\"'),
        ("a\nb", '"a\\\\nb"'),
        ("\x1b[2J", '"\\\\x1b[2J"'),
        ("\u202egnp", '"\\\\u202egnp"'),
        ("n" * 10_000, f'"{"n" * 10_000}"'),
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_names_are_quoted(name: str, quoted: str, run: Run) -> None:
    out = Node("out", "Relu", (parse_ref(name),), attrs={"T": attr.dtype(DType.FLOAT)})
    graph = Graph([placeholder(name), out])
    assert list(original_dot(graph))[1:-1] == [
        f'  {quoted} [label="Placeholder"];',
        '  "out" [label="Relu"];',
        f'  {quoted} -> "out";',
    ]
    write_graph(Path("h.pb"), graph)
    shown = run("dot", "--graph=h.pb", "--dot_output=-", "--colors").out
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert len(shown.splitlines()) == 6
