"""The verb ``verify``: rebuilds published outputs and compares every byte."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._shared.arguments import jobs_argument, jobs_of, settings_argument
from mobileprep.cli._shared.telling import warn
from mobileprep.cli.verb import Group, file_name, verb
from mobileprep.core.printable import plain
from mobileprep.errors import CorruptFileError, MobileprepError, UsageError

if TYPE_CHECKING:
    from mobileprep.building.pipeline.publish import Manifest
    from mobileprep.building.verify import VerifiedFile, VerifyResult
    from mobileprep.recipe.model import Recipe


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "out",
        type=file_name,
        metavar="OUT",
        help="Target directory, or a directory that contains target directories",
    )
    parser.add_argument(
        "--recipe",
        action="append",
        default=[],
        metavar="RECIPE",
        dest="recipes",
        help="Recipe file or directory [default: every recipe.yaml below the current directory]",
    )
    settings_argument(parser)
    jobs_argument(parser)
    parser.add_argument(
        "--quick", action="store_true", help="Compare with the manifests without building"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


@verb(
    "verify",
    Group.MAINTENANCE,
    "Rebuild published outputs and compare every byte",
    _arguments,
    "mobileprep verify out",
    "mobileprep verify out/digits/phone --quick",
)
def run(args: argparse.Namespace) -> int:
    """Print the comparison; return 4 if a byte differs or a rebuild is not possible."""
    from mobileprep.building.verify import manifests, verify_folders

    jobs, out = jobs_of(args), Path(args.out)
    folders = manifests(out)
    checked = verify_folders(
        out,
        folders,
        None if args.quick else _recipes(args, folders),
        jobs=jobs,
        warn=lambda task, text: warn(f"{task}: {text}"),
    )
    if args.json:
        print(json.dumps([folder.as_data() for folder in checked], indent=1))
    else:
        print("\n".join(line for folder in checked for line in _lines(folder)))
    return 0 if all(folder.is_same for folder in checked) else CorruptFileError.exit_code


def _recipes(args: argparse.Namespace, manifests: Mapping[Path, Manifest]) -> list[Recipe]:
    """Return the named recipes, or those below the current directory that are needed."""
    from mobileprep.building.verify import recipe_folders
    from mobileprep.cli._shared.arguments import settings_of
    from mobileprep.recipe.load import check_names, load_recipe

    built = {manifest.recipe for manifest in manifests.values()}
    names = {*built, *recipe_folders(Path(args.out), manifests).values()}
    recipes = []
    for path in _paths(args):
        try:
            recipe = load_recipe(path, settings=settings_of(args), environ=os.environ)
        except MobileprepError as error:
            if args.recipes:
                raise
            # A default file may be unrelated; if it is missing, that is reported.
            warn(f"passed over {path}: {error}")
            continue
        if recipe.name in names:
            recipes.append(recipe)
    check_names(recipes)
    return recipes


def _paths(args: argparse.Namespace) -> list[Path]:
    from mobileprep.cli._shared.folders import recipe_files

    if args.recipes:
        return recipe_files(args.recipes, recursive=False, out=args.out)
    try:
        return recipe_files(["."], recursive=True, out=args.out)
    except UsageError:  # no recipes; the result lists those that are missing
        return []


def _lines(folder: VerifyResult) -> Iterator[str]:
    beside = "the rebuild" if folder.is_rebuilt else "its manifest"
    if not folder.files:
        yield from (f"{plain(str(folder.folder))}: {reason}" for reason in folder.reasons)
        return
    for reason in folder.reasons:
        yield f"{folder.folder}: not built again: {reason}"
    wrong = [file for file in folder.files if file.status != "same"]
    for file in wrong:
        yield f"{plain(str(folder.folder / file.name))}: {_status(file, beside)}"
    if not wrong:
        yield f"{folder.folder}: same as {beside}, {len(folder.files)} files"


def _status(file: VerifiedFile, beside: str) -> str:
    if file.status != "differs":
        return f"{file.status}: {beside} has {'no such file' if file.expected is None else 'it'}"
    checksum = file.found or "none, because it is not a regular file"
    return f"differs: its sha256 is {checksum}, and {beside} has {file.expected}"
