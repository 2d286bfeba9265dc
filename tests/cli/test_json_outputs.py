"""Output of ``--json`` conforms to the published schemas."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from mobileprep.recipe.schemas import OUTPUT_SCHEMAS
from tests.cli.conftest import CommandResult, Run
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
