"""``docs/integration.md``: its listings are the examples that tests run, its commands are right."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest
import yaml

from mobileprep.cli.main import find_verb
from mobileprep.cli.verb import Parser
from mobileprep.recipe.schemas import OUTPUT_SCHEMAS
from tests.cli.conftest import Run, digits, run

__all__ = ["digits", "run"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "integration.md").read_text(encoding="utf-8")
LISTINGS = {
    "python": "doit/dodo.py",
    "make": "make/Makefile",
    "ninja": "ninja/build.ninja",
    "cmake": "cmake/CMakeLists.txt",
    "groovy": "gradle/build.gradle",
    "starlark": "bazel/BUILD.bazel",
}


def test_the_code_for_apps_is_where_the_page_says(run: Run, digits: Path) -> None:
    (section,) = re.findall(r"```yaml\n(integration:.*?)```", PAGE, re.DOTALL)
    digits.write_text(digits.read_text() + section)
    assert run("build", digits).code == 0
    (table,) = re.findall(r"\| language \| files below.*?\n(.*?)\n\n", PAGE, re.DOTALL)
    named = {name for name in re.findall(r"`(\w+/[\w/]+\.\w+)`", table) if "tensorflow" not in name}
    folder = Path("out/digits/phone/integration")
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*.*")} == named


def test_the_quantized_target_has_the_methods_of_the_page(run: Run, digits: Path) -> None:
    (section,) = re.findall(r"```yaml\n(calibration:.*?)```", PAGE, re.DOTALL)
    digits.write_text(digits.read_text().partition("\nvalidation:")[0] + f"\n{section}")
    built = run("build", digits)
    assert built.code == 0, built.err
    (table,) = re.findall(r"\| \| float \| integers \|\n(.*?)\n\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`(\w+)", table))
    assert len(named) == 6
    folder = Path("out/digits/eight/integration")
    files = [p for p in folder.rglob("Digits.*") if p.suffix in (".java", ".kt", ".swift", ".h")]
    assert len(files) == 4
    methods = {p.suffix: set(re.findall(r"(\w+)\(", p.read_text("utf-8"))) for p in files}
    pascal = {name for name in named if name[0].isupper()}
    for suffix, found in methods.items():
        assert (pascal if suffix == ".h" else named - pascal) <= found


@pytest.mark.parametrize("language", LISTINGS)
def test_a_listing_is_the_example(language: str) -> None:
    (listing,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert listing == (ROOT / "examples" / LISTINGS[language]).read_text(encoding="utf-8")


def test_every_example_is_named() -> None:
    for path in (ROOT / "examples").rglob("*"):
        name = path.relative_to(ROOT / "examples").as_posix()
        assert path.is_dir() or name in LISTINGS.values() or f"examples/{name}" in PAGE


def test_every_schema_is_named() -> None:
    (table,) = re.findall(r"\| name \| is printed by \|\n(.*?)\n\n", PAGE, re.DOTALL)
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    assert {n for row in rows for n in re.findall(r"`([\w-]+)`", row)} == {
        path.stem for path in OUTPUT_SCHEMAS.glob("*.json")
    }


def test_the_commands_are_those_that_there_are() -> None:
    commands = re.findall(r"(?:[`(]|\$ )mobileprep ([a-z]+ ?[^`)\n]*)[`)\n]", PAGE)
    assert len(commands) > 10
    for command in commands:
        name, *words = shlex.split(command.partition(" > ")[0].partition('"')[0])
        verb = find_verb(name)
        parser = Parser(prog=name)
        verb.arguments(parser)
        if words and verb.name != "schema":
            known = [w.removesuffix("...") for w in words if w != "NAME"]
            assert isinstance(parser.parse_args(known), argparse.Namespace)


def test_the_hook_checks_recipes(run: Run, digits: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["id"] in PAGE
    assert re.search(hook["files"], "recipes/digits/recipe.yaml")
    assert re.search(hook["files"], "recipe.yaml")
    assert not re.search(hook["files"], "recipes/digits/my-recipe.yaml.txt")
    command = shlex.split(hook["entry"])
    assert command[0] == "mobileprep"
    assert run(*command[1:], digits).code == 0
    digits.write_text(digits.read_text().replace("outputs: [", "outptus: ["))
    assert run(*command[1:], digits).code == 3
