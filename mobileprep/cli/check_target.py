"""The verb ``check-target``: checks whether a TensorFlow build can run a graph."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from mobileprep.cli._shared.arguments import tensorflow_argument
from mobileprep.cli._shared.diagnostics import Diagnostic, add_output_format, report
from mobileprep.cli._shared.telling import warn
from mobileprep.cli._shared.terminal import show
from mobileprep.cli.verb import Group, bool_flag, file_name, flag, verb

if TYPE_CHECKING:
    from mobileprep.building.fit import TargetCheck
    from mobileprep.targets.target_check import Cause, TargetGap

_CODES: Final[dict[Cause, str]] = {
    "newer op": "MP103",
    "newer attribute": "MP102",
    "newer value": "MP102",
    "newer graph": "MP110",
    "removed op": "MP103",
    "no kernel": "MP101",
    "training": "MP101",
    "image library": "MP101",
    "not compiled": "MP101",
    "type not compiled": "MP101",
    "not registered": "MP101",
}
"""Error code of the message that the app would print, by cause."""
_EXAMPLES: Final = 3
"""Number of findings per cause that are printed without ``--verbose``."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "graph", type=file_name, metavar="GRAPH", help="Frozen graph or other model"
    )
    tensorflow_argument(parser, "release of the ops_to_register.h next to the model, or ")
    flag(
        parser,
        "platform",
        default=None,
        metavar="NAME",
        help="android, ios, raspberry-pi, linux, or generic "
        "[default: platform of the manifest next to the model, or android]",
    )
    bool_flag(
        parser,
        "selective",
        default=None,
        help_line="Whether the app is built with ops_to_register.h and its build files "
        "[default: true if there is an ops_to_register.h next to the model]",
    )
    add_output_format(parser, "Print JSON")


@verb(
    "check-target",
    Group.INSPECT,
    "Check whether a TensorFlow build can load and run a model",
    _arguments,
    "mobileprep check-target out/digits/phone/model.pb",
    "mobileprep check-target model.pb --tensorflow 1.15 --platform ios",
)
def run(args: argparse.Namespace) -> int:
    """Print the findings by cause; return 0 if the model loads, else 1."""
    from mobileprep.building.fit import check_target
    from mobileprep.targets.headers import release_of

    release = None if args.tensorflow is None else release_of(args.tensorflow)
    check = check_target(
        Path(args.graph), release, args.platform, selective=args.selective, tell=warn
    )
    report(
        [
            Diagnostic("error", _CODES[g.cause], g.sentence, g.mend, args.graph, node=g.node)
            for g in check.gaps
        ]
    )
    if args.output_format == "json":
        print(json.dumps(to_builtins(check), indent=1))
    else:
        show(_lines(check, _EXAMPLES if not args.verbose else len(check.gaps)))
    return 0 if check.loads else 1


def _lines(check: TargetCheck, examples: int) -> Iterator[str]:
    by_cause = sorted(check.gaps, key=lambda gap: gap.cause)
    for cause, gaps in groupby(by_cause, key=lambda gap: gap.cause):
        yield from _group(cause, sorted(gaps, key=lambda gap: -gap.count), examples)
    build = f"TensorFlow {check.tensorflow} for {check.platform}"
    build += f" with {check.header}" if check.header else ""
    count = len(check.gaps)
    problems = f"{count} problem{'s' * (count > 1)}" if count else "no problems"
    yield f"{check.graph}: {build}: {problems} found"


def _group(cause: str, gaps: Sequence[TargetGap], examples: int) -> Iterator[str]:
    nodes = sum(gap.count for gap in gaps)
    counted = f" ({nodes} node{'s' * (nodes > 1)})" if gaps[0].node else ""
    yield f"{cause}: {len(gaps)}{counted}"
    for hint, alike in groupby(gaps[:examples], key=lambda gap: gap.mend):
        yield from (f"  {gap.sentence}" for gap in alike)
        yield f"    help: {hint}"
    if len(gaps) > examples:
        yield f"  and {len(gaps) - examples} more: use --verbose to list all"
