"""``mobileprep schema``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mobileprep.recipe.schemas import EDITOR_SCHEMA, OUTPUT_SCHEMAS
from tests.cli.conftest import Run


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
