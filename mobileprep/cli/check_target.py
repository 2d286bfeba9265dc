"""The verb ``check-target``: what a build of TensorFlow lacks for a graph."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._shared.terminal.plain import show
from mobileprep.cli._shared.warn import warn
from mobileprep.cli.verb import bool_flag, file_name, flag, verb

if TYPE_CHECKING:
    from mobileprep.api.target_check import TargetCheck


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "graph", type=file_name, metavar="GRAPH", help="a graph as it ships, or another model"
    )
    flag(
        parser,
        "tensorflow",
        default="1.15",
        metavar="RELEASE",
        help="the TensorFlow release that the app is built with, 1.15 or 2.21",
    )
    flag(
        parser,
        "platform",
        default="android",
        metavar="NAME",
        help="what it runs on: android, ios, raspberry-pi, linux or generic",
    )
    bool_flag(
        parser,
        "selective",
        default=False,
        help_line="the app builds with ops_to_register.h and the fragments that go with it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


@verb("check-target", "tell what a build of TensorFlow lacks to load and run a graph", _arguments)
def run(args: argparse.Namespace) -> int:
    """Print each gap with its mend; exit code 0 for none, 1 for some."""
    from mobileprep.api.headers import release_of
    from mobileprep.api.target_check import check_target

    release = release_of(args.tensorflow)
    found = check_target(
        Path(args.graph), release, args.platform, selective=args.selective, tell=warn
    )
    if args.json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        show(_lines(found))
    return 0 if found.loads else 1


def _lines(found: TargetCheck) -> Iterator[str]:
    for gap in found.gaps:
        more = f" and {gap.count - 1} more" if gap.count > 1 else ""
        place = f" (node {gap.node!r}{more})" if gap.node else ""
        yield f"{gap.cause}: {gap.message}{place}"
        yield f"  mend: {gap.mend}"
    build = f"TensorFlow {found.tensorflow} for {found.platform}"
    several = f"{len(found.gaps)} things are" if len(found.gaps) > 1 else "one thing is"
    yield f"{found.graph}: {build}: {several if found.gaps else 'nothing is'} missing"
