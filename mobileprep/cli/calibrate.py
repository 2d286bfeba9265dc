"""The verb ``calibrate``: measures tensor ranges and writes range files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mobileprep.cli._shared.arguments import (
    add_limit_flags,
    recipe_arguments,
    target_argument,
    targets_of,
)
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, verb
from mobileprep.errors import AccuracyError

if TYPE_CHECKING:
    from mobileprep.building.calibrating import CalibrationResult, Moved


def _arguments(parser: argparse.ArgumentParser) -> None:
    recipe_arguments(parser)
    add_limit_flags(parser)
    target_argument(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="Write nothing, and fail if a range file is out of date",
    )
    parser.add_argument("--json", action="store_true", help="Print changed ranges as JSON")


@verb(
    "calibrate",
    Group.BUILD,
    "Measure tensor ranges and write range files",
    _arguments,
    "mobileprep calibrate recipe.yaml",
    "mobileprep calibrate recipe.yaml --check",
)
def run(args: argparse.Namespace) -> int:
    """Measure ranges, write range files, and print changed ranges.

    Raises:
        AccuracyError: with ``--check``, a range file would change.
    """
    from msgspec import to_builtins

    from mobileprep.building.calibrating import plan_calibrations, run_calibrations
    from mobileprep.building.pipeline.runner import stale_stages
    from mobileprep.cli._shared.folders import load_recipes
    from mobileprep.cli._shared.terminal.progress import Progress

    plan = plan_calibrations(load_recipes(args), targets_of(args))
    with Progress(len(stale_stages(plan.state))) as progress:
        done = run_calibrations(
            plan,
            check=args.check,
            listen=progress.listen,
            warn=progress.warn,
            advance=progress.advance,
        )
    if args.json:
        print(json.dumps([to_builtins(one) for one in done], sort_keys=True, indent=1))
    for one in done:
        if not args.json:
            show(_lines(one))
        show([_result_line(one, check=args.check)], file=sys.stderr)
    changed = [one.range_file for one in done if one.range_file and one.is_changed]
    if args.check and changed:
        message = f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'} not up to date"
        raise AccuracyError(message, "run 'mobileprep calibrate' and check in its output")
    return 0


def _result_line(one: CalibrationResult, *, check: bool) -> str:
    if one.range_file is None:
        return f"{', '.join(one.targets)}: no range_file is named that would keep the ranges"
    state = "would change" if check else "written"
    return f"{one.range_file}: {state if one.is_changed else 'up to date'}"


def _lines(one: CalibrationResult) -> Iterator[str]:
    more = f", {len(one.moved)} moved" if one.range_file else ""
    unseen = f", {len(one.unseen)} that no sample reached" if one.unseen else ""
    yield (
        f"{', '.join(one.targets)}: {one.tensors} ranges by {one.method} on {one.samples} "
        f"samples{unseen}{more}"
    )
    # Largest relative change first, then by name; new and removed tensors come last.
    for moved in sorted(one.moved, key=lambda m: (-(m.share or 0), m.tensor)):
        yield f"  {moved.tensor}: {_change(moved)}"


def _change(moved: Moved) -> str:
    if moved.before is None:
        return f"new, {_range(moved.after)}"
    if moved.after is None:
        return f"gone, was {_range(moved.before)}"
    share = "" if moved.share is None else f", by {moved.share:.2%} of its width"
    return f"{_range(moved.before)} became {_range(moved.after)}{share}"


def _range(ends: tuple[float, float] | None) -> str:
    return "none" if ends is None else f"{ends[0]:.6g} to {ends[1]:.6g}"
