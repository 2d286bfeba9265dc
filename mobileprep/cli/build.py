"""The verb ``build``: recipes to what apps ship, doing only what a change made necessary."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._arguments import (
    exit_code_argument,
    out_argument,
    recipe_arguments,
    target_argument,
    targets_of,
)
from mobileprep.cli._locks import holding, no_wait_argument
from mobileprep.cli.verb import verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.api.verdicts import Verdict
    from mobileprep.pipeline.state import State
    from mobileprep.recipe.model import Recipe


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    target_argument(parser)
    out_argument(parser)
    parser.add_argument("-j", dest="jobs", type=int, default=1, metavar="N", help="stages at once")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, run nothing")
    exit_code_argument(parser)
    parser.add_argument("--explain", action="store_true", help="say why each stage runs")
    parser.add_argument("--force", action="store_true", help="run every stage again")
    no_wait_argument(parser)
    parser.add_argument(
        "--provenance",
        action="store_true",
        help="write an in-toto statement with SLSA provenance beside each target's folder",
    )
    parser.add_argument(
        "--builder-id",
        default=argparse.SUPPRESS,
        metavar="URI",
        help="what runs the build, as the provenance names it; MOBILEPREP_BUILDER_ID says it too",
    )
    parser.add_argument(
        "--locked", action="store_true", help="fail where mobileprep.lock pins anything else"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the reports as JSON; of a dry run, the stages"
    )


@verb("build", "build recipes: one folder for each target device", _arguments)
def run(args: argparse.Namespace) -> int:
    """Build, publish, report; a dry run waits for nobody, and keeps nobody waiting."""
    from mobileprep.api.recipes import target_folders
    from mobileprep.cli._load import load_recipes

    _check(args)
    started = time.perf_counter()
    recipes, out = load_recipes(args), Path(args.out)
    state = _prepared(args, recipes)
    if args.dry_run:
        return _dry(args, _explain(state, out))
    with holding(args, target_folders(recipes, out, targets_of(args))) as waited:
        if waited:
            state = _prepared(args, recipes)
        return _build(args, state, started)


def _prepared(args: argparse.Namespace, recipes: Sequence[Recipe]) -> State:
    """The plan of recipes, held to their locks where that is asked for; else misfits are told."""
    from mobileprep.api.building import prepared
    from mobileprep.api.lock import check_locks, lock_warnings
    from mobileprep.cli._load import warn

    targets = targets_of(args)
    state = prepared(recipes, Path(args.out), targets=targets, force=args.force)
    if args.locked:
        check_locks(recipes, state, whole=not targets)
    else:
        warn(lock_warnings(recipes, state, whole=not targets))
    return state


def _build(args: argparse.Namespace, state: State, started: float) -> int:
    from mobileprep.api.building import published
    from mobileprep.api.provenance import write_provenance
    from mobileprep.cli._progress import Progress
    from mobileprep.cli._reports import print_reports
    from mobileprep.pipeline.runner import build, stale_stages

    if args.explain:
        _explain(state, Path(args.out))
    with Progress(len(stale_stages(state))) as progress:
        ran = build(state, jobs=args.jobs, listen=progress.listen, warn=progress.warn)
    reports = []
    for built in published(state, Path(args.out)):
        if args.provenance:
            write_provenance(built.folder, _builder(args))
        if built.is_changed or args.json:
            reports.append(built.report)
        folder = os.path.join(args.out, built.folder.relative_to(args.out))  # noqa: PTH118 - as spelt
        _say(f"{folder}: {'written' if built.is_changed else 'up to date'}")
    _say(
        f"{len(ran)} of {len(state.plan.stages)} stages ran, {time.perf_counter() - started:.2f} s"
    )
    print_reports(reports, as_json=args.json)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.jobs < 1:
        message = f"-j takes a number from 1 on, and got {args.jobs}"
        raise UsageError(message)
    if args.exit_code and not args.dry_run:
        message = "--exit-code tells what would run, and so goes with --dry-run"
        raise UsageError(message, "a build itself fails with an exit code of its own")
    if args.provenance:
        from mobileprep.api.provenance import check_builder

        check_builder(_builder(args))


def _builder(args: argparse.Namespace) -> str:
    from mobileprep.api.provenance import BUILDER

    named: str | None = getattr(args, "builder_id", None)
    return os.environ.get("MOBILEPREP_BUILDER_ID") or BUILDER if named is None else named


def _explain(state: State, out: Path) -> list[Verdict]:
    """Say what a build would do and why; the verdicts."""
    from mobileprep.api.verdicts import verdicts

    judged = verdicts(state, out)
    stale = [verdict for verdict in judged if not verdict.fresh]
    for verdict in stale:
        _say(str(verdict))
    if not stale:
        _say("nothing to do: every stage is fresh, and every output in its place")
    return judged


def _dry(args: argparse.Namespace, judged: list[Verdict]) -> int:
    """The end of a dry run: its exit code, the verdicts printed where that is asked."""
    if args.json:
        print(json.dumps([verdict.as_data() for verdict in judged], indent=1))
    return int(args.exit_code and not all(verdict.fresh for verdict in judged))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
