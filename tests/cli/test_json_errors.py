"""With --json, stdout contains exactly one JSON value, also after errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mobileprep.cli.main import main, verb_names
from mobileprep.errors import MobileprepError
from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier
from tests.cli.conftest import Run, replace_text

WITH_JSON = ["benchmark", "build", "compare", "doctor", "plan", "report", "run", "validate"]


@pytest.mark.parametrize("verb", WITH_JSON)
def test_usage_error_is_an_object(verb: str, run: Run) -> None:
    result = run(verb, "--json", "--no-such-flag=1")
    error = json.loads(result.out)["error"]
    assert result.code == error["exit_code"] == 2
    assert error["kind"] == "usage"
    assert f"{error['where']}: {error['message']}" in result.err
    assert error["hint"] in result.err
    assert error["where"] == f"mobileprep {verb}"


def test_listed_verbs_have_a_json_option(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = []
    for verb in verb_names():
        assert main(["help", verb]) == 0
        if "--json" in capsys.readouterr().out:
            verbs.append(verb)
    assert set(verbs) >= set(WITH_JSON)


def test_recipe_problems_include_locations(digits: Path, run: Run) -> None:
    replace_text(digits, "targets:", "targts:")
    for verb in ("validate", "plan", "build", "report"):
        result = run(verb, digits, "--json")
        error = json.loads(result.out)["error"]
        assert result.code == error["exit_code"] == 3
        assert error["kind"] == "recipe"
        assert error["message"].count(f"{digits}:") == 2
        assert "did you mean 'targets'?" in error["message"]


def test_missing_file_is_an_error_object(digits: Path, run: Run) -> None:
    (digits.parent / "model" / "graph.pbtxt").unlink()
    for verb in ("validate", "plan", "build", "report"):
        result = run(verb, digits, "--json")
        error = json.loads(result.out)["error"]
        assert (result.code, error["kind"], error["exit_code"]) == (4, "corrupt file", 4)


def test_build_failure_is_the_only_value(digits: Path, run: Run) -> None:
    replace_text(digits, "labels: label", "labels: lable")
    result = run("build", digits, "--json")
    error = json.loads(result.out)["error"]
    assert (result.code, error["kind"]) == (8, "accuracy")


def test_results_before_an_error_are_not_printed(workdir: Path, run: Run) -> None:
    write_graph(Path("a.pb"), classifier())
    command = ["run", "--graph=a.pb", "--feed=x=random:1,3", "--json"]
    assert "outputs" in json.loads(run(*command).out)
    result = run(*command, "--self_test")
    assert (result.code, json.loads(result.out)["error"]["kind"]) == (8, "accuracy")


def test_up_to_date_build_lists_reports(built: Path, run: Run) -> None:
    result = run("build", built, "--json")
    assert [report["target"] for report in json.loads(result.out)] == ["phone", "download"]


def test_help_is_printed_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--json", "--help"])
    assert "usage: mobileprep plan" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("problem", "kind", "code"),
    [(ZeroDivisionError("oops"), "bug", 70), (KeyboardInterrupt(), "interrupted", 130)],
)
def test_bugs_and_interrupts_are_objects(
    problem: BaseException,
    kind: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_arguments: object) -> int:
        sys.stdout.write("half of a result")
        raise problem

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    assert main(["plan", "--json"]) == code
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)


@pytest.mark.parametrize("error", MobileprepError.__subclasses__())
def test_error_classes_have_kinds(
    error: type[MobileprepError],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_arguments: object) -> int:
        raise error(*("what", "try again", "place"))

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    assert main(["--json"]) == error.exit_code
    out = json.loads(capsys.readouterr().out)["error"]
    assert out.pop("kind").replace(" ", "") == error.__name__.removesuffix("Error").lower()
    assert out.pop("code") == error().code
    assert out == {
        "message": "what",
        "hint": "try again",
        "where": "place",
        "exit_code": error.exit_code,
    }
