"""Output of ``--json`` conforms to the published schemas."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from mobileprep.cli.main import main, verb_names
from mobileprep.errors import MobileprepError
from mobileprep.graph.files import write_graph
from mobileprep.recipe.schemas import EDITOR_SCHEMA, OUTPUT_SCHEMAS
from tests.building.stages.jobs import classifier
from tests.cli.conftest import CommandResult, Run, replace_text
from tests.formats.elf_files import elf_library

MODEL = "out/digits/phone/digits.pb"
OTHER = "out/digits/download/digits.pb"
COMMANDS = {
    "build": ("report", "build digits --json"),
    "build, dry": ("plan", "build digits --dry-run --json"),
    "build, forced": ("plan", "build digits --dry-run --force --json"),
    "benchmark": ("benchmark", f"benchmark --graph={MODEL} --json --max_num_runs=2"),
    "benchmark, device": (
        "benchmark",
        f"benchmark --graph={MODEL} --json --max_num_runs=2 --device=raspberry-pi-3",
    ),
    "cache info": ("cache-info", "cache info --json"),
    "cache gc": ("cache-gc", "cache gc --json --max-size 1KB"),
    "cache verify": ("cache-verify", "cache verify --json"),
    "cache clear": ("cache-clear", "cache clear --json"),
    "check-target": ("check-target", f"check-target {MODEL} --json"),
    "check-target, others": ("check-target", f"check-target {OTHER} --platform ios --json"),
    "calibrate": ("calibrate", "calibrate digits/eight.yaml --json"),
    "compare": ("compare", f"compare {MODEL} {OTHER} --json"),
    "debug-quantization": (
        "debug-quantization",
        "debug-quantization eight-bits --samples 2 --json",
    ),
    "diff": ("diff", f"diff {MODEL} {OTHER} --samples 2 --json"),
    "doctor": ("doctor", "doctor --json"),
    "doctor-library": ("doctor-library", f"doctor --library=lib.so --graph={MODEL} --json"),
    "explain": ("explain", "explain MP401 --json"),
    "explain, model": ("explain", f"explain MP101 --model {MODEL} --json"),
    "choose": ("choose", f"choose {MODEL} --device smartphone --json"),
    "migrate": ("migrate", f"migrate {MODEL} --json"),
    "plan": ("plan", "plan digits --json"),
    "report": ("report", "report digits --json"),
    "report, stored": ("report", "report out --json"),
    "report, compared": (
        "report-compare",
        "report out/digits/phone --compare out/digits/download/report.json --json",
    ),
    "run": (
        "run",
        f"run --graph={MODEL} --feed=image=random:1,8,8,1 --fetch=probabilities --top=3 --json",
    ),
    "run, each": (
        "run",
        f"run --graph={MODEL} --feed=image=feeds --each --fetch=probabilities --json",
    ),
    "summarize": ("summarize", f"summarize --in_graph {MODEL} --json"),
    "summarize, source": ("summarize", "summarize --in_graph digits/model/graph.pbtxt --json"),
    "validate": ("validate", "validate digits --json"),
    "verify": ("verify", "verify out --recipe digits/recipe.yaml --json"),
    "verify, quick": ("verify", "verify out --quick --json"),
    "recipe error": ("error", "build no-such-recipe --json"),
    "usage error": ("error", "build digits --target nothing --json"),
}

EIGHT_BITS = """
version: 1
extends: ../digits/recipe.yaml
name: eight-bits
targets: {phone: {quantize: {mode: nodes}}, download: null}
"""


def check(name: str, result: CommandResult) -> None:
    schema = json.loads((OUTPUT_SCHEMAS / f"{name}.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    validator.validate(json.loads(result.out))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("command", COMMANDS)
def test_json_output_matches_its_schema(command: str, run: Run) -> None:
    name, arguments = COMMANDS[command]
    for folder in ("feeds", "eight-bits"):
        Path(folder).mkdir()
    Path("eight-bits/recipe.yaml").write_text(EIGHT_BITS, encoding="utf-8")
    Path("digits/eight.yaml").write_text(
        "extends: recipe.yaml\ncalibration: {data: data/test.npz, range_file: ranges.yaml}\n"
        "targets: {eight: {quantize: {mode: nodes, ranges: observed}}}\n"
    )
    Path("lib.so").write_bytes(elf_library())
    for file in ("a", "b"):
        np.save(f"feeds/{file}.npy", np.zeros((1, 8, 8, 1), np.float32))
    result = run(*arguments.split())
    assert (result.code in (0, 1)) is (name not in ("error", "doctor-library")), result.err
    check(name, result)


@pytest.mark.parametrize("checked", ["check: {samples: 2}", "check: {data: data/test.npz}"])
def test_reports_of_checked_recipes_match_the_schema(digits: Path, run: Run, checked: str) -> None:
    digits.write_text(f"{digits.read_text()}\n{checked}\n")
    result = run("build", digits, "--target", "phone", "--json")
    assert result.code == 0, result.err
    check("report", result)
    assert json.loads(result.out)[0]["check"]["samples"]


@pytest.mark.parametrize("path", sorted(OUTPUT_SCHEMAS.glob("*.json")), ids=lambda p: p.stem)
def test_schemas_are_tested_and_closed(path: Path) -> None:
    assert path.stem in {name for name, _ in COMMANDS.values()}
    for shape in json.loads(path.read_text())["$defs"].values():
        assert shape["additionalProperties"] is False


def test_recipe_schema_is_printed(run: Run) -> None:
    result = run("schema")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)["$id"] == "urn:mobileprep:recipe:1"
    assert "step_fold_constants" in result.out


def test_path_option_prints_the_file(run: Run) -> None:
    result = run("schema", "--path")
    assert result.code == 0
    assert Path(result.out.strip()) == EDITOR_SCHEMA
    assert json.loads(EDITOR_SCHEMA.read_text())["$id"] == "urn:mobileprep:recipe:1"


def test_modeline_is_printed(run: Run, tmp_path: Path) -> None:
    result = run("schema", "--modeline", tmp_path / "recipe.yaml")
    assert result.out == "# yaml-language-server: $schema=recipe.schema.json\n"


def test_path_and_modeline_exclude_each_other(run: Run) -> None:
    assert run("schema", "--path", "--modeline", "recipe.yaml").code == 2


def test_output_schema_or_its_path_is_printed(run: Run) -> None:
    result = run("schema", "report")
    assert (result.code, json.loads(result.out)["$id"]) == (0, "urn:mobileprep:output:report:1")
    assert Path(run("schema", "report", "--path").out.strip()).read_text() == result.out


def test_unknown_schema_is_refused(run: Run) -> None:
    result = run("schema", "reprot")
    assert (result.code, result.out) == (2, "")
    assert "did you mean 'report'?" in result.err
    assert run("schema", "plan", "--modeline", "recipe.yaml").code == 2


def test_help_lists_all_schemas(run: Run) -> None:
    result = re.sub(r"-\s+", "-", run("help", "schema").out)
    assert all(path.stem in result for path in OUTPUT_SCHEMAS.glob("*.json"))


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
