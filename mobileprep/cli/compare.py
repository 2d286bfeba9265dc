"""The verb ``compare``: lists the differences of two graphs."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, file_name, tolerance, verb

if TYPE_CHECKING:
    from mobileprep.graph.compare import GraphDifference


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", type=file_name, metavar="A", help="Graph, binary or text, or .tflite file"
    )
    parser.add_argument("b", type=file_name, metavar="B", help="Graph to compare it with")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        default=0.0,
        metavar="X",
        help="Largest absolute difference of a float constant to ignore",
    )


@verb(
    "compare",
    Group.INSPECT,
    "List the differences of two graphs, node by node",
    _arguments,
    "mobileprep compare before.pb after.pb --tolerance 1e-6",
)
def run(args: argparse.Namespace) -> int:
    """Print the differences; return 1 if there are any, else 0."""
    from mobileprep.graph.compare import compare

    differences = compare(args.a, args.b, tolerance=args.tolerance)
    if differences:
        print(_summary(differences), file=sys.stderr)
    if args.json:
        print(json.dumps([d.as_data() for d in differences], indent=1))
    else:
        show(map(str, differences))
    return 1 if differences else 0


def _summary(differences: Sequence[GraphDifference]) -> str:
    """Count the differences in one line."""
    kinds = Counter(d.kind for d in differences if d.kind in ("added", "removed"))
    changed = {d.name for d in differences if d.kind not in kinds}
    return f"{kinds['added']} added, {kinds['removed']} removed, {len(changed)} changed"
