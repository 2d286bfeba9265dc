"""The examples of docs/quantization.md on ``quantize: auto``, run as they stand there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

import mobileprep
from mobileprep.cli.main import main
from mobileprep.graph.files import read_graph
from tests.cli.pages import is_answer

ROOT = Path(__file__).resolve().parents[1]
SECTION = (
    (ROOT / "docs" / "quantization.md")
    .read_text(encoding="utf-8")
    .partition("\n## Auto\n")[2]
    .partition("\n## ")[0]
)
TARGET, LONG = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
HEAD = "version: 1\nextends: mnist/recipe.yaml\nname: page\n"


def _nobody(_: str) -> None:
    """Takes warnings, as that of what TensorFlow 1.15 does not know."""


@pytest.fixture(autouse=True)
def _recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes" / "mnist", tmp_path / "recipes" / "mnist")


@pytest.mark.slow
def test_its_command_says_what_stands_there(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```console\n\$ mobileprep (.*?)\n(.*?)```", SECTION, re.DOTALL)
    command, answer = block
    assert main(shlex.split(command)) == 0
    told = capsys.readouterr()
    assert is_answer(answer, told.err + told.out), told.err + told.out


@pytest.mark.slow
def test_its_rule_gives_the_model_of_the_search() -> None:
    (rule,) = re.findall(r"as a rule: (\{.*\})$", SECTION, re.MULTILINE)
    recipe = Path("recipes/page.yaml")
    written = f"rules: [{rule}]"
    recipe.write_text(
        HEAD
        + TARGET.replace(
            "quantize: auto", f"quantize: {{mode: nodes, ranges: observed, {written}}}"
        )
    )
    mobileprep.build(recipe, targets=["phone"], out="ruled", warn=_nobody)
    recipe.write_text(HEAD + TARGET)
    mobileprep.build(recipe, targets=["phone"], out="searched", warn=_nobody)
    ruled, searched = (
        Path(out, "page/phone/page.pb").read_bytes() for out in ("ruled", "searched")
    )
    assert ruled == searched


@pytest.mark.slow
def test_its_long_form_keeps_the_rules_and_repairs() -> None:
    recipe = Path("recipes/page.yaml")
    recipe.write_text(HEAD + TARGET.replace("    quantize: auto\n", LONG))
    built = mobileprep.build(recipe, targets=["phone"], out="out", warn=_nobody).targets[0]
    assert "equalize_ranges" in [step.name for step in built.report.steps]
    graph = read_graph(built.folder / "page.pb")
    depthwise = [node for node in graph if node.op == "DepthwiseConv2dNative"]
    assert {graph[node.inputs[1].node].op for node in depthwise} <= {"Dequantize", "Mul"}
