"""With --json there is one JSON value on the standard output, whatever happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mobileprep.cli.main import main, verb_names
from mobileprep.errors import MobileprepError
from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier
from tests.cli.conftest import Run

WITH_JSON = ["benchmark", "build", "compare", "doctor", "plan", "report", "run", "validate"]


@pytest.mark.parametrize("verb", WITH_JSON)
def test_a_usage_error_is_an_object(verb: str, run: Run) -> None:
    told = run(verb, "--json", "--no-such-flag=1")
    error = json.loads(told.out)["error"]
    assert told.code == error["exit_code"] == 2
    assert error["kind"] == "usage"
    assert f"{error['where']}: {error['message']}" in told.err
    assert error["hint"] in told.err
    assert error["where"] == f"mobileprep {verb}"


def test_the_list_of_verbs_with_json_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for verb in verb_names():
        assert main(["help", verb]) == 0
        if "--json" in capsys.readouterr().out:
            found.append(verb)
    assert set(found) >= set(WITH_JSON)


def test_a_recipe_s_problems_keep_their_places(digits: Path, run: Run) -> None:
    digits.write_text(digits.read_text().replace("targets:", "targts:"))
    for verb in ("validate", "plan", "build", "report"):
        told = run(verb, digits, "--json")
        error = json.loads(told.out)["error"]
        assert told.code == error["exit_code"] == 3
        assert error["kind"] == "recipe"
        assert error["message"].count(f"{digits}:") == 2
        assert "did you mean 'targets'?" in error["message"]


def test_a_missing_file_is_named(digits: Path, run: Run) -> None:
    (digits.parent / "model" / "graph.pbtxt").unlink()
    for verb in ("validate", "plan", "build", "report"):
        told = run(verb, digits, "--json")
        error = json.loads(told.out)["error"]
        assert (told.code, error["kind"], error["exit_code"]) == (4, "corrupt file", 4)


def test_a_failure_in_the_middle_of_a_build_is_the_only_value(digits: Path, run: Run) -> None:
    digits.write_text(digits.read_text().replace("labels: label", "labels: lable"))
    told = run("build", digits, "--json")
    error = json.loads(told.out)["error"]
    assert (told.code, error["kind"]) == (8, "accuracy")


def test_results_before_an_error_are_held_back(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("a.pb"), classifier())
    asked = ["run", "--graph=a.pb", "--feed=x=random:1,3", "--json"]
    assert "outputs" in json.loads(run(*asked).out)
    told = run(*asked, "--self_test")
    assert (told.code, json.loads(told.out)["error"]["kind"]) == (8, "accuracy")


def test_a_build_with_nothing_to_do_lists_its_reports(built: Path, run: Run) -> None:
    told = run("build", built, "--json")
    assert [report["target"] for report in json.loads(told.out)] == ["phone", "download"]


def test_help_is_help_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--json", "--help"])
    assert "usage: mobileprep plan" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("problem", "kind", "code"),
    [(ZeroDivisionError("oops"), "bug", 70), (KeyboardInterrupt(), "interrupted", 130)],
)
def test_bugs_and_interrupts_are_objects_too(
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
def test_every_class_of_error_has_a_kind(
    error: type[MobileprepError],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_arguments: object) -> int:
        raise error(*("what", "mend", "place"))

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    assert main(["--json"]) == error.exit_code
    told = json.loads(capsys.readouterr().out)["error"]
    assert told.pop("kind").replace(" ", "") == error.__name__.removesuffix("Error").lower()
    assert told.pop("code") == error().code
    assert told == {
        "message": "what",
        "hint": "mend",
        "where": "place",
        "exit_code": error.exit_code,
    }
