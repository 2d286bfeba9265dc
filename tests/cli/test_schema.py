"""``mobileprep schema``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mobileprep.recipe.schemas import EDITOR_SCHEMA, OUTPUT_SCHEMAS
from tests.cli.conftest import Run


def test_the_schema_is_printed_whole(run: Run) -> None:
    told = run("schema")
    assert (told.code, told.err) == (0, "")
    assert json.loads(told.out)["$id"] == "urn:mobileprep:recipe:1"
    assert "step_fold_constants" in told.out


def test_its_path_is_that_of_a_file(run: Run) -> None:
    told = run("schema", "--path")
    assert told.code == 0
    assert Path(told.out.strip()) == EDITOR_SCHEMA
    assert json.loads(EDITOR_SCHEMA.read_text())["$id"] == "urn:mobileprep:recipe:1"


def test_the_line_for_a_recipe_is_printed(run: Run, tmp_path: Path) -> None:
    told = run("schema", "--modeline", tmp_path / "recipe.yaml")
    assert told.out == "# yaml-language-server: $schema=recipe.schema.json\n"


def test_path_and_line_exclude_each_other(run: Run) -> None:
    assert run("schema", "--path", "--modeline", "recipe.yaml").code == 2


def test_the_schema_of_an_output_is_printed_or_its_path(run: Run) -> None:
    told = run("schema", "report")
    assert (told.code, json.loads(told.out)["$id"]) == (0, "urn:mobileprep:output:report:1")
    assert Path(run("schema", "report", "--path").out.strip()).read_text() == told.out


def test_a_name_without_a_schema_is_refused(run: Run) -> None:
    told = run("schema", "reprot")
    assert (told.code, told.out) == (2, "")
    assert "did you mean 'report'?" in told.err
    assert run("schema", "plan", "--modeline", "recipe.yaml").code == 2


def test_help_names_every_schema(run: Run) -> None:
    told = re.sub(r"-\s+", "-", run("help", "schema").out)
    assert all(path.stem in told for path in OUTPUT_SCHEMAS.glob("*.json"))
