"""The cost of MTCNN as a pipeline of its three networks, compared with a run of the whole graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from mobileprep import build
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.runtime.accounting.costs import run_costs
from tests.building.stages.jobs import placeholder
from tests.reference.golden import read_golden

pytestmark = pytest.mark.reference

# By network: its image in the graph, the size of a crop, and its outputs.
PARTS = {
    "pnet": ("pnet/while/ResizeBilinear", -1, ("pnet/while/conv4-1", "pnet/while/conv4-2")),
    "rnet": ("rnet/cond/CropAndResize", 24, ("rnet/cond/conv5-1", "rnet/cond/conv5-2")),
    "onet": ("onet/cond/CropAndResize", 48, ("onet/cond/conv6-1", "onet/cond/conv6-2")),
}
RECIPE = """\
version: 1
name: mtcnn
models:
{models}
targets: {{phone: {{}}}}
pipeline:
  steps:
    - model: pnet
      windows:
        {{image: [256, 219], window: [12, 12], stride: [2, 2], scales: {{min_size: 40}}}}
    - {{model: rnet, runs: {rnet}}}
    - {{model: onet, runs: {onet}}}
"""


def part(graph: Graph, image: str, side: int, outputs: tuple[str, ...]) -> Graph:
    """The nodes between an image and outputs, outside of loops and branches."""
    nodes: dict[str, Node] = {}
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in nodes:
            continue
        node = graph[name]
        if name == image:
            nodes[name] = placeholder((-1, side, side, 3), DType.FLOAT, name)
            continue
        inputs = node.data_inputs
        if node.op in ("Enter", "Switch"):
            node = replace(node, op="Identity", attrs={"T": node.attrs["T"]})
            inputs = inputs[:1]
        inputs = tuple(parse_ref(ref.node) for ref in inputs)
        nodes[name] = replace(node, inputs=inputs)
        waiting += [ref.node for ref in inputs]
    return Graph(node for node in nodes.values())


def test_costs_match_a_run(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "cache"))
    graph = read_graph(models / "mtcnn/mtcnn.pb")
    feeds = read_golden(models / "mtcnn/golden_mtcnn.npz").feeds
    assert (feeds["input"].shape, feeds["min_size"], feeds["factor"]) == (
        *((256, 219, 3), 40),
        pytest.approx(0.709),
    )
    ran = {n.name: n for n in run_costs(graph, feeds, ["prob", "landmarks", "box"]).nodes}
    measured: dict[str, int] = {}
    lines = []
    for model, (image, side, ends) in PARTS.items():
        outputs = tuple(f"{end}/BiasAdd" for end in ends)
        cut = part(graph, image, side, outputs)
        write_graph(Path(f"{model}.pb"), cut)
        names = {node.name for node in cut if node.name != image} & ran.keys()
        measured[model] = sum(ran[name].flops or 0 for name in names)
        named = f"inputs: {{{image}: {{}}}}, outputs: [{', '.join(outputs)}]"
        lines.append(f"  {model}: {{source: {{frozen: {model}.pb}}, {named}}}")
    # The fully connected ends of the networks show how often they ran.
    crops = {
        "rnet": (ran["rnet/cond/conv5-1/Conv2D"].flops or 0) // (2 * 128 * 2),
        "onet": (ran["onet/cond/conv6-1/Conv2D"].flops or 0) // (2 * 256 * 2),
    }
    assert crops == {"rnet": 31, "onet": 5}
    Path("recipe.yaml").write_text(RECIPE.format(models="\n".join(lines), **crops))
    build("recipe.yaml", warn=lambda _: None)
    pipeline = json.loads(Path("out/mtcnn/onet/phone/report.json").read_text())["pipeline"]
    pnet, rnet, onet = pipeline["steps"]
    assert rnet["flops"]["worst"] == measured["rnet"]
    assert onet["flops"]["worst"] == measured["onet"]
    assert pnet["runs"]["worst"] == ran["pnet/while/conv1/Conv2D"].calls == 5
    # This graph rounds the sizes of scaled images down, MTCNN rounds them up.
    assert 1 < pnet["flops"]["worst"] / measured["pnet"] < 1.05
