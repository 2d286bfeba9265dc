"""The verb ``schema``: gives editors what they check recipes by."""

from __future__ import annotations

import argparse
from pathlib import Path

from mobileprep.cli.verb import verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--path", action="store_true", help="print where the installed schema lies instead"
    )
    which.add_argument(
        "--modeline",
        metavar="RECIPE",
        help="print the first line by which editors find the schema of that recipe instead",
    )


@verb("schema", "print the JSON Schema of recipes, for editors", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print the schema, with the transforms of installed packages; or where it lies."""
    from mobileprep.recipe.editor_schema import editor_schema, rendered
    from mobileprep.recipe.plugins import installed_plugins
    from mobileprep.recipe.schemas import EDITOR_SCHEMA, TransformSchemas, modeline

    if args.path:
        print(EDITOR_SCHEMA)
    elif args.modeline:
        print(modeline(Path(args.modeline)))
    else:
        schemas = TransformSchemas(plugins=installed_plugins().values())
        print(rendered(editor_schema(schemas)), end="")
    return 0
