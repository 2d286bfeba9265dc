"""The verb ``diff``: compares two models by structure, ignoring node names."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, comma_list, file_name, flag, tolerance, verb, whole_number
from mobileprep.core.paths import is_stdout

if TYPE_CHECKING:
    from mobileprep.inspection.differing import ModelDifference


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", type=file_name, metavar="A", help="Graph, MetaGraph, or SavedModel directory"
    )
    parser.add_argument("b", type=file_name, metavar="B", help="Model to compare it with")
    apart = "Largest absolute difference of a constant or an output to ignore"
    parser.add_argument("--tolerance", type=tolerance, default=0.0, metavar="X", help=apart)
    samples = "Number of random samples to run both models on"
    flag(parser, "samples", type=whole_number, default=0, metavar="N", help=samples)
    outputs = "Tensors of A to compare on samples [default: all without consumers]"
    flag(parser, "outputs", default="", metavar="A,B", help=outputs)
    parser.add_argument("--names", action="store_true", help="List renamed nodes, too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="Print JSON")
    form.add_argument("--html", metavar="FILE", help="Write an HTML page with both graphs")


@verb(
    "diff",
    Group.INSPECT,
    "Compare two models by structure, ignoring node names",
    _arguments,
    "mobileprep diff old.pb new.pb --samples 4",
    "mobileprep diff old.pb new.pb --html diff.html",
)
def run(args: argparse.Namespace) -> int:
    """Print the differences; return 1 if there are any besides names, else 0."""
    options: dict[str, Any] = {
        "tolerance": args.tolerance,
        "samples": args.samples,
        "outputs": comma_list(args.outputs),
        "warn": warn,
    }
    if args.html is None:
        from mobileprep.inspection.differing import diff

        difference = diff(args.a, args.b, **options)
    else:
        from mobileprep.building.report_files import diff_page

        page = Path(args.html)
        difference = diff_page(Path(args.a), Path(args.b), page, **options)
        print(f"Created {page}.", file=sys.stderr if is_stdout(page) else sys.stdout)
    if args.json:
        print(json.dumps(difference.as_data(), indent=1))
    elif args.html is None:
        show(_lines(difference, names=args.names))
    return 0 if difference.equal else 1


def _lines(difference: ModelDifference, *, names: bool) -> Iterator[str]:
    if names:
        yield from (f"= {name} is {other}" for name, other in difference.renamed.items())
    yield from map(str, difference.differences)
    for output in difference.outputs:
        share = f", {output.largest / output.peak:.2g} of the peak" if output.peak else ""
        gap = f"{output.largest:g}{share}" if math.isfinite(output.largest) else "not comparable"
        yield f"output {output.output} ({output.other} there): largest difference {gap}"
    kinds = Counter(d.kind for d in difference.differences if d.kind in ("added", "removed"))
    changed = {d.name for d in difference.differences if d.kind not in kinds}
    yield (
        f"{difference.matched} nodes matched, "
        f"{len(difference.renamed)} of them under another name; "
        f"{kinds['added']} added, {kinds['removed']} removed, {len(changed)} changed"
    )
