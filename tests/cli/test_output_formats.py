"""``--output-format`` of ``validate``, ``build``, and ``check-target``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run, replace_text


def sarif(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The results and the rules of a SARIF log with one run."""
    log = json.loads(text)
    assert log["version"] == "2.1.0"
    (one,) = log["runs"]
    assert one["tool"]["driver"]["name"] == "mobileprep"
    return one["results"], one["tool"]["driver"]["rules"]


@pytest.fixture
def misspelled(digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe with an unknown key in line 17, in the working directory."""
    replace_text(digits, "transforms:", "transform:")
    monkeypatch.chdir(digits.parent)
    return digits


@pytest.mark.parametrize("verb", ["validate", "build"])
def test_recipe_problems_are_annotations(verb: str, misspelled: Path, run: Run) -> None:
    result = run(verb, misspelled, "--output-format", "github")
    assert result.code == 3
    line = misspelled.read_text().split("transform:")[0].count("\n") + 1
    message = "transform: unknown key 'transform'; did you mean 'transforms'?"
    assert result.out == f"::error file=recipe.yaml,line={line},col=1,title=MP301::{message}\n"
    assert f"{message} [MP301]" in result.err


def test_recipe_problems_are_sarif_results(misspelled: Path, run: Run) -> None:
    result = run("validate", misspelled, "--output-format=sarif")
    (problem,), (rule,) = sarif(result.out)
    assert (problem["ruleId"], problem["level"], rule["id"]) == ("MP301", "error", "MP301")
    place = problem["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "recipe.yaml"
    assert place["region"]["startColumn"] == 1


@pytest.mark.parametrize("verb", ["validate", "build"])
def test_success_prints_an_empty_log(verb: str, digits: Path, run: Run) -> None:
    result = run(verb, digits, "--output-format", "sarif")
    assert result.code == 0
    assert sarif(result.out) == ([], [])
    assert run(verb, digits, "--output-format", "github").out == ""


def test_target_findings_name_nodes(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "model, 1.pb"
    write_graph(model, Graph([Node("x", "Placeholder"), Node("m", "MatrixDiagV3", ("x",))]))
    result = run("check-target", model, "--output-format", "sarif")
    findings, rules = sarif(result.out)
    assert result.code == 1
    assert {each["ruleId"] for each in findings} == {rule["id"] for rule in rules}
    of_op = [each for each in findings if each["ruleId"] == "MP103"]
    assert of_op[0]["locations"][0]["logicalLocations"] == [
        {"fullyQualifiedName": "m", "kind": "node"}
    ]
    annotated = run("check-target", model, "--output-format", "github").out
    assert "::error file=" in annotated
    assert "model%2C 1.pb,title=MP103::" in annotated


def test_json_format_equals_the_json_option(digits: Path, run: Run) -> None:
    named = run("validate", digits, "--output-format", "json")
    assert json.loads(named.out) == json.loads(run("validate", digits, "--json").out)


def test_unknown_format_is_refused(digits: Path, run: Run) -> None:
    result = run("validate", digits, "--output-format", "xml")
    assert result.code == 2
    assert "xml" in result.err


def test_usage_error_is_in_the_log(run: Run) -> None:
    result = run("validate", "--output-format", "sarif")
    assert result.code == 2
    assert sarif(result.out)[0][0]["ruleId"] == "MP202"


def test_watch_refuses_output_formats(digits: Path, run: Run) -> None:
    result = run("watch", digits, "--output-format", "github")
    assert result.code == 2
    assert "is not an option of watch" in result.out
