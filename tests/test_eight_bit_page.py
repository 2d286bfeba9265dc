"""The examples of docs/quantization.md on eight-bit nodes and rules, run as they stand there."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

import mobileprep
from mobileprep.cli.main import main
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "quantization.md").read_text(encoding="utf-8")
DIGITS = ROOT / "recipes" / "digits"
INPUT = "image"


def blocks(section: str, language: str) -> list[str]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph)


@pytest.mark.parametrize(
    ("section", "left"), [("Eight-bit nodes", set()), ("Rules", {"Logits/MatMul"})]
)
def test_its_commands_quantize_the_digits(
    section: str, left: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, checkpoint = DIGITS / "model/graph.pbtxt", DIGITS / "model/model.ckpt-1000"
    frozen = mobileprep.freeze(model, ["probabilities"], checkpoint=checkpoint).graph
    write_graph(Path("frozen.pb"), frozen)
    (command,) = blocks(section, "sh")
    name, *arguments = shlex.split(command.replace("\\\n", " "))
    assert (name, main(arguments)) == ("mobileprep", 0)
    (written,) = (a.removeprefix("--out_graph=") for a in arguments if a.startswith("--out_graph="))
    graph = read_graph(Path(written))
    assert ops(graph)["QuantizedConv2D"] == 2
    assert {node.name for node in graph if node.op == "MatMul"} == left


def build_digits(
    targets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> mobileprep.BuildResult:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    text = (DIGITS / "recipe.yaml").read_text(encoding="utf-8").partition("\ntargets:")[0]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        text.replace(": model/", f": {DIGITS}/model/").replace(": data/", f": {DIGITS}/data/")
        + "\n"
        + targets
    )
    built = mobileprep.build(recipe, out=tmp_path / "out")
    assert built.ran
    return built


def test_targets_of_smaller_weights_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = blocks("Smaller weights", "yaml")[0]
    built = build_digits(targets, tmp_path, monkeypatch)
    # Fails where a target's accuracy falls by more than the recipe's max_drop.
    assert all(target.report.accuracy is not None for target in built.targets)
    models = {path.parent.name: path for path in (tmp_path / "out").rglob("*.pb")}
    sizes = {name: path.stat().st_size for name, path in models.items()}
    assert sizes["smallest"] < sizes["small"] < sizes["half"]
    decoding = {
        name: ops(read_graph(path)) & Counter({"Dequantize": 1, "Sub": 1})
        for name, path in models.items()
    }
    assert decoding == {
        "small": Counter({"Dequantize": 1}),
        "by_channel": Counter({"Sub": 1}),
        "smallest": Counter({"Sub": 1}),
        "half": Counter(),
    }


def test_its_recipe_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (targets,) = blocks("Rules", "yaml")
    build_digits(targets, tmp_path, monkeypatch)
    (model,) = (tmp_path / "out").rglob("*.pb")
    graph = read_graph(model)
    assert ops(graph)["QuantizedConv2D"] == 2
    assert {node.name for node in graph if node.op == "MatMul"} == {"Logits/MatMul"}
    weights = graph[graph["Depthwise/depthwise"].inputs[1].node]
    assert weights.op == "Mul"
