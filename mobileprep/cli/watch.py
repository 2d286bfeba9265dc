"""The verb ``watch``: rebuilds recipes when their inputs change."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli import build
from mobileprep.cli._shared.arguments import settings_of, targets_of
from mobileprep.cli._shared.failures import tell_error
from mobileprep.cli._shared.telling import print_note
from mobileprep.cli.verb import Group, verb
from mobileprep.errors import MobileprepError, UsageError

if TYPE_CHECKING:
    from mobileprep.building.watching import SameReads, Watched

# Flags of build that watch does not support.
_NOT_HERE = ("dry_run", "exit_code")


@verb(
    "watch",
    Group.BUILD,
    "Rebuild recipes when their inputs change",
    build.build_arguments,
    "mobileprep watch recipe.yaml",
)
def run(args: argparse.Namespace) -> int:
    """Build and wait for changes until Ctrl-C, which exits with code 130."""
    from mobileprep.building.watching import SameReads, wait_for_change, watcher

    for name in _NOT_HERE:
        if getattr(args, name):
            message = f"--{name.replace('_', '-')} is not an option of watch"
            raise UsageError(message, "it is for 'mobileprep build'")
    if args.output_format != "text":
        flag = "--json" if args.output_format == "json" else "--output-format"
        message = f"{flag} is not an option of watch"
        raise UsageError(message, "it is for 'mobileprep build'")
    watcher()
    before: Watched | None = None
    while True:
        files = _files(args)
        watched = _watched(args, files, before)
        try:
            build.run(args)
        except MobileprepError as error:
            if before is None and isinstance(error, UsageError):
                raise
            tell_error(error, as_json=False)
        count = len(watched.stamps)
        print_note(f"watching {count} files; press Ctrl-C to stop")
        sys.stdout.flush()
        same_reads = SameReads(watched, partial(_inputs, args))
        wait_for_change(watched, partial(_is_same, args, files, same_reads))
        before, args.force = watched, False


def _watched(args: argparse.Namespace, files: list[Path], before: Watched | None) -> Watched:
    """Return the inputs of the next build, or all files that may fix a recipe with errors."""
    from mobileprep.building.watching import watch_folders

    try:
        return _inputs(args)
    except MobileprepError:
        return watch_folders(files, before, settings_of(args))


def _is_same(args: argparse.Namespace, files: list[Path], same_reads: SameReads) -> bool:
    return _files(args) == files and same_reads()


def _inputs(args: argparse.Namespace) -> Watched:
    from mobileprep.building.watching import watch_inputs
    from mobileprep.cli._shared.folders import load_recipes

    return watch_inputs(load_recipes(args), targets_of(args), locked=args.locked)


def _files(args: argparse.Namespace) -> list[Path]:
    """Return the recipe files; empty if a directory has none, which may be temporary."""
    from mobileprep.cli._shared.folders import recipe_files

    try:
        return recipe_files(args.recipes, recursive=args.recursive, out=args.out)
    except MobileprepError:
        return []
