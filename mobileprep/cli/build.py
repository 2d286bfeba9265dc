"""The verb ``build``: recipes to what apps ship, doing only what a change made necessary."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._arguments import out_argument, recipe_arguments, target_argument
from mobileprep.cli.verb import verb
from mobileprep.errors import UsageError

if TYPE_CHECKING:
    from mobileprep.pipeline.state import State
    from mobileprep.report.collect import Report


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    target_argument(parser)
    out_argument(parser)
    parser.add_argument("-j", dest="jobs", type=int, default=1, metavar="N", help="stages at once")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, run nothing")
    parser.add_argument("--explain", action="store_true", help="say why each stage runs")
    parser.add_argument("--force", action="store_true", help="run every stage again")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")


@verb("build", "build recipes: one folder for each target device", _arguments)
def run(args: argparse.Namespace) -> int:
    """Build, publish, report."""
    from mobileprep.cli._load import load_recipes
    from mobileprep.cli._progress import Progress
    from mobileprep.cli._targets import plan_state, publish_target
    from mobileprep.pipeline.overlaps import check_overlaps
    from mobileprep.pipeline.runner import build, collect, stale_stages

    if args.jobs < 1:
        message = f"-j takes a number from 1 on, and got {args.jobs}"
        raise UsageError(message)
    started = time.perf_counter()
    recipes = load_recipes(args)
    state = plan_state(recipes, args.target, force=args.force)
    check_overlaps(recipes, state.plan, state.store, Path(args.out))
    if args.dry_run or args.explain:
        _explain(state)
    if args.dry_run:
        return 0
    with Progress(len(stale_stages(state))) as progress:
        ran = build(state, jobs=args.jobs, listen=progress.listen, warn=progress.warn)
    reports = []
    for built in collect(state):
        report, changed = publish_target(built, state.store, Path(args.out))
        reports.append((report, changed))
        folder = os.path.join(args.out, *built.target.folder.split("/"))  # noqa: PTH118
        _say(f"{folder}: {'written' if changed else 'up to date'}")
    _say(
        f"{len(ran)} of {len(state.plan.stages)} stages ran, {time.perf_counter() - started:.2f} s"
    )
    _print(reports, as_json=args.json)
    return 0


def _explain(state: State) -> None:
    from mobileprep.pipeline.runner import stale_stages

    stale = stale_stages(state)
    for spec, verdict in stale:
        _say(f"{spec.task}: {'; '.join(verdict.reasons)}")
    if not stale:
        _say("nothing to do: every stage is fresh")


def _print(reports: list[tuple[Report, bool]], *, as_json: bool) -> None:
    if as_json:
        from mobileprep.report.json import report_data

        print(json.dumps([report_data(r) for r, _ in reports], sort_keys=True, indent=1))
        return
    changed = [r for r, written in reports if written]
    if not changed:
        return
    from mobileprep.report.text import report_text

    for report in changed:
        print(report_text(report), end="")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
