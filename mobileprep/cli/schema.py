"""The verb ``schema``: prints the JSON Schema of recipes or of ``--json`` output."""

from __future__ import annotations

import argparse
from pathlib import Path

from mobileprep.cli.verb import Group, verb
from mobileprep.errors import UsageError, nearest_hint

RECIPE = "recipe"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        default=RECIPE,
        help="recipe, or a --json output: benchmark, cache-clear, cache-gc, cache-info, "
        "cache-verify, calibrate, check-target, choose, compare, debug-quantization, diff, "
        "doctor, doctor-library, error, explain, migrate, plan (also build --dry-run), report "
        "(also build), report-compare, run, summarize, validate, or verify",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--path", action="store_true", help="Print the path of the installed schema")
    which.add_argument(
        "--modeline",
        metavar="RECIPE",
        help="Print the modeline with which editors find the schema of this recipe",
    )


@verb(
    "schema",
    Group.MAINTENANCE,
    "Print the JSON Schema of recipes or of --json output",
    _arguments,
    "mobileprep schema > recipe.schema.json",
    "mobileprep schema report",
)
def run(args: argparse.Namespace) -> int:
    """Print the schema, including transforms of installed packages, or its path or modeline."""
    from mobileprep.recipe.editor_schema import editor_schema, rendered
    from mobileprep.recipe.schemas import (
        EDITOR_SCHEMA,
        TransformSchemas,
        installed_plugins,
        modeline,
    )

    if args.name != RECIPE:
        path = _output_schema(args)
        print(path if args.path else path.read_text(encoding="utf-8"), end="\n" * args.path)
    elif args.path:
        print(EDITOR_SCHEMA)
    elif args.modeline:
        print(modeline(Path(args.modeline)))
    else:
        schemas = TransformSchemas(plugins=installed_plugins().values())
        print(rendered(editor_schema(schemas)), end="")
    return 0


def schema_names() -> list[str]:
    """Return the names of all schemas."""
    return [RECIPE, *sorted(_output_schemas())]


def _output_schemas() -> dict[str, Path]:
    from mobileprep.recipe.schemas import OUTPUT_SCHEMAS

    return {path.stem: path for path in OUTPUT_SCHEMAS.glob("*.json")}


def _output_schema(args: argparse.Namespace) -> Path:
    schemas = _output_schemas()
    if args.modeline:
        message = "--modeline is only for the schema of recipes"
        raise UsageError(message)
    if args.name not in schemas:
        message = f"unknown schema {args.name!r}"
        raise UsageError(message, nearest_hint(args.name, schema_names()))
    return schemas[args.name]
